"""Verdicts on starts of brokers: whether a broker's data folder is the latest one that it had.

The writer remembers the last start of each broker and the LSN up to which its log was durable, also in the database. A
start that recovered less has an older copy of the folder, and must give up its id.

A start that recovered as much may be a restart, or a clone: a copy of the folder of a broker that still runs. It is
confirmed at once if other brokers have confirmed it (they are no longer connected to the last start), or if it has the
address of the last start; otherwise, and on a copy of files, when the last start has missed its heartbeats. If the last
start sends heartbeats after all, it stays, because it was there first, and the new one is a duplicate.
"""

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from flotilla_server.broker_starts import Start, StartReport, StartVerdict

_PAST_STARTS = 16


@dataclass(slots=True)
class KnownStart:
    """The last confirmed start of a broker, and when it sent its last heartbeat."""

    start: Start
    heard_at: float


class StartChecks:
    """The last start of each broker, in memory. `clock` is that of heartbeats."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._known: dict[str, KnownStart] = {}
        self._past: dict[str, deque[tuple[int, bytes]]] = {}  # the last confirmed starts
        self._waiting: dict[tuple[str, tuple[int, bytes]], float] = {}  # unconfirmed starts: since when
        self._contested: set[tuple[str, tuple[int, bytes]]] = set()  # the previous start was heard again since
        self._changed: set[str] = set()  # brokers whose start is not stored yet
        self.epoch: int | None = None  # writer epoch in which the starts were loaded

    def load(self, epoch: int, starts: Mapping[str, Start]) -> None:
        """Set the stored starts, at the begin of a writer epoch. Each may still be running."""
        now = self._clock()
        self._known = {id_: KnownStart(start, now) for id_, start in starts.items()}
        self._past = {id_: deque((start.key,), _PAST_STARTS) for id_, start in starts.items()}
        self._waiting.clear()
        self._contested.clear()
        self._changed.clear()
        self.epoch = epoch

    def evaluate(self, id_: str, report: StartReport, *, limit_s: float, same_address: bool) -> StartVerdict:
        """Return the verdict on a start, and remember a confirmed one.

        `limit_s` is the time without a heartbeat after which the last start counts as ended.
        """
        now, start, known = self._clock(), report.start, self._known.get(id_)
        past = self._past.setdefault(id_, deque(maxlen=_PAST_STARTS))
        if known is None or start.is_same(known.start):
            return self._confirm(id_, start, now)
        if start.key in past and start.number < known.start.number:  # it lives: the later one is a clone
            self._contested.add((id_, known.start.key))
            self._waiting.setdefault((id_, known.start.key), now)
            return self._confirm(id_, start, now)
        if start.key not in past and start.is_older_copy(report.recovered_lsn, known.start):
            return StartVerdict.OLDER_COPY
        is_certain = not report.is_copy and (id_, start.key) not in self._contested
        if (is_certain and (report.is_confirmed or same_address)) or now - known.heard_at > limit_s:
            self._waiting = {key: at for key, at in self._waiting.items() if key[0] != id_}
            self._contested = {key for key in self._contested if key[0] != id_}
            return self._confirm(id_, start, now)
        since = self._waiting.setdefault((id_, start.key), now)
        return StartVerdict.DUPLICATE if known.heard_at - since > limit_s else StartVerdict.UNCONFIRMED

    def _confirm(self, id_: str, start: Start, now: float) -> StartVerdict:
        """Remember a start as the last one."""
        known = self._known.get(id_)
        if known is None or not start.is_same(known.start):
            self._past[id_].append(start.key)
        elif start.lsn < known.start.lsn:
            start = known.start  # a late heartbeat
        if known is None or known.start != start:
            self._changed.add(id_)
        self._known[id_] = KnownStart(start, now)
        return StartVerdict.CONFIRMED

    def changed(self) -> dict[str, Start]:
        """Return the starts to store."""
        return {id_: self._known[id_].start for id_ in self._changed}

    def stored(self, starts: Mapping[str, Start]) -> None:
        """Record that starts are stored."""
        self._changed = {id_ for id_ in self._changed if self._known[id_].start != starts.get(id_)}
