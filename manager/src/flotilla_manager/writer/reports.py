"""Last heartbeats of brokers, kept in memory and timed by the writer's clock.

A broker announces its heartbeat interval, and is inactive after three intervals without a heartbeat. Heartbeats are
validated: every accepted value can be stored in the database, and the address can be part of a URL.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Annotated, Any
from urllib.parse import urlsplit

import msgspec
from msgspec import Meta

from flotilla.limits import INT64_MAX, MANAGER_HEARTBEAT_S_MAX, MANAGER_HEARTBEAT_S_MIN, REPLICATION_MAX, TOPIC_NAME
from flotilla_manager.model import Broker, Replica
from flotilla_manager.planning import Peers, Report
from flotilla_server.broker_starts import StartReport

INTERVAL_S = 1.0  # default, also for brokers of 0.2, which announce none
MISSED_MAX = 3
_REPLICAS_MAX = 50_000

# Python's $ also matches before a last line break.
Id = Annotated[str, Meta(pattern=r"^[0-9a-f]{32}$(?!\n)")]
Host = Annotated[str, Meta(min_length=1, max_length=253, pattern=r"^[^\s\x00-\x1f\x7f/?#@]+$(?!\n)")]
Name = Annotated[str, Meta(max_length=253, pattern=r"^[^\s\x00-\x1f\x7f]*$(?!\n)")]
Rack = Annotated[str, Meta(max_length=253, pattern=r"^[^\x00-\x1f\x7f]*$(?!\n)")]
Port = Annotated[int, Meta(ge=1, le=65535)]
Number = Annotated[int, Meta(ge=0, le=INT64_MAX)]
Epoch = Annotated[int, Meta(ge=0, le=1 << 62)]  # leaves room for later epochs
Count = Annotated[int, Meta(ge=0, le=(1 << 32) - 1)]
Interval = Annotated[float, Meta(ge=MANAGER_HEARTBEAT_S_MIN, le=MANAGER_HEARTBEAT_S_MAX)]


class ReplicaReport(msgspec.Struct, frozen=True, kw_only=True):
    """State of one replica, as reported by its broker."""

    topic: Annotated[str, Meta(pattern=TOPIC_NAME)]
    topic_id: Id
    partition: Count
    epoch: Count
    members: Annotated[tuple[Id, ...], Meta(max_length=REPLICATION_MAX)]
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
        """Convert it to the model."""
        return Replica(**msgspec.structs.asdict(self), broken=broken)


class Disk(msgspec.Struct, frozen=True, kw_only=True):
    """Disk usage of a broker. Brokers of 0.2 send the first and the last field only."""

    used_bytes: Number = 0
    live_bytes: Number | None = None  # of entries that are not removed
    capacity_bytes: Number | None = None
    free_bytes: Number | None = None
    segments_left: Annotated[int, Meta(ge=-INT64_MAX, le=INT64_MAX)] | None = None  # negative: the reserve is in use


class Heartbeat(msgspec.Struct, frozen=True, kw_only=True):
    """Heartbeat of a broker."""

    id: Id
    host: Host
    port: Port
    peer_host: Host
    peer_port: Port
    cluster_id: Id | None = None
    rack: Rack | None = None
    tls: bool = False
    name: Name = ""
    starts: Number = 0
    start: StartReport | None = None  # None for brokers of 0.2
    writer_epoch: Epoch = 0
    manager_heartbeat_s: Interval = INTERVAL_S
    access: Annotated[str, Meta(max_length=64)] | None = None  # version of its access table, if it uses one
    disk: Disk = Disk()
    replicas: Annotated[tuple[ReplicaReport, ...], Meta(max_length=_REPLICAS_MAX)] = ()
    broken: Annotated[tuple[ReplicaReport, ...], Meta(max_length=_REPLICAS_MAX)] = ()

    def __post_init__(self) -> None:
        for host in (self.host, self.peer_host):
            if not is_reachable(host):
                raise ValueError(f"{host!r} is not a valid host name or address")

    def to_broker(self, known: Broker | None) -> Broker:
        """Return the broker: addresses from the heartbeat, administrative state from `known`."""
        fresh = Broker(
            id=self.id,
            host=self.host,
            port=self.port,
            peer_host=self.peer_host,
            peer_port=self.peer_port,
            rack=self.rack,
            tls=self.tls,
            name=self.name or None,
        )
        if known is None:
            return fresh
        rack = known.rack if self.rack is None else self.rack  # the operator may have set it
        return replace(fresh, rack=rack, cordoned=known.cordoned, wanted=known.wanted, removed=known.removed)


@dataclass
class LastHeartbeat:
    """Last heartbeat of a broker."""

    heartbeat: Heartbeat
    at: float
    replicas: tuple[Replica, ...]  # replicas that it holds
    peers: Peers | None = None  # peers last sent to it since its start
    stale: bool = False  # commands were sent since: the replicas may have changed


class Reports:
    """Last heartbeats of all brokers."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._last_heartbeats: dict[str, LastHeartbeat] = {}
        self._expected: dict[str, float] = {}  # intervals of brokers without a heartbeat so far

    def record(self, heartbeat: Heartbeat) -> None:
        """Record a heartbeat."""
        before = self._last_heartbeats.get(heartbeat.id)
        same_start = before is not None and before.heartbeat.starts == heartbeat.starts
        peers = before.peers if before is not None and same_start else None
        self._last_heartbeats[heartbeat.id] = LastHeartbeat(heartbeat, self._clock(), replicas_of(heartbeat), peers)

    def is_alive(self, broker_id: str) -> bool:
        """Return whether a broker has missed fewer than three heartbeats."""
        last = self._last_heartbeats.get(broker_id)
        return last is not None and self._clock() - last.at <= limit_s(last.heartbeat.manager_heartbeat_s)

    def interval_s(self, broker_id: str) -> float | None:
        """Return the interval of a broker's heartbeats; None if it is not known."""
        last = self._last_heartbeats.get(broker_id)
        return self._expected.get(broker_id) if last is None else last.heartbeat.manager_heartbeat_s

    def expect(self, broker_id: str, interval_s: float) -> None:
        """Set the interval of a broker that has sent no heartbeat so far."""
        self._expected[broker_id] = interval_s

    def forget_all(self) -> None:
        """Clear all heartbeats, after a change of the writer."""
        self._last_heartbeats.clear()
        self._expected.clear()

    def set_peers(self, broker_id: str, peers: Peers) -> None:
        """Record the peers that were sent to a broker."""
        if broker_id in self._last_heartbeats:
            self._last_heartbeats[broker_id].peers = peers

    def mark_stale(self, broker_id: str) -> None:
        """Ignore the last heartbeat of a broker in planning: it got a command since."""
        if broker_id in self._last_heartbeats:
            self._last_heartbeats[broker_id].stale = True

    def for_planning(self) -> dict[str, Report]:
        """Return the input of `planning.plan`."""
        return {
            id_: Report(
                broker=id_,
                cluster_id=last.heartbeat.cluster_id,
                writer_epoch=last.heartbeat.writer_epoch,
                replicas=last.replicas,
                fresh=self.is_alive(id_) and not last.stale,
                peers=last.peers,
            )
            for id_, last in self._last_heartbeats.items()
        }

    def describe(self) -> dict[str, dict[str, Any]]:
        """Describe disks and replicas from the last heartbeats."""
        return {
            id_: {
                "disk": msgspec.structs.asdict(last.heartbeat.disk),
                "seconds_ago": round(self._clock() - last.at, 1),
                "heartbeat_limit_s": limit_s(last.heartbeat.manager_heartbeat_s),
                "replicas": [msgspec.structs.asdict(one) for one in last.heartbeat.replicas],
                "broken": [msgspec.structs.asdict(one) for one in last.heartbeat.broken],
            }
            for id_, last in self._last_heartbeats.items()
        }


def limit_s(interval_s: float) -> float:
    """Return the seconds without a heartbeat after which a broker is inactive: three intervals, and at least 3 s.

    The minimum keeps brokers with short intervals active during a pause of theirs or of the machine.
    """
    return MISSED_MAX * max(interval_s, INTERVAL_S)


def grace_s(interval_s: float) -> float:
    """Return the seconds that a writer waits before it marks a broker inactive: the limit, and one interval."""
    return limit_s(interval_s) + max(interval_s, INTERVAL_S)


def is_reachable(host: str) -> bool:
    """Return whether a host is a valid part of a URL."""
    try:
        host.encode("idna")
        return urlsplit(f"http://[{host}]:1" if ":" in host else f"http://{host}:1").hostname is not None
    except ValueError:
        return False


def replicas_of(heartbeat: Heartbeat) -> tuple[Replica, ...]:
    """Return all replicas of a heartbeat."""
    healthy = (one.to_replica(broken=False) for one in heartbeat.replicas)
    return (*healthy, *(one.to_replica(broken=True) for one in heartbeat.broken))
