"""Simulated managers: they check starts of brokers as real ones do, lose what is not stored, and are unreachable."""

from flotilla_manager.writer.start_checks import StartChecks
from flotilla_server.broker_starts import Start, StartReport, StartVerdict
from sim.clock import Clock

_STORE_S = 1.0
_LIMIT_S = 3.0


class Managers:
    """The writer and its database."""

    def __init__(self, clock: Clock) -> None:
        self.is_reachable = True
        self.stored: dict[str, Start] = {}
        self._clock = clock
        self._checks = StartChecks(lambda: clock.now)
        self.restart()
        self._store()

    def restart(self) -> None:
        """Replace the writer: what is not stored is lost."""
        self._checks.load((self._checks.epoch or 0) + 1, self.stored)

    def evaluate(self, name: str, report: StartReport) -> StartVerdict | None:
        """Return the verdict on a start; None while managers are unreachable."""
        if not self.is_reachable:
            return None
        return self._checks.evaluate(name, report, limit_s=_LIMIT_S, same_address=True)

    def _store(self) -> None:
        changed = self._checks.changed()
        self.stored.update(changed)
        self._checks.stored(changed)
        self._clock.after(_STORE_S, self._store)
