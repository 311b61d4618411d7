"""Heartbeats: validation, freshness, and liveness timeouts."""

import json

import msgspec
import pytest

from flotilla.limits import MANAGER_HEARTBEAT_S_MAX, MANAGER_HEARTBEAT_S_MIN
from flotilla_manager.writer.reports import Heartbeat, Reports, grace_s, is_reachable, limit_s
from support.metadata import an_id
from support.writer_harness import Clock, FakeBroker

_decoder = msgspec.json.Decoder(Heartbeat)


def read(**changes: object) -> Heartbeat:
    sent = {**msgspec.to_builtins(FakeBroker(1).heartbeat()), **changes}
    return _decoder.decode(json.dumps(sent))


REPLICA = {"topic": "t", "topic_id": an_id(1), "partition": 0, "epoch": 1, "members": [an_id(2)]}


@pytest.mark.parametrize(
    "change",
    [
        {"id": "x"},
        {"id": an_id(1) + "\n"},
        {"host": ""},
        {"host": "a b"},
        {"host": "a\n"},
        {"host": "a..b"},
        {"host": "x" * 64 + ".example"},
        {"host": "1.2.3.4:5"},
        {"host": "["},
        {"peer_host": "a..b"},
        {"port": 0},
        {"port": 65536},
        {"peer_port": "8080"},
        {"cluster_id": "ours"},
        {"name": "a b"},
        {"name": "a\n"},
        {"name": "n" * 254},
        {"rack": "\0"},
        {"rack": "r" * 254},
        {"starts": -1},
        {"writer_epoch": (1 << 62) + 1},
        {"writer_epoch": -1},
        {"writer_epoch": 1.5},
        {"replicas": [{**REPLICA, "topic": "a/b"}]},
        {"replicas": [{**REPLICA, "topic": "t\n"}]},
        {"replicas": [{**REPLICA, "epoch": 1 << 32}]},
        {"replicas": [{**REPLICA, "members": [an_id(at) for at in range(8)]}]},
        {"replicas": {}},
        {"broken": [{}]},
        {"manager_heartbeat_s": 0},
        {"manager_heartbeat_s": 0.0099},
        {"manager_heartbeat_s": -1.0},
        {"manager_heartbeat_s": 10.001},
        {"manager_heartbeat_s": 1e308},
        {"manager_heartbeat_s": "1"},
        {"manager_heartbeat_s": True},
        {"manager_heartbeat_s": None},
    ],
)
def test_invalid_heartbeat_is_rejected(change: dict[str, object]) -> None:
    """Guarantee 7: every value of an accepted heartbeat can be stored and used."""
    with pytest.raises(msgspec.ValidationError):
        read(**change)


@pytest.mark.parametrize("text", ["NaN", "Infinity", "-Infinity", "1e999"])
def test_heartbeat_with_an_infinite_interval_is_rejected(text: str) -> None:
    sent = json.dumps({**msgspec.to_builtins(FakeBroker(1).heartbeat()), "manager_heartbeat_s": 0})
    with pytest.raises(msgspec.DecodeError):
        _decoder.decode(sent.replace('"manager_heartbeat_s": 0', f'"manager_heartbeat_s": {text}'))


def test_heartbeat_without_an_interval_has_the_default() -> None:
    """Brokers of 0.2 send a heartbeat every second, without an interval."""
    sent = msgspec.to_builtins(FakeBroker(1).heartbeat())
    del sent["manager_heartbeat_s"]
    assert msgspec.convert(sent, Heartbeat).manager_heartbeat_s == 1.0


@pytest.mark.parametrize(
    ("interval_s", "limit"),
    [(MANAGER_HEARTBEAT_S_MIN, 3.0), (0.5, 3.0), (1.0, 3.0), (1.5, 4.5), (3.0, 9.0), (MANAGER_HEARTBEAT_S_MAX, 30.0)],
)
def test_broker_is_alive_for_three_of_its_intervals_and_at_least_three_seconds(interval_s: float, limit: float) -> None:
    assert limit_s(interval_s) == limit
    assert grace_s(interval_s) == limit + limit / 3
    clock = Clock()
    reports = Reports(clock)
    broker = FakeBroker(1)
    reports.record(broker.heartbeat(manager_heartbeat_s=interval_s))
    clock.move(limit)
    assert reports.is_alive(broker.id)
    assert reports.for_planning()[broker.id].fresh
    assert reports.describe()[broker.id]["heartbeat_limit_s"] == limit
    clock.move(0.1)
    assert not reports.is_alive(broker.id)
    assert not reports.for_planning()[broker.id].fresh


def test_limit_follows_the_interval_of_the_last_heartbeat() -> None:
    clock = Clock()
    reports = Reports(clock)
    broker = FakeBroker(1)
    assert reports.interval_s(broker.id) is None
    reports.expect(broker.id, 5.0)
    assert (reports.interval_s(broker.id), reports.is_alive(broker.id)) == (5.0, False)
    for interval_s in (10.0, 2.0):
        reports.record(broker.heartbeat(manager_heartbeat_s=interval_s))
        assert reports.interval_s(broker.id) == interval_s
    clock.move(7)
    assert not reports.is_alive(broker.id)
    reports.forget_all()
    assert reports.interval_s(broker.id) is None


def test_heartbeat_with_negative_free_space_is_accepted() -> None:
    """A broker that uses its reserve reports negative free space. It must not be marked inactive for that."""
    assert read(disk={"used_bytes": 5, "segments_left": -2}).disk.segments_left == -2


def test_heartbeat_without_the_capacity_of_the_disk_is_accepted() -> None:
    """Brokers of 0.2 do not send it."""
    disk = read(disk={"used_bytes": 5, "segments_left": 2}).disk
    assert (disk.capacity_bytes, disk.free_bytes, disk.live_bytes) == (None, None, None)


def test_heartbeat_with_unknown_fields_is_accepted() -> None:
    """Brokers of a later version may send more fields."""
    assert read(replicas=[{**REPLICA, "mood": "good"}], later={"a": 1}).replicas[0].topic == "t"


@pytest.mark.parametrize(
    "host", ["localhost", "127.0.0.1", "::1", "fe80::1%eth0", "b-0.b.default.svc.cluster.local", "my_host"]
)
def test_hostnames_and_ip_addresses_are_accepted(host: str) -> None:
    assert is_reachable(host)
    assert read(host=host).to_broker(None).url.startswith("http://")


def test_report_is_fresh_for_three_heartbeats_and_stale_after_a_command() -> None:
    clock = Clock()
    reports = Reports(clock)
    broker = FakeBroker(1)
    reports.record(broker.heartbeat())
    assert reports.for_planning()[broker.id].fresh
    reports.mark_stale(broker.id)
    assert not reports.for_planning()[broker.id].fresh
    reports.record(broker.heartbeat())
    clock.move(3.0)
    assert reports.for_planning()[broker.id].fresh
    clock.move(0.1)
    assert not reports.for_planning()[broker.id].fresh
    assert broker.id in reports.for_planning(), "a stale report is kept"
    reports.forget_all()
    assert reports.for_planning() == {}


def test_heartbeat_does_not_change_settings_of_a_broker() -> None:
    broker = FakeBroker(1)
    known = broker.heartbeat(rack="r1").to_broker(None)
    decided = msgspec.structs.replace(broker.heartbeat(), rack=None).to_broker(known)
    assert decided.rack == "r1", "an operator may have set it"
    assert broker.heartbeat(rack="r2").to_broker(known).rack == "r2"


def test_broker_announces_its_name_and_may_have_none() -> None:
    broker = FakeBroker(1)
    assert msgspec.structs.replace(broker.heartbeat(), name="broker-1").to_broker(None).label == "broker-1"
    nameless = broker.heartbeat().to_broker(None)
    assert (nameless.name, nameless.label) == (None, nameless.address)
