"""What commands have in common through which records flow: they look before they begin, and end as they should."""

import os
import re
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

from flotilla.client.cluster import TopicInfo
from flotilla.client.errors import TopicMissing
from flotilla.command import asking
from flotilla.command.errors import ServerRefused
from flotilla.limits import TOPIC_NAME, TOPIC_NAME_SAID

_PATIENCE = 2  # signals


def find_topic(server: asking.Server, name: str) -> TopicInfo:
    """Look a topic up, once: whoever misspelt it does not want to wait. Raises CommandError."""
    try:
        return asking.run(server, lambda admin: admin.topics.describe(name))
    except ServerRefused as error:
        if isinstance(error.__cause__, TopicMissing):
            can_be = re.match(TOPIC_NAME, name) is not None
            advice = f"`flotilla topics create {name}` makes it" if can_be else f"nor can there be: {TOPIC_NAME_SAID}"
            raise ServerRefused(f"{error}; {advice}") from error
        raise


class Ending:
    """Ctrl-C and SIGTERM: somebody asks for the end.

    An exception in the midst of a producer, a consumer or a lock could leave them in a state from which nobody gets
    out. So a first signal only says that the end is near, or raises where that is harmless (`at_once`). A second one
    raises wherever it comes. A third ends the process.
    """

    def __init__(self, exit_: Callable[[int], object] = os._exit) -> None:
        self.asked = 0  # how often
        self.stop: Callable[[], object] = lambda: None  # called when one is asked for the first time
        self._code = 0
        self._is_harmless = False
        self._exit = exit_

    def ask(self, number: int, frame: FrameType | None = None) -> None:
        """Take a signal; raises KeyboardInterrupt, SystemExit."""
        del frame
        self.asked += 1
        self._code = 128 + number
        if self.asked > _PATIENCE:
            self._exit(self._code)
        if self._is_harmless or self.asked > 1:
            self.end()
        self.stop()

    def end(self) -> None:
        """Raise KeyboardInterrupt or SystemExit if one was asked to end."""
        if self._code == 128 + signal.SIGINT:
            raise KeyboardInterrupt
        if self._code:
            raise SystemExit(self._code)

    @contextmanager
    def at_once(self) -> Iterator[None]:
        """Do something that may be left at any moment, unless one was asked to end before."""
        self._is_harmless = True
        try:
            self.end()
            yield
        finally:
            self._is_harmless = False


@contextmanager
def endable() -> Iterator[Ending]:
    """Have Ctrl-C and SIGTERM end what is under way, so that what was begun is finished, and groups are left."""
    ending = Ending()
    known = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    heeded = {number: before for number, before in known.items() if before is not signal.SIG_IGN}  # as nohup wants it
    for number in heeded:
        signal.signal(number, ending.ask)
    try:
        yield ending
    finally:
        for number, before in heeded.items():
            signal.signal(number, before)
