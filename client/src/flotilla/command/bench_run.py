"""`flotilla bench`: create a topic, run the measurements, and report the results.

A temporary topic is deleted by the run that created it. A topic that the user names is never deleted.
"""

import secrets
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass

from flotilla.client.blocking import Client
from flotilla.client.errors import FlotillaError
from flotilla.command import connection
from flotilla.command.bench_measure import MEASUREMENTS, SIZE_MIN, Load, Measurement, produce
from flotilla.command.errors import InputInvalid
from flotilla.command.histogram import Latencies, draw, format_ms, make_buckets
from flotilla.command.interrupts import handle_interrupts
from flotilla.command.output import format_table, print_json, print_lines, print_message, progress
from flotilla.records import BODY_BYTES_MAX
from flotilla.units import write_size

_TITLES = {
    "produce": "latency from send to acknowledgement, at full speed",
    "end-to-end": "latency from send to consume, at a constant rate",
}


@dataclass(frozen=True, kw_only=True)
class Plan:
    """The settings of a run."""

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
        """Return the load of a measurement."""
        return Load(topic, self.size, self.records, self.seconds, self.rate, self.is_each, self.compression)


def run(server: connection.ConnectionTarget, plan: Plan, *, as_json: bool) -> None:
    """Run the measurements and print the report; raises CommandError, KeyboardInterrupt, SystemExit."""
    if plan.size < SIZE_MIN:
        raise InputInvalid(f"--size must be at least {SIZE_MIN} bytes: each record carries a timestamp")
    if plan.size > BODY_BYTES_MAX:
        raise InputInvalid(f"--size must be at most {write_size(BODY_BYTES_MAX)}, the maximum size of a record")
    if plan.topic is not None:
        connection.find_topic(server, plan.topic)
    with (
        connection.translate_errors(server),
        server.open(route=plan.route) as client,
        handle_interrupts() as interrupts,
        _topic(client, plan) as topic,
        interrupts.interruptible(),
    ):
        found = list(_measure(client, plan, topic))
    if as_json:
        print_json(to_json(plan, found))
    else:
        print_lines(*show(found))


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
        print_message(f"topic '{name}' was not deleted: {error}; delete it with `flotilla topics delete {name}`")
    except BaseException:  # a second interrupt does not wait for the deletion
        print_message(f"topic '{name}' may still exist: delete it with `flotilla topics delete {name}`")
        raise


def _measure(client: Client, plan: Plan, topic: str) -> Iterator[Measurement]:
    load = plan.load(topic)
    if plan.topic is None and plan.what == ("consume",):
        with progress("preparing", 1.0, is_bytes=False) as advance:
            produce(client, load, advance)
    for what in plan.what:
        with progress(what, 1.0, is_bytes=False) as advance:
            yield MEASUREMENTS[what](client, load, advance)


# -- report -----------------------------------------------------------------------------------------------


def show(found: Sequence[Measurement]) -> list[str]:
    """Format a table, and a histogram for each measurement with latencies. Pure."""
    heading = ("", "records", "seconds", "records/s", "MB/s", "p50 ms", "p95 ms", "p99 ms", "p99.9 ms", "max ms")
    lines = format_table([heading, *map(_row, found)], numbers=heading[1:])
    for one in found:
        if one.latencies_s:
            lines += ["", f"{one.what}: {_TITLES[one.what]}", *draw(make_buckets(one.latencies_s))]
    return lines


def _row(one: Measurement) -> tuple[object, ...]:
    rate, volume = one.records / one.seconds, one.bytes / one.seconds / 1e6
    cells = (one.what, f"{one.records:,}", f"{one.seconds:.2f}", f"{rate:,.0f}", f"{volume:,.2f}")
    latencies = Latencies.of(one.latencies_s)
    if latencies is None:
        return *cells, *[None] * 5
    return *cells, *(format_ms(value) for name, value in asdict(latencies).items() if name != "count")


def to_json(plan: Plan, found: Sequence[Measurement]) -> dict[str, object]:
    """Build the JSON report. Pure."""
    settings = asdict(plan)
    del settings["what"]
    return {**settings, "measured": [_to_json(one) for one in found]}


def _to_json(one: Measurement) -> dict[str, object]:
    latencies = Latencies.of(one.latencies_s)
    return {
        "what": one.what,
        "records": one.records,
        "bytes": one.bytes,
        "seconds": one.seconds,
        "records_per_s": one.records / one.seconds,
        "latency": None if latencies is None else asdict(latencies),
        "histogram": [asdict(bucket) for bucket in make_buckets(one.latencies_s)],
    }
