"""Errors that prevent `flotilla up` from starting.

    UpError                 the message gives the cause and what to do; `exit_code` is the exit code
    ├── ServersMissing      1: the servers are not installed
    ├── OptionInvalid       2: an option is invalid
    ├── FolderUnusable      3: the data folder is in use, cannot be written, or was created with more brokers
    └── PortTaken           4: the port cannot be used

The exit codes are those of the servers.
"""

from collections.abc import Sequence


class UpError(Exception):
    """Base class of errors that prevent a start."""

    exit_code = 1


class ServersMissing(UpError):
    """The servers are not installed."""

    def __init__(self, packages: Sequence[str]) -> None:
        names = " and ".join(packages)
        super().__init__(f"servers are not installed (missing: {names}): run `make setup` in a clone of Flotilla")


class OptionInvalid(UpError):
    """An option is invalid."""

    exit_code = 2


class FolderUnusable(UpError):
    """The data folder is in use, cannot be written, or was created with more brokers."""

    exit_code = 3


class PortTaken(UpError):
    """The port cannot be used."""

    exit_code = 4
