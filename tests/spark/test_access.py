"""Tokens and TLS of the data source."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from flotilla import Client
from support import certificates
from support.access import ENVIRONMENT
from support.fleet import Fleet
from support.sparks import error_text, fill, finish, read, read_stream, values_of


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    """A cluster that requires tokens and TLS."""
    folder = Path(tmp_path_factory.mktemp("guarded"))
    tls = certificates.write(folder / "tls", certificates.make_authority())
    with Fleet(folder, brokers=1, readers=1, environment=ENVIRONMENT, tls=tls) as fleet:
        yield fleet


def test_data_source_accepts_tokens_and_a_ca_bundle_and_does_not_leak_tokens(
    spark: SparkSession, guarded: Fleet, tmp_path: Path
) -> None:
    """As option and in a file; for batches, streams and writers. No plan, error or checkpoint contains a token."""
    for topic in ("secrets", "copies"):
        wanted = {"name": topic, "partitions": 1, "replication": 1}
        guarded.client.post("/v1/topics", json=wanted).raise_for_status()
    made = guarded.client.post("/v1/tokens", json={"name": "x", "grants": ["produce:*", "consume:*"]})
    token = made.raise_for_status().json()["token"]
    only = guarded.client.post("/v1/tokens", json={"name": "y", "grants": ["consume:secrets"]})
    weak = only.raise_for_status().json()["token"]
    assert guarded.tls is not None
    ca = str(guarded.tls.ca)
    (tmp_path / "token").write_text(f"{token}\n")
    by_text, by_file = {"token": token, "ca": ca}, {"tokenFile": str(tmp_path / "token"), "ca": ca}
    with Client(guarded.url, token=token, ca=ca) as client:
        fill(client, "secrets", b"one", b"two")
        rows = read(spark, guarded.url, "secrets", **by_text)
        assert rows.count() == 2
        assert read(spark, guarded.url, "secrets", **by_file).count() == 2
        stream = read_stream(spark, guarded.url, "secrets", startingOffsets="earliest", **by_text).select("value")
        writer = stream.writeStream.format("flotilla").option("url", guarded.url).options(**by_text)
        writer = writer.option("topic", "copies").option("checkpointLocation", str(tmp_path / "checkpoint"))
        query = writer.trigger(availableNow=True).start()
        finish(query)
        assert values_of(client, "copies") == [b"one", b"two"]

    plans = rows._jdf.queryExecution().toString()
    said = [
        plans,
        str(query.recentProgress),
        error_text(lambda: read(spark, guarded.url, "nowhere", **by_text).count()),
        error_text(lambda: read(spark, guarded.url, "secrets", colour="red", **by_text).count()),
        *(file.read_text(errors="replace") for file in (tmp_path / "checkpoint").rglob("*") if file.is_file()),
    ]
    assert [text for text in said if token in text or token[-20:] in text] == []

    assert "token" in error_text(lambda: read(spark, guarded.url, "secrets", ca=ca).count())
    to_copies = rows.select("value").write.format("flotilla").option("url", guarded.url).mode("append")
    refused = error_text(lambda: to_copies.option("topic", "copies").options(token=weak, ca=ca).save())
    assert "copies" in refused
    assert weak not in refused
    assert "Set `ca` or FLOTILLA_TLS_CA to the CA bundle of the server" in error_text(
        lambda: read(spark, guarded.url, "secrets", token=token).count()
    )
