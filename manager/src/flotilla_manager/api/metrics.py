"""Prometheus metrics of a manager."""

import time
from collections.abc import Iterator

from prometheus_client import Counter, Histogram
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from flotilla.protocol.errors import Refusal
from flotilla_manager.manager import Manager
from flotilla_manager.model import TopicState
from flotilla_server.asgi import Endpoint, Receive, Scope, Send
from flotilla_server.metrics import ServerMetrics

_OK = 200
_BUCKETS_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)


class Metrics(ServerMetrics):
    """Metrics of one manager."""

    def __init__(self, manager: Manager) -> None:
        super().__init__()
        self._registry.register(_Gauges(manager))
        self._requests = Counter(
            "flotilla_requests", "HTTP requests by call and status", ["call", "status"], registry=self._registry
        )
        self._known: dict[tuple[str, int], tuple[Counter, Histogram]] = {}  # cached, because labels() is slow
        self._seconds = Histogram(
            "flotilla_request_seconds",
            "Latency of HTTP requests by call",
            ["call"],
            buckets=_BUCKETS_S,
            registry=self._registry,
        )

    def answered(self, call: str, status: int, seconds: float) -> None:
        """Count a response."""
        found = self._known.get((call, status))
        if found is None:
            found = self._requests.labels(call, status), self._seconds.labels(call)
            self._known[call, status] = found
        found[0].inc()
        found[1].observe(seconds)

    def counting(self, call: str, endpoint: Endpoint) -> Endpoint:
        """Wrap an endpoint to count its responses and errors."""

        async def counted(scope: Scope, receive: Receive, send: Send) -> None:
            began = time.perf_counter()
            try:
                await endpoint(scope, receive, send)
            except Refusal as refusal:
                self.answered(call, refusal.status, time.perf_counter() - began)
                raise
            self.answered(call, _OK, time.perf_counter() - began)

        return counted


class _Gauges(Collector):
    def __init__(self, manager: Manager) -> None:
        self._manager = manager

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """Yield the current values."""
        manager = self._manager
        yield _gauge("flotilla_writer", "1 if this manager is the writer, else 0", int(manager.writer.is_writer))
        yield _gauge(
            "flotilla_database_up",
            "1 if the last database query succeeded, else 0",
            int(manager.metadata.last_error is None),
        )
        yield _gauge("flotilla_in_flight_bytes", "Bytes of messages in flight", manager.batchers.in_flight.bytes)
        yield _gauge("flotilla_record_cache_bytes", "Bytes of cached records", manager.record_cache.size)
        yield _gauge("flotilla_tail_streams", "Active tail streams", len(manager.tail_streams))
        yield _gauge("flotilla_cached_producers", "Cached producer registrations", manager.producers.count)
        # Names of 0.2, to be removed in 0.4.
        yield _gauge("flotilla_kept_record_bytes", "Deprecated: flotilla_record_cache_bytes", manager.record_cache.size)
        yield _gauge("flotilla_listeners", "Deprecated: flotilla_tail_streams", len(manager.tail_streams))
        yield _gauge("flotilla_known_producers", "Deprecated: flotilla_cached_producers", manager.producers.count)
        snapshot = manager.metadata.snapshot
        if snapshot is None:
            return
        topics = GaugeMetricFamily("flotilla_topics", "Topics by state", labels=["state"])
        for state in (TopicState.CREATING, TopicState.READY, TopicState.DELETING):
            topics.add_metric([state], sum(topic.state == state for topic in snapshot.topics))
        yield topics
        brokers = GaugeMetricFamily("flotilla_brokers", "Registered brokers by status", labels=["status"])
        for status, active in (("active", True), ("inactive", False)):
            brokers.add_metric([status], sum(one.active == active and not one.removed for one in snapshot.brokers))
        yield brokers
        yield _gauge("flotilla_metadata_version", "Version of the cached topology", snapshot.version)


def _gauge(name: str, text: str, value: float) -> GaugeMetricFamily:
    return GaugeMetricFamily(name, text, value=value)
