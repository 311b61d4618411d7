"""Invalid arguments raise an error with the argument and the rule, before anything is encoded."""

from typing import Any

import pytest

from flotilla.records import (
    BASE_SEQUENCE_MAX,
    BATCH_BYTES_MAX,
    BODY_BYTES_MAX,
    RECORDS_MAX,
    BatchInvalid,
    BatchTooLarge,
    Compression,
    RecordInvalid,
    RecordsError,
    check,
    decode,
    encode,
)
from unit.records.forge import MIB, memory_below


@pytest.mark.parametrize(
    ("values", "text"),
    [
        ([], "values is empty; a batch has at least one record"),
        (iter([b"a"]), "values is a list_iterator; expected a sequence"),
        (None, "values is a NoneType"),
        ("text", "value 0 is a str; expected bytes"),
        (b"bytes", "value 0 is a int; expected bytes"),
        ([b"a", None], "value 1 is a NoneType; expected bytes"),
        ([b"a", "b"], "value 1 is a str; expected bytes"),
        ([b"a", bytearray(b"b")], "value 1 is a bytearray; expected bytes"),
    ],
)
def test_values_must_be_a_sequence_of_bytes(values: Any, text: str) -> None:  # noqa: ANN401 - wrong types are the point
    with pytest.raises(RecordInvalid, match=text):
        encode(values)


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"keys": [b"k"]}, "keys has 1 items for 2 values"),
        ({"keys": [b"k"] * 3}, "keys has 3 items for 2 values"),
        ({"keys": []}, "keys has 0 items for 2 values"),
        ({"keys": iter([b"k"])}, "keys is a list_iterator"),
        ({"keys": [b"k", "k"]}, "key 1 is a str; expected bytes or None"),
        ({"headers": [()]}, "headers has 1 items for 2 values"),
        ({"headers": [(), {"a": b"b"}]}, "headers of record 1: they are a dict"),
        ({"headers": [(), [("a", b"b")]]}, "headers of record 1: they are a list"),
        ({"headers": [(), ("a", b"b")]}, "headers of record 1: a str is among them"),
        ({"headers": [(), (("a", b"b", b"c"),)]}, "headers of record 1: a tuple is among them"),
        ({"headers": [(), (["a", b"b"],)]}, "headers of record 1: a list is among them"),
        ({"headers": [(), ((b"a", b"b"),)]}, r"headers of record 1: a pair is \(bytes, bytes\)"),
        ({"headers": [(), (("a", "b"),)]}, r"headers of record 1: a pair is \(str, str\)"),
        ({"headers": [(), (("a", bytearray()),)]}, r"headers of record 1: a pair is \(str, bytearray\)"),
        ({"headers": [(), (("", b"b"),)]}, "headers of record 1: a name has 0 bytes"),
        ({"headers": [(), (("é" * 32_768, b"b"),)]}, "headers of record 1: a name has 65536 bytes"),
        ({"headers": [(), (("\ud800", b"b"),)]}, "headers of record 1: a name cannot be written as UTF-8"),
        ({"headers": [(), (("a", b"b"),) * 257]}, "headers of record 1: they are 257; at most 256"),
        ({"timestamps_ms": [1]}, "timestamps_ms has 1 items for 2 values"),
        ({"timestamps_ms": [1, 2.0]}, "timestamp 1 is a float; expected int"),
        ({"timestamps_ms": [1, True]}, "timestamp 1 is a bool; expected int"),
        ({"timestamps_ms": [1, None]}, "timestamp 1 is a NoneType; expected int"),
        ({"timestamps_ms": [0, 2**63]}, "timestamps_ms go from 0 to 9223372036854775808; they must fit"),
        ({"timestamps_ms": [0, -(2**63) - 1]}, "timestamps_ms go from -9223372036854775809 to 0"),
        ({"producer_id": b"short"}, "producer_id must be 16 bytes"),
        ({"producer_id": "0123456789abcdef"}, "producer_id must be 16 bytes"),
        ({"producer_epoch": -1}, "producer_epoch must be an int from 0"),
        ({"producer_epoch": 2**63}, "producer_epoch must be an int from 0"),
        ({"producer_epoch": 1.5}, "producer_epoch must be an int from 0"),
        ({"base_sequence": -1}, "base_sequence must be an int from 0"),
        ({"base_sequence": BASE_SEQUENCE_MAX + 1}, "base_sequence must be an int from 0"),
        ({"compression": 1}, "compression is a int; expected a Compression"),
        ({"compression": "zstd"}, "compression is a str; expected a Compression"),
        ({"level": 0}, "level must be an int from 1 to 19"),
        ({"level": 20}, "level must be an int from 1 to 19"),
        ({"level": "3"}, "level must be an int from 1 to 19"),
    ],
)
def test_invalid_argument_is_refused_with_the_rule(arguments: dict[str, Any], text: str) -> None:
    with pytest.raises(RecordInvalid, match=text):
        encode([b"a", b"b"], **arguments)


def test_encode_error_is_a_value_error_but_not_batch_invalid() -> None:
    """A handler for invalid input does not catch errors of the own code."""
    assert issubclass(RecordInvalid, RecordsError)
    assert issubclass(RecordsError, ValueError)
    assert not issubclass(RecordInvalid, BatchInvalid)


@pytest.mark.parametrize(
    ("values", "text"),
    [
        ([b""] * (RECORDS_MAX + 1), "1000001 records do not fit one batch; at most 1000000"),
        ([bytes(BODY_BYTES_MAX)], "the body would have 33554440 bytes or more; at most 33554432"),
        ([bytes(MIB)] * 2048, "a column has 2147483648 bytes; at most 33554432"),
        ([bytes(BATCH_BYTES_MAX)], "the batch would have 8388712 bytes; at most 8388608"),
    ],
    ids=["records", "body", "offsets", "batch"],
)
def test_too_many_records_are_refused_before_copying(values: list[bytes], text: str) -> None:
    with memory_below(MIB), pytest.raises(BatchTooLarge, match=text):
        encode(values)


def test_batch_size_limit_is_exact() -> None:
    """The largest batch is the largest Raft entry."""
    largest = BATCH_BYTES_MAX - 96 - 8
    assert check(encode([bytes(largest)])).total_bytes == BATCH_BYTES_MAX
    with pytest.raises(BatchTooLarge):
        encode([bytes(largest + 1)])


def test_batch_size_limit_applies_to_the_compressed_size() -> None:
    values = [bytes(1024)] * 16_384
    with pytest.raises(BatchTooLarge):
        encode(values)
    assert check(encode(values, compression=Compression.ZSTD)).body_bytes > BATCH_BYTES_MAX


def test_body_size_limit_is_exact() -> None:
    largest = BODY_BYTES_MAX - 8
    batch = encode([bytes(largest)], compression=Compression.ZSTD)
    assert decode(batch).header.body_bytes == BODY_BYTES_MAX
    with pytest.raises(BatchTooLarge):
        encode([bytes(largest + 1)], compression=Compression.ZSTD)


def test_any_sequence_type_is_accepted() -> None:
    assert encode((b"a", b"b"), keys=(b"k", None), timestamps_ms=range(2)) == encode(
        [b"a", b"b"], keys=[b"k", None], timestamps_ms=[0, 1]
    )
