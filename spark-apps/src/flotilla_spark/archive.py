"""Topics become partitioned Parquet: one folder for each topic and day. Exactly once, and it can be started again."""

import argparse
import sys
from collections.abc import Sequence

from flotilla_spark.arguments import add_run, add_topics, make_parser
from flotilla_spark.launching import launch


def make_arguments() -> argparse.ArgumentParser:
    """Say what it takes."""
    parser = make_parser(
        "archive",
        "Archive topics as Parquet, in folders by topic and day, each record exactly once.",
        "orders --to archive --checkpoint archive.checkpoint --once",
        "orders,parcels --to s3a://bucket/archive --checkpoint s3a://bucket/checkpoint",
    )
    add_topics(parser)
    parser.add_argument("--to", required=True, metavar="FOLDER", help="where the files go: a folder, or a URL")
    add_run(parser, needs_checkpoint=True)
    return parser


def main(arguments: Sequence[str]) -> int:
    """Run it."""
    options = make_arguments().parse_args(arguments)
    return launch("archive", options, options.topics)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
