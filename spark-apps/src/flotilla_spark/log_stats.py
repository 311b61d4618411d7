"""Counts of log lines by level and source, in time windows: as a table, in a topic or as Parquet.

The table on the terminal is redrawn after each micro-batch. In a topic or as Parquet, each window is written once, when
it is complete: `--late` after its end.
"""

import argparse
import sys
from collections.abc import Sequence

from flotilla_spark.arguments import (
    add_execution_options,
    add_format_options,
    add_input_options,
    base_parser,
    check_format,
    parse_count,
    parse_duration,
)
from flotilla_spark.launcher import launch

_ROWS = 40


def make_parser() -> argparse.ArgumentParser:
    """Build the command line parser."""
    parser = base_parser(
        "log_stats",
        "Count log lines by level and source, in time windows.",
        "logs --once",
        "clicks --format common --window 1h --to-topic counts --checkpoint counts.checkpoint",
    )
    add_input_options(parser)
    add_format_options(parser)
    windows = parser.add_argument_group("windows")
    windows.add_argument(
        "--window", default="1 minute", metavar="TIME", type=parse_duration,
        help="length of a window, e.g. 30s or '1 hour' (default: 1 minute)",
    )  # fmt: skip
    windows.add_argument(
        "--late", default="1 minute", metavar="TIME", type=parse_duration,
        help="how much older than the newest line a line can be; older lines may be dropped (default: 1 minute)",
    )  # fmt: skip
    out = parser.add_argument_group("output (default: a table on the terminal)")
    out.add_argument(
        "--rows", default=_ROWS, type=parse_count, metavar="N", help=f"maximum number of table rows (default: {_ROWS})"
    )
    either = out.add_mutually_exclusive_group()
    either.add_argument("--to-topic", metavar="TOPIC", help="write completed windows to this topic, as JSON")
    either.add_argument(
        "--to-parquet", metavar="FOLDER", help="write completed windows to this folder, as Parquet files"
    )
    add_execution_options(parser, needs_checkpoint=False)
    return parser


def main(arguments: Sequence[str]) -> int:
    """Run the application; return the exit code."""
    parser = make_parser()
    options = parser.parse_args(arguments)
    check_format(parser, options)
    is_kept = options.to_topic is not None or options.to_parquet is not None
    if is_kept and options.checkpoint is None:
        parser.error(
            "--to-topic and --to-parquet require --checkpoint: without it, the next run would write all counts again"
        )
    if not is_kept and options.checkpoint is not None:
        parser.error("--checkpoint requires --to-topic or --to-parquet: the table is counted again at each start")
    if options.to_topic in options.topics:
        parser.error(f"--to-topic: '{options.to_topic}' is also an input topic: counts would be counted again")
    return launch("log_stats", options, [*options.topics, *([options.to_topic] if options.to_topic else [])])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
