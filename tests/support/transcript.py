"""A long series of HTTP requests and their responses as text, to compare two implementations line by line.

Random and measured values (ids, times, addresses, versions) are masked. For requests that the HTTP framework rejects,
only the code is compared, not the framework's text.
"""

import re
from collections.abc import Iterator
from typing import Any, NamedTuple

import httpx

from flotilla.records import encode

TOPIC = "transcript"
GROUP = "/v1/groups/transcript"
_APPEND = f"/v1/append?topic={TOPIC}&partition="
_FETCH = f"/v1/fetch?topic={TOPIC}&partition="
_BATCH = {"content-type": "application/vnd.flotilla.batch"}
_AS_JSON = {"accept": "application/json"}
_HEADERS = ("content-type", "cache-control", "retry-after", "www-authenticate")
_MASKS = (
    (re.compile(r"flt_[0-9a-f]{16}_[\w-]+"), "TOKEN"),
    (re.compile(r"\b(?:[0-9a-f]{32}|[0-9a-f]{16})\b"), "ID"),
    (re.compile(r"\bbroker-\d+\b"), "NAME"),  # brokers register in any order
    (re.compile(r"127\.0\.0\.1:\d+"), "HOST"),
    (re.compile(r'"(version|\w+_time_ms|committed_ms|created_ms|expires_ms|size_bytes|replicas)":\d+'), r'"\1":N'),
    (re.compile(r'"role":"\w+"'), '"role":ROLE'),
    (
        re.compile(r"generation \d+ is stale: the member joined in generation \d+, and the group is in \d+"),
        "stale: N, N, N",
    ),
    (re.compile(r'"version":"[\d.]+"'), '"version":V'),
)


class Step(NamedTuple):
    """A request. `{name}` is replaced by the value of that name in an earlier response."""

    method: str
    target: str
    body: Any = None
    headers: dict[str, str] = {}  # noqa: RUF012 - never modified
    is_malformed: bool = False  # rejected by the framework


def transcribe(url: str) -> list[str]:
    """Send all requests; return the responses as lines."""
    with httpx.Client(base_url=url, timeout=30) as client:
        says = _Transcript(client)
        return [says(step) for step in _steps()]


class _Transcript:
    """Inserts values of earlier responses, and counts generations from the first join.

    Generations of a recreated group continue where those of the deleted one ended.
    """

    def __init__(self, client: httpx.Client) -> None:
        self._client = client
        self._known: dict[str, str] = {}
        self._generations: int | None = None

    def __call__(self, step: Step) -> str:
        """Send one request, and add the response."""
        response = self._send(step)
        kind = response.headers.get("content-type", "")
        if kind == "application/json" and response.content:
            self._learn(response.json())
        text = "…" if "batch" in kind else self._shown(response.text)
        if step.is_malformed:
            text = re.sub(r'"message":"(?:[^"\\]|\\.)*"', '"message":…', text)
        shown = [f"{name}: {response.headers[name]}" for name in _HEADERS if name in response.headers]
        shown += [f"{name}: {value}" for name, value in response.headers.items() if name.startswith("flotilla-")]
        return f"{step.method} {step.target} {step.body!r:.200}\n  {response.status_code} {', '.join(shown)}\n  {text}"

    def _send(self, step: Step) -> httpx.Response:
        target, body = self._filled(step.target), step.body
        options: dict[str, Any] = {}
        if isinstance(body, bytes | bytearray):
            options["content"] = bytes(body)
        elif body is not None:
            options["json"] = {key: self._filled(value) for key, value in body.items()}
            if "generation" in body:
                options["json"]["generation"] += self._generations or 0
        return self._client.request(step.method, target, headers=step.headers, **options)

    def _learn(self, found: dict[str, Any]) -> None:
        self._known |= {key: str(found[key]) for key in ("producer_id", "consumer_id", "id") if key in found}
        if self._generations is None and "generation" in found:
            self._generations = found["generation"] - 1

    def _filled(self, value: Any) -> Any:  # noqa: ANN401 - any JSON
        if not isinstance(value, str):
            return value
        return re.sub(r"\{(\w+)\}", lambda match: self._known.get(match[1], match[0]), value)

    def _shown(self, text: str) -> str:
        begin = self._generations or 0
        return re.sub(r'(?<="generation":)\d+', lambda match: str(int(match[0]) - begin), _masked(text))


def _masked(text: str) -> str:
    for pattern, mask in _MASKS:
        text = pattern.sub(mask, text)
    return text


def _steps() -> Iterator[Step]:
    yield from _topics()
    yield from _batches()
    yield from _groups()
    yield from _simple_api()
    yield from _rest()


def _topics() -> Iterator[Step]:
    topic = f"/v1/topics/{TOPIC}"
    yield Step("POST", "/v1/topics", {"name": TOPIC, "partitions": 2, "retention_ms": 1000})
    yield Step("POST", "/v1/topics", {"name": TOPIC})
    yield Step("POST", "/v1/topics", {"name": "a b"}, is_malformed=True)
    yield Step("POST", "/v1/topics", {"name": "other", "partitions": 0}, is_malformed=True)
    yield Step("POST", "/v1/topics", {"name": "other", "colour": "red"}, is_malformed=True)
    yield Step("POST", "/v1/topics", b"{", {"content-type": "application/json"}, is_malformed=True)
    yield Step("POST", "/v1/topics", b'{"name": "other"}')  # without a content type
    yield Step("GET", topic)
    yield Step("GET", "/v1/topics/nowhere")
    yield Step("PATCH", topic, {"retention_ms": None, "compression": "zstd", "batch_bytes_max": 100_000})
    yield Step("PATCH", topic, {"partitions": 1})
    yield Step("PATCH", topic, {"partitions": 3})
    yield Step("PATCH", "/v1/topics/nowhere", {"partitions": 3})
    yield Step("GET", f"/v1/metadata?topic={TOPIC}&topic=nowhere")
    yield Step("GET", "/v1/metadata?topic=")
    yield Step("GET", f"{topic}/offsets")
    yield Step("GET", f"{topic}/offsets?timestamp_ms=0")
    yield Step("GET", "/v1/topics/nowhere/offsets")
    yield Step("POST", f"{topic}/delete-records", {"partitions": [{"partition": 7, "offset": 0}]})
    yield Step("POST", f"{topic}/delete-records", {"partitions": [{"partition": 0, "offset": 1}]})
    yield Step("POST", f"{topic}/delete-records", {"partitions": [{"partition": 0, "offset": 0}] * 2})
    yield Step("POST", f"{topic}/delete-records", {"partitions": []}, is_malformed=True)


def _batches() -> Iterator[Step]:
    yield Step("POST", f"{_APPEND}0", encode([b"a", b"b"]), _BATCH)
    yield Step("POST", f"{_APPEND}0", {"records": [{"value": "c", "key": "k", "timestamp_ms": 5}]})
    yield Step("POST", f"{_APPEND}0", {"records": [{"value": "c", "value_base64": ""}]})
    yield Step("POST", f"{_APPEND}0", {"records": []})
    yield Step("POST", f"{_APPEND}9", encode([b"a"]), _BATCH)
    yield Step("POST", f"{_APPEND}x", encode([b"a"]), _BATCH)
    yield Step("POST", f"/v1/append?topic={TOPIC}", encode([b"a"]), _BATCH)
    yield Step("POST", f"{_APPEND}0", b"no batch", _BATCH)
    yield Step("POST", f"{_APPEND}0", encode([bytes(200_000)]), _BATCH)
    retry = encode([b"r"], producer_id=b"p" * 16, producer_epoch=1, base_sequence=0)
    yield Step("POST", f"{_APPEND}1", retry, _BATCH)
    yield Step("POST", f"{_APPEND}1", retry, _BATCH)
    yield Step("POST", f"{_APPEND}1", encode([b"r"], producer_id=b"p" * 16, producer_epoch=1, base_sequence=2), _BATCH)
    yield Step("GET", f"{_FETCH}0&offset=0")
    yield Step("GET", f"{_FETCH}0&offset=1", headers=_AS_JSON)
    yield Step("GET", f"{_FETCH}0&offset=latest", headers=_AS_JSON)
    yield Step("GET", f"{_FETCH}0&offset=3&wait_ms=50")
    yield Step("GET", f"{_FETCH}0&offset=4")
    yield Step("GET", f"{_FETCH}0&timestamp_ms=0")
    yield Step("GET", f"{_FETCH}0&offset=0&timestamp_ms=0")
    yield Step("GET", f"{_FETCH}0&offset=0&colour=red")
    yield Step("GET", f"{_FETCH}0&offset=0&replica=none")
    yield Step("GET", f"{_FETCH}0&offset=one")
    yield Step("GET", f"{_FETCH}0")
    yield Step("GET", f"{_FETCH}9&offset=0")
    yield Step("GET", "/v1/fetch?topic=nowhere&partition=0&offset=0")
    yield Step("POST", f"/v1/topics/{TOPIC}/delete-records", {"partitions": [{"partition": 0, "offset": 2}]})
    yield Step("GET", f"{_FETCH}0&offset=0")
    yield Step("GET", f"{_FETCH}0&offset=earliest", headers=_AS_JSON)
    yield Step("POST", f"{_FETCH}0&offset=0")
    yield Step("GET", f"{_APPEND}0")


def _groups() -> Iterator[Step]:
    me = {"member_id": "me", "generation": 1}
    row = {"topic": TOPIC, "partition": 0, "offset": 2, "note": "so far"}
    yield Step("GET", GROUP)
    yield Step("GET", f"{GROUP}/offsets")
    yield Step("POST", f"{GROUP}/join", {"topics": ["nowhere"], "member_id": "me"})
    yield Step("POST", f"{GROUP}/join", {"topics": [], "member_id": "me"}, is_malformed=True)
    yield Step("POST", f"{GROUP}/join", {"topics": [TOPIC], "timeout_ms": 1}, is_malformed=True)
    yield Step("POST", f"{GROUP}/heartbeat", me)
    yield Step("POST", f"{GROUP}/join", {"topics": [TOPIC], "member_id": "me", "timeout_ms": 60_000})
    yield Step("POST", f"{GROUP}/heartbeat", {**me, "held": 3})
    yield Step("POST", f"{GROUP}/heartbeat", {**me, "generation": 9})
    yield Step("POST", f"{GROUP}/join", {"topics": [TOPIC], "member_id": "you", "strategy": "range"})
    yield Step("POST", f"{GROUP}/join", {"topics": [TOPIC], "member_id": "you", "timeout_ms": 60_000})
    yield Step("POST", f"{GROUP}/sync", {**me, "owned": [{"topic": TOPIC, "partition": 0}]})
    yield Step("POST", f"{GROUP}/commit", {"offsets": [row]})
    yield Step("POST", f"{GROUP}/commit", {**me, "offsets": [row]})
    yield Step("POST", f"{GROUP}/commit", {**me, "offsets": [{**row, "note": "two\nlines"}]}, is_malformed=True)
    yield Step("POST", f"{GROUP}/commit", {**me, "offsets": [{**row, "topic_id": "x"}]}, is_malformed=True)
    yield Step("POST", f"{GROUP}/commit", {"member_id": "me", "offsets": [row]}, is_malformed=True)
    yield Step("POST", f"{GROUP}/commit", {**me, "offsets": [{**row, "partition": 8}]})
    yield Step("POST", f"{GROUP}/commit", {**me, "generation": 2, "offsets": [{**row, "partition": 2}]})
    yield Step("POST", f"{GROUP}/sync", {**me, "generation": 2, "owned": []})
    yield Step("GET", f"{GROUP}/offsets?topic={TOPIC}")
    yield Step("GET", f"{GROUP}/offsets?topic=nowhere")
    yield Step("GET", GROUP)
    yield Step("GET", "/v1/groups?after=transcrip&limit=1")
    yield Step("GET", "/v1/groups?limit=0", is_malformed=True)
    yield Step("GET", "/v1/groups?limit=1001", is_malformed=True)
    yield Step("POST", f"{GROUP}/reset", {"to": {"earliest": True}})
    yield Step("POST", f"{GROUP}/reset", {"to": {}}, is_malformed=True)
    yield Step("POST", f"{GROUP}/reset", {"to": {"earliest": False}, "force": True}, is_malformed=True)
    yield Step("DELETE", f"{GROUP}?force=perhaps", is_malformed=True)
    yield Step("DELETE", GROUP)
    yield Step("POST", f"{GROUP}/leave", {"member_id": "you", "generation": 2})
    yield Step("POST", f"{GROUP}/reset", {"to": {"shift": 1}, "topics": [TOPIC], "force": True})
    yield Step("POST", f"{GROUP}/heartbeat", {**me, "generation": 2})
    yield Step("POST", f"{GROUP}/reset", {"to": {"timestamp_ms": 0}, "dry_run": True})
    yield Step("GET", GROUP)
    yield Step("DELETE", GROUP)
    yield Step("DELETE", GROUP)
    yield Step("POST", f"{GROUP}/reset", {"to": {"latest": True}})


def _simple_api() -> Iterator[Step]:
    produce = {"topic": TOPIC, "producer_id": "{producer_id}"}
    consume = {"topic": TOPIC, "consumer_id": "{consumer_id}"}
    yield Step("POST", "/producer/register", {"topic": TOPIC})
    yield Step("POST", "/producer/produce", {**produce, "message": "one"})
    yield Step("POST", "/producer/produce", {**produce, "message": "two", "partition_id": 2})
    yield Step("POST", "/producer/produce", {**produce, "message_base64": "!"})
    yield Step("POST", "/producer/produce", produce)
    yield Step("POST", "/producer/produce", {**produce, "message": "x" * 150_000})
    yield Step("POST", "/producer/produce", {**produce, "message": "x" * 1_100_000})
    yield Step("POST", "/producer/produce", {**produce, "message": "one", "partition_index": "zero"})
    yield Step("POST", "/producer/heartbeat", {"producer_id": "nobody"})
    yield Step("POST", "/consumer/register", {"topic": TOPIC, "start": "middle"})
    yield Step("POST", "/consumer/register", {"topic": TOPIC, "partition_index": 5})
    yield Step("POST", "/consumer/register", {"topic": TOPIC, "partition_index": 2})
    yield Step("GET", "/size", consume)
    yield Step("GET", "/consumer/consume", consume)
    yield Step("GET", f"/consumer/consume?topic={TOPIC}&consumer_id={{consumer_id}}")
    yield Step("GET", f"/topics/{TOPIC}/partitions")
    yield Step("POST", "/topics", b"[]")
    yield Step("POST", "/topics", b"{")
    yield Step("DELETE", "/topics")
    yield Step("PUT", f"/topics/{TOPIC}")
    yield Step("GET", "/nowhere")
    yield Step("HEAD", "/topics")
    yield Step("GET", "/nowhere", headers={"connection": "upgrade", "upgrade": "h2c"})
    yield Step("GET", "/")


def _rest() -> Iterator[Step]:
    for what in ("remove", "activate", "deactivate"):
        yield Step("POST", f"/admin/broker/{what}", {"broker_host": "nowhere:1"})
    yield Step("GET", "/brokers")
    yield Step("POST", "/v1/tokens", {"name": "shop", "grants": ["produce:orders*"], "expires_in_s": 60})
    yield Step("POST", "/v1/tokens", {"name": "shop", "grants": ["all"]})
    yield Step("POST", "/v1/tokens", {"name": "shop", "grants": []}, is_malformed=True)
    yield Step("GET", "/v1/tokens")
    yield Step("DELETE", "/v1/tokens/{id}")
    yield Step("DELETE", "/v1/tokens/0123456789abcdef")
    yield Step("GET", "/v1/nowhere")
    yield Step("PUT", f"/v1/topics/{TOPIC}")
    yield Step("PUT", "/v1/append")
    yield Step("GET", "/readyz")
    yield Step("DELETE", f"/v1/topics/{TOPIC}")
    yield Step("DELETE", f"/v1/topics/{TOPIC}")
