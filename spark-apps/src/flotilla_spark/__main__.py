"""The command `flotilla-spark APPLICATION ...`."""

import importlib
import sys
from collections.abc import Sequence

APPLICATIONS = {
    "archive": "write topics as Parquet files, each record exactly once",
    "log_stats": "count log lines by level and source, in time windows",
    "route": "copy records to other topics by their content, each exactly once",
    "load": "load files into a topic",
}
_USAGE = "\n".join(
    (
        "usage: flotilla-spark APPLICATION ...",
        "",
        "Run a Spark application on Flotilla topics.",
        "",
        *(f"  {name:10} {text}" for name, text in APPLICATIONS.items()),
        "",
        "Run `flotilla-spark APPLICATION --help` for the options of an application.",
    )
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run an application; return its exit code."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    name = given[0].replace("-", "_") if given and not given[0].startswith("-") else ""
    if name in APPLICATIONS:
        return int(importlib.import_module(f"flotilla_spark.{name}").main(given[1:]))
    is_help = given[:1] in (["-h"], ["--help"])
    if given and not is_help:
        print(f"flotilla-spark: unknown application '{given[0]}'\n", file=sys.stderr)  # noqa: T201
    print(_USAGE, file=sys.stdout if is_help else sys.stderr)
    return 0 if is_help else 2


if __name__ == "__main__":
    sys.exit(main())
