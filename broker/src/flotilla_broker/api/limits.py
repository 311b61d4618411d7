"""How much may be under way at a time: what is more is refused, before it costs memory."""

from collections.abc import Iterator
from contextlib import contextmanager

from flotilla_broker.api.errors import Refusal


class InFlight:
    """Counts bytes that are being worked on."""

    def __init__(self, bytes_max: int) -> None:
        self.bytes_max = bytes_max
        self.bytes = 0

    @contextmanager
    def hold(self, size: int) -> Iterator[None]:
        """Count `size` bytes while the block runs; refuse if there are too many already."""
        if self.bytes + size > self.bytes_max:
            raise Refusal("busy", f"{self.bytes} bytes are under way, {self.bytes_max} is the limit; try again soon")
        self.bytes += size
        try:
            yield
        finally:
            self.bytes -= size
