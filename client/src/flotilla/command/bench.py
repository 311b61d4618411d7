"""`flotilla bench`: the options. `bench_run` runs the measurements."""

from typing import TYPE_CHECKING

import click

from flotilla.command import completers
from flotilla.command.options import COUNT, DURATION, SIZE, Command, connection_options, examples, json_option
from flotilla.limits import COMPRESSIONS, REPLICATION_DEFAULT

if TYPE_CHECKING:
    from flotilla.command.connection import ConnectionTarget

_WHAT = ("produce", "consume", "end-to-end")
_EXAMPLES = examples(
    "flotilla bench",
    "flotilla bench produce --size 1KiB --records 200000 --route gateway",
    "flotilla bench end-to-end --rate 2000 --seconds 30s",
    "flotilla bench consume clicks --json",
)


@click.command(cls=Command, epilog=_EXAMPLES)
@click.argument(
    "what",
    type=click.Choice([*_WHAT, "all"]),
    default="all",
    metavar="[WHAT]",
    help=f"Measurement: {', '.join(_WHAT)}, or all (default).",
)
@click.argument(
    "topic",
    required=False,
    metavar="[TOPIC]",
    shell_complete=completers.topics,
    help="Existing topic to use instead of a temporary one.",
)
@click.option("--records", type=COUNT, default=1_000_000, metavar="N", help="Stop after N records.")
@click.option(
    "--seconds",
    type=DURATION,
    default="5s",
    metavar="TIME",
    help="Stop after this time, even if fewer than --records were measured.",
)
@click.option("--size", type=SIZE, default=100, metavar="SIZE", help="Size of a record in bytes, or e.g. 1KiB.")
@click.option("--partitions", type=COUNT, default=4, metavar="N", help="Partitions of the temporary topic.")
@click.option(
    "--replication", type=COUNT, default=REPLICATION_DEFAULT, metavar="N", help="Replicas of each of its partitions."
)
@click.option("--rate", type=COUNT, default=500, metavar="N", help="Send rate of `end-to-end`, in records per second.")
@click.option(
    "--route",
    type=click.Choice(["auto", "direct", "gateway"]),
    default="auto",
    help="Send to brokers (direct), through managers (gateway), or direct if possible (auto).",
)
@click.option(
    "--calls",
    type=click.Choice(["many", "each"]),
    default="many",
    help="Send many records per call (send_many), or one (send).",
)
@click.option("--compression", type=click.Choice(COMPRESSIONS), default="none", help="Compression of batches.")
@json_option
@connection_options
def bench(
    server: "ConnectionTarget",
    what: str,
    topic: str | None,
    records: int,
    seconds: int,
    size: int,
    partitions: int,
    replication: int,
    rate: int,
    route: str,
    calls: str,
    compression: str,
    as_json: bool,
) -> None:
    """Measure throughput and latency.

    One process does all the work, so this machine and its network limit the results. Without TOPIC, a temporary topic
    is created, and deleted at the end. A given TOPIC is kept: `produce` and `end-to-end` append records to it, and
    `consume` reads it from the beginning. `consume` without TOPIC first fills the temporary topic.

    `produce` sends as fast as possible. Its latency is the time from the call to the acknowledgement, including the
    time in the buffer of the producer. `end-to-end` sends at a constant rate. Its latency is the time from the call
    until the record is consumed.
    """
    from flotilla.command import bench_run  # noqa: PLC0415 - imports the client, which help does not need

    plan = bench_run.Plan(
        what=_WHAT if what == "all" else (what,),
        topic=topic,
        records=records,
        seconds=seconds,
        size=size,
        partitions=partitions,
        replication=replication,
        rate=rate,
        route=route,
        is_each=calls == "each",
        compression=compression,
    )
    bench_run.run(server, plan, as_json=as_json)
