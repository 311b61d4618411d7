"""Metrics that all servers have, and their registry."""

from collections.abc import Iterator

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily
from prometheus_client.registry import Collector

from flotilla_server.quotas import Quotas


class QuotaRefusals(Collector):
    """Number of requests rejected by quotas."""

    def __init__(self, quotas: Quotas) -> None:
        self._quotas = quotas

    def collect(self) -> Iterator[CounterMetricFamily]:
        """Read the counts."""
        found = CounterMetricFamily(
            "flotilla_quota_refusals", "Requests rejected by a quota of their token", labels=["quota"]
        )
        for quota, count in self._quotas.refused.items():
            found.add_metric([quota], count)
        yield found


class ServerMetrics:
    """The metrics of one server."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry()

    def watch_quotas(self, quotas: Quotas) -> None:
        """Export the number of requests rejected by quotas."""
        self._registry.register(QuotaRefusals(quotas))

    def to_bytes(self) -> bytes:
        """Encode all metrics in the Prometheus text format."""
        return generate_latest(self._registry)
