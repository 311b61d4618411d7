"""Copies records to other topics by their content, e.g. errors to a topic for alerts.

A rule is TOPIC=CONDITION. The condition is a Spark SQL expression on time, level, source, message, problem, key, value,
headers, topic, partition, offset and timestamp. The first matching rule applies; records without a match go to
`--others`, or are skipped. Records that do not parse go to `--dead-letters`, with the reason. Without that option,
rules apply to them, with `problem` set and the other parsed columns null.
"""

import argparse
import sys
from collections.abc import Sequence

from flotilla_spark.arguments import (
    add_execution_options,
    add_format_options,
    add_input_options,
    base_parser,
    check_format,
    quote_names,
)
from flotilla_spark.launcher import launch

Rule = tuple[str, str]


def parse_rule(text: str) -> Rule:
    """Parse TOPIC=CONDITION."""
    topic, is_there, condition = text.partition("=")
    if not is_there or not topic.strip() or not condition.strip():
        raise argparse.ArgumentTypeError(f"'{text}': expected TOPIC=CONDITION, e.g. \"alerts=level = 'ERROR'\"")
    return topic.strip(), condition.strip()


def make_parser() -> argparse.ArgumentParser:
    """Build the command line parser."""
    parser = base_parser(
        "route",
        "Copy records to other topics by their content, each exactly once.",
        "logs --rule \"alerts=level = 'ERROR'\" --dead-letters unread --checkpoint route.checkpoint",
    )
    add_input_options(parser)
    add_format_options(parser)
    output = parser.add_argument_group("output")
    output.add_argument(
        "--rule", dest="rules", action="append", default=[], type=parse_rule, metavar="TOPIC=CONDITION",
        help="copy records that satisfy a Spark SQL condition on time, level, source, message, problem, key, value, "
        "headers, topic, partition, offset and timestamp; repeatable, the first match applies",
    )  # fmt: skip
    output.add_argument("--others", metavar="TOPIC", help="topic for records that match no rule (default: skip them)")
    output.add_argument(
        "--dead-letters", metavar="TOPIC",
        help="topic for records that do not parse, with the reason in the header `problem` (default: rules apply)",
    )  # fmt: skip
    add_execution_options(parser, needs_checkpoint=True)
    return parser


def main(arguments: Sequence[str]) -> int:
    """Run the application; return the exit code."""
    parser = make_parser()
    options = parser.parse_args(arguments)
    check_format(parser, options)
    named = [*(topic for topic, _ in options.rules), options.others, options.dead_letters]
    targets = list(dict.fromkeys(topic for topic in named if topic is not None))
    if not targets:
        parser.error("no output topic: set --rule, --others or --dead-letters")
    loops = [topic for topic in targets if topic in options.topics]
    if loops:
        parser.error(f"{quote_names(loops)} is both input and output: records would loop forever")
    return launch("route", options, [*options.topics, *targets])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
