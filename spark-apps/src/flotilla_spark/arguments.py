"""What all applications have in common on the command line. Spark is not loaded for it, nor anybody asked."""

import argparse
import json
import os
import re
from collections.abc import Mapping, Sequence

from flotilla_spark.errors import PatternInvalid
from flotilla_spark.formats import FORMATS, PATTERN, read_pattern

DEFAULT_URL = "http://127.0.0.1:8080"

_UNITS = {"s": "second", "m": "minute", "h": "hour", "d": "day", "w": "week"}
_TIME = re.compile(r"(\d+) *(s|m|h|d|w|seconds?|minutes?|hours?|days?|weeks?)")
_EPILOG = "A token is never given on the command line: it is in FLOTILLA_TOKEN, or in the file --token-file."


def make_parser(name: str, description: str, *examples: str) -> argparse.ArgumentParser:
    """Make a parser with the options that say where the system is."""
    lines = "\n".join(f"  flotilla-spark {name} {example}" for example in examples)
    parser = argparse.ArgumentParser(
        prog=f"flotilla-spark {name}",
        description=description,
        epilog=f"examples:\n{lines}\n\n{_EPILOG}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    where = parser.add_argument_group("where the system is")
    where.add_argument("--url", help=f"or several, with commas (FLOTILLA_URL; {DEFAULT_URL})")
    where.add_argument("--token-file", metavar="FILE", help="a file with a token, there for driver and executors")
    where.add_argument("--ca", metavar="FILE", help="who signs the servers' certificates (FLOTILLA_TLS_CA)")
    where.add_argument(
        "--route", choices=("auto", "direct", "gateway"), default="auto", help="how records travel (auto)"
    )
    parser.add_argument("--verbose", action="store_true", help="have Spark tell more, and show where a failure was")
    return parser


def add_topics(parser: argparse.ArgumentParser) -> None:
    """Say what is read."""
    parser.add_argument("topics", metavar="TOPIC[,TOPIC]", type=read_topics, help="what is read")
    what = parser.add_argument_group("what is read")
    what.add_argument(
        "--from", dest="start", default="earliest", metavar="OFFSETS", type=read_start,
        help='where a first run begins: earliest, latest or {"TOPIC": {"0": 23}} (earliest); a later one goes on',
    )  # fmt: skip
    what.add_argument(
        "--allow-loss", action="store_true", help="go on where records were removed before they were read (fail)"
    )
    what.add_argument("--at-most", type=read_count, metavar="N", help="how many records a micro-batch has (all)")


def add_format(parser: argparse.ArgumentParser) -> None:
    """Say how lines are written."""
    lines = parser.add_argument_group(
        "how lines are written", "\n".join(f"{name:8} {text}" for name, text in FORMATS.items())
    )
    lines.add_argument("--format", choices=tuple(FORMATS), default="json", help="(json)")
    lines.add_argument(
        "--pattern", metavar="REGEX", help="with groups named time, level, source or message, as (?<level>[A-Z]+)"
    )


def add_run(parser: argparse.ArgumentParser, *, needs_checkpoint: bool) -> None:
    """Say for how long."""
    run = parser.add_argument_group("for how long")
    text = "where progress is kept: the next run goes on from there"
    run.add_argument("--checkpoint", required=needs_checkpoint, metavar="FOLDER", help=text)
    run.add_argument("--once", action="store_true", help="do what is there, and end (go on until Ctrl-C)")
    run.add_argument(
        "--every", default="5 seconds", metavar="TIME", type=read_time, help="between micro-batches (5 seconds)"
    )


def read_topics(text: str) -> tuple[str, ...]:
    """Read names with commas between them."""
    names = tuple(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))
    if not names:
        raise argparse.ArgumentTypeError("name a topic, or several with commas between them")
    return names


def read_start(text: str) -> str:
    """Read where to begin."""
    if text in {"earliest", "latest"}:
        return text
    try:
        found = json.loads(text)
    except ValueError:
        found = None
    if not isinstance(found, dict) or not found:
        raise argparse.ArgumentTypeError(f'\'{text}\' is neither earliest nor latest nor as {{"TOPIC": {{"0": 23}}}}')
    return text


def read_count(text: str) -> int:
    """Read a number from 1 on."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"'{text}' is no number from 1 on")
    return int(text)


def read_time(text: str) -> str:
    """Read a time as people write it; return it as Spark does."""
    found = _TIME.fullmatch(text.strip().lower())
    if found is None or int(found[1]) < 1:
        raise argparse.ArgumentTypeError(f"'{text}' is no time: it is a number and a unit, as in 30s or '5 minutes'")
    return f"{int(found[1])} {_UNITS[found[2][0]]}s"


def check_format(parser: argparse.ArgumentParser, options: argparse.Namespace) -> None:
    """End with a message if the format is not whole."""
    if (options.format == PATTERN) != (options.pattern is not None):
        parser.error("--format pattern and --pattern belong together")
    if options.pattern is not None:
        try:
            read_pattern(options.pattern)
        except PatternInvalid as error:
            parser.error(f"--pattern: {error}")


def source_options(options: argparse.Namespace, environment: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Write where the system is as options of the data source: tasks elsewhere do not have our variables.

    But for a token: options are shown by Spark here and there.
    """
    given = {
        "url": options.url or environment.get("FLOTILLA_URL") or DEFAULT_URL,
        "tokenFile": options.token_file,
        "ca": options.ca or environment.get("FLOTILLA_TLS_CA"),
        "route": options.route,
    }
    return {name: value for name, value in given.items() if value}


def trigger(options: argparse.Namespace) -> dict[str, bool | str]:
    """Say when there is a micro-batch."""
    return {"availableNow": True} if options.once else {"processingTime": options.every}


def quote(names: Sequence[str]) -> str:
    """Write names for people."""
    return ", ".join(f"'{name}'" for name in names)
