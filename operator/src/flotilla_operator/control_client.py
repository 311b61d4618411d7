"""Client of the control API of the writer."""

import ssl
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote, urlencode

import msgspec

from flotilla.access import system_token
from flotilla.net import Disconnected, InvalidResponse, Pool, Response
from flotilla.net.codes import Resource
from flotilla.net.verdicts import read
from flotilla_operator.cluster_state import ClusterState, decode_state
from flotilla_operator.errors import Rejected, Unavailable

_STATE, _TOPICS, _BROKERS = "/v1/control/state", "/v1/control/topics", "/v1/control/brokers"
_READ_S = 10.0
_CHANGE_S = 60.0  # a new topic is answered when brokers have created its replicas
_ANSWER_BYTES_MAX = 256 << 20  # enough for the maximum number of topics
_OK, _NOT_FOUND = 200, "not_found"
_UNAUTHORIZED = {401, 403}
_RETRIED = {429, 500, 502, 503, 504}


class ControlClient:
    """Client of one writer."""

    def __init__(self, url: str, secret: bytes | None, tls: ssl.SSLContext | None = None) -> None:
        self._url = url
        self._pool = Pool(tls=tls, bytes_max=_ANSWER_BYTES_MAX)
        token = () if secret is None else (("authorization", f"Bearer {system_token(secret)}"),)
        self._headers = (("content-type", "application/json"), *token)

    async def get_state(self) -> ClusterState:
        """Get the state of the cluster; raises Unavailable."""
        response = await self._request("GET", _STATE, None, _READ_S)
        if response.status in _UNAUTHORIZED:
            text = "Managers rejected the operator's token"
            raise Unavailable(f"{text} (HTTP {response.status}): operator and managers must use the same Secret")
        if response.status != _OK:
            message = _read_message(response) or "no message"
            raise Unavailable(f"GET {_STATE} failed: HTTP {response.status}: {message}")
        try:
            return decode_state(bytes(response.body))
        except msgspec.DecodeError as error:
            raise Unavailable(f"Managers sent an invalid state: {error}") from error

    async def put_topic(self, name: str, body: Mapping[str, Any]) -> None:
        """Create or update a topic."""
        await self._change("PUT", f"{_TOPICS}/{quote(name)}", body)

    async def delete_topic(self, name: str, topic_id: str, owner: str) -> None:
        """Delete a topic, if it has this id and owner."""
        query = urlencode({"owner": owner, "topic_id": topic_id})
        await self._change("DELETE", f"{_TOPICS}/{quote(name)}?{query}", missing_resource="topic")

    async def release_topic(self, name: str, owner: str) -> None:
        """Remove the owner of a topic."""
        query = urlencode({"owner": owner})
        await self._change("DELETE", f"{_TOPICS}/{quote(name)}/owner?{query}", missing_resource="topic")

    async def put_broker(self, broker_id: str, body: Mapping[str, Any]) -> None:
        """Update the settings of a broker."""
        await self._change("PUT", f"{_BROKERS}/{broker_id}", body)

    async def remove_broker(self, broker_id: str) -> None:
        """Remove a broker."""
        await self._change("DELETE", f"{_BROKERS}/{broker_id}", missing_resource="broker")

    def close(self) -> None:
        """Close all connections."""
        self._pool.close()

    async def _change(
        self,
        method: str,
        target: str,
        body: Mapping[str, Any] | None = None,
        *,
        missing_resource: Resource | None = None,
    ) -> None:
        """Send a change; raises Unavailable, Rejected. If `missing_resource` does not exist, a deletion succeeds."""
        response = await self._request(method, target, body, _CHANGE_S)
        if response.status == _OK or (missing_resource is not None and _is_missing(response, missing_resource)):
            return
        if response.status in _RETRIED:
            raise Unavailable(_message(response))
        raise Rejected(_message(response))

    async def _request(self, method: str, target: str, body: Mapping[str, Any] | None, seconds: float) -> Response:
        data = msgspec.json.encode(body) if body is not None else b""
        try:
            return await self._pool.request(self._url, method, target, data, self._headers, timeout_s=seconds)
        except (Disconnected, InvalidResponse, TimeoutError, OSError, ValueError) as error:
            raise Unavailable(f"The writer is unavailable at {self._url}: {error}") from error


def _is_missing(response: Response, resource: Resource) -> bool:
    """Whether a resource does not exist.

    Managers of 0.2 send no `resource`; they serve these paths, so 404 means that the resource is missing.
    """
    error = read(response.body)
    return error.code == _NOT_FOUND and error.details.get("resource", resource) == resource


def _message(response: Response) -> str:
    return _read_message(response) or f"Managers answered with HTTP {response.status}"


def _read_message(response: Response) -> str | None:
    try:
        body = response.json()
    except ValueError:
        body = None
    message = body.get("message") or body.get("error") if isinstance(body, dict) else None
    return str(message) if message else None
