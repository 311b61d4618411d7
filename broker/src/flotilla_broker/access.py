"""Who may call this broker: the tokens that managers tell it of, kept in a file of the data folder.

The table comes with the answer to a heartbeat, and is in use before it is on disk: a revocation must not wait. Over a
restart the last table stays in use while no manager is reached. A broker that has never heard of one knows the
servers of its cluster alone, and so does one whose file is damaged: nobody is let in by guessing.
"""

import asyncio
import logging
import os
from collections.abc import Callable
from pathlib import Path

import msgspec

from flotilla.access import TABLE_BYTES_MAX, Access, AccessTable

logger = logging.getLogger(__name__)

FILE = "access.json"
_VERSION = "version"


class KeptAccess(Access):
    """Knows callers by the table in a file, and keeps there what it is told."""

    def __init__(self, folder: Path, secret: bytes | None, now_ms: Callable[[], int]) -> None:
        self._file = folder / FILE
        kept = read_table(self._file)
        self._is_known = kept is not None
        self._is_kept = True
        self._trouble = ""
        super().__init__(secret, kept or AccessTable(), now_ms)

    @property
    def version(self) -> str:
        """The version of the table that is in use; nothing before there was one."""
        return self.table.version if self._is_known else ""

    async def hear(self, data: bytes) -> None:
        """Learn, without holding up the loop. What goes wrong disturbs nobody; it is logged, and nothing twice."""
        if not data and self._is_kept:
            return
        trouble = ""
        try:
            await asyncio.to_thread(self.learn, data)
        except (ValueError, RecursionError) as error:
            trouble = f"a manager sends an access table that cannot be used, and the one before stays in use: {error}"
        except OSError as error:
            trouble = f"the access table is in use, but {self._file} cannot be written: {error.strerror or error}"
        if trouble and trouble != self._trouble:
            logger.error("%s", trouble)
        self._trouble = trouble

    def learn(self, data: bytes) -> None:
        """Take over a table from a manager, if there is one in its answer, and make sure that the last one is kept.

        Raises:
            ValueError: what came is no table; nothing is changed.
            OSError: it is in use, and not on disk; the next call tries again.
        """
        if data:
            table = AccessTable.from_builtins(msgspec.json.decode(data), before=self.table)
            self._is_kept = False
            self.replace(table)
            self._is_known = True
            logger.info("there are %d tokens now: access table %s", len(table.tokens), table.version)
        if not self._is_kept:
            write_table(self._file, self.table)
            self._is_kept = True


def read_table(file: Path) -> AccessTable | None:
    """Read the table that was kept; None if there is none, or none that can be trusted, which is logged."""
    try:
        with file.open("rb") as opened:
            content = opened.read(TABLE_BYTES_MAX + 1)
        found = msgspec.json.decode(content)
        version = found.pop(_VERSION)
        table = AccessTable.from_builtins(found)
    except FileNotFoundError:
        return None
    except (OSError, ValueError, AttributeError, KeyError, TypeError, RecursionError) as error:
        logger.error("%s cannot be used: %s. Until a manager tells this broker of tokens, none is valid", file, error)  # noqa: TRY400
        return None
    if table.version != version:
        logger.error("%s is damaged. Until a manager tells this broker of tokens, none is valid", file)
        return None
    return table


def write_table(file: Path, table: AccessTable) -> None:
    """Replace the file at once, for the owner's eyes only: a crash leaves the old one or the new one."""
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
