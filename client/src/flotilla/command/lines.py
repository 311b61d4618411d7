"""Splits input into lines, and lines into keys and values. Pure: blocks of bytes in, records out.

A line ends with a newline; bytes after the last newline are a line, too. An empty line is a line. All other bytes are
kept, including carriage returns.

Invariant: the lines of all blocks, joined with newlines, are the input.
"""

from collections.abc import Sequence
from typing import NamedTuple

from flotilla.records import BODY_BYTES_MAX


class LineInvalid(Exception):
    """A line cannot become a record; earlier ones can. `at` is its index among the given lines."""

    def __init__(self, at: int, reason: str) -> None:
        super().__init__(reason)
        self.at = at


class Rows(NamedTuple):
    """Lines as columns of records; `keys` is None if lines have no keys."""

    values: Sequence[bytes]
    keys: Sequence[bytes | None] | None


class LineSplitter:
    """Splits blocks into lines, and buffers an incomplete line."""

    def __init__(self, line_bytes_max: int = BODY_BYTES_MAX) -> None:
        """Buffer at most `line_bytes_max` bytes of an incomplete line."""
        self._bytes_max = line_bytes_max
        self._pieces: list[bytes] = []
        self._held = 0

    def feed(self, block: bytes) -> list[bytes]:
        """Return the lines that end in this block. Raises LineInvalid if the incomplete line is too long."""
        lines = block.split(b"\n")
        last = lines.pop()
        if not lines:
            self._hold(last)
            return lines
        if self._pieces:
            lines[0] = b"".join([*self._pieces, lines[0]])
        self._pieces, self._held = [last], len(last)
        return lines

    def _hold(self, piece: bytes) -> None:
        self._pieces.append(piece)
        self._held += len(piece)
        if self._held > self._bytes_max:
            raise LineInvalid(0, f"longer than {self._bytes_max} bytes, the maximum size of a record")

    def flush(self) -> list[bytes]:
        """Return the bytes after the last newline as a line, if there are any."""
        last, self._pieces, self._held = b"".join(self._pieces), [], 0
        return [last] if last else []


def split_keys(lines: Sequence[bytes], separator: bytes, *, is_optional: bool = False) -> Rows:
    """Split each line at the first separator. Raises LineInvalid if one has none and keys are not optional."""
    if not lines:
        return Rows((), ())
    keys, separators, values = zip(*(line.partition(separator) for line in lines), strict=True)
    if b"" not in separators:
        return Rows(values, keys)
    if not is_optional:
        raise LineInvalid(separators.index(b""), f"no separator {separator.decode(errors='replace')!r} after the key")
    found = list(zip(lines, keys, separators, values, strict=True))
    return Rows(
        [value if has else line for line, _, has, value in found],
        [key if has else None for _, key, has, _ in found],
    )
