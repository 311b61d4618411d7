"""What a broker tells about itself, for Prometheus."""

from collections import Counter as Tally
from collections.abc import Callable, Iterator

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from flotilla.records import BatchHeader
from flotilla.serving.metrics import QuotaRefusals
from flotilla.serving.quotas import Quotas
from flotilla_broker.partition.outcomes import Appended, Failed, Outcome
from flotilla_broker.server import Broker

_SECONDS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10)


class Metrics:
    """Counters are counted as things happen, gauges are looked up when somebody asks."""

    def __init__(self, broker: Broker) -> None:
        registry = CollectorRegistry()
        self._registry = registry
        ends = Counter("flotilla_appends", "Batches, by how their append ended", ["outcome"], registry=registry)
        self._ok, self._failed, self._unknown = (ends.labels(outcome) for outcome in ("ok", "failed", "unknown"))
        self._records = Counter("flotilla_append_records", "Records that were appended", registry=registry)
        self._bytes = Counter("flotilla_append_bytes", "Bytes of batches that were appended", registry=registry)
        self._seconds = Histogram(
            "flotilla_append_seconds", "From submission to acknowledgement", buckets=_SECONDS, registry=registry
        )
        self._fetches = Counter("flotilla_fetches", "Fetches that were answered", registry=registry)
        self._fetched = Counter("flotilla_fetch_bytes", "Bytes of batches that were fetched", registry=registry)
        flushes = Histogram(
            "flotilla_flush_seconds", "A write and sync of the log", buckets=_SECONDS, registry=registry
        )
        broker.on_flush = flushes.observe
        self._in_flight = Gauge(
            "flotilla_in_flight_bytes", "What clients send or are sent now", ["what"], registry=registry
        )
        registry.register(_Gauges(broker))

    def watch(self, what: str, look: Callable[[], int]) -> None:
        """Show how many bytes of appends or fetches are under way."""
        self._in_flight.labels(what).set_function(look)

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

    def watch_quotas(self, quotas: Quotas) -> None:
        """Show how many requests were refused by a token's quota."""
        self._registry.register(QuotaRefusals(quotas))

    def to_bytes(self) -> bytes:
        """Write everything down, in the format that Prometheus reads."""
        return generate_latest(self._registry)


class _Gauges(Collector):
    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """Look at everything."""
        broker = self._broker
        partitions = list(broker.engine.partitions.values())
        roles = Tally(partition.raft.role.name.lower() for partition in partitions)
        groups = GaugeMetricFamily("flotilla_groups", "Replicas on this broker, by role", labels=["role"])
        for role in ("leader", "follower", "candidate"):
            groups.add_metric([role], roles[role])
        groups.add_metric(["broken"], len(broker.engine.broken))
        yield groups
        leaderless = sum(partition.raft.leader is None for partition in partitions)
        yield _gauge("flotilla_groups_without_leader", "Replicas that know of no leader", leaderless)
        yield self._lags()
        yield _gauge("flotilla_messages_refused", "Messages between brokers that broke a rule", broker.engine.refused)
        yield _gauge("flotilla_log_bytes", "What the log takes on disk", broker.log.used_bytes)
        yield _gauge("flotilla_log_unflushed_bytes", "What waits to be written", broker.log.unflushed_bytes)
        yield _gauge(
            "flotilla_disk_free_segments", "Segments that entries may still fill", broker.log.space().segments_left
        )
        yield _gauge("flotilla_peers_connected", "Brokers that there is a connection to", len(broker.peers.connected))

    def _lags(self) -> GaugeMetricFamily:
        """Tell of topics by their ids: figures are open to all, and names are not."""
        lags = GaugeMetricFamily(
            "flotilla_follower_lag_entries", "Entries that a follower lacks", labels=["topic_id", "partition", "broker"]
        )
        for partition in self._broker.engine.partitions.values():
            leadership = partition.raft.leadership
            for peer, progress in leadership.progress.items() if leadership is not None else ():
                lag = partition.log.last_index - progress.match_index
                lags.add_metric([partition.meta.topic_id.hex(), str(partition.meta.partition), peer], lag)
        return lags


def _gauge(name: str, text: str, value: float) -> GaugeMetricFamily:
    return GaugeMetricFamily(name, text, value=value)
