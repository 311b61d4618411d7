"""Options, records and batches of a consumer."""

from datetime import UTC, datetime

import pytest

from flotilla.client.errors import ConfigInvalid
from flotilla.client.positions import ConsumerBatch, Start, parse_partitions, parse_start, parse_topics
from flotilla.records import assign, decode, encode


@pytest.mark.parametrize(
    ("start", "query"),
    [
        ("earliest", "offset=earliest"),
        ("latest", "offset=latest"),
        (1500, "timestamp_ms=1500"),
        (datetime(1970, 1, 1, 0, 0, 1, 500_000, UTC), "timestamp_ms=1500"),
    ],
)
def test_start_option_becomes_a_query_parameter(start: Start, query: str) -> None:
    """Earliest, latest, milliseconds, or a time."""
    assert parse_start(start) == query


@pytest.mark.parametrize("start", ["yesterday", -1, True, datetime(2026, 1, 1)])  # noqa: DTZ001 - that is the mistake
def test_invalid_start_raises_with_the_rule(start: Start) -> None:
    """A time without a time zone would differ between machines."""
    with pytest.raises(ConfigInvalid, match="start must be"):
        parse_start(start)


def test_topics_are_one_name_or_several_without_duplicates() -> None:
    """A single name is not a list of letters."""
    assert parse_topics("orders") == ("orders",)
    assert parse_topics(["b", "a", "b"]) == ("b", "a")
    wrongs: list[str | list[str]] = [[], ""]
    for wrong in wrongs:
        with pytest.raises(ConfigInvalid, match="topics must be given"):
            parse_topics(wrong)


def test_partitions_belong_to_the_only_topic_or_are_given_per_topic() -> None:
    assert parse_partitions(["a"], None) is None
    assert parse_partitions(["a"], [1, 0, 1]) == {"a": (1, 0)}
    assert parse_partitions(["a", "b"], {"a": [0], "b": [1]}) == {"a": (0,), "b": (1,)}
    for topics, wrong in [(["a", "b"], [0]), (["a"], {"b": [0]}), (["a"], []), (["a"], [-1])]:
        with pytest.raises(ConfigInvalid, match="partitions must"):
            parse_partitions(topics, wrong)  # type: ignore[arg-type]


def test_consumer_batch_skips_records_before_the_position() -> None:
    """Values, keys, length and iteration agree; `batch` has all columns."""
    sent = encode([b"a", b"b", b"c"], keys=[b"k", None, b"m"], timestamps_ms=[1, 2, 3])
    assign(sent, 10, 99)
    batch = ConsumerBatch("t", 3, decode(sent), 1)
    assert (batch.offset, batch.next_offset, len(batch)) == (11, 13, 2)
    assert (batch.values, batch.keys) == ([b"b", b"c"], [None, b"m"])
    assert [(one.topic, one.partition, one.offset, one.timestamp_ms, one.key, one.value) for one in batch] == [
        ("t", 3, 11, 2, None, b"b"),
        ("t", 3, 12, 3, b"m", b"c"),
    ]
    assert len(batch.batch.values) == 3
