"""The API for programs, but for batches and groups: where everything is, topics, offsets, tokens."""

from collections.abc import Callable
from typing import Annotated, Any, Literal
from urllib.parse import parse_qs

import msgspec
from msgspec import UNSET, Meta, UnsetType

from flotilla.access import Grant, GrantInvalid, Token, TokenInvalid, digest_of, make_text
from flotilla.limits import PARTITIONS_MAX, REPLICATION_MAX, TOPIC_BATCH_BYTES_MIN, TOPIC_NAME, WEEK_MS
from flotilla.records import BATCH_BYTES_MAX
from flotilla.serving.asgi import JSON, number, parse_query
from flotilla.serving.errors import Refusal
from flotilla.serving.people import NO_TOPIC
from flotilla.testing.calls import NUMBER_MAX, Filled, Table, Told, read_as, to_json
from flotilla.testing.http import Answer, Request
from flotilla.testing.partition import Partition
from flotilla.testing.world import Settings, Topic, World

Number = Annotated[int, Meta(ge=0, le=NUMBER_MAX)]
Limit = Annotated[int, Meta(ge=1, le=NUMBER_MAX)]
Partitions = Annotated[int, Meta(ge=1, le=PARTITIONS_MAX)]
BatchBytes = Annotated[int, Meta(ge=TOPIC_BATCH_BYTES_MIN, le=BATCH_BYTES_MAX)]
Compressions = Literal["none", "zstd"]


class NewTopic(msgspec.Struct, forbid_unknown_fields=True):
    """A topic to make."""

    name: Annotated[str, Meta(pattern=TOPIC_NAME)]
    partitions: Partitions = 2
    replication: Annotated[int, Meta(ge=1, le=REPLICATION_MAX)] = 3
    retention_ms: Number | None = WEEK_MS
    retention_bytes: Number | None = None
    batch_bytes_max: BatchBytes | None = None
    compression: Compressions | None = None


class TopicChanges(msgspec.Struct, forbid_unknown_fields=True):
    """What to change of a topic; what is left out stays as it is."""

    partitions: Partitions | UnsetType | None = UNSET
    retention_ms: Number | UnsetType | None = UNSET
    retention_bytes: Number | UnsetType | None = UNSET
    batch_bytes_max: BatchBytes | UnsetType | None = UNSET
    compression: Compressions | UnsetType | None = UNSET


class Cut(msgspec.Struct, forbid_unknown_fields=True):
    """Up to where a partition's records go."""

    partition: Annotated[int, Meta(ge=0, lt=PARTITIONS_MAX)]
    offset: Number | Literal["latest"]


class Cuts(msgspec.Struct, forbid_unknown_fields=True):
    """What to delete."""

    partitions: Annotated[list[Cut], Meta(min_length=1, max_length=PARTITIONS_MAX)]


class NewToken(msgspec.Struct, forbid_unknown_fields=True):
    """A token to make."""

    name: str
    grants: Annotated[list[str], Meta(min_length=1)]
    expires_in_s: Limit | None = None
    bytes_per_s: Limit | None = None
    requests_per_s: Limit | None = None
    in_flight_bytes: Limit | None = None


class Programs:
    """Answers programs."""

    def __init__(self, world: World, now_ms: Callable[[], int], random_bytes: Callable[[int], bytes]) -> None:
        self._world = world
        self._now_ms = now_ms
        self._random_bytes = random_bytes
        self._tokens: dict[str, Token] = {}

    @property
    def table(self) -> Table:
        """The calls."""
        topic = "/v1/topics/{name}"
        return {
            ("GET", "/v1/metadata"): self.metadata,
            ("GET", "/v1/topics"): self.list_topics,
            ("POST", "/v1/topics"): self.create_topic,
            ("GET", topic): self.describe_topic,
            ("PATCH", topic): self.change_topic,
            ("DELETE", topic): self.delete_topic,
            ("GET", f"{topic}/offsets"): self.offsets,
            ("POST", f"{topic}/delete-records"): self.delete_records,
            ("GET", "/v1/tokens"): self.list_tokens,
            ("POST", "/v1/tokens"): self.create_token,
            ("DELETE", "/v1/tokens/{id}"): self.revoke_token,
            ("GET", "/healthz"): lambda *_: {"status": "alive", "role": "writer"},
            ("GET", "/readyz"): lambda *_: {"status": "ready", "role": "writer", "reasons": []},
        }

    # -- topics -------------------------------------------------------------------------------------------

    def metadata(self, request: Request, _: Filled) -> Told:
        """Where topics and brokers are: all topics, or those that are named."""
        return self._world.metadata(parse_qs(request.query.decode(), keep_blank_values=True).get("topic"))

    def list_topics(self, _: Request, __: Filled) -> Told:
        """All topics, in the order of their creation."""
        return {"topics": [self._world.describe(topic) for topic in self._world.topics.values()]}

    def create_topic(self, request: Request, _: Filled) -> Told:
        """Make a topic."""
        new = read_as(NewTopic, request)
        settings = Settings(
            retention_ms=new.retention_ms,
            retention_bytes=new.retention_bytes,
            batch_bytes_max=new.batch_bytes_max,
            compression=new.compression,
        )
        return self._world.describe(self._world.create(new.name, new.partitions, new.replication, settings))

    def describe_topic(self, _: Request, filled: Filled) -> Told:
        """One topic."""
        return self._world.describe(self._world.require(filled["name"]))

    def change_topic(self, request: Request, filled: Filled) -> Told:
        """Change a topic's settings, or add partitions."""
        changes = msgspec.structs.asdict(read_as(TopicChanges, request))
        topic = self._world.topics.get(filled["name"])
        if topic is None:
            raise Refusal("not_found", NO_TOPIC)
        partitions = changes.pop("partitions")
        if isinstance(partitions, int):
            self._world.grow(topic, partitions)
        for name, value in changes.items():
            if value is not UNSET:
                setattr(topic.settings, name, value)
        return self._world.describe(topic)

    def delete_topic(self, _: Request, filled: Filled) -> Told:
        """Remove a topic and its records."""
        self._world.delete(filled["name"])
        return {"status": "ok"}

    # -- offsets ------------------------------------------------------------------------------------------

    def offsets(self, request: Request, filled: Filled) -> Told:
        """Where partitions begin and end, and where those records begin that were appended at a time or later."""
        query = parse_query(request.query)
        time_ms = number(query, "timestamp_ms", None) if "timestamp_ms" in query else None
        topic = self._world.require(filled["name"])
        return {
            "topic": topic.name,
            "partitions": [_offsets(at, one, time_ms) for at, one in enumerate(topic.partitions)],
        }

    def delete_records(self, request: Request, filled: Filled) -> Told:
        """Delete the records below an offset, for all readers and for good: all that is asked for, or nothing."""
        cuts = read_as(Cuts, request).partitions
        topic = self._world.require(filled["name"])
        _check_cuts(topic, cuts)
        for cut in cuts:
            partition = topic.partitions[cut.partition]
            partition.delete_before(partition.next_offset if isinstance(cut.offset, str) else cut.offset)
        return {"topic": topic.name, "partitions": [_bounds("partition", cut.partition, topic) for cut in cuts]}

    # -- tokens -------------------------------------------------------------------------------------------

    def create_token(self, request: Request, _: Filled) -> Answer:
        """Make a token, which nobody asks for."""
        new = read_as(NewToken, request)
        id_, text = make_text(self._random_bytes)
        given = msgspec.structs.asdict(new)
        expires_in_s, now_ms = given.pop("expires_in_s"), self._now_ms()
        expires_ms = None if expires_in_s is None else now_ms + expires_in_s * 1000
        try:
            given["grants"] = tuple(dict.fromkeys(map(Grant.parse, new.grants)))
            token = Token(id=id_, digest=digest_of(text), created_ms=now_ms, expires_ms=expires_ms, **given)
        except (GrantInvalid, TokenInvalid) as error:
            raise Refusal("bad_request", str(error)) from error
        self._tokens[id_] = token
        return to_json({"token": text, **_describe_token(token)}, [JSON, (b"cache-control", b"no-store")])

    def list_tokens(self, _: Request, __: Filled) -> Told:
        """All tokens, the oldest first."""
        return {"tokens": [_describe_token(token) for token in self._tokens.values()]}

    def revoke_token(self, _: Request, filled: Filled) -> Told:
        """Take a token back."""
        if self._tokens.pop(filled["id"], None) is None:
            raise Refusal("not_found", f"there is no token {filled['id']}")
        return {"status": "ok"}


def _offsets(index: int, partition: Partition, time_ms: int | None) -> dict[str, int]:
    found = {"index": index, "first_offset": partition.first_offset, "next_offset": partition.next_offset}
    return found if time_ms is None else {**found, "offset": partition.offset_at_time(time_ms)}


def _bounds(name: str, index: int, topic: Topic) -> dict[str, int]:
    partition = topic.partitions[index]
    return {name: index, "first_offset": partition.first_offset, "next_offset": partition.next_offset}


def _check_cuts(topic: Topic, cuts: list[Cut]) -> None:
    """Refuse what cannot be done, before anything is. Raises Refusal."""
    indexes = [cut.partition for cut in cuts]
    for cut in cuts:
        index = cut.partition
        if index >= len(topic.partitions):
            text = f"topic {topic.name!r} has no partition {index}; it has {len(topic.partitions)}"
            raise Refusal("unknown_partition", text)
        if indexes.count(index) > 1:
            raise Refusal("bad_request", f"partition {index} is there twice; say once what goes of it")
        if isinstance(cut.offset, int):
            text = f"offset {cut.offset} of partition {index}"
            topic.partitions[index].require_reached(cut.offset, text, partition=index)


def _describe_token(token: Token) -> dict[str, Any]:
    return {name: value for name, value in token.builtins.items() if name != "digest"}
