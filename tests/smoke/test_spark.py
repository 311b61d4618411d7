"""One round trip through Spark: a topic is read as a table, and a table is appended to a topic."""

import pytest

from flotilla import Client
from smoke.conftest import System
from support import java


@pytest.mark.skipif(not java.is_usable(), reason=java.REASON)
def test_spark_reads_a_topic_and_appends_to_another(system: System) -> None:
    from support.sparks import read, session, values_of  # noqa: PLC0415 - imports Spark, which may not be installed

    with Client(system.url) as client:
        client.topics.create("lines", partitions=2)
        client.topics.create("shouted", partitions=1)
        with client.producer() as producer:
            producer.send_many("lines", [b"one", b"two", b"three"])
        spark = session("smoke")
        try:
            rows = read(spark, system.url, "lines").selectExpr("upper(cast(value as string)) as value")
            rows.write.format("flotilla").option("url", system.url).option("topic", "shouted").mode("append").save()
        finally:
            spark.stop()
        assert sorted(values_of(client, "shouted")) == [b"ONE", b"THREE", b"TWO"]
