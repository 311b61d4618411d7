"""docs/spark.md: its examples run, and it documents every option."""

import re
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from flotilla import Client
from pyspark_flotilla import options
from support.fleet import Fleet
from support.sparks import fill, values_of

PAGE = (Path(__file__).parents[2] / "docs" / "spark.md").read_text(encoding="utf-8")


def test_examples_of_the_docs_run(
    spark: SparkSession, fleet: Fleet, client: Client, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """In order, unchanged."""
    for topic in ("drinks", "loud-drinks"):
        client.topics.create(topic, partitions=1)
    fill(client, "drinks", b"coffee", b"tea", b"tea")
    names = {"spark": spark, "url": fleet.url, "checkpoint": str(tmp_path / "checkpoint")}
    for script in re.findall(r"^```python\n(.*?)^```", PAGE, flags=re.DOTALL | re.MULTILINE):
        exec(script, names)  # noqa: S102 - it is ours
    assert re.search(r"\|\s*tea\|\s*2\|", capsys.readouterr().out)
    assert values_of(client, "loud-drinks") == [b"COFFEE", b"TEA", b"TEA"]


def test_docs_document_every_option() -> None:
    """And no other."""
    own = {"path", "checkpointLocation", "queryName"}  # options of Spark
    known = {*options._COMMON, *options._READ, *options._BATCH, *options._STREAM, *options._WRITE} - own
    table = PAGE.split("## Options")[1].split("## Writing")[0]
    rows = [row.split("|")[1] for row in table.splitlines() if row.startswith("| `")]
    output = {name for row in rows for name in re.findall(r"`([A-Za-z.]+)`", row)}
    assert output - {"kafka.bootstrap.servers"} == known
