"""Common options of all applications. Does not import Spark or open connections."""

import argparse
import json
import os
import re
from collections.abc import Mapping, Sequence

from flotilla import units
from flotilla.client.config import DEFAULT_URL
from flotilla_spark.errors import PatternInvalid
from flotilla_spark.formats import FORMATS, PATTERN, parse_pattern

_UNITS = {"s": "second", "m": "minute", "h": "hour", "d": "day", "w": "week"}
_TIME = re.compile(r"(\d+) *(s|m|h|d|w|seconds?|minutes?|hours?|days?|weeks?)")
_EPILOG = "Authenticate with a token in FLOTILLA_TOKEN or --token-file. There is no option for the token itself."


def base_parser(name: str, description: str, *examples: str) -> argparse.ArgumentParser:
    """Make a parser with the connection options."""
    lines = "\n".join(f"  flotilla-spark {name} {example}" for example in examples)
    parser = argparse.ArgumentParser(
        prog=f"flotilla-spark {name}",
        description=description,
        epilog=f"examples:\n{lines}\n\n{_EPILOG}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    connection = parser.add_argument_group("connection")
    connection.add_argument(
        "--url", help=f"manager URLs, separated by commas (default: FLOTILLA_URL, else {DEFAULT_URL})"
    )
    connection.add_argument(
        "--token-file", metavar="FILE",
        help="file with a token, readable by driver and executors (default: the token in FLOTILLA_TOKEN)",
    )  # fmt: skip
    connection.add_argument(
        "--ca", metavar="FILE", help="CA bundle for server certificates (default: FLOTILLA_TLS_CA, else system CAs)"
    )
    connection.add_argument(
        "--route", choices=("auto", "direct", "gateway"), default="auto",
        help="send and fetch records directly from brokers, or through managers as a gateway (default: auto)",
    )  # fmt: skip
    parser.add_argument("--verbose", action="store_true", help="show Spark's warnings and stack traces")
    return parser


def add_input_options(parser: argparse.ArgumentParser) -> None:
    """Add the options for input topics."""
    parser.add_argument("topics", metavar="TOPIC[,TOPIC]", type=parse_topics, help="topics to read")
    input_ = parser.add_argument_group("input")
    input_.add_argument(
        "--from", dest="start", default="earliest", metavar="OFFSETS", type=parse_start,
        help='starting offsets of the first run: earliest, latest or {"TOPIC": {"0": 23}} (default: earliest); '
        "later runs continue from the checkpoint",
    )  # fmt: skip
    input_.add_argument(
        "--allow-loss",
        action="store_true",
        help="continue if records were removed before they were read (default: fail)",
    )
    input_.add_argument(
        "--at-most",
        type=parse_count,
        metavar="N",
        help="maximum number of records in a micro-batch (default: unlimited)",
    )


def add_format_options(parser: argparse.ArgumentParser) -> None:
    """Add the options for line formats."""
    lines = parser.add_argument_group("line format", "\n".join(f"{name:8} {text}" for name, text in FORMATS.items()))
    lines.add_argument("--format", choices=tuple(FORMATS), default="json", help="line format (default: json)")
    lines.add_argument(
        "--pattern", metavar="REGEX",
        help="Java regular expression with groups named time, level, source or message, e.g. (?<level>[A-Z]+)",
    )  # fmt: skip


def add_execution_options(parser: argparse.ArgumentParser, *, needs_checkpoint: bool) -> None:
    """Add the options for checkpoint and triggers."""
    run = parser.add_argument_group("execution")
    text = "folder for the progress; the next run continues from it"
    run.add_argument("--checkpoint", required=needs_checkpoint, metavar="FOLDER", help=text)
    run.add_argument(
        "--once", action="store_true", help="process the records that exist, then exit (default: run until Ctrl-C)"
    )
    run.add_argument(
        "--every", default="5 seconds", metavar="TIME", type=parse_duration,
        help="interval between micro-batches, e.g. 30s or '5 minutes' (default: 5 seconds)",
    )  # fmt: skip


def parse_topics(text: str) -> tuple[str, ...]:
    """Parse topic names, separated by commas."""
    names = tuple(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))
    if not names:
        raise argparse.ArgumentTypeError("expected one or more topic names, separated by commas")
    return names


def parse_start(text: str) -> str:
    """Parse starting offsets."""
    if text in {"earliest", "latest"}:
        return text
    try:
        found = json.loads(text)
    except ValueError:
        found = None
    if not isinstance(found, dict) or not found:
        raise argparse.ArgumentTypeError(f'\'{text}\': expected earliest, latest or {{"TOPIC": {{"0": 23}}}}')
    return text


def parse_count(text: str) -> int:
    """Parse a number of at least 1."""
    try:
        return units.parse_count(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"'{text}': expected a number of at least 1") from error


def parse_duration(text: str) -> str:
    """Parse a duration such as 30s or '5 minutes'; return it in Spark's notation.

    `flotilla.units` does not accept Spark's own notation, which works here, too: with spaces, capitals and whole words.
    And it returns seconds, while Spark takes text and shows it as it is.
    """
    found = _TIME.fullmatch(text.strip().lower())
    if found is None or int(found[1]) < 1:
        raise argparse.ArgumentTypeError(f"'{text}': expected a number and a unit, e.g. 30s or '5 minutes'")
    return f"{int(found[1])} {_UNITS[found[2][0]]}s"


def check_format(parser: argparse.ArgumentParser, options: argparse.Namespace) -> None:
    """Exit with a message if --format and --pattern contradict each other, or the pattern is invalid."""
    if (options.format == PATTERN) != (options.pattern is not None):
        parser.error("--format pattern and --pattern must be used together")
    if options.pattern is not None:
        try:
            parse_pattern(options.pattern)
        except PatternInvalid as error:
            parser.error(f"--pattern: {error}")


def connection_options(options: argparse.Namespace, environment: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Return the connection as options of the data source, because executors may have other environment variables.

    The token is left out, because Spark shows options in several places.
    """
    given = {
        "url": options.url or environment.get("FLOTILLA_URL") or DEFAULT_URL,
        "tokenFile": options.token_file,
        "ca": options.ca or environment.get("FLOTILLA_TLS_CA"),
        "route": options.route,
    }
    return {name: value for name, value in given.items() if value}


def trigger(options: argparse.Namespace) -> dict[str, bool | str]:
    """Return the trigger of the query."""
    return {"availableNow": True} if options.once else {"processingTime": options.every}


def quote_names(names: Sequence[str]) -> str:
    """Format names for a message."""
    return ", ".join(f"'{name}'" for name in names)
