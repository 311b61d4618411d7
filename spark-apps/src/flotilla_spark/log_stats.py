"""How many lines of each level and source there are in each window of time: on the terminal, in a topic or as Parquet.

On the terminal, the last windows are a table that is drawn anew after each micro-batch. In a topic or as Parquet, a
window is written once, when no line of it is waited for any more: that is `--late` after its end.
"""

import argparse
import sys
from collections.abc import Sequence

from flotilla_spark.arguments import (
    add_format,
    add_run,
    add_topics,
    check_format,
    make_parser,
    read_count,
    read_time,
)
from flotilla_spark.launching import launch

_ROWS = 40


def make_arguments() -> argparse.ArgumentParser:
    """Say what it takes."""
    parser = make_parser(
        "log_stats",
        "Count lines of logs by level and source, in windows of time.",
        "logs --once",
        "clicks --format common --window 1h --to-topic counts --checkpoint counts.checkpoint",
    )
    add_topics(parser)
    add_format(parser)
    windows = parser.add_argument_group("windows")
    windows.add_argument("--window", default="1 minute", metavar="TIME", type=read_time, help="its length (1 minute)")
    windows.add_argument(
        "--late", default="1 minute", metavar="TIME", type=read_time, help="how late lines may come (1 minute)"
    )
    out = parser.add_argument_group("where counts go; by default to the terminal")
    out.add_argument("--rows", default=_ROWS, type=read_count, metavar="N", help=f"of the table, at most ({_ROWS})")
    either = out.add_mutually_exclusive_group()
    either.add_argument("--to-topic", metavar="TOPIC", help="as JSON, when a window is over")
    either.add_argument("--to-parquet", metavar="FOLDER", help="as files, when a window is over")
    add_run(parser, needs_checkpoint=False)
    return parser


def main(arguments: Sequence[str]) -> int:
    """Run it."""
    parser = make_arguments()
    options = parser.parse_args(arguments)
    check_format(parser, options)
    is_kept = options.to_topic is not None or options.to_parquet is not None
    if is_kept and options.checkpoint is None:
        parser.error("--to-topic and --to-parquet need --checkpoint: without it, the next run would write all again")
    if not is_kept and options.checkpoint is not None:
        parser.error(
            "--checkpoint is for --to-topic and --to-parquet: a table on the terminal is counted at each start"
        )
    if options.to_topic in options.topics:
        parser.error(f"--to-topic: '{options.to_topic}' is read as well: counts would be counted for ever")
    return launch("log_stats", options, [*options.topics, *([options.to_topic] if options.to_topic else [])])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
