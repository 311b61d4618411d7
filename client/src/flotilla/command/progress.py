"""Shows on a terminal how far something has come. Where there is none, nothing is shown, and rich is not loaded."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

Note = Callable[[int, float], None]  # how many records, and how much of the total, are done since the last time


@contextmanager
def progress(what: str, total: float | None, *, is_wanted: bool = True, is_bytes: bool = True) -> Iterator[Note]:
    """Show records and rate, and how much of the total is done, until the block ends; then it is gone."""
    if not (is_wanted and sys.stderr.isatty()):
        yield _ignore
        return
    from rich.console import Console  # noqa: PLC0415 - it takes longer to load than most commands to run
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

        def note(records: int, done: float) -> None:
            before: int = shown.tasks[0].fields["records"]
            shown.update(task, advance=done, records=before + records)

        yield note


def _ignore(records: int, done: float) -> None:
    del records, done
