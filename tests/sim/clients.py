"""Simulated producers: they send, retry, give up, and record the outcomes."""

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

from flotilla.records import NO_PRODUCER, check, encode
from flotilla_broker.log import DiskFull
from flotilla_broker.partition import appends
from flotilla_broker.partition.meta import ReplicaMeta
from flotilla_broker.raft import RaftError
from sim.broker import SimBroker
from sim.clock import Clock
from support.history import Name, Outcome, Send

_TIMEOUT_S = 2.0
_ATTEMPTS_MAX = 4
_IN_FLIGHT_MAX = 5


@dataclass(slots=True)
class Batch:
    """Records that were sent together, and their outcome."""

    names: list[Name]
    data: bytearray
    attempts: int = 0
    doubtful: bool = False  # the outcome of an attempt is unknown
    outcome: Outcome | None = None
    offset: int | None = None
    current: int = 0  # number of the current attempt


@dataclass
class Producer:
    """Sends to one partition, at most five batches at a time. Without a producer id it never retries."""

    name: str
    meta: ReplicaMeta
    clock: Clock
    rng: random.Random
    find: Callable[[ReplicaMeta], SimBroker | None]
    on_acknowledged: Callable[[ReplicaMeta, Batch], None]
    producer_id: bytes = NO_PRODUCER
    epoch: int = 0
    sequence: int = 0
    sent: int = 0
    batches: list[Batch] = field(default_factory=list)

    @property
    def sends(self) -> list[Send]:
        """All sent records, in order."""
        return [
            Send(name, self.meta.partition, batch.outcome or Outcome.UNKNOWN, self._offset(batch, at))
            for batch in self.batches
            for at, name in enumerate(batch.names)
        ]

    @staticmethod
    def _offset(batch: Batch, at: int) -> int | None:
        return None if batch.offset is None else batch.offset + at

    def send(self) -> None:
        """Send the next batch."""
        if sum(batch.outcome is None for batch in self.batches) >= _IN_FLIGHT_MAX:
            return
        names = [Name(self.name, self.sent + at) for at in range(self.rng.choice((1, 1, 2, 5)))]
        self.sent += len(names)
        size = self.rng.choice((0, 0, 30, 200))
        values = [f"{name.producer} {name.number} ".encode() + bytes(size) for name in names]
        data = encode(values, producer_id=self.producer_id, producer_epoch=self.epoch, base_sequence=self.sequence)
        if self.producer_id != NO_PRODUCER:
            self.sequence += len(names)
        self.batches.append(Batch(names, data))
        self._attempt(self.batches[-1])

    def _attempt(self, batch: Batch) -> None:
        if batch.outcome is not None:
            return
        if batch.attempts >= (_ATTEMPTS_MAX if self.producer_id != NO_PRODUCER else 1):
            self._give_up(batch)
            return
        batch.attempts += 1
        batch.current += 1
        attempt = batch.current
        broker = self.find(self.meta)
        if broker is None or broker.paused:
            self._again(batch)
            return
        self.clock.after(_TIMEOUT_S, partial(self._end, batch, attempt, appends.Unknown("timeout")))
        done = partial(self._end, batch, attempt)
        broker.happen(lambda: self._submit(broker, batch, done))

    def _submit(self, broker: SimBroker, batch: Batch, done: appends.Done) -> None:
        partition = broker.partition(self.meta)
        try:
            if partition is None:
                done(appends.Failed("not_leader", "there is no replica here"))
                return
            broker.log.admit(len(batch.data) + 1)
            partition.submit(check(batch.data), batch.data, done)
            if self.producer_id != NO_PRODUCER and self.rng.random() < 0.1:
                partition.submit(check(batch.data), batch.data, done)  # a retry before the first attempt was answered
            broker.engine.schedule(self.meta.key.to_bytes())
        except RaftError as error:
            done(appends.Failed("not_leader", str(error)))
        except DiskFull as error:
            done(appends.Failed("closed", str(error)))

    def _end(self, batch: Batch, attempt: int, outcome: appends.Outcome) -> None:
        """End an attempt. The outcome of one that has timed out is ignored."""
        if batch.outcome is not None or attempt != batch.current:
            return
        batch.current += 1
        if isinstance(outcome, appends.Appended):
            batch.outcome, batch.offset = Outcome.OK, outcome.base_offset
            self.on_acknowledged(self.meta, batch)
        elif isinstance(outcome, appends.Failed) and outcome.code not in {"not_leader", "sequence_gap", "closed"}:
            self._give_up(batch)
        else:
            batch.doubtful = batch.doubtful or isinstance(outcome, appends.Unknown)
            self._again(batch)

    def _again(self, batch: Batch) -> None:
        self.clock.after(self.rng.choice((0.01, 0.2, 1.0)), partial(self._attempt, batch))

    def _give_up(self, batch: Batch) -> None:
        batch.outcome = Outcome.UNKNOWN if batch.doubtful else Outcome.FAILED
        if self.producer_id != NO_PRODUCER:
            self.epoch, self.sequence = self.epoch + 1, 0
            for other in self.batches:  # they follow one that is missing
                if other.outcome is None:
                    other.outcome = Outcome.UNKNOWN
