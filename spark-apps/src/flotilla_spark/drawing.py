"""The table on the terminal: what it keeps, and how it is drawn. Pure.

Each micro-batch brings the counts that have changed, as they are now. The others stay as they were, so the table is
whole, although Spark does not send it whole: that would mean to keep every window for ever.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from rich.cells import cell_len, set_cell_size

ROWS_KEPT = 100_000
_WIDEST = 40
_HEAD = ("from", "to", "level", "source", "lines")


@dataclass(frozen=True, order=True)
class Group:
    """What is counted. Times are texts that sort as the times do."""

    begin: str
    end: str
    level: str
    source: str


class Table:
    """The windows that are shown. The oldest are let go when there are too many rows, and do not come back."""

    def __init__(self, rows_kept: int = ROWS_KEPT) -> None:
        self._rows_kept = rows_kept
        self._lines: dict[Group, int] = {}
        self._gone = ""  # the last window that was let go
        self.has_late = False

    def update(self, changed: Iterable[tuple[Group, int]]) -> None:
        """Take new counts."""
        for group, lines in changed:
            if group.begin > self._gone:
                self._lines[group] = lines
        if len(self._lines) <= self._rows_kept:
            return
        kept = sorted(self._lines, key=self._order)[: self._rows_kept]
        newest = kept[0].begin
        cut = next((one.begin for one in sorted(self._lines, key=self._order)[self._rows_kept :]), "")
        if cut < newest:  # a window is shown whole or not at all, but for the newest, which shows its largest rows
            self._gone = max(self._gone, cut)
            kept = [one for one in kept if one.begin > cut]
        self._lines = {one: self._lines[one] for one in kept}

    def _order(self, group: Group) -> tuple[object, ...]:
        """Order rows: the newest window first, in it the most lines."""
        return (*(-ord(sign) for sign in group.begin), -self._lines[group], group.level, group.source)

    def draw(self, rows_max: int, width: int | None = None) -> str:
        """Draw the first rows."""
        groups = sorted(self._lines, key=self._order)
        shown = [
            (one.begin, _short(one.end, one.begin), _clean(one.level), _clean(one.source), f"{self._lines[one]:,}")
            for one in groups[:rows_max]
        ]
        widths = [min(_WIDEST, max(cell_len(row[at]) for row in (_HEAD, *shown))) for at in range(len(_HEAD))]
        out = [_draw_row(row, widths) for row in (_HEAD, *shown)]
        if len(groups) > rows_max:
            rest = groups[rows_max:]
            out.append(f"and {len(rest):,} more rows, with {sum(self._lines[one] for one in rest):,} lines")
        if self._gone:
            out.append(f"windows up to {self._gone} are not shown any more")
        if self.has_late:
            out.append("some lines came later than --late, and are not counted")
        return "\n".join(line if width is None else set_cell_size(line, width).rstrip() for line in out)


def _draw_row(row: tuple[str, ...], widths: list[int]) -> str:
    *texts, last = (set_cell_size(text, width) for text, width in zip(row, widths, strict=True))
    return "  ".join((*texts, f"{last.strip():>{widths[-1]}}"))


def _short(end: str, begin: str) -> str:
    """Leave the day out where it is that of the beginning."""
    day, _, clock = end.partition(" ")
    return clock if begin.startswith(f"{day} ") else end


def _clean(text: str) -> str:
    """Replace what is not for terminals: a line of a log must not move the cursor."""
    return "".join(sign if sign.isprintable() else "·" for sign in text)
