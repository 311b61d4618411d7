"""Errors of commands that send requests to servers.

CommandError            the message gives the cause and what to do; `exit_code` is the exit code
├── InputInvalid        2: an argument, a variable or a file is invalid
├── Aborted             1: the user has not confirmed
├── ServerUnavailable   1: no server answered; the request may have taken effect
└── RequestRejected     1: the server rejected the request
"""


class CommandError(Exception):
    """Base class of errors of commands."""

    exit_code = 1


class InputInvalid(CommandError):
    """An argument, a variable or a file is invalid."""

    exit_code = 2


class Aborted(CommandError):
    """The user has not confirmed."""

    def __init__(self) -> None:
        super().__init__("aborted: nothing was changed")


class ServerUnavailable(CommandError):
    """No server answered; the request may have taken effect."""


class RequestRejected(CommandError):
    """The server rejected the request."""
