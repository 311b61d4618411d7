"""The work of `flotilla bench`: a topic to measure on, what is measured, and how it is told.

A topic is made and deleted by the same call of the command, or named by its user: no other one is touched, and one that
is named is never deleted.
"""

import secrets
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass

from flotilla.client.blocking import Client
from flotilla.client.errors import FlotillaError
from flotilla.command import asking
from flotilla.command.errors import InputInvalid
from flotilla.command.histogram import Latencies, draw, make_buckets, write_ms
from flotilla.command.measuring import SIZE_MIN, WAYS, Load, Measured, produce
from flotilla.command.piping import endable, find_topic
from flotilla.command.progress import progress
from flotilla.command.speaking import say, say_json, table, tell
from flotilla.command.units import write_size
from flotilla.records import BODY_BYTES_MAX

_TITLES = {
    "produce": "from the call until a record is acknowledged, at full speed",
    "end-to-end": "from the call until a record is read, at a steady rate",
}


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What is measured, and on what."""

    what: tuple[str, ...]
    topic: str | None
    records: int
    seconds: float
    size: int
    partitions: int
    replication: int
    rate: int
    route: str
    is_each: bool
    compression: str

    def load(self, topic: str) -> Load:
        """Tell what is sent and read."""
        return Load(topic, self.size, self.records, self.seconds, self.rate, self.is_each, self.compression)


def run(server: asking.Server, plan: Plan, *, as_json: bool) -> None:
    """Measure, and tell; raises CommandError, KeyboardInterrupt, SystemExit."""
    if plan.size < SIZE_MIN:
        raise InputInvalid(f"--size must be at least {SIZE_MIN} bytes, so that records can tell when they were sent")
    if plan.size > BODY_BYTES_MAX:
        raise InputInvalid(f"--size must be at most {write_size(BODY_BYTES_MAX)}; no record can be larger")
    if plan.topic is not None:
        find_topic(server, plan.topic)
    with (
        asking.explained(server),
        server.open(route=plan.route) as client,
        endable() as ending,
        _topic(client, plan) as topic,
        ending.at_once(),
    ):
        found = list(_measure(client, plan, topic))
    if as_json:
        say_json(for_json(plan, found))
    else:
        say(*show(found))


@contextmanager
def _topic(client: Client, plan: Plan) -> Iterator[str]:
    if plan.topic is not None:
        yield plan.topic
        return
    name = f"bench-{secrets.token_hex(4)}"
    client.topics.create(name, partitions=plan.partitions, replication=plan.replication)
    try:
        yield name
    finally:
        _delete(client, name)


def _delete(client: Client, name: str) -> None:
    try:
        client.topics.delete(name, missing_ok=True)
    except FlotillaError as error:
        tell(f"topic '{name}' could not be deleted, and is left: {error}")
    except BaseException:  # somebody who insists on the end does not wait for it
        tell(f"topic '{name}' is perhaps left: `flotilla topics delete {name}` removes it")
        raise


def _measure(client: Client, plan: Plan, topic: str) -> Iterator[Measured]:
    load = plan.load(topic)
    if plan.topic is None and plan.what == ("consume",):
        with progress("preparing", 1.0, is_bytes=False) as note:
            produce(client, load, note)
    for what in plan.what:
        with progress(what, 1.0, is_bytes=False) as note:
            yield WAYS[what](client, load, note)


# -- how it is told -----------------------------------------------------------------------------------------------


def show(found: Sequence[Measured]) -> list[str]:
    """Write a table, and a picture for what has latencies. Pure."""
    heading = ("", "records", "seconds", "records/s", "MB/s", "p50 ms", "p95 ms", "p99 ms", "p99.9 ms", "max ms")
    lines = table([heading, *map(_row, found)], numbers=heading[1:])
    for one in found:
        if one.took_s:
            lines += ["", f"{one.what}: {_TITLES[one.what]}", *draw(make_buckets(one.took_s))]
    return lines


def _row(one: Measured) -> tuple[object, ...]:
    rate, volume = one.records / one.seconds, one.bytes / one.seconds / 1e6
    told = (one.what, f"{one.records:,}", f"{one.seconds:.2f}", f"{rate:,.0f}", f"{volume:,.2f}")
    latencies = Latencies.of(one.took_s)
    if latencies is None:
        return *told, *[None] * 5
    return *told, *(write_ms(value) for name, value in asdict(latencies).items() if name != "count")


def for_json(plan: Plan, found: Sequence[Measured]) -> dict[str, object]:
    """Write everything, for scripts. Pure."""
    settings = asdict(plan)
    del settings["what"]
    return {**settings, "measured": [_for_json(one) for one in found]}


def _for_json(one: Measured) -> dict[str, object]:
    latencies = Latencies.of(one.took_s)
    return {
        "what": one.what,
        "records": one.records,
        "bytes": one.bytes,
        "seconds": one.seconds,
        "records_per_s": one.records / one.seconds,
        "latency": None if latencies is None else asdict(latencies),
        "histogram": [asdict(bucket) for bucket in make_buckets(one.took_s)],
    }
