"""What keeps `flotilla up` from starting.

    UpError                 the text says what is wrong, and what to do; `exit_code` is the command's
    ├── ServersMissing      1: there is nothing to run
    ├── OptionInvalid       2: an option breaks a rule
    ├── FolderUnusable      3: the data folder is in use, cannot be written, or was made for more brokers
    └── PortTaken           4: the port cannot be had

The exit codes are those of the servers.
"""

from collections.abc import Sequence


class UpError(Exception):
    """What keeps `flotilla up` from starting."""

    exit_code = 1


class ServersMissing(UpError):
    """The servers are not installed."""

    def __init__(self, packages: Sequence[str]) -> None:
        names = " and ".join(packages)
        super().__init__(f"the servers are not installed: no {names}. Install them: pip install 'flotilla[server]'")


class OptionInvalid(UpError):
    """An option breaks a rule."""

    exit_code = 2


class FolderUnusable(UpError):
    """The data folder is in use, cannot be written, or was made for more brokers."""

    exit_code = 3


class PortTaken(UpError):
    """The port cannot be had."""

    exit_code = 4
