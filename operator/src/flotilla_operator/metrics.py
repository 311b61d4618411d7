"""Metrics of the operator, for Prometheus.

Each metric is also exported under its name of 0.2; 0.4 removes the old names.
"""

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest

_BUCKETS = (0.05, 0.2, 1, 5, 30)
_DEPRECATED = "Deprecated: use"
_DEPRECATED_REASONS = {"unavailable": "away", "rejected": "refused"}  # values of 0.2


class Metrics:
    """Metrics of one operator."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        prefix = "flotilla_operator"
        self._durations = [
            self._histogram(f"{prefix}_reconcile_seconds", "Duration of reconciles"),
            self._histogram(f"{prefix}_turn_seconds", f"{_DEPRECATED} {prefix}_reconcile_seconds"),
        ]
        self._actions = [
            self._counter(f"{prefix}_actions", "Actions that changed something", "action"),
            self._counter(f"{prefix}_steps", f"{_DEPRECATED} {prefix}_actions_total", "step"),
        ]
        self._failures = [
            self._counter(f"{prefix}_action_failures", "Failed actions, rejected or unavailable", "reason"),
            self._counter(f"{prefix}_failures", f"{_DEPRECATED} {prefix}_action_failures_total", "how"),
        ]

    def observe_reconcile(self, seconds: float) -> None:
        """Record the duration of a reconcile."""
        for one in self._durations:
            one.observe(seconds)

    def count_action(self, action: str) -> None:
        """Count an action that changed something."""
        for one in self._actions:
            one.labels(action).inc()

    def count_failure(self, reason: str) -> None:
        """Count a failed action."""
        current, deprecated = self._failures
        current.labels(reason).inc()
        deprecated.labels(_DEPRECATED_REASONS.get(reason, reason)).inc()

    def to_bytes(self) -> bytes:
        """Encode all metrics in the text format of Prometheus."""
        return generate_latest(self._registry)

    def _histogram(self, name: str, help_text: str) -> Histogram:
        return Histogram(name, help_text, registry=self._registry, buckets=_BUCKETS)

    def _counter(self, name: str, help_text: str, label: str) -> Counter:
        return Counter(name, help_text, [label], registry=self._registry)
