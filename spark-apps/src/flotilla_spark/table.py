"""The table of `log_stats`: rows and layout. Pure.

Each micro-batch updates the counts that changed. The table keeps the others, because Spark would otherwise have to keep
every window forever.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from rich.cells import cell_len, set_cell_size

ROWS_KEPT = 100_000
_COLUMN_WIDTH_MAX = 40
_HEADER = ("from", "to", "level", "source", "lines")


@dataclass(frozen=True, order=True)
class Group:
    """Key of a count. Times are text that sorts chronologically."""

    begin: str
    end: str
    level: str
    source: str


class Table:
    """Counts by group. If there are too many rows, the oldest windows are removed, permanently."""

    def __init__(self, rows_kept: int = ROWS_KEPT) -> None:
        self._rows_kept = rows_kept
        self._lines: dict[Group, int] = {}
        self._removed_up_to = ""  # start of the last removed window
        self.has_late = False

    def update(self, changed: Iterable[tuple[Group, int]]) -> None:
        """Set counts."""
        for group, lines in changed:
            if group.begin > self._removed_up_to:
                self._lines[group] = lines
        if len(self._lines) <= self._rows_kept:
            return
        kept = sorted(self._lines, key=self._order)[: self._rows_kept]
        newest = kept[0].begin
        cut = next((one.begin for one in sorted(self._lines, key=self._order)[self._rows_kept :]), "")
        if cut < newest:  # a window is complete or absent, except the newest, which keeps its largest rows
            self._removed_up_to = max(self._removed_up_to, cut)
            kept = [one for one in kept if one.begin > cut]
        self._lines = {one: self._lines[one] for one in kept}

    def _order(self, group: Group) -> tuple[object, ...]:
        """Sort key: newest window first, then most lines."""
        return (*(-ord(sign) for sign in group.begin), -self._lines[group], group.level, group.source)

    def draw(self, rows_max: int, width: int | None = None) -> str:
        """Format the first rows."""
        groups = sorted(self._lines, key=self._order)
        shown = [
            (
                one.begin,
                _shorten(one.end, one.begin),
                _printable(one.level),
                _printable(one.source),
                f"{self._lines[one]:,}",
            )
            for one in groups[:rows_max]
        ]
        widths = [
            min(_COLUMN_WIDTH_MAX, max(cell_len(row[at]) for row in (_HEADER, *shown))) for at in range(len(_HEADER))
        ]
        out = [_draw_row(row, widths) for row in (_HEADER, *shown)]
        if len(groups) > rows_max:
            rest = groups[rows_max:]
            out.append(f"rows not shown: {len(rest):,}, with {sum(self._lines[one] for one in rest):,} lines")
        if self._removed_up_to:
            out.append(f"windows up to {self._removed_up_to} are no longer shown")
        if self.has_late:
            out.append("some lines arrived later than --late and were not counted")
        return "\n".join(line if width is None else set_cell_size(line, width).rstrip() for line in out)


def _draw_row(row: tuple[str, ...], widths: list[int]) -> str:
    *texts, last = (set_cell_size(text, width) for text, width in zip(row, widths, strict=True))
    return "  ".join((*texts, f"{last.strip():>{widths[-1]}}"))


def _shorten(end: str, begin: str) -> str:
    """Omit the date if it is that of `begin`."""
    day, _, clock = end.partition(" ")
    return clock if begin.startswith(f"{day} ") else end


def _printable(text: str) -> str:
    """Replace control characters: a log line must not move the cursor."""
    return "".join(sign if sign.isprintable() else "·" for sign in text)
