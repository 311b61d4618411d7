"""Figures for Prometheus."""

import time
from collections.abc import Iterator

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from flotilla.serving.asgi import Endpoint, Receive, Scope, Send
from flotilla.serving.errors import Refusal
from flotilla.serving.metrics import QuotaRefusals
from flotilla.serving.quotas import Quotas
from flotilla_manager.manager import Manager
from flotilla_manager.model import TopicState

_OK = 200
_BUCKETS_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)


class Metrics:
    """What a manager counts."""

    def __init__(self, manager: Manager) -> None:
        self._registry = CollectorRegistry()
        self._registry.register(_Gauges(manager))
        self._requests = Counter(
            "flotilla_requests", "Requests that were answered", ["call", "status"], registry=self._registry
        )
        self._known: dict[tuple[str, int], tuple[Counter, Histogram]] = {}  # to look labels up costs more than to count
        self._seconds = Histogram(
            "flotilla_request_seconds", "How long they took", ["call"], buckets=_BUCKETS_S, registry=self._registry
        )

    def answered(self, call: str, status: int, seconds: float) -> None:
        """Count an answer."""
        found = self._known.get((call, status))
        if found is None:
            found = self._requests.labels(call, status), self._seconds.labels(call)
            self._known[call, status] = found
        found[0].inc()
        found[1].observe(seconds)

    def counting(self, call: str, endpoint: Endpoint) -> Endpoint:
        """Count the answers of an endpoint, and its refusals."""

        async def counted(scope: Scope, receive: Receive, send: Send) -> None:
            began = time.perf_counter()
            try:
                await endpoint(scope, receive, send)
            except Refusal as refusal:
                self.answered(call, refusal.status, time.perf_counter() - began)
                raise
            self.answered(call, _OK, time.perf_counter() - began)

        return counted

    def watch_quotas(self, quotas: Quotas) -> None:
        """Show how many requests were refused by a token's quota."""
        self._registry.register(QuotaRefusals(quotas))

    def to_bytes(self) -> bytes:
        """Write everything down, in the format that Prometheus reads."""
        return generate_latest(self._registry)


class _Gauges(Collector):
    def __init__(self, manager: Manager) -> None:
        self._manager = manager

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """Look at everything."""
        manager = self._manager
        yield _gauge("flotilla_writer", "1 if this manager is the writer", int(manager.writer.is_writer))
        yield _gauge("flotilla_database_up", "1 if the database answered last", int(manager.view.trouble is None))
        yield _gauge("flotilla_in_flight_bytes", "Messages that are under way", manager.lanes.in_flight.bytes)
        yield _gauge("flotilla_kept_record_bytes", "Records that are kept for consumers", manager.records.size)
        yield _gauge("flotilla_listeners", "Clients that a topic is being told to", len(manager.listeners))
        yield _gauge("flotilla_known_producers", "Producers that need no look-up", manager.producers.count)
        snapshot = manager.view.snapshot
        if snapshot is None:
            return
        topics = GaugeMetricFamily("flotilla_topics", "Topics, by state", labels=["state"])
        for state in (TopicState.CREATING, TopicState.READY, TopicState.DELETING):
            topics.add_metric([state], sum(topic.state == state for topic in snapshot.topics))
        yield topics
        brokers = GaugeMetricFamily("flotilla_brokers", "Brokers, by whether they are heard of", labels=["status"])
        for status, active in (("active", True), ("inactive", False)):
            brokers.add_metric([status], sum(one.active == active and not one.removed for one in snapshot.brokers))
        yield brokers
        yield _gauge("flotilla_metadata_version", "The version of the topology that is known here", snapshot.version)


def _gauge(name: str, text: str, value: float) -> GaugeMetricFamily:
    return GaugeMetricFamily(name, text, value=value)
