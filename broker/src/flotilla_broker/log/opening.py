"""Opening a log: recovery, removal of torn frames, the first segment."""

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
    """Open the log in a folder, or in memory with durability `memory`."""
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
    """Open the log in a folder, or create it in an empty one. Raises StoreUnreadable.

    `Log.fresh`: it was created now. `Log.damage`: what is damaged.
    """
    folder = Folder.from_names(fs.names())
    store = read_store(fs)
    if store is None:
        if folder.logs or folder.colds:
            raise StoreUnreadable(
                f"the log has segments but no {STORE}: it is damaged, rebuild its replicas from other brokers"
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
    found = recover(files, folder, store.salt) if store.begun else _remove_partial(fs, folder)
    _check_last_run(fs, store, found)
    _cut_torn(fs, files, found)
    if store.durability == Durability.OS and not store.clean:
        for segment in found.segments.values():  # it was not synced before
            files.get(segment.name).sync()
    found.spares = _usable_spares(fs, folder, found, config) or _make_spare(fs, folder, config)
    now = msgspec.structs.replace(store, durability=config.durability, boot_id=fs.boot_id(), begun=True, clean=False)
    log = Log(fs, files, config, now, found)
    log.start()
    if now.differs_from(store):
        write_store(fs, now)  # only now: the checkpoint has the findings about the last run
    return log


def _remove_partial(fs: FileSystem, folder: Folder) -> Recovered:
    """Remove the files of an interrupted creation; nothing in them was acknowledged."""
    for segment in folder.logs:
        fs.unlink(Segment(segment, cold=False).name)
    return Recovered(fresh=True)


def _check_last_run(fs: FileSystem, store: StoreRecord, found: Recovered) -> None:
    """Quarantine all groups if the machine restarted without fsync: acknowledged records may be lost."""
    if store.durability == Durability.OS and not store.clean and store.boot_id != fs.boot_id():
        why = "machine restarted without a clean shutdown under durability 'os': acknowledged records may be lost"
        found.damage.insert(0, f"all groups: {why}")
        for group in found.groups.values():
            group.quarantined = group.quarantined or why


def _cut_torn(fs: FileSystem, files: FileCache, found: Recovered) -> None:
    """Remove torn frames, and sync the rest: writes of a killed process may not be on disk yet."""
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
    """Return the spares of the configured size; the others are obsolete."""
    usable = []
    for number in folder.spares:
        if fs.open(spare_name(number)).size() == config.segment_bytes:
            usable.append(number)
        else:
            found.obsolete.append(spare_name(number))
    return tuple(usable)


def _make_spare(fs: FileSystem, folder: Folder, config: LogConfig) -> tuple[int, ...]:
    """Create the first segment in advance: a file that grows takes twice as long to sync."""
    number = max(folder.spares, default=0) + 1
    job = Preallocate(fs, spare_name(number), config.segment_bytes, lambda _: None)
    job.run()
    return (number,) if job.made else ()
