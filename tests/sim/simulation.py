"""A simulation: brokers, managers, a network, producers and all faults, from one seed."""

import copy
import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from flotilla.records import NO_PRODUCER, decode, split
from flotilla_broker.identity import Identity, find_identity
from flotilla_broker.log import LogFailed, open_log
from flotilla_broker.partition.entries import RECORDS, Expire, Trim
from flotilla_broker.partition.meta import ReplicaMeta
from flotilla_broker.partition.partition import Partition
from flotilla_broker.raft import NotLeader
from flotilla_broker.volume_check import confirmations_needed
from sim.broker import CODEC, LOG, Codec, SimBroker
from sim.clients import Batch, Producer
from sim.clock import Clock
from sim.deleters import Deleter
from sim.invariants import Invariants, Violation
from sim.managers import Managers
from sim.network import Network, Weather
from support.history import Name, Replica, violations
from support.simdisk import SimDisk

_HEAL_S = 120.0
_ROOMY = 1 << 40  # of a disk that is almost empty
_SILENCE_S = 1.5  # a connection without data for this time is closed
_HEAL_STEPS_MAX = 200_000
_DELETIONS_PER_S = 0.1


@dataclass(frozen=True, slots=True)
class Report:
    """Result of a run."""

    steps: int
    virtual_s: float
    acknowledged: int
    elections: int
    snapshots: int
    deletions: int
    crashes: int
    restores: int
    outcomes: dict[str, int]


class Simulation:
    """Brokers, network, clients and faults from one seed: the same seed gives the same run."""

    def __init__(
        self, seed: int, members: int | None = None, *, codec: Codec = CODEC, checks_volume: bool = True
    ) -> None:
        self.rng = random.Random(seed)
        self.kind = codec.kind_disk
        self.clock = Clock()
        count = members or self.rng.choice((1, 3, 3, 3, 5))
        names = [f"{at + 1:032x}" for at in range(count)]
        self.metas = [
            ReplicaMeta("t", bytes(15) + b"\1", partition, 1, tuple(names))
            for partition in range(self.rng.choice((1, 1, 2)))
        ]
        self.network = Network(
            self.clock,
            self.rng,
            names,
            deliver=lambda to, sender, message: self.brokers[to].deliver(sender, message),
            connected=lambda here, there: self.brokers[here].connected(there),
            disconnected=lambda here, there: self.brokers[here].disconnected(there),
        )
        self.managers = Managers(self.clock)
        self.brokers = {
            name: SimBroker(
                name,
                self.clock,
                self.rng,
                self.network,
                self.metas,
                codec,
                self.managers.evaluate,
                checks_volume=checks_volume and not self.kind,
            )
            for name in names
        }
        self.images: dict[str, SimDisk] = {}  # snapshots of volumes
        self.restored: SimBroker | None = None  # the broker whose volume was restored from one
        if self.kind:
            self.network.weather = Weather(delay_s=0.1)  # slow, but nothing is lost or reordered
        self.invariants = Invariants(self.metas)
        self.faults_allowed = True
        self.rate = self.rng.choice((4.0, 4.0, 0.2))  # with long pauses, groups quiesce
        self.steps = self.crashes = 0
        for broker in self.brokers.values():
            broker.on_send = self.invariants.observe_message
            broker.start()
        self._connect_all()
        self.producers = [self._producer(at, meta) for meta in self.metas for at in range(self.rng.choice((1, 2, 4)))]
        for producer in self.producers:
            self._produce(producer)
        for meta in () if self.kind else self.metas:
            self._delete(Deleter(meta, self.rng, self._find, self.invariants.request_deletion, self._deleted))
        self._plan_fault()

    def _producer(self, at: int, meta: ReplicaMeta) -> Producer:
        name = f"p{meta.partition}.{at}"
        identity = NO_PRODUCER if self.rng.random() < 0.2 else name.encode().ljust(16, b"\0")
        return Producer(name, meta, self.clock, self.rng, self._find, self._acknowledged, identity)

    def _acknowledged(self, meta: ReplicaMeta, batch: Batch) -> None:
        if batch.offset is not None:
            for broker in self.brokers.values():
                broker.is_changed = True  # one of them is changing right now
            self.invariants.check(list(self.brokers.values()))
            self.invariants.check_acknowledged(meta, batch.offset, batch.names)

    def _find(self, meta: ReplicaMeta) -> SimBroker | None:
        """Find a broker to send to: mostly one that considers itself the leader, sometimes any."""
        up = [broker for broker in self.brokers.values() if broker.up]
        leaders = [broker for broker in up if (found := broker.partition(meta)) and found.raft.is_leader]
        if leaders and self.rng.random() < 0.9:
            return self.rng.choice(leaders)
        return self.rng.choice(up) if up else None

    def _produce(self, producer: Producer) -> None:
        if self.faults_allowed:
            for _ in range(self.rng.choice((1, 1, 3))):
                producer.send()
            self.clock.after(self.rng.expovariate(self.rate), lambda: self._produce(producer))

    def _delete(self, deleter: Deleter) -> None:
        if self.faults_allowed:
            deleter.delete()
            self.clock.after(self.rng.expovariate(_DELETIONS_PER_S), lambda: self._delete(deleter))

    def _deleted(self, meta: ReplicaMeta, partition: Partition, offset: int) -> None:
        for broker in self.brokers.values():
            broker.is_changed = True  # one of them is changing right now
        self.invariants.check_deleted(meta, partition, offset)

    # -- faults -------------------------------------------------------------------------------------------

    def _plan_fault(self) -> None:
        if self.faults_allowed:
            self.clock.after(self.rng.expovariate(1.5), self._fault)

    def _fault(self) -> None:
        if not self.faults_allowed:
            return
        faults: list[tuple[int, Callable[[], None]]] = [
            (6, self._crash),
            (2, self._crash_soon),
            (1, self._crash_all),
            (5, self._cut),
            (4, self._isolate),
            (4, self._pause),
            (4, self._change_weather),
            (3, self._slow_disk),
            (3, self._fill_disk),
            (5, self._trim),
            (2, self._expire),
            (3, self._continue_transfer),
            (3, self._take_image),
            (2, self._lose_managers),
            (1, self.managers.restart),
        ]
        if self.kind:
            faults = [
                (weight, fault)
                for weight, fault in faults
                if fault in {self._crash, self._cut, self._isolate, self._pause}
            ]
        self.rng.choices([fault for _, fault in faults], [weight for weight, _ in faults])[0]()
        self._plan_fault()

    def _some_broker(self) -> SimBroker:
        return self.rng.choice(list(self.brokers.values()))

    def _crash(self) -> None:
        broker = self._some_broker()
        if broker.up:
            self._stop(broker, 1.0 if self.kind else self.rng.choice((0.0, 0.6, 1.0)))

    def _stop(self, broker: SimBroker, survive: float) -> None:
        self.crashes += 1
        broker.stop(survive)
        self.network.isolate(broker.name)
        self.clock.after(self.rng.choice((0.05, 1.0, 4.0, 15.0)), partial(self._restart, broker))

    def _restart(self, broker: SimBroker) -> None:
        if not broker.up and not broker.is_retired:
            self._restore(broker)
            try:
                broker.start()
            except LogFailed:  # the disk is too full to start
                broker.stop(1.0)
                self.clock.after(1.0, partial(self._restart, broker))
                return
            for other in self.brokers.values():
                if other.up and other is not broker and self.rng.random() < 0.9:
                    self.network.connect(broker.name, other.name)

    def _crash_soon(self) -> None:
        """Crash during the next disk operations."""
        broker = self._some_broker()
        if broker.up:
            broker.disk.crash_in = self.rng.randrange(1, 12)

    def _crash_all(self) -> None:
        for broker in self.brokers.values():
            if broker.up:
                self._stop(broker, self.rng.choice((0.0, 0.6)))

    # -- restored volumes ---------------------------------------------------------------------------------

    def _take_image(self) -> None:
        """Take a snapshot of a volume, while its broker runs."""
        broker = self._some_broker()
        if broker.up and len(self.brokers) > 2:
            image = copy.deepcopy(broker.disk)
            image.reboot(self.rng, self.rng.choice((0.0, 0.6)))
            image.volume = self.rng.choice((broker.disk.volume, "copied files"))
            self.images[broker.name] = image

    def _restore(self, broker: SimBroker) -> None:
        """Restore a snapshot once: of files, or of a device if enough others durably remember more."""
        image = self.images.pop(broker.name, None)
        if image is None or self.restored is not None or not self.faults_allowed:
            return
        if image.volume != broker.disk.volume or self._is_detectable(broker, image):
            image.boot, image.capacity_bytes = broker.disk.boot + 1, broker.disk.capacity_bytes
            broker.disk, self.restored = image, broker

    def _is_detectable(self, broker: SimBroker, image: SimDisk) -> bool:
        recovered = read_identity(image)
        if recovered is None:
            return False
        lsn, known = recovered.recovered_lsn, self.managers.stored.get(broker.name)
        others = [read_identity(other.disk) for other in self.brokers.values() if other is not broker]
        ignorant = sum(other is None or other.start_of(broker.name).lsn <= lsn for other in others)
        return known is not None and known.lsn > lsn and ignorant < confirmations_needed(len(self.brokers))

    def _lose_managers(self) -> None:
        """Make managers unreachable for a while."""
        self.managers.is_reachable = False
        self.clock.after(self.rng.choice((1.0, 5.0, 20.0)), self._find_managers)

    def _find_managers(self) -> None:
        self.managers.is_reachable = True

    def _cut(self) -> None:
        if len(self.brokers) > 1:
            pair = self.network.random_pair()
            self.network.disconnect(*pair)
            self.clock.after(self.rng.choice((0.01, 0.5, 5.0)), partial(self._reconnect, *pair))

    def _reconnect(self, one: str, other: str) -> None:
        if self.brokers[one].up and self.brokers[other].up:
            self.network.connect(one, other)

    def _isolate(self) -> None:
        name = self._some_broker().name
        self.network.isolate(name)
        for other in self.brokers:
            if other != name:
                self.clock.after(self.rng.choice((0.5, 4.0, 10.0)), partial(self._reconnect, name, other))

    def _pause(self) -> None:
        broker = self._some_broker()
        if broker.up and not broker.paused:
            seconds = self.rng.choice((0.2, 2.0, 6.0))
            broker.pause(seconds)
            if seconds > _SILENCE_S:
                self.clock.after(_SILENCE_S, partial(self.network.isolate, broker.name))
                for other in self.brokers:
                    if other != broker.name:
                        self.clock.after(seconds + 0.1, partial(self._reconnect, broker.name, other))

    def _change_weather(self) -> None:
        self.network.weather = Weather.random(self.rng)

    def _slow_disk(self) -> None:
        self._some_broker().sync_s = self.rng.choice((0.0002, 0.001, 0.05, 1.0))

    def _fill_disk(self) -> None:
        """Leave almost no free space, for a while."""
        broker = self._some_broker()
        if broker.up and broker.disk.capacity_bytes == _ROOMY:
            used = _ROOMY - broker.disk.free_bytes()
            broker.disk.capacity_bytes = used + self.rng.choice((0, 20_000, 60_000))
            self.clock.after(self.rng.choice((1.0, 5.0)), partial(self._free_disk, broker))

    @staticmethod
    def _free_disk(broker: SimBroker) -> None:
        broker.disk.capacity_bytes = _ROOMY

    def _lead(self, act: Callable[[Partition], object]) -> None:
        """Run an action on a leader, if there is one."""
        meta = self.rng.choice(self.metas)
        for broker in self.brokers.values():
            found = broker.partition(meta)
            if found is not None and found.raft.has_committed_in_term and found.raft.accepts_entries:
                broker.happen(partial(_try, act, found))
                broker.happen(partial(broker.engine.schedule, meta.key.to_bytes()))
                return

    def _trim(self) -> None:
        share = self.rng.choice((0.3, 0.9, 1.0))

        def act(partition: Partition) -> None:
            span = partition.committed_offset - partition.start_offset
            offset = partition.start_offset + int(span * share)
            self.invariants.request_deletion(partition.meta, offset)
            partition.instruct(Trim(offset))

        self._lead(act)

    def _expire(self) -> None:
        before_ms = int((self.clock.now - self.rng.choice((35, 50))) * 1000)  # later than any retry
        self._lead(lambda partition: partition.instruct(Expire(before_ms)))

    def _continue_transfer(self) -> None:
        self._lead(lambda partition: partition.raft.transfer_leadership(self.clock.now))

    # -- running ------------------------------------------------------------------------------------------

    def run(self, virtual_s: float) -> Report:
        """Inject faults for a while, then heal all, and check that the replicas agree."""
        began = self.clock.now
        while self.clock.now < began + virtual_s:
            self._step()
        self._heal()
        self._check_history()
        return self._report(self.clock.now - began)

    def _step(self) -> None:
        self.steps += 1
        if not self.clock.step():
            raise Violation("no event is scheduled")
        for broker in self.brokers.values():
            if not broker.up and broker.is_changed:
                self._restart_failed(broker)
        self.invariants.check(list(self.brokers.values()))

    def _restart_failed(self, broker: SimBroker) -> None:
        """Handle a broker that its own disk has stopped: the others notice, and it is restarted."""
        broker.is_changed = False
        if any(self.network.is_connected(broker.name, other) for other in self.brokers if other != broker.name):
            self._stop(broker, 0.6)

    def _heal(self) -> None:
        self.faults_allowed = False
        self.network.weather = Weather()
        for broker in self.brokers.values():
            broker.disk.crash_in = None
            self._free_disk(broker)
            broker.sync_s = 0.001
        self._find_managers()
        until = self.clock.now + _HEAL_S
        last = self.steps + _HEAL_STEPS_MAX
        while not self._has_converged():
            if self.clock.now > until or self.steps > last:
                raise Violation(f"the brokers do not agree, {_HEAL_S} s after the last fault: {self._positions()}")
            for broker in self.brokers.values():
                if not broker.up and not broker.is_retired:
                    broker.start()
            self._connect_all()
            self._step()

    def _connect_all(self) -> None:
        names = list(self.brokers)
        for at, one in enumerate(names):
            for other in names[at + 1 :]:
                self._reconnect(one, other)

    def _has_converged(self) -> bool:
        if any(batch.outcome is None for producer in self.producers for batch in producer.batches):
            return False
        if self.restored is not None and self.restored.disk.volume == "device" and not self.restored.is_retired:
            return False
        for meta in self.metas:
            found = [broker.partition(meta) for broker in self.brokers.values() if not broker.is_retired]
            replicas = [partition for partition in found if partition is not None]
            ends = {(p.log.last_index, p.applied_index, p.raft.term) for p in replicas}
            if len(replicas) < len(found) or len(ends) > 1 or not any(p.raft.has_committed_in_term for p in replicas):
                return False
            if replicas[0].applied_index != replicas[0].log.last_index:
                return False
        return True

    def _positions(self) -> str:
        return "; ".join(
            f"{broker.name[-2:]} {p.raft.role.name} term {p.raft.term} log {p.log.anchor_index}..{p.log.last_index} "
            f"committed {p.applied_index} leader {p.raft.leader} durable {p.log.durable_index}"
            for broker in self.brokers.values()
            for p in broker.partitions
        )

    def _check_history(self) -> None:
        sends = [send for producer in self.producers for send in producer.sends]
        replicas = [
            replica
            for broker in self.brokers.values()
            for partition in broker.partitions
            for replica in [read_replica(broker.name, partition)]
        ]
        found = violations(sends, replicas)
        if found:
            raise Violation("; ".join(found[:5]))

    def _report(self, virtual_s: float) -> Report:
        outcomes = Counter(str(send.outcome) for producer in self.producers for send in producer.sends)
        return Report(
            steps=self.steps,
            virtual_s=virtual_s,
            acknowledged=outcomes["ok"],
            elections=self.invariants.elections,
            snapshots=self.invariants.snapshots,
            deletions=self.invariants.deletions,
            crashes=self.crashes,
            restores=int(self.restored is not None),
            outcomes=dict(outcomes),
        )


def _try(act: Callable[[Partition], object], partition: Partition) -> None:
    try:
        act(partition)
    except NotLeader:
        return  # not the leader any more


def read_identity(disk: SimDisk) -> Identity | None:
    """Read what a broker durably remembers."""
    durable = copy.deepcopy(disk)
    durable.reboot(random.Random(0), survive=0.0)
    return find_identity(open_log(durable, LOG, random_u32=lambda: 0))


def read_replica(broker: str, partition: Partition) -> Replica:
    """Read all committed records of a replica."""
    log, number = partition.log.log, partition.log.number
    names: list[Name] = []
    first: int | None = None
    index = partition.log.anchor_index + 1
    while index <= partition.applied_index:
        for entry in log.read(number, index, bytes_max=1 << 20):
            index = entry.index + 1
            if bytes(entry.payload[:1]) != RECORDS or entry.index > partition.applied_index:
                continue
            for data in split(entry.payload[1:]):
                batch = decode(data)
                first = batch.header.base_offset if first is None else first
                names += [_name(value) for value in batch.values]
    if first is not None and first < partition.start_offset:  # deleted, but in the same entry as existing records
        names, first = names[partition.start_offset - first :], partition.start_offset
    return Replica(broker, partition.meta.partition, names, partition.committed_offset if first is None else first)


def _name(value: bytes) -> Name:
    producer, number, _ = value.split(b" ", 2)
    return Name(producer.decode(), int(number))
