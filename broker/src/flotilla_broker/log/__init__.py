"""The log on disk. Start at `store.py`; `frames.py` defines the format, `recovery.py` reads it at a start."""

from flotilla_broker.log.config import LogConfig
from flotilla_broker.log.driver import LogDriver
from flotilla_broker.log.errors import (
    DiskFull,
    EntryDamaged,
    EntryMissing,
    GroupQuarantined,
    GroupUnknown,
    LogError,
    LogFailed,
    LogInUse,
    LogMisuse,
    StoreUnreadable,
)
from flotilla_broker.log.flush import Durable
from flotilla_broker.log.opening import open_folder, open_log
from flotilla_broker.log.reading import Entry
from flotilla_broker.log.records import Durability
from flotilla_broker.log.store import Log

__all__ = [
    "DiskFull",
    "Durability",
    "Durable",
    "Entry",
    "EntryDamaged",
    "EntryMissing",
    "GroupQuarantined",
    "GroupUnknown",
    "Log",
    "LogConfig",
    "LogDriver",
    "LogError",
    "LogFailed",
    "LogInUse",
    "LogMisuse",
    "StoreUnreadable",
    "open_folder",
    "open_log",
]
