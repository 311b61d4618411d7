"""How `flotilla experiment` shows what it does and found. What was asked for goes to standard output."""

import json
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict

from flotilla.command.speaking import count, say, say_json, table
from flotilla.experiments.api_walk import Tried
from flotilla.experiments.checking import Report
from flotilla.experiments.running import Progress

_PROBLEMS_SHOWN = 20
_NUMBERS = ("sent", "received", "missing", "doubled", "disordered", "strange")


def write_report(report: Report) -> list[str]:
    """Write what the checker found: a table, what is wrong, and whether all is well."""
    rows: list[tuple[object, ...]] = [("consumer", "topic", "producers", *_NUMBERS)]
    for one in report.tallies:
        names = " ".join(f"P{producer}" for producer in one.producers)
        numbers = (getattr(one, name) for name in _NUMBERS)
        rows.append((f"C{one.consumer}", one.topic, names or None, *numbers))
    shown = report.problems[:_PROBLEMS_SHOWN]
    left = len(report.problems) - len(shown)
    more = [f"... and {left} more"] if left else []
    return [*table(rows, numbers=_NUMBERS), *shown, *more, _judge(report)]


def _judge(report: Report) -> str:
    if not report.is_ok:
        return f"not ok: {count(len(report.problems), 'problem')}"
    consumers = count(len({one.consumer for one in report.tallies}), "consumer")
    return f"ok: {consumers} got {count(report.received, 'message')}, each once and in order"


def show_report(report: Report, as_json: bool) -> int:
    """Show what the checker found; return the exit code."""
    if as_json:
        tallies = [asdict(one) for one in report.tallies]
        say_json({"ok": report.is_ok, "tallies": tallies, "problems": report.problems})
    else:
        say(*write_report(report))
    return 0 if report.is_ok else 1


def show_call(tried: Tried, as_json: bool) -> None:
    """Show a call of the HTTP API, as soon as it was made."""
    if not as_json:
        verdict, why = ("ok    ", "") if tried.trouble is None else ("failed", f": {tried.trouble}")
        say(f"{verdict}  {tried.call}: {tried.purpose}{why}")


def show_calls(tried: Sequence[Tried], as_json: bool) -> int:
    """Show what came of all calls; return the exit code."""
    failed = sum(one.trouble is not None for one in tried)
    if as_json:
        say_json({"ok": not failed, "calls": [asdict(one) for one in tried]})
    else:
        say(f"ok: {len(tried)} calls" if not failed else f"not ok: {failed} of {len(tried)} calls failed")
    return 1 if failed else 0


def make_teller(as_json: bool) -> Callable[[int], object]:
    """Make what a single step tells how far it is: lines of JSON, for whoever runs it."""
    if not as_json:
        return lambda _: None

    def tell(messages: int) -> None:
        print(json.dumps({"messages": messages}), flush=True)  # noqa: T201 - a command speaks

    return tell


@contextmanager
def progress(messages: int, copies: int) -> Iterator[Callable[[Progress], object]]:
    """Show on a terminal how far an experiment is: of all messages, and of all that consumers are to get."""
    if not sys.stderr.isatty():
        yield lambda _: None
        return
    from rich.console import Console  # noqa: PLC0415 - it takes longer to load than most commands to run
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn  # noqa: PLC0415
    from rich.progress import Progress as Bars  # noqa: PLC0415

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Bars(*columns, console=Console(stderr=True), transient=True) as bars:
        produced, consumed = bars.add_task("produced", total=messages), bars.add_task("consumed", total=copies)

        def show(now: Progress) -> None:
            bars.update(produced, completed=now.produced)
            bars.update(consumed, completed=now.consumed)

        yield show
