"""What all servers count alike."""

from collections.abc import Iterator

from prometheus_client.core import CounterMetricFamily
from prometheus_client.registry import Collector

from flotilla.serving.quotas import Quotas


class QuotaRefusals(Collector):
    """How many requests were refused by a token's quota."""

    def __init__(self, quotas: Quotas) -> None:
        self._quotas = quotas

    def collect(self) -> Iterator[CounterMetricFamily]:
        """Look at what was counted."""
        found = CounterMetricFamily(
            "flotilla_quota_refusals", "Requests that a token's quota refused", labels=["quota"]
        )
        for quota, count in self._quotas.refused.items():
            found.add_metric([quota], count)
        yield found
