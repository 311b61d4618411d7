"""`flotilla bench`: how fast this system is, as seen from here. The work is in `benching`."""

from typing import TYPE_CHECKING

import click

from flotilla.command import completing
from flotilla.command.options import COUNT, DURATION, SIZE, Command, answers_json, asks_servers, examples

if TYPE_CHECKING:
    from flotilla.command.asking import Server

_WHAT = ("produce", "consume", "end-to-end")
_EXAMPLES = examples(
    "flotilla bench",
    "flotilla bench produce --size 1KiB --records 200000 --route gateway",
    "flotilla bench end-to-end --rate 2000 --seconds 30s",
    "flotilla bench consume clicks --json",
)


@click.command(cls=Command, epilog=_EXAMPLES)
@click.argument("what", type=click.Choice([*_WHAT, "all"]), default="all", metavar="[WHAT]", help="|".join(_WHAT))
@click.argument("topic", required=False, metavar="[TOPIC]", shell_complete=completing.topics, help="an own one, if any")
@click.option("--records", type=COUNT, default=1_000_000, metavar="N", help="end after so many (1000000)")
@click.option("--seconds", type=DURATION, default=5, metavar="TIME", help="or after so long, if that is sooner (5s)")
@click.option("--size", type=SIZE, default=100, metavar="SIZE", help="of a record (100)")
@click.option("--partitions", type=COUNT, default=4, metavar="N", help="of the topic that is made (4)")
@click.option("--replication", type=COUNT, default=3, metavar="N", help="of the topic that is made (3)")
@click.option("--rate", type=COUNT, default=500, metavar="N", help="records a second, for end-to-end (500)")
@click.option(
    "--route", type=click.Choice(["auto", "direct", "gateway"]), default="auto", help="how records travel (auto)"
)
@click.option(
    "--calls", type=click.Choice(["many", "each"]), default="many", help="send many records with a call, or each (many)"
)
@click.option("--compression", type=click.Choice(["none", "zstd"]), default="none", help="of batches (none)")
@answers_json
@asks_servers
def bench(
    server: "Server",
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
    """Measure how fast records are produced and consumed, and how long one takes from end to end.

    One process, at the speed of this machine and of the way to the servers. Without a topic, one is made, and deleted
    in the end. One that is named stays: records are added to it by `produce` and `end-to-end`, and `consume` reads from
    its beginning.

    `produce` sends as fast as it can until all is acknowledged, and shows how long that took, from the call on; records
    that wait for their turn are part of it. `end-to-end` sends at a steady rate, and shows how long each record took
    until it was read again.
    """
    from flotilla.command import benching  # noqa: PLC0415 - it loads the client, which help does not need

    plan = benching.Plan(
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
    benching.run(server, plan, as_json=as_json)
