"""What people see: lines about what happens, a table of what runs where, and lines to try.

On a terminal with colour, otherwise plain. Whoever reads may go away (a closed terminal, `| head`): then nothing is
shown any more, and everything goes on.
"""

import shlex
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO

from flotilla.up.plan import Child
from flotilla.up.supervision import Phase, Tone, Watched

_RESET = "\x1b[0m"
_BOLD = "\x1b[1m"
_DIM = "\x1b[2m"
_TONES = {Tone.GOOD: "\x1b[32m", Tone.BAD: "\x1b[31m", Tone.PLAIN: ""}
_PHASES = {Phase.READY: Tone.GOOD, Phase.STARTING: Tone.PLAIN, Phase.WAITING: Tone.BAD, Phase.UNREADY: Tone.BAD}
_HEADINGS = ("name", "role", "address", "pid", "state")

Row = tuple[str, str, str, str, str]


@dataclass(frozen=True)
class ToTry:
    """What people may try: where the API is, and the file with the secret if callers need a token."""

    base: str
    secret: Path | None = None

    @property
    def curl(self) -> str:
        """How curl is called."""
        return "curl" if self.secret is None else """curl -H "Authorization: Bearer $FLOTILLA_TOKEN\""""

    @property
    def first(self) -> list[str]:
        """What has to be done before anything else."""
        if self.secret is None:
            return []
        grants = "--grant admin --grant produce --grant consume"
        who = f"--url {self.base} --secret-file {shlex.quote(str(self.secret))}"
        return [f"export FLOTILLA_TOKEN=$(flotilla tokens create me {grants} {who})"]


def wants_color(stream: TextIO, environment: Mapping[str, str], no_color: bool) -> bool:
    """Tell whether to use colour."""
    allowed = not no_color and not environment.get("NO_COLOR") and environment.get("TERM") != "dumb"
    return allowed and stream.isatty()


class Display:
    """Writes to people."""

    def __init__(self, stream: TextIO, *, color: bool, clock: Callable[[], float] = time.time) -> None:
        self._stream: TextIO | None = stream
        self._color = color
        self._clock = clock

    def event(self, text: str, tone: Tone = Tone.PLAIN) -> None:
        """Write a line about what happened, with the time."""
        at = time.strftime("%H:%M:%S", time.localtime(self._clock()))
        self.lines([f"{self._paint(at, _DIM)} {self._paint(text, _TONES[tone])}"])

    def log(self, name: str, lines: Iterable[str]) -> None:
        """Write the last lines of a process."""
        self.lines(self._paint(f"         {name} | {line}", _DIM) for line in lines)

    def table(self, children: Sequence[Child], watched: Mapping[str, Watched]) -> None:
        """Write what runs where."""
        rows = make_rows(children, watched)
        heading, *body = align([_HEADINGS, *rows])
        painted = [
            self._paint(line, _TONES[_PHASES[watched[child.name].phase]])
            for child, line in zip(children, body, strict=True)
        ]
        self.lines(["", self._paint(heading, _BOLD), *painted, ""])

    def to_try(self, what: ToTry) -> None:
        """Write lines to try."""
        asks = " It asks for tokens; the first line makes one." if what.secret is not None else ""
        heading = f"The API is on {self._paint(what.base, _BOLD)}.{asks} To try, in another terminal:"
        self.lines([heading, "", *try_lines(what), ""])

    def lines(self, lines: Iterable[str]) -> None:
        """Write lines."""
        if self._stream is None:
            return
        try:
            self._stream.write("".join(f"{line}\n" for line in lines))
            self._stream.flush()
        except (OSError, ValueError):  # nobody reads any more
            self._stream = None

    def _paint(self, text: str, code: str) -> str:
        return f"{code}{text}{_RESET}" if self._color and code else text


def make_rows(children: Sequence[Child], watched: Mapping[str, Watched]) -> list[Row]:
    """Make the rows of the table."""
    rows = []
    for child in children:
        state = watched[child.name]
        pid = "-" if state.pid is None else str(state.pid)
        rows.append((child.name, child.role.value, child.address, pid, state.phase.value))
    return rows


def align(rows: Sequence[Row]) -> list[str]:
    """Lay rows out in columns."""
    widths = [max(len(row[at]) for row in rows) for at in range(len(_HEADINGS))]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]


def describe_waiting(watched: Iterable[Watched]) -> str:
    """Say who is not ready, and why."""
    late = [child for child in watched if child.phase is not Phase.READY]
    return ", ".join(f"{child.name} ({child.reason or child.phase.value})" for child in late)


def try_lines(what: ToTry) -> list[str]:
    """Write lines for a shell: make a topic, produce a message, consume it; before that a token, if one is needed."""
    base, curl = what.base, what.curl
    message = """'{"topic": "orders", "producer_id": "'$p'", "message": "hello"}'"""
    return [
        *what.first,
        f"""{curl} {base}/topics -d '{{"name": "orders"}}'""",
        f"p=$({_register(what, 'producer')}); {curl} {base}/producer/produce -d {message}",
        f"c=$({_register(what, 'consumer')}); {curl} '{base}/consumer/consume?topic=orders&consumer_id='$c",
    ]


def _register(to_try: ToTry, what: str) -> str:
    find = rf"""sed 's/.*"{what}_id": *"\([^"]*\).*/\1/'"""
    return f"""{to_try.curl} -s {to_try.base}/{what}/register -d '{{"topic": "orders"}}' | {find}"""
