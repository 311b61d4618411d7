"""Spark reads a topic with a count and a group-by, compared with Parquet and with Spark's Kafka source.

A whole cluster on this machine: topics of 1 to 8 partitions with 3 replicas each, filled before. Sources alternate in
each round, and medians are shown; compare them within one run. Parquet answers a count from file footers, without
reading records; the group-by reads all values.

Kafka must be running, and its client installed: `pip install confluent-kafka`. Download the jars of Spark's Kafka
source from Maven Central to a folder: org.apache.spark:spark-sql-kafka-0-10_2.13:4.3.0, with its dependencies.

Usage: spark.py [--records 5000000] [--rounds 3] [--partitions 1,2,4,8] [--kafka HOST:PORT --kafka-jars FOLDER]
"""

import argparse
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from flotilla import Client
from support.fleet import Fleet

RECORD_BYTES = 100
BATCH = 5_000
GROUPS = 100


def count(rows: DataFrame) -> int:
    """Count records."""
    return rows.count()


def group(rows: DataFrame) -> int:
    """Count records by the first two characters of their values; return the number of groups, 100."""
    found = rows.groupBy(f.substring(f.col("value").cast("string"), 1, 2)).count().agg(f.sum("count")).collect()
    return int(found[0][0])


QUERIES: dict[str, Callable[[DataFrame], int]] = {"count": count, "group-by": group}


def fill(client: Client, topic: str, partitions: int, records: int) -> None:
    """Append distinct records in batches, evenly to all partitions."""
    client.topics.create(topic, partitions=partitions, replication=3)
    rest = os.urandom(RECORD_BYTES).hex()[: RECORD_BYTES - 12]
    with client.producer(batch_bytes=BATCH * (RECORD_BYTES + 20)) as producer:
        for first in range(0, records, BATCH):
            last = min(first + BATCH, records)
            values = [f"{at % GROUPS:02}{at:010}{rest}".encode() for at in range(first, last)]
            producer.send_many(topic, values, partition=first // BATCH % partitions)
        producer.flush()


def fill_kafka(rows: DataFrame, servers: str, topic: str, partitions: int) -> None:
    """Write the same records to Kafka."""
    from confluent_kafka.admin import AdminClient, NewTopic  # noqa: PLC0415 - optional

    admin = AdminClient({"bootstrap.servers": servers})
    for made in admin.create_topics([NewTopic(topic, partitions, 3)]).values():
        made.result(60)
    rows.write.format("kafka").option("topic", topic).option("kafka.bootstrap.servers", servers).save()


@contextmanager
def session(jars: str | None) -> Iterator[SparkSession]:
    """Run Spark on all cores of this machine."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    cores = os.cpu_count() or 2
    builder = SparkSession.builder.master(f"local[{cores}]").appName("benchmark")
    settings = {"spark.ui.enabled": "false", "spark.driver.memory": "4g", "spark.sql.shuffle.partitions": str(cores)}
    if jars is not None:
        settings["spark.jars"] = ",".join(str(path) for path in sorted(Path(jars).glob("*.jar")))
    for name, value in settings.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    try:
        yield spark
    finally:
        spark.stop()


def sources(
    spark: SparkSession, url: str, topic: str, parquet: str, kafka: str | None
) -> dict[str, Callable[[], DataFrame]]:
    """Return a function for each source that reads it."""
    found = {
        "flotilla": lambda: spark.read.format("flotilla").option("url", url).load(topic),
        "parquet": lambda: spark.read.parquet(parquet),
    }
    if kafka is not None:
        given = {"kafka.bootstrap.servers": kafka, "subscribe": topic, "startingOffsets": "earliest"}
        found["kafka"] = lambda: spark.read.format("kafka").options(**given).load()
    return found


def measure(ways: dict[str, Callable[[], DataFrame]], records: int, rounds: int) -> dict[tuple[str, str], float]:
    """Measure all sources in alternating rounds; return the median of records/s."""
    took: dict[tuple[str, str], list[float]] = {}
    for round_ in range(rounds + 1):  # the first round warms up
        for source, read in ways.items():
            for query, run in QUERIES.items():
                began = time.perf_counter()
                assert run(read()) == records, (source, query)
                if round_ > 0:
                    took.setdefault((source, query), []).append(time.perf_counter() - began)
    return {key: records / statistics.median(each) for key, each in took.items()}


def show(partitions: int, rates: dict[tuple[str, str], float]) -> None:
    """Print a line for each query."""
    for query in QUERIES:
        own = rates["flotilla", query]
        each = "   ".join(
            f"{source} {rate:>10,.0f} records/s {rate * RECORD_BYTES / 1e6:>6.0f} MB/s"
            + (f" (flotilla: {own / rate:.2f} x)" if source != "flotilla" else "")
            for (source, of), rate in rates.items()
            if of == query
        )
        print(f"{partitions} partitions, {query:8}   {each}", flush=True)


def main() -> None:
    """Parse the command line and run the measurements."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--records", type=int, default=5_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--partitions", default="1,2,4,8")
    parser.add_argument("--kafka", metavar="HOST:PORT", help="a running Kafka cluster to compare with")
    parser.add_argument("--kafka-jars", metavar="FOLDER", help="folder with the jars of Spark's Kafka source")
    options = parser.parse_args()
    with (
        tempfile.TemporaryDirectory() as scratch,
        Fleet(Path(scratch) / "fleet") as fleet,
        Client(fleet.url) as client,
        session(options.kafka_jars) as spark,
    ):
        for partitions in map(int, options.partitions.split(",")):
            topic, parquet = f"bench-{partitions}-{time.time_ns()}", f"{scratch}/parquet-{partitions}"
            fill(client, topic, partitions, options.records)
            rows = spark.read.format("flotilla").option("url", fleet.url).load(topic)
            rows.select("key", "value").write.parquet(parquet)
            if options.kafka is not None:
                fill_kafka(spark.read.parquet(parquet), options.kafka, topic, partitions)
            ways = sources(spark, fleet.url, topic, parquet, options.kafka)
            show(partitions, measure(ways, options.records, options.rounds))
            client.topics.delete(topic)


if __name__ == "__main__":
    main()
