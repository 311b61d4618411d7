"""Output of commands: results, messages, tables, progress bars, and confirmation.

Results go to standard output, messages to standard error. rich is imported only to show a progress bar.
"""

import json
import sys
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager

from flotilla.command.errors import Aborted

Advance = Callable[[int, float], None]  # records and units of the total since the last call


def needs_confirmation(yes: bool) -> bool:
    """Return whether to ask for confirmation: standard input is a terminal, and --yes is not given."""
    return not yes and sys.stdin.isatty()


def confirm(question: str, yes: bool) -> None:
    """Ask for confirmation on a terminal; raises Aborted. Without a terminal, return at once."""
    if not needs_confirmation(yes):
        return
    print(f"{question} [y/N] ", end="", file=sys.stderr, flush=True)  # noqa: T201 - output of a command
    if sys.stdin.readline().strip().lower() not in {"y", "yes"}:
        raise Aborted


def format_table(rows: Sequence[Sequence[object]], numbers: Collection[str] = ()) -> list[str]:
    """Format rows as columns; the first row is the heading. Columns in `numbers` are right-aligned. None is a dash."""
    texts = [["-" if cell is None else str(cell) for cell in row] for row in rows]
    widths = [max(len(row[at]) for row in texts) for at in range(len(texts[0]))]
    is_right = [name in numbers for name in texts[0]]
    return [
        "  ".join(
            cell.rjust(width) if right else cell.ljust(width)
            for cell, width, right in zip(row, widths, is_right, strict=True)
        ).rstrip()
        for row in texts
    ]


def print_lines(*lines: str) -> None:
    """Print a result to standard output."""
    text = "\n".join(lines)
    if not _is_writable(text):  # replace characters that the encoding lacks with '?', rather than fail
        text = text.encode(sys.stdout.encoding, "replace").decode(sys.stdout.encoding)
    print(text)  # noqa: T201 - output of a command


def print_json(answer: object) -> None:
    """Print a result as JSON to standard output."""
    import msgspec  # noqa: PLC0415 - help and completion do not need it

    found = msgspec.to_builtins(answer)
    text = json.dumps(found, indent=2, ensure_ascii=False)
    print_lines(text if _is_writable(text) else json.dumps(found, indent=2))


def _is_writable(text: str) -> bool:
    """Return whether standard output can encode the text."""
    if sys.stdout is None or not sys.stdout.encoding:  # closed, or in memory
        return True
    try:
        text.encode(sys.stdout.encoding, sys.stdout.errors or "strict")
    except UnicodeEncodeError:
        return False
    return True


def print_message(text: str) -> None:
    """Print a message to standard error."""
    print(text, file=sys.stderr)  # noqa: T201 - output of a command


def pluralize(number: int, what: str) -> str:
    """Format a number with a noun: 1 partition, 2 partitions."""
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


@contextmanager
def progress(what: str, total: float | None, *, enabled: bool = True, is_bytes: bool = True) -> Iterator[Advance]:
    """Show a progress bar with records and rate on a terminal, until the block ends."""
    if not (enabled and sys.stderr.isatty()):
        yield _ignore
        return
    from rich.console import Console  # noqa: PLC0415 - importing it takes longer than most commands
    from rich.progress import BarColumn, DownloadColumn, Progress, Task, TextColumn, TimeElapsedColumn  # noqa: PLC0415
    from rich.text import Text  # noqa: PLC0415

    class Records(TextColumn):
        def render(self, task: Task) -> Text:
            records: int = task.fields["records"]
            return Text(f"{records:,} records, {records / max(task.elapsed or 0.0, 1e-3):,.0f}/s")

    sizes = (DownloadColumn(binary_units=True),) if is_bytes else ()
    bar = (TextColumn("{task.description}"), BarColumn(), *sizes, Records(""), TimeElapsedColumn())
    with Progress(*bar, console=Console(stderr=True), transient=True) as shown:
        task = shown.add_task(what, total=total, records=0)

        def advance(records: int, done: float) -> None:
            before: int = shown.tasks[0].fields["records"]
            shown.update(task, advance=done, records=before + records)

        yield advance


def _ignore(records: int, done: float) -> None:
    del records, done
