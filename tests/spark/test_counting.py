"""Every record of a topic is a row, once."""

from pyspark.sql import SparkSession

from flotilla import Client
from support.fleet import Fleet


def test_a_count_of_rows_is_that_of_records(spark: SparkSession, fleet: Fleet, client: Client, name: str) -> None:
    client.topics.create(name, partitions=3)
    with client.producer() as producer:
        producer.send_many(name, [b"value %d" % at for at in range(5_000)])
        producer.flush()
    rows = spark.read.format("flotilla").option("url", fleet.url).load(name)
    assert rows.count() == 5_000
    assert rows.select("value").distinct().count() == 5_000
