"""The v1 API of the fake, without batches and groups: metadata, topics, offsets and tokens."""

from collections.abc import Callable
from urllib.parse import parse_qs

import msgspec
from msgspec import UNSET

from flotilla.access import Grant, GrantInvalid, Token, TokenInvalid, digest_of, generate_token
from flotilla.protocol.asgi import JSON, number, parse_query
from flotilla.protocol.errors import Refusal, not_found
from flotilla.protocol.responses import (
    DeletedPartitionResponse,
    DeleteRecordsResponse,
    PartitionOffsetsResponse,
    TokenResponse,
    TopicOffsetsResponse,
)
from flotilla.protocol.simple import NO_TOPIC
from flotilla.protocol.tokens import NewToken
from flotilla.protocol.topics import DeletePoint, DeleteRecords, NewTopic, TopicChanges
from flotilla.testing.http import Request, Response
from flotilla.testing.partition import Partition
from flotilla.testing.routing import PathParams, Result, Routes, read_as, to_json
from flotilla.testing.state import ClusterState, Settings, Topic


class V1Api:
    """Handlers of the v1 API."""

    def __init__(self, state: ClusterState, now_ms: Callable[[], int], random_bytes: Callable[[int], bytes]) -> None:
        self._state = state
        self._now_ms = now_ms
        self._random_bytes = random_bytes
        self._tokens: dict[str, Token] = {}

    @property
    def routes(self) -> Routes:
        """The routes."""
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

    def metadata(self, request: Request, _: PathParams) -> Result:
        """Return topics and brokers; with `topic`, only the named topics."""
        return self._state.metadata(parse_qs(request.query.decode(), keep_blank_values=True).get("topic"))

    def list_topics(self, _: Request, __: PathParams) -> Result:
        """List topics in order of creation."""
        return {"topics": [self._state.describe(topic) for topic in self._state.topics.values()]}

    def create_topic(self, request: Request, _: PathParams) -> Result:
        """Create a topic."""
        given = read_as(NewTopic, request).given()
        topic = (given.pop("name"), given.pop("partitions"), given.pop("replication"))
        return self._state.describe(self._state.create(*topic, Settings(**given)))

    def describe_topic(self, _: Request, path_params: PathParams) -> Result:
        """Describe a topic."""
        return self._state.describe(self._state.require(path_params["name"]))

    def change_topic(self, request: Request, path_params: PathParams) -> Result:
        """Change a topic's settings, or add partitions."""
        changes = read_as(TopicChanges, request).given()
        topic = self._state.topics.get(path_params["name"])
        if topic is None:
            raise not_found("topic", NO_TOPIC)
        if "partitions" in changes:
            self._state.grow(topic, changes.pop("partitions"))
        for name, value in changes.items():
            setattr(topic.settings, name, value)
        return self._state.describe(topic)

    def delete_topic(self, _: Request, path_params: PathParams) -> Result:
        """Delete a topic and its records."""
        self._state.delete(path_params["name"])
        return {"status": "ok"}

    # -- offsets ------------------------------------------------------------------------------------------

    def offsets(self, request: Request, path_params: PathParams) -> Result:
        """Return the first and next offsets; with `timestamp_ms`, also the first offset at that time."""
        query = parse_query(request.query)
        time_ms = number(query, "timestamp_ms", None) if "timestamp_ms" in query else None
        topic = self._state.require(path_params["name"])
        found = [_offsets(at, one, time_ms) for at, one in enumerate(topic.partitions)]
        return TopicOffsetsResponse(topic=topic.name, partitions=found).to_dict()

    def delete_records(self, request: Request, path_params: PathParams) -> Result:
        """Delete the records below an offset: in all given partitions, or in none."""
        points = read_as(DeleteRecords, request).partitions
        topic = self._state.require(path_params["name"])
        _check_points(topic, points)
        for point in points:
            partition = topic.partitions[point.partition]
            partition.delete_before(partition.next_offset if isinstance(point.offset, str) else point.offset)
        return DeleteRecordsResponse(
            topic=topic.name,
            partitions=[
                DeletedPartitionResponse(
                    partition=point.partition,
                    first_offset=topic.partitions[point.partition].first_offset,
                    next_offset=topic.partitions[point.partition].next_offset,
                )
                for point in points
            ],
        ).to_dict()

    # -- tokens -------------------------------------------------------------------------------------------

    def create_token(self, request: Request, _: PathParams) -> Response:
        """Create a token. The fake does not check tokens."""
        new = read_as(NewToken, request)
        id_, text = generate_token(self._random_bytes)
        given = msgspec.structs.asdict(new)
        expires_in_s, now_ms = given.pop("expires_in_s"), self._now_ms()
        expires_ms = None if expires_in_s is None else now_ms + expires_in_s * 1000
        try:
            given["grants"] = tuple(dict.fromkeys(map(Grant.parse, new.grants)))
            token = Token(id=id_, digest=digest_of(text), created_ms=now_ms, expires_ms=expires_ms, **given)
        except (GrantInvalid, TokenInvalid) as error:
            raise Refusal("bad_request", str(error)) from error
        self._tokens[id_] = token
        return to_json(TokenResponse.of(token).with_text(text), [JSON, (b"cache-control", b"no-store")])

    def list_tokens(self, _: Request, __: PathParams) -> Result:
        """List tokens, oldest first."""
        return {"tokens": [TokenResponse.of(token).to_dict() for token in self._tokens.values()]}

    def revoke_token(self, _: Request, path_params: PathParams) -> Result:
        """Revoke a token."""
        if self._tokens.pop(path_params["id"], None) is None:
            raise not_found("token", f"there is no token {path_params['id']}")
        return {"status": "ok"}


def _offsets(index: int, partition: Partition, time_ms: int | None) -> PartitionOffsetsResponse:
    return PartitionOffsetsResponse(
        index=index,
        first_offset=partition.first_offset,
        next_offset=partition.next_offset,
        offset=UNSET if time_ms is None else partition.offset_at_time(time_ms),
    )


def _check_points(topic: Topic, points: list[DeletePoint]) -> None:
    """Check the delete points before any record is deleted. Raises Refusal."""
    indexes = [point.partition for point in points]
    for point in points:
        index = point.partition
        if index >= len(topic.partitions):
            text = f"topic {topic.name!r} has no partition {index}; it has {len(topic.partitions)}"
            raise Refusal("unknown_partition", text)
        if indexes.count(index) > 1:
            raise Refusal("bad_request", f"partition {index} is given more than once")
        if isinstance(point.offset, int):
            text = f"offset {point.offset} of partition {index}"
            topic.partitions[index].require_reached(point.offset, text, partition=index)
