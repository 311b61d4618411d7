"""What keeps a command that asks servers from its work.

CommandError            the text says what is wrong, and what to do; `exit_code` is the command's
├── InputInvalid        2: an argument, a variable or a file breaks a rule
├── Declined            1: somebody was asked whether they are sure, and is not
├── ServerSilent        1: no server answers; perhaps what was asked for was done
└── ServerRefused       1: the server does not do it, and says why
"""


class CommandError(Exception):
    """What keeps a command from its work."""

    exit_code = 1


class InputInvalid(CommandError):
    """An argument, a variable or a file breaks a rule."""

    exit_code = 2


class Declined(CommandError):
    """Somebody was asked whether they are sure, and is not."""

    def __init__(self) -> None:
        super().__init__("nothing was changed")


class ServerSilent(CommandError):
    """No server answers."""


class ServerRefused(CommandError):
    """The server does not do it."""
