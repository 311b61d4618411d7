"""Output of `flotilla up`: events, a table of processes, and commands to try.

It is colored on a terminal. If the reader closes the pipe (`| head`), output stops and the system continues.
"""

import shlex
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO

from flotilla.streams import discard_buffered
from flotilla.up.plan import Child
from flotilla.up.supervision import Phase, ProcessState, Severity

_RESET = "\x1b[0m"
_BOLD = "\x1b[1m"
_DIM = "\x1b[2m"
_COLORS = {Severity.OK: "\x1b[32m", Severity.ERROR: "\x1b[31m", Severity.INFO: ""}
_PHASE_SEVERITY = {
    Phase.READY: Severity.OK,
    Phase.STARTING: Severity.INFO,
    Phase.WAITING: Severity.ERROR,
    Phase.UNREADY: Severity.ERROR,
}
_HEADINGS = ("name", "role", "address", "pid", "state")

Row = tuple[str, str, str, str, str]


@dataclass(frozen=True)
class QuickStart:
    """Commands to try: the URL of the API, and the file with the secret if callers need a token."""

    base: str
    secret: Path | None = None

    @property
    def curl(self) -> str:
        """The curl command, with the token if one is needed."""
        return "curl" if self.secret is None else """curl -H "Authorization: Bearer $FLOTILLA_TOKEN\""""

    @property
    def first(self) -> list[str]:
        """Commands to run first."""
        if self.secret is None:
            return []
        grants = "--grant admin --grant produce --grant consume"
        who = f"--url {self.base} --secret-file {shlex.quote(str(self.secret))}"
        return [f"export FLOTILLA_TOKEN=$(flotilla tokens create me {grants} {who})"]


def wants_color(stream: TextIO, environment: Mapping[str, str], no_color: bool) -> bool:
    """Return whether to use colors."""
    allowed = not no_color and not environment.get("NO_COLOR") and environment.get("TERM") != "dumb"
    return allowed and stream.isatty()


class Display:
    """Prints events, tables and commands."""

    def __init__(self, stream: TextIO, *, color: bool, clock: Callable[[], float] = time.time) -> None:
        self._stream: TextIO | None = stream
        self._color = color
        self._clock = clock

    def event(self, text: str, severity: Severity = Severity.INFO) -> None:
        """Print an event with the time."""
        at = time.strftime("%H:%M:%S", time.localtime(self._clock()))
        self.lines([f"{self._paint(at, _DIM)} {self._paint(text, _COLORS[severity])}"])

    def log(self, name: str, lines: Iterable[str]) -> None:
        """Print the last log lines of a process."""
        self.lines(self._paint(f"         {name} | {line}", _DIM) for line in lines)

    def table(self, children: Sequence[Child], watched: Mapping[str, ProcessState]) -> None:
        """Print the table of processes."""
        rows = make_rows(children, watched)
        heading, *body = align([_HEADINGS, *rows])
        painted = [
            self._paint(line, _COLORS[_PHASE_SEVERITY[watched[child.name].phase]])
            for child, line in zip(children, body, strict=True)
        ]
        self.lines(["", self._paint(heading, _BOLD), *painted, ""])

    def quick_start(self, what: QuickStart) -> None:
        """Print the commands to try."""
        asks = " Callers need a token; the first command creates one." if what.secret is not None else ""
        heading = f"The API is on {self._paint(what.base, _BOLD)}.{asks} Try it in another terminal:"
        self.lines([heading, "", *quick_start_commands(what), ""])

    def lines(self, lines: Iterable[str]) -> None:
        """Print lines."""
        if self._stream is None:
            return
        try:
            self._stream.write("".join(f"{line}\n" for line in lines))
            self._stream.flush()
        except (OSError, ValueError):  # the reader has closed the pipe, as in `flotilla up | head -1`
            discard_buffered(self._stream)
            self._stream = None

    def _paint(self, text: str, code: str) -> str:
        return f"{code}{text}{_RESET}" if self._color and code else text


def make_rows(children: Sequence[Child], watched: Mapping[str, ProcessState]) -> list[Row]:
    """Return the rows of the table."""
    rows = []
    for child in children:
        state = watched[child.name]
        pid = "-" if state.pid is None else str(state.pid)
        rows.append((child.name, child.role.value, child.address, pid, state.phase.value))
    return rows


def align(rows: Sequence[Row]) -> list[str]:
    """Format rows as columns."""
    widths = [max(len(row[at]) for row in rows) for at in range(len(_HEADINGS))]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]


def describe_unready(watched: Iterable[ProcessState]) -> str:
    """Describe the processes that are not ready, with the reason."""
    late = [child for child in watched if child.phase is not Phase.READY]
    return ", ".join(f"{child.name} ({child.reason or child.phase.value})" for child in late)


def quick_start_commands(what: QuickStart) -> list[str]:
    """Return shell commands: create a token if needed, create a topic, produce and consume a message."""
    base, curl = what.base, what.curl
    message = """'{"topic": "orders", "producer_id": "'$p'", "message": "hello"}'"""
    return [
        *what.first,
        f"""{curl} {base}/topics -d '{{"name": "orders"}}'""",
        f"p=$({_register(what, 'producer')}); {curl} {base}/producer/produce -d {message}",
        f"c=$({_register(what, 'consumer')}); {curl} '{base}/consumer/consume?topic=orders&consumer_id='$c",
    ]


def _register(quick_start: QuickStart, what: str) -> str:
    find = rf"""sed 's/.*"{what}_id": *"\([^"]*\).*/\1/'"""
    return f"""{quick_start.curl} -s {quick_start.base}/{what}/register -d '{{"topic": "orders"}}' | {find}"""
