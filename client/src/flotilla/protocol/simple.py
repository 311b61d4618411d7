"""Messages and response format of the simple API. Pure.

Managers and the fake of `flotilla.testing` share it, so that both respond alike.
"""

import base64
import binascii
from typing import Any

import msgspec

from flotilla.net.codes import ERROR_CODE, ERROR_RESOURCE, RESOURCES
from flotilla.protocol import simple_params
from flotilla.protocol.asgi import JSON, Headers
from flotilla.protocol.errors import RETRY_AFTER_S, Refusal, not_found

EXISTS = "Topic already exists."
NO_TOPIC = "Topic does not exist."
NO_LOGS = "No logs available to consume."
NO_PRODUCER = "Producer not registered with topic."
NO_CONSUMER = "Consumer not registered with topic."
BAD_PARTITION_TO_PRODUCE = "Invalid Partition Number."
BAD_PARTITION_TO_CONSUME = "Invalid partition number."

RESPONSE_HEADERS: Headers = [JSON, (b"cache-control", b"no-store")]
_KEPT_STATUSES = {401, 403, 404, 405, 413, 429, 500, 503, 504}
_TOPICS = "/topics/"
_PARTITIONS = "/partitions"

ResponseBody = dict[str, Any]


def template(path: str) -> tuple[str, dict[str, str]]:
    """Return the path template of a decoded path, and its parameters."""
    if not path.startswith(_TOPICS):
        return path, {}
    name = path.removeprefix(_TOPICS)
    row = _TOPICS + "{name}"
    if name.endswith(_PARTITIONS):
        name, row = name.removesuffix(_PARTITIONS), row + _PARTITIONS
    return (row, {"name": name}) if name and "/" not in name else (path, {})


def read_message(params: simple_params.Produce, bytes_max: int) -> bytes:
    """Return the message, from text or base64. Raises Refusal."""
    if (params.message is None) == (params.message_base64 is None):
        raise Refusal("bad_request", "Give the message as 'message' or as 'message_base64'.")
    if params.message is not None:
        try:
            value = params.message.encode()
        except UnicodeEncodeError as error:
            raise Refusal("bad_request", "'message' contains an unpaired surrogate; use 'message_base64'.") from error
    else:
        try:
            value = base64.b64decode(params.message_base64 or "", validate=True)
        except (binascii.Error, ValueError) as error:
            raise Refusal("bad_request", f"'message_base64' is not base64: {error}.") from error
    if len(value) > bytes_max:
        raise Refusal("too_large", f"The message has {len(value)} bytes; {bytes_max} is the limit.")
    return value


def write_message(value: bytes) -> ResponseBody:
    """Return a message as text, or as base64 if it is not UTF-8."""
    try:
        return {"message": value.decode()}
    except UnicodeDecodeError:
        return {"message_base64": base64.b64encode(value).decode()}


def read_order(partitions: int, cursor: int, only: int | None) -> list[int]:
    """Return the partitions that `consume` tries, in order: only one, or all of them, starting at the cursor."""
    return [only] if only is not None else [(cursor + at) % partitions for at in range(partitions)]


def success(body: ResponseBody) -> bytes:
    """Encode a successful response."""
    return msgspec.json.encode({"status": "success", **body})


def failure(refusal: Refusal) -> tuple[int, Headers, bytes]:
    """Encode an error response: the body has the message, a header has the code."""
    if refusal.code == "unknown_partition":
        refusal = not_found("topic", NO_TOPIC)
    status = refusal.status if refusal.status in _KEPT_STATUSES else 400
    resource, word = refusal.details.get("resource"), "failure"
    if refusal.code == "not_leader":
        status = 503
    elif refusal.code in {"unknown_outcome", "internal"} or "in_doubt" in refusal.details:
        word = "unknown"
    elif refusal.code == "not_found" and resource == "topic":
        status = 400
    more = {**refusal.headers, ERROR_CODE: refusal.code}
    if refusal.code == "not_found" and resource in RESOURCES:
        more[ERROR_RESOURCE] = resource
    if status in {429, 503}:
        more.setdefault("retry-after", str(RETRY_AFTER_S))
    headers = [*RESPONSE_HEADERS, *((name.encode(), value.encode()) for name, value in more.items())]
    return status, headers, msgspec.json.encode({"status": word, "message": str(refusal)})
