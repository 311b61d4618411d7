"""Figures for Prometheus."""

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest


class Metrics:
    """What the operator counts."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        self._turns = Histogram(
            "flotilla_operator_turn_seconds",
            "How long turns take",
            registry=self._registry,
            buckets=(0.05, 0.2, 1, 5, 30),
        )
        self._steps = Counter(
            "flotilla_operator_steps", "Steps that changed something", ["step"], registry=self._registry
        )
        self._failures = Counter(
            "flotilla_operator_failures",
            "Steps that failed: refused, or somebody was away",
            ["how"],
            registry=self._registry,
        )

    def turn(self, seconds: float) -> None:
        """Count a turn."""
        self._turns.observe(seconds)

    def did(self, step: str) -> None:
        """Count a step that changed something."""
        self._steps.labels(step).inc()

    def failed(self, how: str) -> None:
        """Count a step that failed."""
        self._failures.labels(how).inc()

    def to_bytes(self) -> bytes:
        """Write them down."""
        return generate_latest(self._registry)
