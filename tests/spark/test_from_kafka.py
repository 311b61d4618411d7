"""A job for Spark's Kafka source runs after changing the format name and the address."""

from pathlib import Path

from pyspark.sql import SparkSession

from flotilla import Client
from support.fleet import Fleet
from support.sparks import fill

KAFKAS = """
stream = (
    spark.readStream.format("kafka")
    .option("kafka.bootstrap.servers", "broker-1:9092,broker-2:9092")
    .option("subscribe", "orders")
    .option("startingOffsets", "earliest")
    .option("failOnDataLoss", "false")
    .option("maxOffsetsPerTrigger", 1000)
    .option("kafka.group.id", "billing")
    .option("kafka.security.protocol", "PLAINTEXT")
    .option("groupIdPrefix", "billing")
    .load()
    .selectExpr("CAST(key AS STRING)", "upper(CAST(value AS STRING)) AS value", "timestamp")
)
query = (
    stream.select("key", "value")
    .writeStream.format("kafka")
    .option("kafka.bootstrap.servers", "broker-1:9092,broker-2:9092")
    .option("kafka.acks", "all")
    .option("topic", "shouted")
    .option("checkpointLocation", checkpoint)
    .outputMode("append")
    .trigger(availableNow=True)
    .start()
)
query.awaitTermination(120)

batch = (
    spark.read.format("kafka")
    .option("kafka.bootstrap.servers", "broker-1:9092,broker-2:9092")
    .option("subscribe", "shouted")
    .option("startingOffsets", '{"shouted": {"0": -2}}')
    .option("endingOffsets", "latest")
    .load()
)
found = [row.value for row in batch.selectExpr("CAST(value AS STRING)").collect()]
"""


def test_kafka_job_runs_with_another_format_and_address(
    spark: SparkSession, fleet: Fleet, client: Client, tmp_path: Path
) -> None:
    """No other change is needed."""
    client.topics.create("orders", partitions=1)
    client.topics.create("shouted", partitions=1)
    fill(client, "orders", b"one coffee", b"two teas")
    script = KAFKAS.replace('"kafka"', '"flotilla"').replace(
        "broker-1:9092,broker-2:9092", fleet.url.removeprefix("http://")
    )
    names = {"spark": spark, "checkpoint": str(tmp_path / "checkpoint")}
    exec(script, names)  # noqa: S102 - it is written above
    assert names["found"] == ["ONE COFFEE", "TWO TEAS"]
