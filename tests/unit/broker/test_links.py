"""Messages of all groups over one connection: one frame per peer and turn, and room for others."""

from collections.abc import Sequence
from typing import cast

import msgspec
import pytest

from flotilla_broker.identity import Start
from flotilla_broker.links import Greeting, Links, Parcels, unpack
from flotilla_broker.peers import PeerNetwork
from flotilla_broker.raft import Entry
from flotilla_broker.raft.messages import Append, CopyBegin, Vote


class Recorder:
    """Stands in for the connections: what was sent is there to be looked at."""

    def __init__(self) -> None:
        self.frames: list[tuple[str, bytes]] = []
        self.full: set[str] = set()

    def send(self, peer: str, buffers: Sequence[bytes]) -> bool:
        self.frames.append((peer, b"".join(buffers)))
        return True

    def writable(self, peer: str) -> bool:
        return peer not in self.full


def make() -> tuple[Links, Recorder, list[str]]:
    room: list[str] = []
    links, recorder = Links(room.append), Recorder()
    links.attach(cast("PeerNetwork", recorder))
    return links, recorder, room


def large(size: int) -> Append:
    return Append(1, 0, 0, 0, [Entry(1, 1, 1, 0, memoryview(bytes(size)))])


def test_all_messages_of_a_turn_for_one_peer_are_one_frame() -> None:
    links, recorder, _ = make()
    for key in (b"1", b"2"):
        links.send("a", key, Vote(3))
        links.send("b", key, Vote(4))
    links.flush()
    assert [peer for peer, _ in recorder.frames] == ["a", "b"]
    assert unpack(memoryview(recorder.frames[0][1])) == Parcels([(b"1", Vote(3)), (b"2", Vote(3))])
    links.flush()
    assert len(recorder.frames) == 2


def test_a_group_that_catches_up_leaves_room_for_the_others() -> None:
    """At most so much is queued for a peer in one turn; the rest is asked for again in the next."""
    links, _, room = make()
    assert links.is_writable("a")
    links.send("a", b"1", large(5 << 20))
    assert not links.is_writable("a")
    assert links.is_writable("b")
    links.flush()
    assert room == ["a"]
    assert links.is_writable("a")


def test_who_found_no_room_is_told_when_there_is_some() -> None:
    links, recorder, room = make()
    recorder.full.add("a")
    assert not links.is_writable("a")
    links.flush()
    assert room == []
    recorder.full.clear()
    links.writable("a")
    links.writable("a")
    assert room == ["a"]


def test_a_greeting_is_sent_at_once() -> None:
    links, recorder, _ = make()
    greeting = Greeting(Start(3, b"x"), Start(2))
    links.greet("a", greeting)
    assert unpack(memoryview(recorder.frames[0][1])) == greeting


def test_much_for_one_peer_goes_in_several_frames() -> None:
    """Whatever groups queue in one turn, no frame is too large; and one message that is concerns its group alone."""
    links, recorder, _ = make()
    for key in range(20):
        links.send("a", b"%d" % key, large(3 << 20))
    links.send("a", b"copy", CopyBegin(1, 1, 0, 0, 0, 5, 1, bytes(9 << 20)))
    links.flush()
    sizes = [len(frame) for _, frame in recorder.frames]
    assert max(sizes) < 12 << 20
    found = [unpack(memoryview(frame)) for _, frame in recorder.frames]
    keys = [key for part in found if isinstance(part, Parcels) for key, _ in part.parcels]
    assert keys == [*(b"%d" % key for key in range(20)), b"copy"]


@pytest.mark.parametrize(
    "data", [b"", b"\xc1", msgspec.msgpack.encode(["x"]), msgspec.msgpack.encode({"type": "other"})]
)
def test_a_frame_that_is_nothing_of_ours_is_refused(data: bytes) -> None:
    with pytest.raises(msgspec.DecodeError):
        unpack(memoryview(data))
