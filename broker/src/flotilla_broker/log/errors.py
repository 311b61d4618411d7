"""Errors of the log.

LogError
├── LogFailed          a write or a sync failed: the log accepts nothing more, the process must exit
├── LogInUse           another process has locked the folder
├── StoreUnreadable    the log cannot be opened; the broker starts with an empty log and a new id
├── DiskFull           only the reserve is left; nothing was changed
├── LogMisuse          the caller violated a rule of the interface, such as a wrong index
├── GroupUnknown       no group with this number
├── EntryMissing       the group has no entry at this index
├── EntryDamaged       an entry on disk differs from what was written
└── GroupQuarantined   synced data of this group is damaged or lost: read another replica
"""


class LogError(Exception):
    """Base class of errors of the log."""


class LogFailed(LogError):
    """A write or a sync failed. The state of the disk is unknown, so the log accepts nothing more."""


class LogInUse(LogError):
    """Another process has locked the folder."""


class StoreUnreadable(LogError):
    """The log cannot be opened."""


class DiskFull(LogError):
    """Only the reserve is left. Nothing was changed; retry when space is free."""


class LogMisuse(LogError):
    """The caller violated a rule of the interface. Nothing was changed."""


class GroupUnknown(LogError):
    """There is no group with this number."""


class EntryMissing(LogError):
    """The group has no entry at this index."""


class EntryDamaged(LogError):
    """An entry on disk differs from what was written."""

    def __init__(self, group: int, index: int, where: str) -> None:
        super().__init__(f"group {group}: entry {index} is damaged ({where})")
        self.group = group
        self.index = index


class GroupQuarantined(LogError):
    """Synced data of the group is damaged or lost. The group can be neither read nor written."""

    def __init__(self, group: int, reason: str) -> None:
        super().__init__(f"group {group} is quarantined, read another replica: {reason}")
        self.group = group
        self.reason = reason
