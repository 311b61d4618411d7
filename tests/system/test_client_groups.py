"""Consumer groups of the client on real processes: members join, leave, hang and are killed, and so are servers."""

import contextlib
import signal
import sys
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from flotilla.client.consumer import Consumer
from flotilla.client.errors import ConfigInvalid, MemberGone
from flotilla.client.positions import TopicPartition
from support import groupchild
from support.cluster import wait_until
from support.consumers import Consumers, append, create
from support.fleet import Fleet
from support.process import ServerProcess

QUICK = ("--heartbeat-s", "0.1", "--election-s-min", "0.5", "--election-s-max", "1.0")
SOON_S = 15.0
QUIET_S = 0.5
SESSION_S = 6.0  # a member that a busy machine delays for less keeps its partitions
PARTITIONS = 4


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    with Fleet(Path(tmp_path_factory.mktemp("fleet")), brokers=1) as fleet:
        yield fleet


@pytest.fixture(scope="module")
def consumers(fleet: Fleet) -> Iterator[Consumers]:
    with Consumers(fleet.url) as consumers:
        yield consumers


def values(count: int, begin: int = 0) -> list[bytes]:
    return [str(begin + at).encode() for at in range(count)]


def committed(fleet: Fleet, group: str) -> dict[int, int]:
    response = fleet.client.get(f"/v1/groups/{group}/offsets")
    return {one["partition"]: one["offset"] for one in response.json().get("offsets", [])}


class Reader:
    """A consumer that reads in a thread."""

    def __init__(
        self, consumer: Consumer, processed: list[tuple[int, int]], work: Callable[[], object] = lambda: None
    ) -> None:
        self.consumer = consumer
        self._processed = processed
        self._work = work
        self._trouble: BaseException | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            with self.consumer:
                for record in self.consumer:
                    self._processed.append((record.partition, record.offset))
                    self._work()
        except BaseException as error:  # noqa: BLE001 - raised again at the end
            self._trouble = error

    def end(self) -> None:
        self.consumer.stop()
        self._thread.join(60)
        assert not self._thread.is_alive()
        if self._trouble is not None:
            raise self._trouble


def test_group_continues_from_its_committed_offsets(fleet: Fleet, consumers: Consumers) -> None:
    """Processed records are committed at close, and not read again."""
    create(fleet, "again")
    append(fleet, "again", 0, values(10))
    with consumers.make("again", group="again") as consumer:
        assert [record.offset for record in consumer.records(max_records=4)] == [0, 1, 2, 3]
    assert committed(fleet, "again") == {0: 4}
    with pytest.raises(RuntimeError, match="went wrong"):
        fail_at(consumers.make("again", group="again"), 6)
    assert committed(fleet, "again") == {0: 6}, "unprocessed records are not committed"
    with consumers.make("again", group="again") as consumer:
        assert [record.offset for record in consumer.records(max_records=4, timeout_s=SOON_S)] == [6, 7, 8, 9]


def fail_at(consumer: Consumer, offset: int) -> None:
    with consumer:
        for record in consumer:
            if record.offset == offset:
                raise RuntimeError("went wrong")


def test_manual_commits_are_the_only_ones(fleet: Fleet, consumers: Consumers) -> None:
    """commit() takes all that was handed out, or what is given."""
    create(fleet, "hand")
    append(fleet, "hand", 0, values(10))
    with consumers.make("hand", group="hand", auto_commit_s=None) as consumer:
        assert len(list(consumer.records(max_records=3))) == 3
        consumer.commit()
        assert committed(fleet, "hand") == {0: 3}
        assert len(list(consumer.records(max_records=3))) == 3
    assert committed(fleet, "hand") == {0: 3}
    with consumers.make("hand", group="hand", auto_commit_s=None) as consumer:
        assert next(iter(consumer)).offset == 3
        consumer.commit({TopicPartition("hand", 0): 9})
    assert committed(fleet, "hand") == {0: 9}


def test_auto_commit_commits_processed_records(fleet: Fleet, consumers: Consumers) -> None:
    """A record is processed when the next one is requested."""
    create(fleet, "self")
    append(fleet, "self", 0, values(3))
    with consumers.make("self", group="self", auto_commit_s=0.1) as consumer:
        assert [record.offset for record in consumer.records(max_records=2)] == [0, 1]
        wait_until("a commit", lambda: committed(fleet, "self") == {0: 1})
        assert next(iter(consumer)).offset == 2
        wait_until("a commit", lambda: committed(fleet, "self") == {0: 2})


def test_group_with_assigned_partitions_only_stores_offsets(fleet: Fleet, consumers: Consumers) -> None:
    """A consumer with its own partitions uses a group as storage."""
    create(fleet, "memory", 2)
    append(fleet, "memory", 1, values(5))
    for expected in ([0, 1], [2, 3, 4]):
        with consumers.make("memory", group="memory", partitions=[1]) as consumer:
            assert [record.offset for record in consumer.records(max_records=len(expected))] == expected
    with (
        consumers.make("memory") as consumer,
        pytest.raises(ConfigInvalid, match="commit needs a consumer group"),
    ):
        consumer.commit()


def test_members_share_partitions_and_each_record_is_read_once_in_order(fleet: Fleet, consumers: Consumers) -> None:
    """Members join and leave: each partition has one reader at a time, which finishes its records first."""
    create(fleet, "shared", PARTITIONS)
    processed: list[tuple[int, int]] = []  # by all members, in the order in which processing began
    readers: list[Reader] = []
    sent = 0
    for is_coming in (True, True, False, True, True, False, False, True):
        if is_coming:
            consumer = consumers.make("shared", group="shared", session_s=SESSION_S, auto_commit_s=0.3)
            readers.append(Reader(consumer, processed, lambda: time.sleep(0.002)))
        else:
            readers.pop(0).end()
        for _ in range(5):
            for partition in range(PARTITIONS):
                append(fleet, "shared", partition, values(20))
            sent += 20
        wait_until("a share for everybody", lambda: all(reader.consumer.assignment for reader in readers))
    wait_until("all records", lambda: len(processed) >= PARTITIONS * sent, 60)
    for reader in readers:
        reader.end()
    order = defaultdict(list)
    for partition, offset in processed:
        order[partition].append(offset)
    assert order == {partition: list(range(sent)) for partition in range(PARTITIONS)}


def test_callbacks_report_assignments_and_allow_a_last_commit(fleet: Fleet, consumers: Consumers) -> None:
    """on_revoked runs in the user's thread, after its last record and before the next owner starts."""
    create(fleet, "told", 2)
    for partition in range(2):
        append(fleet, "told", partition, values(4))
    said: list[tuple[str, list[TopicPartition]]] = []
    threads = set()

    def revoked(places: list[TopicPartition]) -> None:
        threads.add(threading.current_thread())
        said.append(("revoked", places))
        first.commit()

    first = consumers.make(
        "told",
        group="told",
        auto_commit_s=None,
        on_assigned=lambda places: said.append(("assigned", places)),
        on_revoked=revoked,
    )
    assert len(list(first.records(max_records=8))) == 8
    assert said == [("assigned", [TopicPartition("told", 0), TopicPartition("told", 1)])]
    with consumers.make("told", group="told", auto_commit_s=None) as second:
        wait_until("a revocation", lambda: first.poll(0.05) is None and len(said) == 2)
        wait_until("a share", lambda: second.poll(0.05) is None and second.assignment)
        assert second.assignment == said[1][1]
        assert second.poll(QUIET_S) is None, "committed records are not read again"
    assert threads == {threading.current_thread()}
    first.close()
    assert committed(fleet, "told") == {0: 4, 1: 4}


def test_group_follows_new_deleted_and_recreated_topics(fleet: Fleet, consumers: Consumers) -> None:
    """New partitions are read from their first offset, also with auto_offset_reset=latest."""
    create(fleet, "life")
    append(fleet, "life", 0, [b"old"])
    with consumers.make("life", group="life", start="latest", session_s=1) as consumer:
        wait_until("a share", lambda: consumer.poll(0.05) is None and consumer.assignment)
        assert fleet.client.patch("/v1/topics/life", json={"partitions": 2}).status_code == 200
        append(fleet, "life", 1, [b"grown"])
        append(fleet, "life", 0, [b"new"])
        assert {record.value for record in consumer.records(max_records=2, timeout_s=SOON_S)} == {b"grown", b"new"}
        assert fleet.client.delete("/v1/topics/life").status_code == 200
        create(fleet, "life")
        append(fleet, "life", 0, [b"another"])
        assert [record.value for record in consumer.records(max_records=1, timeout_s=SOON_S)] == [b"another"]


def test_replaced_member_stops_with_an_error(fleet: Fleet, consumers: Consumers) -> None:
    """Two processes with the same id would replace each other endlessly."""
    create(fleet, "twins")
    with (
        consumers.make("twins", group="twins", member_id="me", session_s=1) as one,
        consumers.make("twins", group="twins", member_id="me", session_s=1) as two,
    ):
        with pytest.raises(MemberGone, match="another consumer joined group 'twins' with member_id 'me'"):
            one.poll(SOON_S)
        append(fleet, "twins", 0, values(1))
        assert two.poll(SOON_S) is not None


def test_consumer_that_does_not_poll_leaves_and_rejoins(fleet: Fleet, consumers: Consumers) -> None:
    """max_poll_s: its partitions go to others although it sends heartbeats."""
    create(fleet, "hangs")
    append(fleet, "hangs", 0, values(3))
    lost: list[TopicPartition] = []
    options: dict[str, Any] = {"group": "hangs", "session_s": 1, "auto_commit_s": 0.1}
    with consumers.make("hangs", **options, max_poll_s=1.0, on_lost=lost.extend) as first:
        assert next(iter(first)).offset == 0
        with consumers.make("hangs", **options) as second:
            assert [record.offset for record in second.records(max_records=3, timeout_s=SOON_S)] == [0, 1, 2]
            assert first.poll(QUIET_S) is None
            assert lost == [TopicPartition("hangs", 0)]
        append(fleet, "hangs", 0, values(1))
        record = first.poll(SOON_S)
        assert record is not None
        assert record.offset == 3


class Child(ServerProcess):
    """A consumer as a process."""

    def __init__(self, folder: Path, number: int, url: str, topic: str) -> None:
        super().__init__(folder / f"child-{number}.txt", {})
        self.file = folder / f"child-{number}.found"
        self._command = [url, "crew", topic, "2", str(self.file)]
        self._number = number
        self._starts = 0

    @property
    def id(self) -> str:
        """Member id; another one after each start."""
        return f"{self._number}-{self._starts}"

    def command(self) -> Sequence[str]:
        self._starts += 1
        return [sys.executable, groupchild.__file__, *self._command, self.id]

    @property
    def found(self) -> list[tuple[int, int]]:
        """Received records: partition and offset."""
        text = self.file.read_text() if self.file.exists() else ""
        lines = [line.split() for line in text.splitlines(keepends=True) if line.endswith("\n")]
        return [(int(partition), int(offset)) for partition, offset, _ in lines]


def test_every_record_is_processed_while_members_and_servers_are_killed(tmp_path: Path) -> None:
    """Members, the writer, readers and leaders are killed and stopped: each record is read at least once."""
    with Fleet(tmp_path, broker_flags=QUICK) as fleet, contextlib.ExitStack() as ends:
        create(fleet, "storm", PARTITIONS, replication=3)
        children = [Child(tmp_path, at, fleet.url, "storm") for at in range(3)]
        for child in children:
            ends.callback(child.close)
            child.start()
        wait_until("a whole group", lambda: is_whole(fleet, "crew", children), 60)
        sent = 0
        for trouble in (
            children[0].kill,
            fleet.writer.kill,
            lambda: children[1].signal(signal.SIGSTOP),
            fleet.brokers[0].kill,
            fleet.readers[0].kill,
            lambda: children[2].signal(signal.SIGSTOP),
        ):
            for partition in range(PARTITIONS):
                append(fleet, "storm", partition, values(50))
            sent += 50
            trouble()
            wait_for_all(children, sent)
            for child in children:
                child.signal(signal.SIGCONT) if child.is_running else child.start()
            fleet.start()
            fleet.wait_ready()
            wait_until("a whole group", lambda: is_whole(fleet, "crew", children), 60)
        for child in children:
            assert child.terminate() == 0, child.log()
        assert committed(fleet, "crew") == dict.fromkeys(range(PARTITIONS), sent)
        counts = Counter(one for child in children for one in child.found)
        assert counts.keys() == {(partition, offset) for partition in range(PARTITIONS) for offset in range(sent)}
        assert sum(counts.values()) < 2 * len(counts), "committed records are not processed again"


def is_whole(fleet: Fleet, group: str, children: list[Child]) -> bool:
    """Return whether exactly these members have joined, and have their share."""
    described = fleet.client.get(f"/v1/groups/{group}").json()
    members = {member["member_id"] for member in described.get("members", ())}
    return described.get("state") == "stable" and members == {child.id for child in children}


def wait_for_all(children: list[Child], sent: int) -> None:
    """Wait until each record was processed."""

    def is_all() -> bool:
        return len({one for child in children for one in child.found}) == PARTITIONS * sent

    wait_until("each record to be processed", is_all, 60)
