"""Cuts what is read into lines, and lines into keys and values. Pure: blocks of bytes in, records out.

A line is what stands before a newline; what stands behind the last newline is a line, too, unless it is empty. An empty
line is a line. Bytes are passed on as they are, whatever they mean: a carriage return stays where it is.

Invariant: the lines of all blocks, with newlines between them, are what was read.
"""

from collections.abc import Sequence
from typing import NamedTuple

from flotilla.records import BODY_BYTES_MAX


class LineRefused(Exception):
    """A line cannot become a record; those before it can. `at` is its place among the lines that were given."""

    def __init__(self, at: int, reason: str) -> None:
        super().__init__(reason)
        self.at = at


class Rows(NamedTuple):
    """Lines as columns of records; without keys if nobody asked for them."""

    values: Sequence[bytes]
    keys: Sequence[bytes | None] | None


class Cutter:
    """Cuts blocks into lines, and keeps what has no end yet."""

    def __init__(self, line_bytes_max: int = BODY_BYTES_MAX) -> None:
        """Hold no more than so many bytes of a line that does not end."""
        self._bytes_max = line_bytes_max
        self._pieces: list[bytes] = []
        self._held = 0

    def cut(self, block: bytes) -> list[bytes]:
        """Return the lines that end in this block. Raises LineRefused if a line does not end at all."""
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
            raise LineRefused(0, f"it is longer than {self._bytes_max} bytes; no record can be")

    def end(self) -> list[bytes]:
        """Return what stands behind the last newline, if anything does."""
        last, self._pieces, self._held = b"".join(self._pieces), [], 0
        return [last] if last else []


def split_keys(lines: Sequence[bytes], separator: bytes, *, is_optional: bool = False) -> Rows:
    """Take each line's key from before the first separator. Raises LineRefused if there is none, and must be."""
    if not lines:
        return Rows((), ())
    keys, separators, values = zip(*(line.partition(separator) for line in lines), strict=True)
    if b"" not in separators:
        return Rows(values, keys)
    if not is_optional:
        raise LineRefused(separators.index(b""), f"it has no {separator.decode(errors='replace')!r} behind a key")
    found = list(zip(lines, keys, separators, values, strict=True))
    return Rows(
        [value if has else line for line, _, has, value in found],
        [key if has else None for _, key, has, _ in found],
    )
