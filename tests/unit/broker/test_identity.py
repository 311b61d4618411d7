"""The id of a broker: random, created once, and lost with its log."""

import logging
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any, cast

import msgspec
import pytest

from flotilla_broker.engine import Engine, ReplicaMetaInvalid
from flotilla_broker.identity import (
    BrokerAddress,
    ForeignCluster,
    Identity,
    IdentityInvalid,
    StaleWriter,
    find_identity,
    open_data_folder,
)
from flotilla_broker.log import Log, LogConfig
from flotilla_broker.partition.config import PartitionConfig
from flotilla_broker.peer_batches import PeerBatches
from flotilla_broker.peer_names import PeerNames
from flotilla_broker.raft import RaftConfig
from flotilla_server.broker_starts import Start

CONFIG = LogConfig(segment_bytes=1 << 16, entry_bytes_max=4000)
ADDRESS = BrokerAddress("host", 1, "peer", 2)
A, B = "a" * 32, "b" * 32


def numbered() -> Callable[[int], bytes]:
    """Make distinct ids."""
    counter = count(1)
    return lambda size: next(counter).to_bytes(size, "big")


IDS = numbered()


def reopen(folder: Path, log: Log | None) -> tuple[Log, Identity]:
    if log is not None:
        log.close()
    return open_data_folder(folder, CONFIG, IDS)


def test_id_is_created_once_and_starts_are_counted(tmp_path: Path) -> None:
    log, identity = reopen(tmp_path, None)
    first = identity.id
    for starts in (2, 3):
        log, identity = reopen(tmp_path, log)
        assert (identity.id, identity.start.number) == (first, starts)
    log.close()


def test_all_fields_survive_a_restart(tmp_path: Path) -> None:
    log, identity = reopen(tmp_path, None)
    identity.check_writer_epoch(7)
    identity.set_brokers({A: ADDRESS})
    identity.record_start(B, Start(4, b"x"))
    identity.close(b"key")
    log, identity = reopen(tmp_path, log)
    assert identity.writer_epoch == 7
    assert identity.brokers == {A: ADDRESS}
    assert identity.start_of(B) == Start(4, b"x")
    assert identity.is_closed(b"key")
    log.close()


def test_commands_of_an_earlier_writer_are_rejected(tmp_path: Path) -> None:
    """Guarantee 6."""
    log, identity = reopen(tmp_path, None)
    identity.check_writer_epoch(3)
    identity.check_writer_epoch(3)
    with pytest.raises(StaleWriter, match="epoch 3"):
        identity.check_writer_epoch(2)
    log.close()


def test_broker_stays_in_its_first_cluster(tmp_path: Path) -> None:
    """Also after a restart."""
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


def test_empty_folder_gives_a_new_id(tmp_path: Path) -> None:
    log, one = reopen(tmp_path / "one", None)
    log.close()
    log, two = reopen(tmp_path / "two", None)
    log.close()
    assert one.id != two.id


def test_unreadable_store_is_moved_aside(tmp_path: Path) -> None:
    """The broker gets a new id, and the old files are kept for analysis."""
    log, identity = reopen(tmp_path, None)
    before = identity.id
    log.close()
    (tmp_path / "log" / "store.json").write_text("{}")
    log, identity = reopen(tmp_path, None)
    assert identity.id != before
    assert (tmp_path / "log.damaged-1" / "store.json").read_text() == "{}"
    log.close()


def test_broker_that_abandoned_its_identity_gets_a_new_id(tmp_path: Path) -> None:
    log, identity = reopen(tmp_path, None)
    before = identity.id
    identity.retire("the store is older than it was")
    log, identity = reopen(tmp_path, log)
    assert identity.id != before
    assert find_identity(log) is not None
    log.close()


def test_store_with_fewer_starts_than_known_is_outdated(tmp_path: Path) -> None:
    log, identity = reopen(tmp_path, None)
    assert not identity.record_start(A, Start(5, b"x"))
    assert not identity.record_start(A, Start(5, b"x"))
    assert identity.record_start(A, Start(4, b"x"))
    assert identity.record_start(A, Start(5, b"y")), "the same number, but another start"
    assert not identity.record_start(A, Start(6, b"z"))
    log.close()


def test_unreadable_metadata_is_not_written(tmp_path: Path) -> None:
    """It would cost the broker its identity, and all its data, at the next start."""
    log, identity = reopen(tmp_path, None)
    before = identity.id
    with pytest.raises(msgspec.ValidationError):
        identity.set_brokers({A: BrokerAddress("bro\x01ker", 1, "peer", 2)})
    log, identity = reopen(tmp_path, log)
    assert identity.id == before
    log.close()


def test_metadata_of_a_later_version_is_kept(tmp_path: Path) -> None:
    """An older program refuses to start; it does not move the store aside."""
    log, identity = reopen(tmp_path, None)
    log.set_meta(next(iter(log.groups)), msgspec.msgpack.encode({"type": "broker", "id": 7}))
    log.close()
    with pytest.raises(IdentityInvalid):
        reopen(tmp_path, None)
    assert [path.name for path in tmp_path.iterdir()] == ["log"]
    assert identity.id


def test_replica_of_a_later_version_stops_the_start(tmp_path: Path) -> None:
    """Guarantee 1: without it, managers would order an empty replica, which could vote twice in a term."""
    log, _ = reopen(tmp_path, None)
    log.create_group(msgspec.msgpack.encode({"type": "replica", "topic": "orders", "rack": "a"}))
    engine = Engine(
        log,
        PeerBatches(lambda _: None, lambda: 0),
        cast("Any", None),  # it reads for leaders only
        me=A,
        config=PartitionConfig(),
        raft_config=RaftConfig(),
        clock_ms=lambda: 0,
        random_float=lambda: 0.5,
    )
    with pytest.raises(ReplicaMetaInvalid, match=r"group 2 of the log: .*later version"):
        engine.recover(0.0)
    assert engine.broken == {}
    log.close()


def test_log_lines_name_other_brokers(tmp_path: Path) -> None:
    """A broker that announces no name appears with its id, and so does this broker itself."""
    log, me = reopen(tmp_path, None)
    named, nameless = "a" * 32, "b" * 32
    address = BrokerAddress("h", 1, "h", 2)
    me.set_brokers({named: msgspec.structs.replace(address, name="broker-1"), nameless: address, me.id: address})
    record = logging.LogRecord("x", logging.INFO, "", 0, "%s %s %s %d", (named, nameless, me.id, 7), None)
    assert PeerNames(me).filter(record)
    assert record.getMessage() == f"broker-1 {nameless} {me.id} 7"
    record = logging.LogRecord("x", logging.INFO, "", 0, "error=%s", (ValueError(f"{named}: no, {me.id}"),), None)
    assert PeerNames(me).filter(record)
    assert record.getMessage() == f"error=broker-1: no, {me.id}"
    same = msgspec.structs.replace(address, name="same")
    me.set_brokers({named: same, nameless: same})
    assert (me.label(named), me.label(nameless)) == (named, nameless), "a name that is not unique is shown with the id"
    log.close()
