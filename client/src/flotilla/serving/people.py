"""What calls for people say, word for word, and the one shape that success and refusals have there.

Pure. Managers answer with it, and so does `flotilla.testing`, so that whoever tests against the one knows the other.
"""

import base64
import binascii
from typing import Any

import msgspec

from flotilla.serving import shapes
from flotilla.serving.asgi import JSON, Headers
from flotilla.serving.errors import RETRY_AFTER_S, Refusal

EXISTS = "Topic already exists."
NO_TOPIC = "Topic does not exist."
NO_LOGS = "No logs available to consume."
NO_PRODUCER = "Producer not registered with topic."
NO_CONSUMER = "Consumer not registered with topic."
BAD_PARTITION_TO_PRODUCE = "Invalid Partition Number."
BAD_PARTITION_TO_CONSUME = "Invalid partition number."

ANSWER: Headers = [JSON, (b"cache-control", b"no-store")]
_KEPT_STATUSES = {401, 403, 404, 405, 413, 429, 500, 503, 504}
_TOPICS = "/topics/"
_PARTITIONS = "/partitions"

Answer = dict[str, Any]


def template(path: str) -> tuple[str, dict[str, str]]:
    """Tell which row of the table a path belongs to, and what it fills in. The server has decoded it already."""
    if not path.startswith(_TOPICS):
        return path, {}
    name = path.removeprefix(_TOPICS)
    row = _TOPICS + "{name}"
    if name.endswith(_PARTITIONS):
        name, row = name.removesuffix(_PARTITIONS), row + _PARTITIONS
    return (row, {"name": name}) if name and "/" not in name else (path, {})


def read_message(params: shapes.Produce, bytes_max: int) -> bytes:
    """Read the message: text, or base64."""
    if (params.message is None) == (params.message_base64 is None):
        raise Refusal("bad_request", "Give the message as 'message' or as 'message_base64'.")
    if params.message is not None:
        try:
            value = params.message.encode()
        except UnicodeEncodeError as error:
            raise Refusal("bad_request", "'message' holds half a character; use 'message_base64'.") from error
    else:
        try:
            value = base64.b64decode(params.message_base64 or "", validate=True)
        except (binascii.Error, ValueError) as error:
            raise Refusal("bad_request", f"'message_base64' is not base64: {error}.") from error
    if len(value) > bytes_max:
        raise Refusal("too_large", f"The message has {len(value)} bytes; {bytes_max} is the limit.")
    return value


def write_message(value: bytes) -> Answer:
    """Write a message: as text if it is one."""
    try:
        return {"message": value.decode()}
    except UnicodeDecodeError:
        return {"message_base64": base64.b64encode(value).decode()}


def success(answer: Answer) -> bytes:
    """Write an answer down."""
    return msgspec.json.encode({"status": "success", **answer})


def failure(refusal: Refusal) -> tuple[int, Headers, bytes]:
    """Write a refusal in the shape for people."""
    status = refusal.status if refusal.status in _KEPT_STATUSES else 400
    message, word = str(refusal), "failure"
    if refusal.code == "unknown_partition":
        status, message = 400, NO_TOPIC
    elif refusal.code == "not_leader":
        status = 503
    elif refusal.code in {"unknown_outcome", "internal"} or "in_doubt" in refusal.details:
        word = "unknown"
    elif refusal.code == "not_found" and message == NO_TOPIC:
        status = 400
    more = refusal.headers
    if status in {429, 503}:
        more.setdefault("retry-after", str(RETRY_AFTER_S))
    headers = [*ANSWER, *((name.encode(), value.encode()) for name, value in more.items())]
    return status, headers, msgspec.json.encode({"status": word, "message": message})
