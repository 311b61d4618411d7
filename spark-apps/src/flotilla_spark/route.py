"""Records go to other topics by what is in them.

Errors to a topic for alerts, say, and what does not parse to a dead-letter topic, with the reason. A record that no
rule is for goes nowhere, or to `--others`.

A rule is TOPIC=CONDITION, where the condition is one of Spark SQL on the columns time, level, source, message, key,
value, topic, partition, offset and timestamp. The first rule that holds counts.
"""

import argparse
import sys
from collections.abc import Sequence

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

from flotilla_spark.arguments import (
    add_format,
    add_run,
    add_topics,
    check_format,
    make_parser,
    make_session,
    read_stream,
    source_options,
)
from flotilla_spark.parsing import parse

Rule = tuple[str, str]


def parse_rule(text: str) -> Rule:
    """Read TOPIC=CONDITION."""
    topic, is_there, condition = text.partition("=")
    if not is_there or not topic.strip() or not condition.strip():
        raise argparse.ArgumentTypeError(f"'{text}' is no rule: it is TOPIC=CONDITION, as in alerts=level = 'ERROR'")
    return topic.strip(), condition.strip()


def route(lines: DataFrame, rules: Sequence[Rule], others: str | None, dead: str | None) -> DataFrame:
    """Say where each record goes, and with what: those that go nowhere are left out."""
    target: Column = f.when(f.col("problem").isNotNull(), f.lit(dead))
    for topic, condition in rules:
        target = target.when(f.expr(condition), f.lit(topic))
    target = target.otherwise(f.lit(others).cast("string"))
    told = [("problem", "problem"), ("origin", "origin")]
    reasons = f.array(
        *(f.struct(f.lit(name).alias("key"), f.col(column).cast("binary").alias("value")) for name, column in told)
    )
    headers = f.when(f.col("problem").isNotNull(), f.concat(f.coalesce("headers", f.array()), reasons))
    origin = f.concat_ws("/", "topic", f.col("partition").cast("string"), f.col("offset").cast("string"))
    routed = lines.withColumn("origin", origin).withColumn("target", target)
    routed = routed.withColumn("headers", headers.otherwise(f.col("headers")))
    return routed.where("target is not null").select("key", "value", f.col("target").alias("topic"), "headers")


def make_arguments() -> argparse.ArgumentParser:
    """Say what it takes."""
    parser = make_parser("route", "Send records to other topics by what is in them.")
    add_topics(parser)
    add_format(parser)
    where = parser.add_argument_group("where records go")
    where.add_argument(
        "--rule", dest="rules", action="append", default=[], type=parse_rule, metavar="TOPIC=CONDITION",
        help="such as alerts=level = 'ERROR'; may be given several times, and the first that holds counts",
    )  # fmt: skip
    where.add_argument("--others", metavar="TOPIC", help="where those go that no rule is for")
    where.add_argument("--dead-letters", metavar="TOPIC", help="where those go that do not parse, with the reason")
    add_run(parser, needs_checkpoint=True)
    return parser


def main(arguments: Sequence[str]) -> int:
    """Run it."""
    parser = make_arguments()
    options = parser.parse_args(arguments)
    check_format(parser, options)
    if not (options.rules or options.others or options.dead_letters):
        parser.error("say where records go: --rule, --others or --dead-letters")
    session = make_session("route")
    lines = parse(read_stream(session, options, {"includeHeaders": "true"}), options.format, options.pattern)
    routed = route(lines, options.rules, options.others, options.dead_letters)
    writer = routed.writeStream.format("flotilla").options(**source_options(options), includeHeaders="true")
    trigger = {"availableNow": True} if options.once else {"processingTime": options.every}
    writer.option("checkpointLocation", options.checkpoint).trigger(**trigger).start().awaitTermination()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
