"""Output of `flotilla experiment`: reports on standard output, progress on standard error."""

import json
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict

from flotilla.command.output import format_table, pluralize, print_json, print_lines
from flotilla.experiments.api_test import CallResult
from flotilla.experiments.checker import Report
from flotilla.experiments.runner import Progress

_PROBLEMS_SHOWN = 20
_COLUMNS = {  # by field of a tally
    "sent": "sent",
    "received": "received",
    "missing": "missing",
    "doubled": "duplicate",
    "disordered": "out-of-order",
    "unexpected": "unexpected",
}
_JSON_NAMES = {"unexpected": "strange"}  # that differ from the fields of a tally


def format_report(report: Report) -> list[str]:
    """Format the report of the checker: a table, the first problems, and the verdict."""
    rows: list[tuple[object, ...]] = [("consumer", "topic", "producers", *_COLUMNS.values())]
    for one in report.tallies:
        names = " ".join(f"P{producer}" for producer in one.producers)
        numbers = (getattr(one, name) for name in _COLUMNS)
        rows.append((f"C{one.consumer}", one.topic, names or None, *numbers))
    shown = report.problems[:_PROBLEMS_SHOWN]
    left = len(report.problems) - len(shown)
    more = [f"... and {left} more"] if left else []
    return [*format_table(rows, numbers=_COLUMNS.values()), *shown, *more, _verdict(report)]


def _verdict(report: Report) -> str:
    if not report.is_ok:
        return f"failed: {pluralize(len(report.problems), 'problem')}"
    consumers = pluralize(len({one.consumer for one in report.tallies}), "consumer")
    return f"ok: {consumers} received {pluralize(report.received, 'message')}, each once and in order"


def print_report(report: Report, as_json: bool) -> int:
    """Print the report of the checker; return the exit code."""
    if as_json:
        tallies = [
            {_JSON_NAMES.get(name, name): value for name, value in asdict(one).items()} for one in report.tallies
        ]
        print_json({"ok": report.is_ok, "tallies": tallies, "problems": report.problems})
    else:
        print_lines(*format_report(report))
    return 0 if report.is_ok else 1


def print_call(tried: CallResult, as_json: bool) -> None:
    """Print the result of one call of the API test."""
    if not as_json:
        verdict, why = ("ok    ", "") if tried.trouble is None else ("failed", f": {tried.trouble}")
        print_lines(f"{verdict}  {tried.call}: {tried.purpose}{why}")


def print_calls(tried: Sequence[CallResult], as_json: bool) -> int:
    """Print the verdict of the API test; return the exit code."""
    failed = sum(one.trouble is not None for one in tried)
    if as_json:
        print_json({"ok": not failed, "calls": [asdict(one) for one in tried]})
    else:
        print_lines(f"ok: {len(tried)} calls" if not failed else f"failed: {failed} of {len(tried)} calls")
    return 1 if failed else 0


def progress_printer(as_json: bool) -> Callable[[int], object]:
    """Return a function that prints the progress of a step as JSON lines, for the runner."""
    if not as_json:
        return lambda _: None

    def report(messages: int) -> None:
        print(json.dumps({"messages": messages}), flush=True)  # noqa: T201 - output of a command

    return report


@contextmanager
def progress(messages: int, copies: int) -> Iterator[Callable[[Progress], object]]:
    """Show progress bars of produced and consumed messages on a terminal."""
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
