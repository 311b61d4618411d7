"""Handling of Ctrl-C and SIGTERM in commands that produce or consume."""

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

_SIGNALS_MAX = 2  # before the process exits at once


class Interrupts:
    """Ctrl-C and SIGTERM: the first signal requests the end, the second raises, the third exits.

    An exception inside a producer, a consumer or a lock could leave it in an inconsistent state. Therefore the first
    signal only sets a flag and calls `stop`; inside `interruptible`, it raises at once.
    """

    def __init__(self, exit_: Callable[[int], object] = os._exit) -> None:
        self.count = 0  # signals received
        self.stop: Callable[[], object] = lambda: None  # called on the first signal
        self._code = 0
        self._is_interruptible = False
        self._exit = exit_

    def handle(self, number: int, frame: FrameType | None = None) -> None:
        """Handle a signal; raises KeyboardInterrupt, SystemExit."""
        del frame
        self.count += 1
        self._code = 128 + number
        if self.count > _SIGNALS_MAX:
            self._exit(self._code)
        if self._is_interruptible or self.count > 1:
            self.raise_pending()
        self.stop()

    def raise_pending(self) -> None:
        """Raise KeyboardInterrupt or SystemExit if a signal was received."""
        if self._code == 128 + signal.SIGINT:
            raise KeyboardInterrupt
        if self._code:
            raise SystemExit(self._code)

    @contextmanager
    def interruptible(self) -> Iterator[None]:
        """Run a block that signals may interrupt; raises at once if a signal is pending."""
        self._is_interruptible = True
        try:
            self.raise_pending()
            yield
        finally:
            self._is_interruptible = False


@contextmanager
def handle_interrupts() -> Iterator[Interrupts]:
    """Handle Ctrl-C and SIGTERM in a block, so that it can finish deliveries and leave consumer groups."""
    interrupts = Interrupts()
    known = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    # A signal that is ignored, as under nohup, stays so.
    handled = {number: before for number, before in known.items() if before is not signal.SIG_IGN}
    for number in handled:
        signal.signal(number, interrupts.handle)
    try:
        yield interrupts
    finally:
        for number, before in handled.items():
            signal.signal(number, before)
