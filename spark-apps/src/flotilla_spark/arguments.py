"""What all applications have in common on the command line, and a session of Spark for them."""

import argparse
import os
import sys
from collections.abc import Mapping

from pyspark.sql import DataFrame, SparkSession

from flotilla_spark.parsing import FORMATS, PATTERN, PatternInvalid, group_numbers


def make_parser(name: str, description: str) -> argparse.ArgumentParser:
    """Make a parser with the options that say where records are."""
    parser = argparse.ArgumentParser(prog=f"python -m flotilla_spark.{name}", description=description)
    where = parser.add_argument_group("where the system is; or FLOTILLA_URL, FLOTILLA_TOKEN and FLOTILLA_TLS_CA")
    where.add_argument("--url", help="by default http://127.0.0.1:8080")
    where.add_argument("--token-file", metavar="FILE", help="a file with a token, on all machines of the cluster")
    where.add_argument("--ca", metavar="FILE", help="who signs the servers' certificates")
    where.add_argument("--route", choices=("auto", "direct", "gateway"), default="auto", help="how records travel")
    return parser


def add_topics(parser: argparse.ArgumentParser) -> None:
    """Say what is read."""
    what = parser.add_argument_group("what is read")
    what.add_argument("topics", metavar="TOPIC[,TOPIC]", help="topics, with commas between them")
    what.add_argument("--from", dest="start", default="earliest", metavar="OFFSETS", help="earliest, latest or JSON")
    what.add_argument("--at-most", type=int, metavar="N", help="records of one micro-batch")


def add_format(parser: argparse.ArgumentParser) -> None:
    """Say how lines are written."""
    lines = parser.add_argument_group("how lines are written")
    lines.add_argument("--format", choices=tuple(FORMATS), default="json", help="; ".join(FORMATS.values()))
    lines.add_argument("--pattern", help="the regular expression, with --format pattern")


def add_run(parser: argparse.ArgumentParser, *, needs_checkpoint: bool) -> None:
    """Say for how long."""
    run = parser.add_argument_group("for how long")
    text = "where progress is kept, so that the next run goes on from there"
    run.add_argument("--checkpoint", required=needs_checkpoint, metavar="FOLDER", help=text)
    run.add_argument("--once", action="store_true", help="read what is there, and end; without it, it goes on")
    run.add_argument("--every", default="5 seconds", metavar="TIME", help="between micro-batches")


def check_format(parser: argparse.ArgumentParser, options: argparse.Namespace) -> None:
    """End with a message if the format is not whole."""
    if (options.format == PATTERN) != (options.pattern is not None):
        parser.error("--format pattern and --pattern belong together")
    if options.pattern is not None:
        try:
            group_numbers(options.pattern)
        except PatternInvalid as error:
            parser.error(str(error))


def make_session(name: str) -> SparkSession:
    """Make a session: that of spark-submit, or one on this machine. Tasks use the same Python."""
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder.appName(f"flotilla {name}").config("spark.sql.session.timeZone", "UTC")
    if "SPARK_MASTER" not in os.environ and not _is_submitted():
        builder = builder.master("local[*]").config("spark.ui.enabled", "false")
        builder = builder.config("spark.sql.shuffle.partitions", str(os.cpu_count() or 2))
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel(os.environ.get("SPARK_LOG_LEVEL", "WARN"))
    return session


def _is_submitted() -> bool:
    return "spark.master" in os.environ.get("PYSPARK_SUBMIT_ARGS", "") or "PYSPARK_GATEWAY_PORT" in os.environ


def source_options(options: argparse.Namespace) -> dict[str, str]:
    """Write where the system is as options of the data source."""
    given = {"url": options.url, "tokenFile": options.token_file, "ca": options.ca, "route": options.route}
    return {name: value for name, value in given.items() if value is not None}


def read_stream(session: SparkSession, options: argparse.Namespace, more: Mapping[str, str] | None = None) -> DataFrame:
    """Read topics as they grow."""
    given = {**source_options(options), "subscribe": options.topics, "startingOffsets": options.start, **(more or {})}
    if options.at_most is not None:
        given["maxOffsetsPerTrigger"] = str(options.at_most)
    return session.readStream.format("flotilla").options(**given).load()
