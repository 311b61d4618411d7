"""Routing of records to other topics.

Exactly-once delivery needs deterministic rules, so others are rejected.
"""

import argparse
from collections.abc import Sequence

from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.types import BooleanType

from flotilla_spark.arguments import connection_options, trigger
from flotilla_spark.errors import RuleInvalid
from flotilla_spark.failures import summarize_failure
from flotilla_spark.jobs.topics import read_stream
from flotilla_spark.ownership import claim
from flotilla_spark.parsing import load_pattern, parse
from flotilla_spark.runner import StreamJob

Rule = tuple[str, str]
PROBLEM, ORIGIN = "problem", "origin"  # headers of dead letters


def route(lines: DataFrame, rules: Sequence[Rule], others: str | None, dead: str | None) -> DataFrame:
    """Add topic and headers to each record; drop records without a topic."""
    has_problem = f.col("problem").isNotNull()
    is_dead = has_problem if dead is not None else f.lit(False)
    target: Column = f.when(is_dead, f.lit(dead).cast("string"))
    for topic, condition in rules:
        target = target.when(f.expr(condition), f.lit(topic))
    target = target.otherwise(f.lit(others).cast("string"))
    origin = f.concat_ws("/", "topic", f.col("partition").cast("string"), f.col("offset").cast("string"))
    reasons = f.array(
        *(
            f.struct(f.lit(name).alias("key"), text.cast("binary").alias("value"))
            for name, text in ((PROBLEM, f.col("problem")), (ORIGIN, origin))
        )
    )
    headers = f.when(is_dead, f.when(f.col("headers").isNull(), reasons).otherwise(f.concat("headers", reasons)))
    routed = lines.select("key", "value", target.alias("topic"), headers.otherwise(f.col("headers")).alias("headers"))
    return routed.where("topic is not null")


def check_rules(lines: DataFrame, rules: Sequence[Rule]) -> None:
    """Check that rules are deterministic conditions; raises RuleInvalid."""
    for topic, condition in rules:
        try:
            found = lines.select(f.expr(condition))
            if isinstance(found.schema[0].dataType, BooleanType):
                lines.where(condition)  # rejects aggregates
        except PySparkException as error:
            raise RuleInvalid(f"--rule {topic}={condition}: {summarize_failure(str(error))}") from error
        if not isinstance(found.schema[0].dataType, BooleanType):
            kind = found.schema[0].dataType.simpleString()
            raise RuleInvalid(f"--rule {topic}={condition}: expected a boolean condition, got type {kind}")
        if not found._jdf.queryExecution().analyzed().deterministic():  # noqa: SLF001
            raise RuleInvalid(
                f"--rule {topic}={condition}: not deterministic: a retry could route a record differently"
            )


def start(session: SparkSession, options: argparse.Namespace) -> StreamJob:
    """Start the query."""
    pattern = load_pattern(session, options.pattern)
    lines = parse(read_stream(session, options, {"includeHeaders": "true"}), options.format, pattern)
    check_rules(lines, options.rules)
    claim(session, "route", options.checkpoint)
    routed = route(lines, options.rules, options.others, options.dead_letters)
    writer = routed.writeStream.format("flotilla").options(**connection_options(options), includeHeaders="true")
    writer = writer.option("checkpointLocation", options.checkpoint).queryName("route")
    return StreamJob(writer.trigger(**trigger(options)).start())  # type: ignore[arg-type]
