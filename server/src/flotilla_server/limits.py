"""Limit of bytes in progress: requests above it are rejected before they use memory."""

from collections.abc import Iterator
from contextlib import contextmanager

from flotilla.protocol.errors import Refusal


class InFlight:
    """Counts the bytes of requests in progress."""

    def __init__(self, bytes_max: int) -> None:
        self.bytes_max = bytes_max
        self.bytes = 0

    @contextmanager
    def hold(self, size: int) -> Iterator["Reservation"]:
        """Reserve `size` bytes, and bytes that are added, while the block runs; raises Refusal above the limit."""
        held = Reservation(self)
        try:
            held.add(size)
            yield held
        finally:
            self.bytes -= held.bytes


class Reservation:
    """The bytes of one request."""

    def __init__(self, in_flight: InFlight) -> None:
        self._in_flight = in_flight
        self.bytes = 0

    def add(self, size: int) -> None:
        """Reserve more bytes; raises Refusal above the limit."""
        in_flight = self._in_flight
        if in_flight.bytes + size > in_flight.bytes_max:
            text = (
                f"{in_flight.bytes} bytes of other requests are in progress, the limit is {in_flight.bytes_max}; retry"
            )
            raise Refusal("busy", text)
        in_flight.bytes += size
        self.bytes += size
