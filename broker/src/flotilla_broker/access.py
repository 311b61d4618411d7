"""The access table of this broker: tokens from managers, stored in a file of the data folder.

The table comes with the response to a heartbeat. It is used before it is on disk, because a revocation must not wait.
After a restart the last table stays in use until a manager is available. A broker without a table, or with a damaged
file, accepts only servers of its cluster.
"""

import asyncio
import logging
import os
from collections.abc import Callable
from pathlib import Path

import msgspec

from flotilla_server.access_table import TABLE_BYTES_MAX, AccessTable
from flotilla_server.callers import Access

logger = logging.getLogger(__name__)

FILE = "access.json"
_VERSION = "version"


class StoredAccess(Access):
    """Access checks by a table that is stored in a file."""

    def __init__(self, folder: Path, secret: bytes | None, now_ms: Callable[[], int]) -> None:
        self._file = folder / FILE
        stored = read_table(self._file)
        self._is_known = stored is not None
        self._is_saved = True
        self._last_problem = ""
        super().__init__(secret, stored or AccessTable(), now_ms)

    @property
    def version(self) -> str:
        """Version of the current table; empty without one."""
        return self.table.version if self._is_known else ""

    async def update(self, data: bytes) -> None:
        """Apply a table without blocking the event loop. Each problem is logged once, and raises nothing."""
        if not data and self._is_saved:
            return
        problem = ""
        try:
            await asyncio.to_thread(self.apply, data)
        except (ValueError, RecursionError) as error:
            problem = f"invalid access table from a manager, keeping the previous one error={str(error)!r}"
        except OSError as error:
            problem = f"cannot write access table, new one is in use file={self._file} error={error.strerror or error}"
        if problem and problem != self._last_problem:
            logger.error("%s", problem)
        self._last_problem = problem

    def apply(self, data: bytes) -> None:
        """Use a table of a manager, unless `data` is empty, and store the current table if it is not stored yet.

        Raises:
            ValueError: `data` is not a table; nothing is changed.
            OSError: the table is in use but not on disk; the next call tries again.
        """
        if data:
            table = AccessTable.from_builtins(msgspec.json.decode(data), before=self.table)
            self._is_saved = False
            self.replace(table)
            self._is_known = True
            logger.info("access table updated tokens=%d version=%s", len(table.tokens), table.version)
        if not self._is_saved:
            write_table(self._file, self.table)
            self._is_saved = True


def read_table(file: Path) -> AccessTable | None:
    """Read the stored table; None if the file is missing, or invalid, which is logged."""
    try:
        with file.open("rb") as opened:
            content = opened.read(TABLE_BYTES_MAX + 1)
        found = msgspec.json.decode(content)
        version = found.pop(_VERSION)
        table = AccessTable.from_builtins(found)
    except FileNotFoundError:
        return None
    except (OSError, ValueError, AttributeError, KeyError, TypeError, RecursionError) as error:
        logger.error("invalid access table, rejecting all tokens file=%s error=%r", file, str(error))  # noqa: TRY400
        return None
    if table.version != version:
        logger.error("damaged access table, rejecting all tokens file=%s", file)
        return None
    return table


def write_table(file: Path, table: AccessTable) -> None:
    """Replace the file atomically, readable only by its owner."""
    part = file.with_name(file.name + ".part")
    part.unlink(missing_ok=True)
    descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "wb") as opened:
        opened.write(msgspec.json.encode({_VERSION: table.version, **table.to_builtins()}))
        opened.flush()
        os.fsync(opened.fileno())
    part.replace(file)
    _sync_entries(file.parent)


def _sync_entries(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
