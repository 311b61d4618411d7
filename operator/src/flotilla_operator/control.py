"""Managers, as the operator speaks with them: the control API of the writer."""

import ssl
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote, urlencode

import msgspec

from flotilla.access import system_text
from flotilla.net import AnswerInvalid, Disconnected, Pool, Response
from flotilla.serving.people import NO_TOPIC
from flotilla_operator.errors import Away, Refused
from flotilla_operator.world import World, read_world

_TOPICS, _BROKERS = "/v1/control/topics", "/v1/control/brokers"
_ASK_S = 10.0
_ORDER_S = 60.0  # brokers open replicas one after the other
_ANSWER_BYTES_MAX = 256 << 20  # the state of all topics that there can be
_OK, _NOT_FOUND = 200, 404
_NO_BROKER = "No such broker has registered."
_LATER = {429, 500, 502, 503, 504}


class Control:
    """The writer's control API."""

    def __init__(self, url: str, secret: bytes | None, tls: ssl.SSLContext | None = None) -> None:
        self._url = url
        self._pool = Pool(tls=tls, bytes_max=_ANSWER_BYTES_MAX)
        shown = () if secret is None else (("authorization", f"Bearer {system_text(secret)}"),)
        self._headers = (("content-type", "application/json"), *shown)

    async def look(self) -> World:
        """Ask for all there is; raises Away."""
        response = await self._ask("GET", "/v1/control/state", None, _ASK_S)
        if response.status != _OK:
            raise Away(f"managers answer {response.status}: {_message(response)}")
        try:
            return read_world(bytes(response.body))
        except msgspec.DecodeError as error:
            raise Away(f"managers tell of their state in a way that is not understood: {error}") from error

    async def put_topic(self, name: str, body: Mapping[str, Any]) -> None:
        """Have a topic as it should be."""
        await self._order("PUT", f"{_TOPICS}/{quote(name)}", body)

    async def delete_topic(self, name: str, topic_id: str, owner: str) -> None:
        """Delete a topic, if it is this one."""
        query = urlencode({"owner": owner, "topic_id": topic_id})
        await self._order("DELETE", f"{_TOPICS}/{quote(name)}?{query}", gone=NO_TOPIC)

    async def release_topic(self, name: str, owner: str) -> None:
        """Have a topic belong to nobody."""
        query = urlencode({"owner": owner})
        await self._order("DELETE", f"{_TOPICS}/{quote(name)}/owner?{query}", gone=NO_TOPIC)

    async def put_broker(self, broker_id: str, body: Mapping[str, Any]) -> None:
        """Say what a broker should be."""
        await self._order("PUT", f"{_BROKERS}/{broker_id}", body)

    async def remove_broker(self, broker_id: str) -> None:
        """Do without a broker."""
        await self._order("DELETE", f"{_BROKERS}/{broker_id}", gone=_NO_BROKER)

    def close(self) -> None:
        """Hang up."""
        self._pool.close()

    async def _order(
        self, method: str, target: str, body: Mapping[str, Any] | None = None, *, gone: str | None = None
    ) -> None:
        """Ask for a change; raises Away, Refused. What is `gone` already, by these words, needs none."""
        response = await self._ask(method, target, body, _ORDER_S)
        if response.status == _OK or (response.status == _NOT_FOUND and _message(response) == gone):
            return
        if response.status in _LATER:
            raise Away(_message(response))
        raise Refused(_message(response))

    async def _ask(self, method: str, target: str, body: Mapping[str, Any] | None, seconds: float) -> Response:
        data = msgspec.json.encode(body) if body is not None else b""
        try:
            return await self._pool.request(self._url, method, target, data, self._headers, timeout_s=seconds)
        except (Disconnected, AnswerInvalid, TimeoutError, OSError, ValueError) as error:
            raise Away(f"no manager answers at {self._url}: {error}") from error


def _message(response: Response) -> str:
    try:
        said = response.json()
    except ValueError:
        said = None
    message = said.get("message") or said.get("error") if isinstance(said, dict) else None
    return str(message or f"managers answer {response.status}")
