"""Options of the data source, through Spark: selected records, and errors as the user sees them."""

import json
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from flotilla import Client
from support.fleet import Fleet
from support.sparks import copy, error_text, fill, read, read_stream, values_of

PARTITIONS = 2


@pytest.fixture(scope="module")
def topic(client: Client) -> str:
    """Ten records in each partition: five, and later five more."""
    client.topics.create("options", partitions=PARTITIONS)
    for half in range(2):
        for partition in range(PARTITIONS):
            fill(client, "options", *(b"%d-%d" % (partition, 5 * half + at) for at in range(5)), partition=partition)
    return "options"


@pytest.fixture(scope="module")
def middle(client: Client, topic: str) -> int:
    """Append time of the second half."""
    rows = client.read_arrow(topic, columns=["offset", "append_time"]).to_pylist()
    return min(int(row["append_time"].timestamp() * 1000) for row in rows if row["offset"] == 5)


def every(partition: int, start: int = 0, end: int = 10) -> set[str]:
    return {f"{partition}-{at}" for at in range(start, end)}


def found(spark: SparkSession, fleet: Fleet, **options: Any) -> set[str]:  # noqa: ANN401 - any option
    return {bytes(row.value).decode() for row in read(spark, fleet.url, **options).select("value").collect()}


def test_topics_are_selected_by_name_pattern_and_partition(
    spark: SparkSession, fleet: Fleet, client: Client, topic: str
) -> None:
    """subscribe, load(topic), subscribePattern and assign; also with kafka.bootstrap.servers."""
    client.topics.create("options-too", partitions=1)
    fill(client, "options-too", b"too")
    both = every(0) | every(1)
    assert found(spark, fleet, subscribe=topic) == both
    assert found(spark, fleet, subscribe=f"{topic}, options-too") == both | {"too"}
    assert found(spark, fleet, subscribePattern="opt.*") == both | {"too"}
    assert found(spark, fleet, subscribePattern="options") == both
    assert found(spark, fleet, assign='{"options": [1]}') == every(1)
    address = fleet.url.removeprefix("http://")
    loaded = spark.read.format("flotilla").option("kafka.bootstrap.servers", address).option("route", "gateway")
    assert loaded.load(topic).count() == 20


def test_offsets_limit_a_batch(spark: SparkSession, fleet: Fleet, topic: str) -> None:
    """By name, as numbers, and as Kafka's -2 and -1; the end is exclusive."""
    starts = json.dumps({topic: {"0": 3, "1": -2}})
    ends = json.dumps({topic: {"0": 7, "1": -1}})
    assert found(spark, fleet, subscribe=topic, startingOffsets="earliest", endingOffsets="latest") == (
        every(0) | every(1)
    )
    assert found(spark, fleet, subscribe=topic, startingOffsets=starts, endingOffsets=ends) == every(0, 3, 7) | every(1)


def test_timestamps_limit_a_batch(spark: SparkSession, fleet: Fleet, client: Client, topic: str, middle: int) -> None:
    """For all partitions, and by partition: the ranges before and after a timestamp are disjoint and complete."""
    before = found(spark, fleet, subscribe=topic, endingTimestamp=str(middle))
    after = found(spark, fleet, subscribe=topic, startingTimestamp=str(middle))
    assert (before | after, before & after) == (every(0) | every(1), set())
    assert "0-5" in after or "1-5" in after
    by_partition = json.dumps({topic: {"0": middle, "1": 0}})
    own = {one.index: one.offset for one in client.topics.offsets(topic, at=middle)}
    start = found(spark, fleet, subscribe=topic, startingOffsetsByTimestamp=by_partition)
    assert start == every(0, own[0] or 0) | every(1)
    end = found(spark, fleet, subscribe=topic, endingOffsetsByTimestamp=by_partition)
    assert end == every(0, 0, own[0] or 0)
    late = str(middle + 10**9)
    assert found(spark, fleet, subscribe=topic, startingTimestamp=late) == set()
    assert found(spark, fleet, subscribe=topic, endingTimestamp=late) == every(0) | every(1)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (
            {"subscribe": "options", "startingOffset": "earliest"},
            "unknown option startingoffset; did you mean startingOffsets?",
        ),
        ({"subscribe": "options", "endingoffset": "latest"}, "did you mean endingOffsets?"),
        ({}, "set exactly one of subscribe, subscribePattern, assign and load(topic)"),
        ({"subscribe": "options", "assign": '{"options": [0]}'}, "set exactly one of subscribe"),
        (
            {"subscribe": "options", "maxOffsetsPerTrigger": "5"},
            "maxOffsetsPerTrigger applies to streaming queries only",
        ),
        ({"subscribe": "options", "topic": "x"}, "option topic applies to writes only"),
        ({"subscribe": "options", "startingOffsets": "latest"}, "startingOffsets must not be latest (-1) in a batch"),
        ({"subscribe": "options", "failOnDataLoss": "maybe"}, "failOnDataLoss is 'maybe'; it must be true or false"),
        ({"subscribe": "options", "startingOffsets": '{"options": {"0": 1}}'}, "partition 1 of 'options' is missing"),
        (
            {"subscribe": "options", "startingOffsets": '{"options": {"0": 1, "1": 1, "2": 1}}'},
            "partition 2 of 'options', which is not read",
        ),
        ({"assign": '{"options": [0, 7]}'}, "assign names partitions that do not exist: 7 of 'options'"),
        ({"subscribe": "nowhere"}, "nowhere"),
        ({"subscribe": "options", "tokenFile": "/no/such/file"}, "tokenFile: /no/such/file cannot be read"),
    ],
)
def test_invalid_options_of_a_batch_are_rejected(
    spark: SparkSession, fleet: Fleet, topic: str, options: dict[str, str], text: str
) -> None:
    """Misspelt options, contradictions, and missing topics or partitions."""
    assert topic == "options"
    assert text in error_text(lambda: read(spark, fleet.url, **options).count())


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"subscribe": "options", "maxOffsetPerTrigger": "5"}, "did you mean maxOffsetsPerTrigger?"),
        ({"subscribe": "options", "endingOffsets": "latest"}, "endingOffsets applies to batch queries only"),
        ({"subscribe": "nowhere"}, "nowhere"),
        ({"subscribe": "options", "startingOffsets": '{"options": {"0": 99, "1": 0}}'}, "ends at 10, before 99"),
    ],
)
def test_invalid_options_of_a_stream_are_rejected(
    spark: SparkSession, fleet: Fleet, topic: str, tmp_path: Path, options: dict[str, str], text: str
) -> None:
    """When it is created or started, before anything is written."""

    def work() -> None:
        copy(read_stream(spark, fleet.url, **options), fleet.url, topic, tmp_path / "checkpoint")

    assert text in error_text(work)


@pytest.mark.parametrize(
    ("options", "wanted"),
    [
        ({"startingOffsets": "earliest"}, every(0) | every(1)),
        ({}, set()),
        ({"startingOffsets": '{"options": {"0": 8, "1": -1}}'}, every(0, 8)),
        ({"startingTimestamp": "0"}, every(0) | every(1)),
        ({"startingOffsetsByTimestamp": '{"options": {"0": 9999999999999, "1": 0}}'}, every(1)),
        ({"subscribe": "", "assign": '{"options": [1]}', "startingOffsets": "earliest"}, every(1)),
        ({"startingOffsets": "earliest", "minPartitions": "7", "route": "direct"}, every(0) | every(1)),
    ],
)
def test_stream_starts_at_the_given_offsets(
    spark: SparkSession,
    fleet: Fleet,
    client: Client,
    topic: str,
    name: str,
    tmp_path: Path,
    options: dict[str, str],
    wanted: set[str],
) -> None:
    """The default is latest."""
    client.topics.create(name, partitions=1)
    copy(read_stream(spark, fleet.url, topic, **options), fleet.url, name, tmp_path / "checkpoint")
    assert {value.decode() for value in values_of(client, name)} == wanted


def test_schema_of_the_user_is_rejected(spark: SparkSession, fleet: Fleet, topic: str) -> None:
    """Before the query runs."""
    reader = spark.read.format("flotilla").option("url", fleet.url).schema("value string")
    assert "schema(…) is not supported" in error_text(lambda: reader.load(topic).count())


def test_unreachable_server_is_reported_with_its_address(spark: SparkSession) -> None:
    """After the timeout."""
    text = error_text(lambda: read(spark, "http://127.0.0.1:9", "orders").count())
    assert "no manager responded" in text
    assert "127.0.0.1:9" in text
