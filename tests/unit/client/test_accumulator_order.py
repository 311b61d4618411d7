"""The accumulator does not lose, duplicate or reorder records, whatever the order of the calls."""

import threading
from collections import defaultdict
from collections.abc import Callable

from hypothesis import given
from hypothesis import strategies as st

from flotilla.client.bulk_send import BulkSend
from flotilla.client.deliveries import Delivery
from flotilla.client.producer_batches import PartitionQueue, ProducerBatch
from flotilla.records import Compression, Headers, decode
from support.accumulator_harness import ID, AccumulatorHarness

One = tuple[int, bytes | None, int | None, bool, bool]
Several = tuple[list[One], str]

RECORDS = st.tuples(
    st.integers(0, 1200),  # bytes of the value
    st.none() | st.sampled_from([b"", b"a", b"b", b"c"]),
    st.none() | st.integers(0, 2),
    st.booleans(),  # has headers
    st.booleans(),  # has a time
)
STEPS = st.lists(
    st.one_of(
        RECORDS,
        st.tuples(st.lists(RECORDS, max_size=40), st.sampled_from(["keys", "partition", "neither"])),
        st.sampled_from(["take", "settle", "linger"]),
    ),
    max_size=60,
)


class Play:
    """Sends numbered records, takes and settles batches, and remembers all of it."""

    def __init__(self, harness: AccumulatorHarness) -> None:
        self.harness = harness
        self.sent: dict[int, list[bytes]] = defaultdict(list)
        self.deliveries: list[tuple[bytes, Delivery]] = []
        self.under_way: list[ProducerBatch] = []
        self.done: list[ProducerBatch] = []

    def step(self, step: str | One | Several) -> None:
        """Do something."""
        if isinstance(step, str):
            {"take": self.take, "settle": self.settle, "linger": self.linger}[step]()
        elif isinstance(step[0], list):
            self.add_many(step[0], str(step[1]))
        else:
            self.add(*step)

    def take(self) -> None:
        for queue in self.harness.woken:
            found = self.harness.accumulator.take(queue)
            if isinstance(found, ProducerBatch):
                self.under_way.append(found)

    def settle(self) -> None:
        for batch in self.under_way:
            self.harness.accumulator.settle(batch, 1000 * batch.queue.index)
        self.done += self.under_way
        self.under_way.clear()

    def linger(self) -> None:
        self.harness.now += 1.0

    def make_room(self) -> None:
        self.linger()
        self.take()
        self.settle()

    def add(self, size: int, key: bytes | None, partition: int | None, has_headers: bool, has_time: bool) -> None:
        value = b"%d " % len(self.deliveries) + bytes(size)
        headers: Headers = (("h", b"v"),) if has_headers else ()
        time = 5 if has_time else None
        while (delivery := self.harness.accumulator.add("t", value, key, headers, time, partition)) is None:
            self.make_room()
        self.note(value, delivery)

    def add_many(self, records: list[One], how: str) -> None:
        values = [b"%d " % (len(self.deliveries) + at) + bytes(one[0]) for at, one in enumerate(records)]
        keys = [one[1] for one in records] if how == "keys" else None
        many = BulkSend(values, keys, partition=1 if how == "partition" else None)
        while not self.harness.accumulator.add_many("t", many):
            self.make_room()
        for value, delivery in zip(values, many.deliveries, strict=True):
            self.note(value, delivery)

    def note(self, value: bytes, delivery: Delivery) -> None:
        self.sent[delivery.partition].append(value)
        self.deliveries.append((value, delivery))

    def finish(self) -> None:
        while self.harness.accumulator.pending():
            self.make_room()


@given(STEPS, st.sampled_from([600, 2000]), st.sampled_from([3000, 1 << 20]), st.sampled_from([0.0, 1.0]))
def test_accumulator_does_not_lose_duplicate_or_reorder_records(
    steps: list[str | One | Several], batch_bytes: int, buffer_bytes: int, linger_s: float
) -> None:
    """Guarantee 2, as far as it is ours: each partition gets what was sent to it, in the order in which it was sent."""
    play = Play(AccumulatorHarness(batch_bytes, buffer_bytes, linger_s))
    for step in steps:
        play.step(step)
    play.finish()
    got: dict[int, list[bytes]] = defaultdict(list)
    for batch in play.done:
        opened = decode(batch.encode(ID, Compression.NONE))
        assert len(opened) == 1 or opened.header.total_bytes <= batch_bytes
        got[batch.queue.index] += opened.values
    assert got == play.sent
    assert play.harness.accumulator.bytes == 0
    places = {id(batch.outcome): batch.values for batch in play.done}
    for value, delivery in play.deliveries:
        assert places[id(delivery._outcome)][delivery._index] == value
        assert delivery.result().offset == 1000 * delivery.partition + delivery._index


class Hammer:
    """Threads that send, and one that carries."""

    def __init__(self) -> None:
        self.accumulator = AccumulatorHarness(batch_bytes=20_000, buffer_bytes=100_000).accumulator
        self.accumulator._wake = self.wake
        self.got: dict[int, list[bytes]] = defaultdict(list)
        self._work = threading.Semaphore(0)
        self._queues: list[PartitionQueue] = []

    def wake(self, queue: PartitionQueue) -> None:
        self._queues.append(queue)
        self._work.release()

    def send(self, name: int, records: int) -> None:
        for number in range(records):
            while True:
                releases = self.accumulator.releases
                if self.accumulator.add("t", b"%d %d" % (name, number), b"%d" % (number % 7)) is not None:
                    break
                room = threading.Event()
                self.accumulator.call_when_room(releases, room.set)
                assert room.wait(10)

    def drain(self) -> None:
        while self._work.acquire() and self._queues:
            queue = self._queues.pop(0)
            while isinstance(batch := self.accumulator.take(queue), ProducerBatch):
                self.got[queue.index] += batch.values
                self.accumulator.settle(batch, 0)

    def run(self, senders: list[Callable[[], None]]) -> None:
        """Run all threads, and end the sender when they are done."""
        sender = threading.Thread(target=self.drain)
        threads = [threading.Thread(target=send) for send in senders]
        for thread in (sender, *threads):
            thread.start()
        for thread in threads:
            thread.join()
        self._work.release()
        sender.join()


def test_concurrent_threads_lose_no_records_and_keep_their_order() -> None:
    """Many threads may use one producer; the records of one thread to a partition stay in order."""
    hammer = Hammer()
    hammer.run([lambda name=name: hammer.send(name, 5_000) for name in range(4)])  # type: ignore[misc]  # of its own
    assert sum(len(values) for values in hammer.got.values()) == 20_000
    assert hammer.accumulator.bytes == 0
    for values in hammer.got.values():
        for name in range(4):
            numbers = [int(value.split()[1]) for value in values if value.startswith(b"%d " % name)]
            assert numbers == sorted(numbers)
