"""Each record of a topic is one row, with the columns of Spark's Kafka source."""

from datetime import UTC, datetime
from typing import Any

import pytest
from pyspark.sql import SparkSession

from flotilla import Client
from support.fleet import Fleet
from support.sparks import fill, read, read_stream

KAFKAS = {
    "key": "binary",
    "value": "binary",
    "topic": "string",
    "partition": "int",
    "offset": "bigint",
    "timestamp": "timestamp",
    "timestampType": "int",
}
HEADERS = {"headers": "array<struct<key:string,value:binary>>"}


def fill_with_all_kinds(client: Client, topic: str) -> None:
    """Append large and small batches, compressed or not, with and without optional parts."""
    values = [b"value %d" % at for at in range(2_000)]
    with client.producer() as plain, client.producer(compression="zstd") as packed:
        plain.send_many(topic, values, keys=[b"key %d" % at if at % 3 else None for at in range(2_000)])
        plain.flush()
        packed.send_many(topic, values, headers=[(("trace", b"%d" % (at % 7)), ("empty", b"")) for at in range(2_000)])
        packed.flush()
        for partition in range(3):
            plain.send(topic, b"", key=b"", partition=partition, timestamp_ms=1_700_000_000_123 + partition)
            plain.flush()


def expected(client: Client, topic: str) -> list[tuple[Any, ...]]:
    """Return the rows that a consumer without Spark returns."""
    with client.consumer(topic) as consumer:
        found = sorted(consumer.records(until="end"), key=lambda one: (one.partition, one.offset))
    return [
        (
            one.key,
            one.value,
            one.topic,
            one.partition,
            one.offset,
            datetime.fromtimestamp((one.append_time_ms if one.timestamp_ms is None else one.timestamp_ms) / 1000, UTC),
            1 if one.timestamp_ms is None else 0,
            [(name, value) for name, value in one.headers] or None,
        )
        for one in found
    ]


@pytest.mark.parametrize("options", [{}, {"maxRecordsPerPartition": "700"}, {"minPartitions": "5"}])
def test_rows_equal_the_records_of_a_consumer(
    spark: SparkSession, fleet: Fleet, client: Client, name: str, options: dict[str, str]
) -> None:
    """All columns, with null keys, empty values, compressed batches, both timestamp types and headers."""
    client.topics.create(name, partitions=3)
    fill_with_all_kinds(client, name)
    rows = read(spark, fleet.url, name, includeHeaders="true", **options)
    found = [
        (
            None if row.key is None else bytes(row.key),
            bytes(row.value),
            row.topic,
            row.partition,
            row.offset,
            row.timestamp.astimezone(UTC),
            row.timestampType,
            None if row.headers is None else [(one.key, bytes(one.value)) for one in row.headers],
        )
        for row in rows.orderBy("partition", "offset").collect()
    ]
    assert found == expected(client, name)
    assert len(found) == 4_003


def test_columns_are_those_of_the_kafka_source(spark: SparkSession, fleet: Fleet, client: Client, name: str) -> None:
    """Names, types and order; in batches and streams, with headers and without."""
    client.topics.create(name, partitions=1)
    for make in (read, read_stream):
        plain, full = make(spark, fleet.url, name), make(spark, fleet.url, name, includeHeaders="true")
        assert [(one.name, one.dataType.simpleString()) for one in plain.schema] == list(KAFKAS.items())
        assert [(one.name, one.dataType.simpleString()) for one in full.schema] == list((KAFKAS | HEADERS).items())


def test_empty_topic_has_no_rows(spark: SparkSession, fleet: Fleet, client: Client, name: str) -> None:
    """A query without tasks is not an error."""
    client.topics.create(name, partitions=2)
    assert read(spark, fleet.url, name).count() == 0
    assert read(spark, fleet.url, subscribePattern="nothing-.*").count() == 0


def test_number_of_tasks_follows_the_options(spark: SparkSession, fleet: Fleet, client: Client, name: str) -> None:
    """One for each partition; more with minPartitions or maxRecordsPerPartition."""
    client.topics.create(name, partitions=2)
    fill(client, name, *[b"x"] * 90)
    fill(client, name, *[b"x"] * 10, partition=1)
    assert read(spark, fleet.url, name).rdd.getNumPartitions() == 2
    assert read(spark, fleet.url, name, minPartitions="10").rdd.getNumPartitions() == 10
    small = read(spark, fleet.url, name, maxRecordsPerPartition="25")
    assert small.rdd.getNumPartitions() == 5
    assert small.count() == 100
