"""The command `flotilla-spark`: the name of an application, and then what that takes."""

import importlib
import sys
from collections.abc import Sequence

APPLICATIONS = {
    "archive": "topics become Parquet, exactly once",
    "log_stats": "lines of logs are counted by level and source, in windows of time",
    "route": "records go to other topics by what is in them",
    "load": "files become records",
}
_USAGE = "\n".join(
    (
        "usage: flotilla-spark APPLICATION ...",
        "",
        "Spark applications on the topics of Flotilla.",
        "",
        *(f"  {name:10} {text}" for name, text in APPLICATIONS.items()),
        "",
        "`flotilla-spark APPLICATION --help` says more.",
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
        print(f"flotilla-spark: there is no application '{given[0]}'\n", file=sys.stderr)  # noqa: T201
    print(_USAGE, file=sys.stdout if is_help else sys.stderr)
    return 0 if is_help else 2


if __name__ == "__main__":
    sys.exit(main())
