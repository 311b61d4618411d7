"""Messages of all groups over one connection: one frame per peer and run, and a fair share for each group."""

from collections.abc import Sequence
from typing import cast

import msgspec
import pytest

from flotilla_broker.peer_batches import Greeting, PeerBatch, PeerBatches, decode_frame
from flotilla_broker.peers import PeerNetwork
from flotilla_broker.raft import Entry
from flotilla_broker.raft.messages import Append, SnapshotBegin, Vote
from flotilla_server.broker_starts import Start


class Recorder:
    """A fake network that records what was sent."""

    def __init__(self) -> None:
        self.frames: list[tuple[str, bytes]] = []
        self.full: set[str] = set()

    def send(self, peer: str, buffers: Sequence[bytes]) -> bool:
        self.frames.append((peer, b"".join(buffers)))
        return True

    def writable(self, peer: str) -> bool:
        return peer not in self.full


def make() -> tuple[PeerBatches, Recorder, list[str]]:
    room: list[str] = []
    batches, recorder = PeerBatches(room.append, lambda: 7), Recorder()
    batches.attach(cast("PeerNetwork", recorder))
    return batches, recorder, room


def large(size: int) -> Append:
    return Append(1, 0, 0, 0, [Entry(1, 1, 1, 0, memoryview(bytes(size)))])


def test_messages_of_one_run_for_a_peer_are_one_frame() -> None:
    batches, recorder, _ = make()
    for key in (b"1", b"2"):
        batches.send("a", key, Vote(3))
        batches.send("b", key, Vote(4))
    batches.flush()
    assert [peer for peer, _ in recorder.frames] == ["a", "b"]
    assert decode_frame(memoryview(recorder.frames[0][1])) == PeerBatch([(b"1", Vote(3)), (b"2", Vote(3))], lsn=7)
    batches.flush()
    assert len(recorder.frames) == 2


def test_group_that_catches_up_leaves_capacity_for_others() -> None:
    """The bytes queued for a peer in one run are limited; the rest is requested again in the next run."""
    batches, _, room = make()
    assert batches.is_writable("a")
    batches.send("a", b"1", large(5 << 20))
    assert not batches.is_writable("a")
    assert batches.is_writable("b")
    batches.flush()
    assert room == ["a"]
    assert batches.is_writable("a")


def test_group_without_capacity_is_notified_when_there_is_some() -> None:
    batches, recorder, room = make()
    recorder.full.add("a")
    assert not batches.is_writable("a")
    batches.flush()
    assert room == []
    recorder.full.clear()
    batches.writable("a")
    batches.writable("a")
    assert room == ["a"]


def test_hello_is_sent_at_once() -> None:
    batches, recorder, _ = make()
    greeting = Greeting(Start(3, b"x"), Start(2))
    batches.greet("a", greeting)
    assert decode_frame(memoryview(recorder.frames[0][1])) == greeting


def test_many_messages_for_one_peer_are_several_frames() -> None:
    """No frame is too large, whatever groups queue in one run; an oversized message affects only its own group."""
    batches, recorder, _ = make()
    for key in range(20):
        batches.send("a", b"%d" % key, large(3 << 20))
    batches.send("a", b"copy", SnapshotBegin(1, 1, 0, 0, 0, 5, 1, bytes(9 << 20)))
    batches.flush()
    sizes = [len(frame) for _, frame in recorder.frames]
    assert max(sizes) < 12 << 20
    found = [decode_frame(memoryview(frame)) for _, frame in recorder.frames]
    keys = [key for part in found if isinstance(part, PeerBatch) for key, _ in part.messages]
    assert keys == [*(b"%d" % key for key in range(20)), b"copy"]


@pytest.mark.parametrize(
    "data", [b"", b"\xc1", msgspec.msgpack.encode(["x"]), msgspec.msgpack.encode({"type": "other"})]
)
def test_foreign_frame_is_rejected(data: bytes) -> None:
    with pytest.raises(msgspec.DecodeError):
        decode_frame(memoryview(data))
