"""Markers that pair a checkpoint with its output folder or topic, so that a query refuses others.

Spark does not check this. With a new checkpoint, a file sink assumes that the first micro-batches are in the folder
already, and skips them silently. With an old checkpoint and a new folder, the folder lacks everything read before.
"""

import json
import uuid
from typing import Any

from pyspark.sql import SparkSession

from flotilla_spark.errors import FolderInUse

MARKER = "_flotilla.json"  # Parquet readers ignore names that start with _
_STREAM_STATE = {"metadata", "offsets", "commits"}


class Folder:
    """A folder in any Hadoop file system."""

    def __init__(self, session: SparkSession, path: str) -> None:
        context: Any = session.sparkContext
        self._jvm: Any = context._jvm  # noqa: SLF001 - PySpark has no file API
        self._path: Any = self._jvm.org.apache.hadoop.fs.Path(path)
        self._files = self._path.getFileSystem(context._jsc.hadoopConfiguration())  # noqa: SLF001
        self.path = path

    def names(self) -> set[str]:
        """Return the names in the folder, without hidden ones; empty if it does not exist."""
        if not self._files.exists(self._path):
            return set()
        if not self._files.getFileStatus(self._path).isDirectory():
            raise FolderInUse(f"'{self.path}' is a file; expected a folder")
        found = {status.getPath().getName() for status in self._files.listStatus(self._path)}
        return {name for name in found if not name.startswith(".")}

    def read_marker(self) -> dict[str, Any]:
        """Return the marker; empty if there is none."""
        at = self._jvm.org.apache.hadoop.fs.Path(self._path, MARKER)
        if not self._files.exists(at):
            return {}
        stream = self._files.open(at)
        try:
            text = self._jvm.org.apache.commons.io.IOUtils.toString(stream, "UTF-8")
        finally:
            stream.close()
        try:
            found = json.loads(text)
        except ValueError:
            return {}  # torn by a crash, before anything else was written
        return found if isinstance(found, dict) else {}

    def write_marker(self, marker: dict[str, Any]) -> None:
        """Write the marker."""
        stream = self._files.create(self._jvm.org.apache.hadoop.fs.Path(self._path, MARKER), True)
        try:
            stream.write(bytearray(json.dumps(marker).encode()))
        finally:
            stream.close()


def claim(
    session: SparkSession, application: str, checkpoint: str, output: str | None = None, topic: str | None = None
) -> None:
    """Check that checkpoint and output belong to this application and to each other; raises FolderInUse.

    The output folder is marked first. A folder with a marker and nothing else is free.
    """
    progress = Folder(session, checkpoint)
    marker = progress.read_marker()
    is_used = bool(progress.names() & _STREAM_STATE)
    if marker and marker.get("application") != application:
        raise FolderInUse(
            f"--checkpoint {checkpoint} belongs to the application '{marker.get('application')}': use another folder"
        )
    if is_used and not marker:
        raise FolderInUse(f"--checkpoint {checkpoint} belongs to another query: use another folder")
    if is_used and marker.get("topic") != topic:
        raise FolderInUse(_describe_other_output(checkpoint, marker))
    made = {"application": application, "id": str(uuid.uuid4()), **({} if topic is None else {"topic": topic})}
    if output is None:
        if not marker or marker.get("topic") != topic:
            progress.write_marker(made)
        return
    files = Folder(session, output)
    theirs = files.read_marker()
    if marker and marker == theirs:
        return
    has_data = bool(files.names() - {MARKER})
    if has_data and not theirs:
        raise FolderInUse(f"{output} contains files that '{application}' did not write: use another folder")
    if has_data:
        raise FolderInUse(
            f"{output} was written with another checkpoint than {checkpoint}: use that one, or another output folder"
        )
    if is_used:
        raise FolderInUse(
            f"--checkpoint {checkpoint} belongs to another output folder; {output} would lack the records that were "
            "written there: use the folder of this checkpoint, or another checkpoint"
        )
    files.write_marker(made)
    progress.write_marker(made)


def _describe_other_output(checkpoint: str, marker: dict[str, Any]) -> str:
    where = f"the topic '{marker['topic']}'" if "topic" in marker else "a folder"
    return f"--checkpoint {checkpoint} was used to write to {where}: use another checkpoint"
