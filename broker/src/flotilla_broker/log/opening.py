"""Opening a log: everything that has to be true before the first append."""

import secrets
from collections.abc import Callable
from pathlib import Path

import msgspec

from flotilla_broker.log.config import LogConfig
from flotilla_broker.log.errors import StoreUnreadable
from flotilla_broker.log.files import FileCache, FileSystem
from flotilla_broker.log.jobs import Preallocate
from flotilla_broker.log.memory import MemoryFileSystem
from flotilla_broker.log.osfiles import OsFileSystem
from flotilla_broker.log.records import FORMAT, Durability, StoreRecord
from flotilla_broker.log.recovery import Recovered, recover
from flotilla_broker.log.segments import STORE, Folder, Segment, spare_name
from flotilla_broker.log.store import Log
from flotilla_broker.log.storefile import read_store, write_store


def open_folder(folder: Path, config: LogConfig | None = None) -> Log:
    """Open the log in a folder, or in memory if that is the durability asked for."""
    config = config or LogConfig()
    if config.durability == Durability.MEMORY:
        return open_log(MemoryFileSystem(), config)
    fs = OsFileSystem(folder)
    try:
        return open_log(fs, config)
    except BaseException:
        fs.close()
        raise


def open_log(fs: FileSystem, config: LogConfig, *, random_u32: Callable[[], int] = lambda: secrets.randbits(32)) -> Log:
    """Open the log in a folder, and make it if the folder is empty.

    `Log.fresh` says that it was made now; `Log.damage` what was found to be damaged. Raises StoreUnreadable.
    """
    folder = Folder.from_names(fs.names())
    store = read_store(fs)
    if store is None:
        if folder.logs or folder.colds:
            raise StoreUnreadable(
                f"there are segments but no {STORE}: the folder is damaged, its replicas have to be rebuilt"
            )
        store = StoreRecord(
            format=FORMAT,
            salt=random_u32(),
            durability=config.durability,
            boot_id=fs.boot_id(),
            begun=False,
            clean=False,
        )
        write_store(fs, store)
    files = FileCache(fs, config.open_files_max)
    found = recover(files, folder, store.salt) if store.begun else _start_over(fs, folder)
    _judge_last_run(fs, store, found)
    _cut_torn(fs, files, found)
    if store.durability == Durability.OS and not store.clean:
        for segment in found.segments.values():  # nobody else did
            files.get(segment.name).sync()
    found.spares = _usable_spares(fs, folder, found, config) or _make_spare(fs, folder, config)
    now = msgspec.structs.replace(store, durability=config.durability, boot_id=fs.boot_id(), begun=True, clean=False)
    log = Log(fs, files, config, now, found)
    log.start()
    if now.differs_from(store):
        write_store(fs, now)  # only now: what was found about the last run is in the checkpoint
    return log


def _start_over(fs: FileSystem, folder: Folder) -> Recovered:
    """Remove what an interrupted making left behind; nothing in it was ever promised."""
    for segment in folder.logs:
        fs.unlink(Segment(segment, cold=False).name)
    return Recovered(fresh=True)


def _judge_last_run(fs: FileSystem, store: StoreRecord, found: Recovered) -> None:
    """Without fsync, a restart of the machine may have lost what had been promised."""
    if store.durability == Durability.OS and not store.clean and store.boot_id != fs.boot_id():
        why = "written with durability 'os' before the machine restarted: what was acknowledged may be lost"
        found.damage.insert(0, f"all groups: {why}")
        for group in found.groups.values():
            group.quarantined = group.quarantined or why


def _cut_torn(fs: FileSystem, files: FileCache, found: Recovered) -> None:
    """Remove what was torn, and sync the rest: what a killed process wrote may still be on its way."""
    for name in found.torn:
        files.forget(name)
        fs.unlink(name)
    if found.cut is not None:
        files.get(found.cut.name).truncate(found.cut.end)
    gone = set(found.torn)
    for name in set(found.tail) - gone:
        files.get(name).sync()
    fs.sync_folder()
    found.obsolete = [name for name in found.obsolete if name not in gone]


def _usable_spares(fs: FileSystem, folder: Folder, found: Recovered, config: LogConfig) -> tuple[int, ...]:
    """Keep spares of the right size; a changed setting makes others useless."""
    usable = []
    for number in folder.spares:
        if fs.open(spare_name(number)).size() == config.segment_bytes:
            usable.append(number)
        else:
            found.obsolete.append(spare_name(number))
    return tuple(usable)


def _make_spare(fs: FileSystem, folder: Folder, config: LogConfig) -> tuple[int, ...]:
    """Make the first segment in advance like all others; a file that grows takes twice as long to sync."""
    number = max(folder.spares, default=0) + 1
    job = Preallocate(fs, spare_name(number), config.segment_bytes, lambda _: None)
    job.run()
    return (number,) if job.made else ()
