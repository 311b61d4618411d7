"""Files become records: Parquet, CSV and JSON lines. Progress is shown while it runs."""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from flotilla_spark.arguments import make_parser
from flotilla_spark.launching import launch

_SUFFIXES = {".parquet": "parquet", ".csv": "csv", ".jsonl": "jsonl", ".ndjson": "jsonl", ".json": "jsonl"}
_PACKED = (".gz", ".bz2", ".zst")


def make_arguments() -> argparse.ArgumentParser:
    """Say what it takes."""
    parser = make_parser(
        "load",
        "Load files into a topic. What is run again is loaded again, unless it has the same --run-id.",
        "orders orders.jsonl --key customer",
        "orders archive --format parquet --key key --value value --headers headers",
    )
    parser.add_argument("topic", help="where records go")
    parser.add_argument("paths", nargs="+", metavar="PATH", help="files, folders, patterns with * or URLs")
    rows = parser.add_argument_group("what becomes of a row")
    rows.add_argument(
        "--format", choices=("parquet", "csv", "jsonl"), help="of the files (as the ends of their names say)"
    )
    rows.add_argument(
        "--value", metavar="COLUMN", help="what the record is (the whole row as JSON; of JSON lines, the line as it is)"
    )
    rows.add_argument("--key", metavar="COLUMN", help="its key (none)")
    rows.add_argument("--headers", metavar="COLUMN", help="its headers, as `archive` writes them (none)")
    rows.add_argument("--compression", choices=("none", "zstd", "auto"), default="auto", help="of batches (auto)")
    parser.add_argument(
        "--run-id",
        metavar="NAME",
        help="of this load: begun again under the same name, from the same files, it loads only what is missing (none)",
    )
    return parser


def find_format(paths: Sequence[str]) -> str | None:
    """Tell the format by the ends of names, if all say the same."""
    found = set()
    for path in paths:
        name = path.lower()
        for end in _PACKED:
            name = name.removesuffix(end)
        found.add(_SUFFIXES.get(Path(name).suffix))
    return found.pop() if len(found) == 1 else None


def main(arguments: Sequence[str]) -> int:
    """Run it."""
    parser = make_arguments()
    options = parser.parse_args(arguments)
    for path in options.paths:
        is_here = "://" not in path and not any(sign in path for sign in "*?[{")
        if is_here and not Path(path).exists():
            parser.error(f"there is no '{path}'")
    options.format = options.format or find_format(options.paths)
    if options.format is None:
        parser.error("say what the files are: --format parquet, csv or jsonl")
    if options.headers is not None and options.format != "parquet":
        parser.error("--headers is for Parquet: other files have no such columns")
    return launch("load", options, [options.topic])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
