"""Request bodies: FastAPI and msgspec accept the same JSON for the same struct."""

import json
from typing import Annotated, Any

import msgspec
import pytest
from msgspec import UNSET
from pydantic import TypeAdapter, ValidationError

from flotilla.limits import PARTITIONS_MAX, REPLICATION_MAX
from flotilla.protocol.groups import CommitBody, HeartbeatBody, JoinBody, MemberBody, ResetBody, SyncBody
from flotilla.protocol.topics import Body, DeleteRecords, NewTopic, TopicBody, TopicChanges
from flotilla_manager.api.bodies import AsStruct

BODIES: list[type[Body]] = [
    NewTopic, TopicBody, TopicChanges, DeleteRecords,
    JoinBody, MemberBody, HeartbeatBody, SyncBody, CommitBody, ResetBody,
]  # fmt: skip
MEMBER = {"member_id": "worker-1", "generation": 3}
PARTITION = {"topic": "orders", "partition": 0}
VALID: list[tuple[type[Body], dict[str, Any]]] = [
    (NewTopic, {"name": "orders"}),
    (NewTopic, {"name": "orders", "partitions": PARTITIONS_MAX, "replication": REPLICATION_MAX, "retention_ms": None}),
    (TopicBody, {"owner": "Topic a/b", "compression": "zstd"}),
    (TopicChanges, {}),
    (TopicChanges, {"partitions": None, "retention_bytes": 0, "batch_bytes_max": 1024}),
    (DeleteRecords, {"partitions": [{"partition": 0, "offset": "latest"}, {"partition": 1, "offset": 5}]}),
    (JoinBody, {"topics": ["orders"], "strategy": "range"}),
    (HeartbeatBody, {**MEMBER, "held": 2}),
    (SyncBody, {**MEMBER, "owned": [{**PARTITION, "topic_id": "0" * 32}]}),
    (CommitBody, {**MEMBER, "offsets": [{**PARTITION, "offset": 5, "note": "x"}]}),
    (ResetBody, {"to": {"earliest": True}, "topics": ["orders"]}),
    (ResetBody, {"to": {"shift": -3}, "partitions": [PARTITION], "force": True}),
]
INVALID: list[tuple[type[Body], dict[str, Any]]] = [
    (NewTopic, {}),
    (NewTopic, {"name": "a/b"}),
    (NewTopic, {"name": "orders\n"}),
    (NewTopic, {"name": "orders", "other": 1}),
    (NewTopic, {"name": "orders", "partitions": 0}),
    (NewTopic, {"name": "orders", "partitions": True}),
    (NewTopic, {"name": "orders", "partitions": PARTITIONS_MAX + 1}),
    (NewTopic, {"name": "orders", "replication": REPLICATION_MAX + 1}),
    (NewTopic, {"name": "orders", "batch_bytes_max": 1}),
    (NewTopic, {"name": "orders", "compression": "gzip"}),
    (TopicChanges, {"retention_ms": -1}),
    (DeleteRecords, {"partitions": []}),
    (DeleteRecords, {"partitions": [{"partition": 0, "offset": "first"}]}),
    (JoinBody, {"topics": []}),
    (JoinBody, {"topics": ["orders"], "timeout_ms": 1}),
    (CommitBody, {"member_id": "worker-1", "offsets": [{**PARTITION, "offset": 5}]}),
    (CommitBody, {"offsets": [{**PARTITION, "offset": 5, "note": "a\x00b"}]}),
    (ResetBody, {"to": {}}),
    (ResetBody, {"to": {"earliest": False}}),
    (ResetBody, {"to": {"earliest": True, "offset": 1}}),
    (ResetBody, {"to": {"offset": 1}, "topics": ["orders"], "partitions": [PARTITION]}),
]


def adapter(kind: type[Body]) -> TypeAdapter[Body]:
    annotation: Any = Annotated
    return TypeAdapter(annotation[kind, AsStruct(kind)])


@pytest.mark.parametrize(("kind", "body"), VALID)
def test_both_decoders_build_the_same_struct(kind: type[Body], body: dict[str, Any]) -> None:
    found = adapter(kind).validate_json(json.dumps(body))
    assert isinstance(found, kind)
    assert found == msgspec.json.decode(json.dumps(body), type=kind)


@pytest.mark.parametrize(("kind", "body"), INVALID)
def test_both_decoders_reject_an_invalid_body(kind: type[Body], body: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        adapter(kind).validate_json(json.dumps(body))
    with pytest.raises(msgspec.ValidationError):
        msgspec.json.decode(json.dumps(body), type=kind)


@pytest.mark.parametrize("kind", BODIES)
def test_schema_has_the_fields_and_the_description_of_the_struct(kind: type[Body]) -> None:
    schema = adapter(kind).json_schema()
    assert list(schema["properties"]) == [field.name for field in msgspec.structs.fields(kind)]
    assert schema["description"] == kind.__doc__
    assert schema["additionalProperties"] is False


def test_omitted_settings_are_unset_and_null_is_not() -> None:
    found = adapter(TopicChanges).validate_python({"retention_ms": None})
    assert isinstance(found, TopicChanges)
    assert (found.retention_ms, found.retention_bytes) == (None, UNSET)
    assert found.given() == {"retention_ms": None}


def test_number_of_partitions_cannot_be_unset() -> None:
    assert TopicChanges(partitions=None, compression=None).given() == {"compression": None}
    assert TopicChanges(partitions=3).given() == {"partitions": 3}
