"""What brokers say of themselves, every second: kept in memory, judged by the writer's own clock.

A heartbeat may come from anything. What it says is checked before it is taken: whatever is in a report can be stored by
any database, and its address can be asked for.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Annotated, Any
from urllib.parse import urlsplit

import msgspec
from msgspec import Meta

from flotilla.limits import TOPIC_NAME
from flotilla_manager.model import Broker, Replica
from flotilla_manager.planning import Book, Report

BEAT_S = 1.0
MISSED_MAX = 3
_NUMBER_MAX = (1 << 63) - 1
_REPLICAS_MAX = 50_000

# Python's $ also matches before a last line break.
Id = Annotated[str, Meta(pattern=r"^[0-9a-f]{32}$(?!\n)")]
Host = Annotated[str, Meta(min_length=1, max_length=253, pattern=r"^[^\s\x00-\x1f\x7f/?#@]+$(?!\n)")]
Rack = Annotated[str, Meta(max_length=253, pattern=r"^[^\x00-\x1f\x7f]*$(?!\n)")]
Port = Annotated[int, Meta(ge=1, le=65535)]
Number = Annotated[int, Meta(ge=0, le=_NUMBER_MAX)]
Epoch = Annotated[int, Meta(ge=0, le=1 << 62)]  # whoever is the writer next has to have a higher one
Count = Annotated[int, Meta(ge=0, le=(1 << 32) - 1)]


class BeatReplica(msgspec.Struct, frozen=True, kw_only=True):
    """One replica, as a broker tells of it."""

    topic: Annotated[str, Meta(pattern=TOPIC_NAME)]
    topic_id: Id
    partition: Count
    epoch: Count
    members: Annotated[tuple[Id, ...], Meta(max_length=7)]
    leader: Id | None = None
    leads: bool = False
    settled: bool = False
    first_offset: Number = 0
    next_offset: Number = 0
    size_bytes: Number = 0
    lag: Number = 0
    retention_ms: Number | None = None
    retention_bytes: Number | None = None
    batch_bytes_max: Number | None = None

    def to_replica(self, *, broken: bool) -> Replica:
        """The same, as the writer keeps it."""
        return Replica(**msgspec.structs.asdict(self), broken=broken)


class Disk(msgspec.Struct, frozen=True, kw_only=True):
    """How full a broker is."""

    used_bytes: Number = 0
    segments_left: Annotated[int, Meta(ge=-_NUMBER_MAX, le=_NUMBER_MAX)] | None = None  # below 0, the reserve is in use


class Beat(msgspec.Struct, frozen=True, kw_only=True):
    """A heartbeat of a broker."""

    id: Id
    host: Host
    port: Port
    peer_host: Host
    peer_port: Port
    cluster_id: Id | None = None
    rack: Rack | None = None
    tls: bool = False
    starts: Number = 0
    writer_epoch: Epoch = 0
    access: Annotated[str, Meta(max_length=64)] | None = None  # the version of its access table, if it wants one
    disk: Disk = Disk()
    replicas: Annotated[tuple[BeatReplica, ...], Meta(max_length=_REPLICAS_MAX)] = ()
    broken: Annotated[tuple[BeatReplica, ...], Meta(max_length=_REPLICAS_MAX)] = ()

    def __post_init__(self) -> None:
        for host in (self.host, self.peer_host):
            if not is_reachable(host):
                raise ValueError(f"{host!r} cannot be the name or the address of a host")

    def to_broker(self, known: Broker | None) -> Broker:
        """The broker that this is from: what it says of itself, and what was decided about it."""
        fresh = Broker(
            id=self.id,
            host=self.host,
            port=self.port,
            peer_host=self.peer_host,
            peer_port=self.peer_port,
            rack=self.rack,
            tls=self.tls,
        )
        if known is None:
            return fresh
        rack = known.rack if self.rack is None else self.rack  # an operator may have told it
        return replace(fresh, rack=rack, cordoned=known.cordoned, wanted=known.wanted, removed=known.removed)


@dataclass
class Heard:
    """The last heartbeat of a broker."""

    beat: Beat
    at: float
    replicas: tuple[Replica, ...]  # what it says that it holds
    book: Book | None = None  # what it was told last, in this start of it
    stale: bool = False  # orders were given since: what it holds is not what it said


class Reports:
    """The last heartbeats of all brokers."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._heard: dict[str, Heard] = {}

    def take(self, beat: Beat) -> None:
        """Take a heartbeat."""
        before = self._heard.get(beat.id)
        same_start = before is not None and before.beat.starts == beat.starts
        book = before.book if before is not None and same_start else None
        self._heard[beat.id] = Heard(beat, self._clock(), replicas_of(beat), book)

    def is_alive(self, broker_id: str) -> bool:
        """Tell whether a broker has missed fewer than three heartbeats."""
        heard = self._heard.get(broker_id)
        return heard is not None and self._clock() - heard.at <= MISSED_MAX * BEAT_S

    def forget_all(self) -> None:
        """Begin anew: another one was the writer meanwhile."""
        self._heard.clear()

    def told(self, broker_id: str, book: Book) -> None:
        """Remember what a broker was told about addresses."""
        if broker_id in self._heard:
            self._heard[broker_id].book = book

    def changed(self, broker_id: str) -> None:
        """Count nothing that a broker said before it was given an order."""
        if broker_id in self._heard:
            self._heard[broker_id].stale = True

    def for_planning(self) -> dict[str, Report]:
        """The reports, as the plan wants them."""
        return {
            id_: Report(
                broker=id_,
                cluster_id=heard.beat.cluster_id,
                writer_epoch=heard.beat.writer_epoch,
                replicas=heard.replicas,
                fresh=self.is_alive(id_) and not heard.stale,
                book=heard.book,
            )
            for id_, heard in self._heard.items()
        }

    def describe(self) -> dict[str, dict[str, Any]]:
        """What brokers said last of their disks and replicas, for people and operators."""
        return {
            id_: {
                "disk": msgspec.structs.asdict(heard.beat.disk),
                "seconds_ago": round(self._clock() - heard.at, 1),
                "replicas": [msgspec.structs.asdict(one) for one in heard.beat.replicas],
                "broken": [msgspec.structs.asdict(one) for one in heard.beat.broken],
            }
            for id_, heard in self._heard.items()
        }


def is_reachable(host: str) -> bool:
    """Tell whether a host can be part of a URL and be looked up; whether it is there is another question."""
    try:
        host.encode("idna")
        return urlsplit(f"http://[{host}]:1" if ":" in host else f"http://{host}:1").hostname is not None
    except ValueError:
        return False


def replicas_of(beat: Beat) -> tuple[Replica, ...]:
    """All replicas that a broker tells of."""
    sound = (one.to_replica(broken=False) for one in beat.replicas)
    return (*sound, *(one.to_replica(broken=True) for one in beat.broken))
