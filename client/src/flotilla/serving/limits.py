"""How much may be under way at a time: what is more is refused, before it costs memory."""

from collections.abc import Iterator
from contextlib import contextmanager

from flotilla.serving.errors import Refusal


class InFlight:
    """Counts bytes that are being worked on."""

    def __init__(self, bytes_max: int) -> None:
        self.bytes_max = bytes_max
        self.bytes = 0

    @contextmanager
    def hold(self, size: int) -> Iterator["Held"]:
        """Count `size` bytes, and what is added, while the block runs; refuse if there are too many already."""
        held = Held(self)
        try:
            held.add(size)
            yield held
        finally:
            self.bytes -= held.bytes


class Held:
    """The share of one request."""

    def __init__(self, in_flight: InFlight) -> None:
        self._in_flight = in_flight
        self.bytes = 0

    def add(self, size: int) -> None:
        """Count more bytes; refuse if there are too many."""
        in_flight = self._in_flight
        if in_flight.bytes + size > in_flight.bytes_max:
            text = f"{in_flight.bytes} bytes are under way, {in_flight.bytes_max} is the limit; try again soon"
            raise Refusal("busy", text)
        in_flight.bytes += size
        self.bytes += size
