"""What commands have in common: how they are declared, what they print, and that they ask before they destroy.

What was asked for goes to standard output, what is to be said about it to standard error.
"""

import argparse
import json
import os
import sys
from collections.abc import Callable, Collection, Sequence
from typing import TypeAlias, TypeVar

import msgspec

from flotilla.command import asking
from flotilla.command.errors import Declined

T = TypeVar("T")
Commands: TypeAlias = "argparse._SubParsersAction[argparse.ArgumentParser]"  # noqa: SLF001 - it has no other name
Action: TypeAlias = Callable[[argparse.Namespace, asking.Server], None]


def add_parser(
    commands: Commands, name: str, text: str, description: str, examples: str | None = None
) -> argparse.ArgumentParser:
    """Declare a command, or a task of one."""
    return commands.add_parser(
        name,
        help=text,
        description=description,
        epilog=examples,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )


def add_common(parser: argparse.ArgumentParser, action: Action) -> None:
    """Declare what everything has that asks a manager, and what is done."""
    parser.add_argument("--json", action="store_true", help="print the answer as JSON, for scripts")
    asking.add_arguments(parser)

    def run(found: argparse.Namespace) -> int:
        server = asking.from_arguments(found, os.environ)
        if server.is_exposed:
            tell(f"others on the way to {server.url} can read what is sent; better use https://")
        action(found, server)
        return 0

    parser.set_defaults(action=run)


def add_yes(parser: argparse.ArgumentParser) -> None:
    """Declare how to skip the question."""
    parser.add_argument(
        "--yes", action="store_true", help="do not ask whether one is sure (on a terminal one is asked)"
    )


def typed(parse: Callable[[str], T]) -> Callable[[str], T]:
    """Have argparse say what a parser says, which it does not for a plain ValueError."""

    def parsed(text: str) -> T:
        try:
            return parse(text)
        except ValueError as error:
            raise argparse.ArgumentTypeError(str(error)) from error

    return parsed


def is_to_confirm(found: argparse.Namespace) -> bool:
    """Tell whether there is somebody to be asked."""
    return not found.yes and sys.stdin.isatty()


def confirm(question: str, found: argparse.Namespace) -> None:
    """Ask somebody at a terminal whether they are sure; raises Declined. Scripts are not asked."""
    if not is_to_confirm(found):
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
    print("\n".join(lines))  # noqa: T201 - a command speaks


def say_json(answer: object) -> None:
    """Print an answer for scripts."""
    say(json.dumps(msgspec.to_builtins(answer), indent=2, ensure_ascii=False))


def tell(text: str) -> None:
    """Say something about it."""
    print(text, file=sys.stderr)  # noqa: T201 - a command speaks


def count(number: int, what: str) -> str:
    """Write a number of things: 1 partition, 2 partitions."""
    return f"{number} {what}" if number == 1 else f"{number} {what}s"
