"""Two million records."""

import pyarrow.compute as pc
from pyspark.sql import SparkSession

from flotilla import Client
from support.fleet import Fleet
from support.sparks import read

PARTITIONS = 4
RECORDS = 2_000_000
_AT_ONCE = 50_000


def test_two_million_records_are_two_million_rows(spark: SparkSession, fleet: Fleet, client: Client, name: str) -> None:
    """Count, first offset, last offset and total length of each partition."""
    client.topics.create(name, partitions=PARTITIONS)
    appender = client.appender(b"two million rows", 0)
    values = [b"x" * (at % 37) for at in range(_AT_ONCE + PARTITIONS)]
    for at in range(RECORDS // _AT_ONCE):
        appender.append(name, at % PARTITIONS, values[at % PARTITIONS :][:_AT_ONCE])
    wanted: dict[int, tuple[int, int, int, int]] = {}
    for batch in client.iter_arrow(name, columns=["partition", "offset", "value"]):
        partition, length = batch["partition"][0].as_py(), pc.sum(pc.binary_length(batch["value"])).as_py()
        count, first, last, total = wanted.get(partition, (0, RECORDS, -1, 0))
        offsets = pc.min_max(batch["offset"]).as_py()
        wanted[partition] = (
            count + len(batch),
            min(first, offsets["min"]),
            max(last, offsets["max"]),
            total + length,
        )
    rows = read(spark, fleet.url, name, minPartitions="8")
    rows.createOrReplaceTempView("records")
    found = spark.sql(
        "SELECT partition, count(*), min(offset), max(offset), sum(length(value)) FROM records GROUP BY partition"
    ).collect()
    assert {row[0]: tuple(row)[1:] for row in found} == wanted
    assert sum(row[1] for row in found) == RECORDS
