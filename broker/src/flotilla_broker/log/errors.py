"""What can go wrong in the log.

LogError
├── LogFailed          a write or a sync failed: nothing more is accepted, the process has to end
├── LogInUse           another process holds the folder
├── StoreUnreadable    the folder as a whole cannot be opened; the broker starts anew under a new id
├── DiskFull           refused before anything was changed
├── LogMisuse          the caller broke a rule of the interface (an index that is not the next one, ...)
├── GroupUnknown       no group of that number
├── EntryMissing       an index outside of what the group holds
├── EntryDamaged       an entry on disk is not what was written
└── GroupQuarantined   synced data of this group was damaged or lost: its replica has to be rebuilt
"""


class LogError(Exception):
    """The root of everything that the log raises."""


class LogFailed(LogError):
    """A write or a sync failed. What reached the disk is unknown, so the log accepts nothing more."""


class LogInUse(LogError):
    """Another process holds the folder."""


class StoreUnreadable(LogError):
    """The folder as a whole cannot be opened."""


class DiskFull(LogError):
    """No room but the reserve. Nothing was changed; it may work again once space is freed."""


class LogMisuse(LogError):
    """The caller broke a rule of the interface. Nothing was changed."""


class GroupUnknown(LogError):
    """There is no group of that number."""


class EntryMissing(LogError):
    """The index is outside of what the group holds."""


class EntryDamaged(LogError):
    """An entry on disk is not what was written there."""

    def __init__(self, group: int, index: int, where: str) -> None:
        super().__init__(f"group {group}: entry {index} is damaged ({where})")
        self.group = group
        self.index = index


class GroupQuarantined(LogError):
    """Synced data of the group was damaged or lost. It neither takes nor gives entries any more."""

    def __init__(self, group: int, reason: str) -> None:
        super().__init__(f"group {group} is quarantined and has to be rebuilt from another replica: {reason}")
        self.group = group
        self.reason = reason
