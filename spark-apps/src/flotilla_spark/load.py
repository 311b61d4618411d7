"""Loads files into a topic: Parquet, CSV and JSON lines."""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from flotilla.limits import PRODUCER_COMPRESSIONS
from flotilla_spark.arguments import base_parser
from flotilla_spark.launcher import launch

_SUFFIXES = {".parquet": "parquet", ".csv": "csv", ".jsonl": "jsonl", ".ndjson": "jsonl", ".json": "jsonl"}
_PACKED = (".gz", ".bz2", ".zst")


def make_parser() -> argparse.ArgumentParser:
    """Build the command line parser."""
    parser = base_parser(
        "load",
        "Load files into a topic. A repeated load adds all records again, unless --run-id is set.",
        "orders orders.jsonl --key customer",
        "orders archive --format parquet --key key --value value --headers headers",
    )
    parser.add_argument("topic", help="topic to write to")
    parser.add_argument("paths", nargs="+", metavar="PATH", help="files, folders, glob patterns or URLs")
    rows = parser.add_argument_group("records")
    rows.add_argument(
        "--format", choices=("parquet", "csv", "jsonl"), help="format of the files (default: by file extension)"
    )
    rows.add_argument(
        "--value", metavar="COLUMN",
        help="column with the value (default: the row as JSON; for JSON lines, the line unchanged)",
    )  # fmt: skip
    rows.add_argument("--key", metavar="COLUMN", help="column with the key (default: no key)")
    rows.add_argument(
        "--headers", metavar="COLUMN", help="column with headers, as `archive` writes it; Parquet only (default: none)"
    )
    rows.add_argument(
        "--compression", choices=PRODUCER_COMPRESSIONS, default="auto",
        help="compression of batches; auto is the setting of the topic (default: auto)",
    )  # fmt: skip
    parser.add_argument(
        "--run-id",
        metavar="NAME",
        help="name of this load; repeating it with the same name and files adds only missing records (default: none)",
    )
    return parser


def find_format(paths: Sequence[str]) -> str | None:
    """Return the format by file extension, if all files have the same."""
    found = set()
    for path in paths:
        name = path.lower()
        for end in _PACKED:
            name = name.removesuffix(end)
        found.add(_SUFFIXES.get(Path(name).suffix))
    return found.pop() if len(found) == 1 else None


def main(arguments: Sequence[str]) -> int:
    """Run the application; return the exit code."""
    parser = make_parser()
    options = parser.parse_args(arguments)
    for path in options.paths:
        is_here = "://" not in path and not any(sign in path for sign in "*?[{")
        if is_here and not Path(path).exists():
            parser.error(f"'{path}': no such file or folder")
    options.format = options.format or find_format(options.paths)
    if options.format is None:
        parser.error("unknown file format: set --format to parquet, csv or jsonl")
    if options.headers is not None and options.format != "parquet":
        parser.error("--headers requires --format parquet")
    return launch("load", options, [options.topic])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
