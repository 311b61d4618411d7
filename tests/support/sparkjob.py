"""A streaming job as a process of its own, which can be killed: a topic to a topic, and the same topic to Parquet.

`python -m support.sparkjob FOLDER URL SOURCE TARGET ROWS_PER_BATCH`
"""

import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa

from support.sparks import finish, read_stream, session

PAUSE_S = 0.2
TOKEN = "flt_0123456789abcdef_thistokenmustnotbefoundanywhereatall"  # noqa: S105 - not a real token


def slow(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Take some time, so that there is a middle of a micro-batch."""
    for batch in batches:
        yield batch
        time.sleep(PAUSE_S)


def main(folder: Path, url: str, source: str, target: str, rows_per_batch: str) -> None:
    """Run both queries to their end."""
    spark = session("job")
    spark.sparkContext.setLogLevel("INFO")
    options = {"startingOffsets": "earliest", "maxOffsetsPerTrigger": rows_per_batch, "kafka.group.id": "a group"}
    rows = read_stream(spark, url, source, token=TOKEN, **options).select("key", "value", "partition")
    rows = rows.mapInArrow(slow, rows.schema)
    to_topic = rows.writeStream.format("flotilla").option("url", url).option("token", TOKEN).option("topic", target)
    to_files = rows.writeStream.format("parquet").option("path", str(folder / "rows"))
    queries = [
        writer.option("checkpointLocation", str(folder / name)).trigger(availableNow=True).start()
        for writer, name in ((to_topic, "to-topic"), (to_files, "to-files"))
    ]
    for query in queries:
        finish(query)


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:])
