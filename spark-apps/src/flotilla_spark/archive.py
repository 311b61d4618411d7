"""Writes topics as Parquet files, in folders by topic and day, each record exactly once."""

import argparse
import sys
from collections.abc import Sequence

from flotilla_spark.arguments import add_execution_options, add_input_options, base_parser
from flotilla_spark.launcher import launch


def make_parser() -> argparse.ArgumentParser:
    """Build the command line parser."""
    parser = base_parser(
        "archive",
        "Archive topics as Parquet, in folders by topic and day, each record exactly once.",
        "orders --to archive --checkpoint archive.checkpoint --once",
        "orders,parcels --to s3a://bucket/archive --checkpoint s3a://bucket/checkpoint",
    )
    add_input_options(parser)
    parser.add_argument(
        "--to", required=True, metavar="FOLDER", help="output folder, or a URL such as s3a://bucket/folder"
    )
    add_execution_options(parser, needs_checkpoint=True)
    return parser


def main(arguments: Sequence[str]) -> int:
    """Run the application; return the exit code."""
    options = make_parser().parse_args(arguments)
    return launch("archive", options, options.topics)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
