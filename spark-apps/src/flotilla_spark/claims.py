"""Whose a checkpoint and a folder are: a small file in both says so, and they have to say the same.

Spark itself does not look. A file sink with a new checkpoint takes the first micro-batches for those that are in the
folder already, and leaves them out without a word; an old checkpoint with a new folder leaves out what it has read.
"""

import json
import uuid
from typing import Any

from pyspark.sql import SparkSession

from flotilla_spark.errors import FolderTaken

MARK = "_flotilla.json"  # readers of Parquet pass over names that begin so
_USED = {"metadata", "offsets", "commits"}


class Folder:
    """A folder wherever Hadoop's file systems reach."""

    def __init__(self, session: SparkSession, path: str) -> None:
        context: Any = session.sparkContext
        self._jvm: Any = context._jvm  # noqa: SLF001 - PySpark has no files of its own
        self._path: Any = self._jvm.org.apache.hadoop.fs.Path(path)
        self._files = self._path.getFileSystem(context._jsc.hadoopConfiguration())  # noqa: SLF001
        self.path = path

    def names(self) -> set[str]:
        """Tell what is in it, but for what is hidden; nothing, if it is not there."""
        if not self._files.exists(self._path):
            return set()
        if not self._files.getFileStatus(self._path).isDirectory():
            raise FolderTaken(f"'{self.path}' is a file, and has to be a folder")
        found = {status.getPath().getName() for status in self._files.listStatus(self._path)}
        return {name for name in found if not name.startswith(".")}

    def read_mark(self) -> dict[str, Any]:
        """Read whose it is."""
        at = self._jvm.org.apache.hadoop.fs.Path(self._path, MARK)
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
            return {}  # it was torn, when nothing else had been written yet
        return found if isinstance(found, dict) else {}

    def write_mark(self, mark: dict[str, Any]) -> None:
        """Write whose it is."""
        stream = self._files.create(self._jvm.org.apache.hadoop.fs.Path(self._path, MARK), True)
        try:
            stream.write(bytearray(json.dumps(mark).encode()))
        finally:
            stream.close()


def claim(
    session: SparkSession, application: str, checkpoint: str, output: str | None = None, topic: str | None = None
) -> None:
    """See that checkpoint and folder, or topic, belong to this application and to each other; raises FolderTaken.

    The folder is marked first: what is marked there, and has nothing else, belongs to nobody yet.
    """
    progress = Folder(session, checkpoint)
    mark = progress.read_mark()
    is_used = bool(progress.names() & _USED)
    if mark and mark.get("application") != application:
        raise FolderTaken(f"--checkpoint {checkpoint} is one of '{mark.get('application')}': give another folder")
    if is_used and not mark:
        raise FolderTaken(f"--checkpoint {checkpoint} is one of another query: give another folder")
    if is_used and mark.get("topic") != topic:
        raise FolderTaken(_elsewhere(checkpoint, mark))
    made = {"application": application, "id": str(uuid.uuid4()), **({} if topic is None else {"topic": topic})}
    if output is None:
        if not mark or mark.get("topic") != topic:
            progress.write_mark(made)
        return
    files = Folder(session, output)
    theirs = files.read_mark()
    if mark and mark == theirs:
        return
    has_data = bool(files.names() - {MARK})
    if has_data and not theirs:
        raise FolderTaken(f"there are files in {output} that '{application}' has not written: give another folder")
    if has_data:
        raise FolderTaken(
            f"{output} was written with another checkpoint than {checkpoint}: give that one, or another folder"
        )
    if is_used:
        raise FolderTaken(
            f"--checkpoint {checkpoint} is that of another folder than {output}, which would lack what was read: "
            "give both as they were, or give another checkpoint"
        )
    files.write_mark(made)
    progress.write_mark(made)


def _elsewhere(checkpoint: str, mark: dict[str, Any]) -> str:
    where = f"the topic '{mark['topic']}'" if "topic" in mark else "a folder"
    return f"--checkpoint {checkpoint} is for {where}, where what it has read is: give another one"
