"""Who a broker is: random, made once, and gone with the log that it is kept in."""

from collections.abc import Callable
from itertools import count
from pathlib import Path

import msgspec
import pytest

from flotilla_broker.identity import (
    BrokerAddress,
    ForeignCluster,
    Identity,
    IdentityUnreadable,
    StaleWriter,
    Start,
    find_identity,
    open_home,
)
from flotilla_broker.log import Log, LogConfig

CONFIG = LogConfig(segment_bytes=1 << 16, entry_bytes_max=4000)
ADDRESS = BrokerAddress("host", 1, "peer", 2)
A, B = "a" * 32, "b" * 32


def numbered() -> Callable[[int], bytes]:
    """Make ids that can be told apart."""
    counter = count(1)
    return lambda size: next(counter).to_bytes(size, "big")


IDS = numbered()


def reopen(folder: Path, log: Log | None) -> tuple[Log, Identity]:
    if log is not None:
        log.close()
    return open_home(folder, CONFIG, IDS)


def test_an_id_is_made_once_and_starts_are_counted(tmp_path: Path) -> None:
    log, identity = reopen(tmp_path, None)
    first = identity.id
    for starts in (2, 3):
        log, identity = reopen(tmp_path, log)
        assert (identity.id, identity.start.number) == (first, starts)
    log.close()


def test_everything_that_was_noted_is_there_after_a_restart(tmp_path: Path) -> None:
    log, identity = reopen(tmp_path, None)
    identity.heed(7)
    identity.set_brokers({A: ADDRESS})
    identity.saw(B, Start(4, b"x"))
    identity.close(b"key")
    log, identity = reopen(tmp_path, log)
    assert identity.writer_epoch == 7
    assert identity.brokers == {A: ADDRESS}
    assert identity.start_of(B) == Start(4, b"x")
    assert identity.is_closed(b"key")
    log.close()


def test_orders_of_an_earlier_writer_are_refused(tmp_path: Path) -> None:
    """Guarantee 6."""
    log, identity = reopen(tmp_path, None)
    identity.heed(3)
    identity.heed(3)
    with pytest.raises(StaleWriter, match="epoch 3"):
        identity.heed(2)
    log.close()


def test_a_broker_belongs_to_the_first_cluster_that_it_is_told_of(tmp_path: Path) -> None:
    """For good: over a restart, too."""
    log, identity = reopen(tmp_path, None)
    assert identity.cluster_id is None
    identity.check_cluster(A)
    identity.join_cluster(A)
    log, identity = reopen(tmp_path, log)
    assert identity.cluster_id == A
    identity.join_cluster(A)
    identity.check_cluster(None)
    for tried in (identity.check_cluster, identity.join_cluster):
        with pytest.raises(ForeignCluster, match="belongs to another cluster"):
            tried(B)
    assert identity.cluster_id == A
    log.close()


def test_an_empty_folder_is_somebody_else(tmp_path: Path) -> None:
    log, one = reopen(tmp_path / "one", None)
    log.close()
    log, two = reopen(tmp_path / "two", None)
    log.close()
    assert one.id != two.id


def test_a_store_that_cannot_be_read_is_put_aside(tmp_path: Path) -> None:
    """A new id, and what is left of the old one stays for whoever wants to look at it."""
    log, identity = reopen(tmp_path, None)
    before = identity.id
    log.close()
    (tmp_path / "log" / "store.json").write_text("{}")
    log, identity = reopen(tmp_path, None)
    assert identity.id != before
    assert (tmp_path / "log.damaged-1" / "store.json").read_text() == "{}"
    log.close()


def test_a_broker_that_gave_itself_up_comes_back_as_another(tmp_path: Path) -> None:
    log, identity = reopen(tmp_path, None)
    before = identity.id
    identity.give_up("the store is older than it was")
    log, identity = reopen(tmp_path, log)
    assert identity.id != before
    assert find_identity(log) is not None
    log.close()


def test_a_store_with_fewer_starts_than_were_seen_is_older_than_it_was(tmp_path: Path) -> None:
    log, identity = reopen(tmp_path, None)
    assert not identity.saw(A, Start(5, b"x"))
    assert not identity.saw(A, Start(5, b"x"))
    assert identity.saw(A, Start(4, b"x"))
    assert identity.saw(A, Start(5, b"y")), "the same number, but another start"
    assert not identity.saw(A, Start(6, b"z"))
    log.close()


def test_a_note_that_could_not_be_read_again_is_not_written(tmp_path: Path) -> None:
    """It would cost the broker its identity, and so everything, at the next start."""
    log, identity = reopen(tmp_path, None)
    before = identity.id
    with pytest.raises(msgspec.ValidationError):
        identity.set_brokers({A: BrokerAddress("bro\x01ker", 1, "peer", 2)})
    log, identity = reopen(tmp_path, log)
    assert identity.id == before
    log.close()


def test_a_note_of_a_version_to_come_is_left_alone(tmp_path: Path) -> None:
    """An older program refuses to start; it does not put the store aside."""
    log, identity = reopen(tmp_path, None)
    log.set_meta(next(iter(log.groups)), msgspec.msgpack.encode({"type": "broker", "id": 7}))
    log.close()
    with pytest.raises(IdentityUnreadable):
        reopen(tmp_path, None)
    assert [path.name for path in tmp_path.iterdir()] == ["log"]
    assert identity.id
