"""What commands print, and that they ask before they destroy.

What was asked for goes to standard output, what is to be said about it to standard error.
"""

import json
import sys
from collections.abc import Collection, Sequence

from flotilla.command.errors import Declined


def is_to_confirm(is_sure: bool) -> bool:
    """Tell whether there is somebody to be asked."""
    return not is_sure and sys.stdin.isatty()


def confirm(question: str, is_sure: bool) -> None:
    """Ask somebody at a terminal whether they are sure; raises Declined. Scripts are not asked."""
    if not is_to_confirm(is_sure):
        return
    print(f"{question} [y/N] ", end="", file=sys.stderr, flush=True)  # noqa: T201 - a command speaks
    if sys.stdin.readline().strip().lower() not in {"y", "yes"}:
        raise Declined


def table(rows: Sequence[Sequence[object]], numbers: Collection[str] = ()) -> list[str]:
    """Lay rows out in columns, the first being the heading; those of numbers to the right. None is a dash."""
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


def say(*lines: str) -> None:
    """Print what was asked for."""
    text = "\n".join(lines)
    if not _is_writable(text):  # a '?' for a letter is better than nothing at all
        text = text.encode(sys.stdout.encoding, "replace").decode(sys.stdout.encoding)
    print(text)  # noqa: T201 - a command speaks


def say_json(answer: object) -> None:
    """Print an answer for scripts."""
    import msgspec  # noqa: PLC0415 - help and completion print no answers

    found = msgspec.to_builtins(answer)
    text = json.dumps(found, indent=2, ensure_ascii=False)
    say(text if _is_writable(text) else json.dumps(found, indent=2))


def _is_writable(text: str) -> bool:
    """Tell whether standard output has all of the letters."""
    if sys.stdout is None or not sys.stdout.encoding:  # as it is for those who closed it, and for one in memory
        return True
    try:
        text.encode(sys.stdout.encoding, sys.stdout.errors or "strict")
    except UnicodeEncodeError:
        return False
    return True


def tell(text: str) -> None:
    """Say something about it."""
    print(text, file=sys.stderr)  # noqa: T201 - a command speaks


def count(number: int, what: str) -> str:
    """Write a number of things: 1 partition, 2 partitions."""
    return f"{number} {what}" if number == 1 else f"{number} {what}s"
