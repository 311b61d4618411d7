"""Metrics that all servers have."""

from collections.abc import Iterator

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
