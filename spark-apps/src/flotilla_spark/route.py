"""Records go to other topics by what is in them: errors to a topic for alerts, say.

A rule is TOPIC=CONDITION, where the condition is one of Spark SQL on the columns time, level, source, message, problem,
key, value, headers, topic, partition, offset and timestamp. The first rule that holds counts, and a record that none is
for goes to `--others`, or nowhere. What does not parse goes to `--dead-letters`, with the reason; where that is not
given, rules see it with columns that are null.
"""

import argparse
import sys
from collections.abc import Sequence

from flotilla_spark.arguments import add_format, add_run, add_topics, check_format, make_parser, quote
from flotilla_spark.launching import launch

Rule = tuple[str, str]


def parse_rule(text: str) -> Rule:
    """Read TOPIC=CONDITION."""
    topic, is_there, condition = text.partition("=")
    if not is_there or not topic.strip() or not condition.strip():
        raise argparse.ArgumentTypeError(
            f"'{text}' is no rule: it is TOPIC=CONDITION, as in \"alerts=level = 'ERROR'\""
        )
    return topic.strip(), condition.strip()


def make_arguments() -> argparse.ArgumentParser:
    """Say what it takes."""
    parser = make_parser(
        "route",
        "Send records to other topics by what is in them, each exactly once.",
        "logs --rule \"alerts=level = 'ERROR'\" --dead-letters unread --checkpoint route.checkpoint",
    )
    add_topics(parser)
    add_format(parser)
    where = parser.add_argument_group("where records go")
    where.add_argument(
        "--rule", dest="rules", action="append", default=[], type=parse_rule, metavar="TOPIC=CONDITION",
        help="a condition of SQL on time, level, source, message, problem, key, value, headers, topic, partition, "
        "offset and timestamp; may be given several times, and the first that holds counts",
    )  # fmt: skip
    where.add_argument("--others", metavar="TOPIC", help="where those go that no rule is for (nowhere)")
    where.add_argument("--dead-letters", metavar="TOPIC", help="where those go that do not parse, with the reason")
    add_run(parser, needs_checkpoint=True)
    return parser


def main(arguments: Sequence[str]) -> int:
    """Run it."""
    parser = make_arguments()
    options = parser.parse_args(arguments)
    check_format(parser, options)
    named = [*(topic for topic, _ in options.rules), options.others, options.dead_letters]
    targets = list(dict.fromkeys(topic for topic in named if topic is not None))
    if not targets:
        parser.error("say where records go: --rule, --others or --dead-letters")
    round_ = [topic for topic in targets if topic in options.topics]
    if round_:
        parser.error(f"{quote(round_)} is read as well: records would go round for ever")
    return launch("route", options, [*options.topics, *targets])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
