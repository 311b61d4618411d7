"""Metrics of a broker, for Prometheus.

Names in `_DEPRECATED` are exported under both names until the release after 0.3.
"""

from collections import Counter as Tally
from collections.abc import Callable, Iterator

from prometheus_client import Counter, Gauge, Histogram
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from flotilla.records import BatchHeader
from flotilla_broker.partition.appends import Appended, Failed, Outcome
from flotilla_broker.server import Broker
from flotilla_server.metrics import ServerMetrics

_SECONDS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10)
_DEPRECATED = {
    "flotilla_groups": "flotilla_replicas",
    "flotilla_groups_without_leader": "flotilla_replicas_without_leader",
    "flotilla_messages_refused": "flotilla_peer_messages_rejected_total",
}


class Metrics(ServerMetrics):
    """Counters and histograms are updated by events; gauges are read at each scrape."""

    def __init__(self, broker: Broker) -> None:
        super().__init__()
        registry = self._registry
        ends = Counter("flotilla_appends", "Appended batches by outcome", ["outcome"], registry=registry)
        self._ok, self._failed, self._unknown = (ends.labels(outcome) for outcome in ("ok", "failed", "unknown"))
        self._records = Counter("flotilla_append_records", "Records appended by this leader", registry=registry)
        self._bytes = Counter("flotilla_append_bytes", "Bytes of batches appended by this leader", registry=registry)
        self._seconds = Histogram(
            "flotilla_append_seconds",
            "Time from submission to acknowledgement of a batch",
            buckets=_SECONDS,
            registry=registry,
        )
        self._fetches = Counter("flotilla_fetches", "Fetches with records in the response", registry=registry)
        self._fetched = Counter("flotilla_fetch_bytes", "Bytes of batches returned by fetches", registry=registry)
        flushes = Histogram(
            "flotilla_flush_seconds", "Duration of log flushes (write and sync)", buckets=_SECONDS, registry=registry
        )
        broker.on_flush = flushes.observe
        self._in_flight = Gauge(
            "flotilla_in_flight_bytes", "Bytes of requests and responses in progress", ["what"], registry=registry
        )
        registry.register(_Gauges(broker))

    def watch(self, what: str, read_bytes: Callable[[], int]) -> None:
        """Export the bytes in progress of appends or fetches."""
        self._in_flight.labels(what).set_function(read_bytes)

    def appended(self, outcome: Outcome, header: BatchHeader, seconds: float) -> None:
        """Count an append."""
        if isinstance(outcome, Appended):
            self._ok.inc()
            self._seconds.observe(seconds)
            if not outcome.retried:
                self._records.inc(header.count)
                self._bytes.inc(header.total_bytes)
        elif isinstance(outcome, Failed):
            self._failed.inc()
        else:
            self._unknown.inc()

    def fetched(self, size: int) -> None:
        """Count a fetch."""
        self._fetches.inc()
        self._fetched.inc(size)


class _Gauges(Collector):
    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    def collect(self) -> Iterator[Metric]:
        """Read all gauges, and the counters that the engine keeps."""
        broker = self._broker
        for name in ("flotilla_replicas", "flotilla_groups"):
            yield self._replicas(name)
        leaderless = sum(partition.raft.leader is None for partition in broker.engine.partitions.values())
        for name in ("flotilla_replicas_without_leader", "flotilla_groups_without_leader"):
            yield _gauge(name, "Replicas that know no leader", leaderless)
        yield self._lags()
        rejected = broker.engine.rejected
        yield CounterMetricFamily("flotilla_peer_messages_rejected", "Invalid Raft messages from peers", value=rejected)
        yield _gauge("flotilla_messages_refused", "Invalid Raft messages from peers", rejected)
        usage = broker.log.disk_usage()
        yield _gauge("flotilla_log_bytes", "Disk usage of the log", usage.used_bytes)
        yield _gauge("flotilla_log_live_bytes", "Bytes of entries that are not removed", usage.live_bytes)
        yield _gauge("flotilla_disk_capacity_bytes", "Bytes that the log may use", usage.capacity_bytes)
        yield _gauge("flotilla_disk_free_bytes", "Bytes that the log may still use", usage.free_bytes)
        yield _gauge("flotilla_log_unflushed_bytes", "Bytes queued for the next flush", broker.log.unflushed_bytes)
        left = broker.log.space().segments_left
        yield _gauge("flotilla_disk_free_segments", "Free segments, without the reserve", left)
        yield _gauge("flotilla_peers_connected", "Connected brokers", len(broker.peers.connected))

    def _replicas(self, name: str) -> GaugeMetricFamily:
        engine = self._broker.engine
        roles = Tally(partition.raft.role.name.lower() for partition in engine.partitions.values())
        replicas = GaugeMetricFamily(name, _help(name, "Replicas on this broker by role"), labels=["role"])
        for role in ("leader", "follower", "candidate"):
            replicas.add_metric([role], roles[role])
        replicas.add_metric(["broken"], len(engine.broken))
        return replicas

    def _lags(self) -> GaugeMetricFamily:
        """Return the lag of followers. Topics are labelled by id: metrics need no token, and names are not public."""
        lags = GaugeMetricFamily(
            "flotilla_follower_lag_entries",
            "Entries behind this leader by follower",
            labels=["topic_id", "partition", "broker"],
        )
        for partition in self._broker.engine.partitions.values():
            leadership = partition.raft.leadership
            for peer, progress in leadership.progress.items() if leadership is not None else ():
                lag = partition.log.last_index - progress.match_index
                lags.add_metric(
                    [partition.meta.topic_id.hex(), str(partition.meta.partition), self._broker.identity.label(peer)],
                    lag,
                )
        return lags


def _gauge(name: str, text: str, value: float) -> GaugeMetricFamily:
    return GaugeMetricFamily(name, _help(name, text), value=value)


def _help(name: str, text: str) -> str:
    return f"{text} (deprecated: use {_DEPRECATED[name]})" if name in _DEPRECATED else text
