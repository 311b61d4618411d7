"""Heartbeats: what is taken, what is refused, and how long it counts."""

import json

import msgspec
import pytest

from flotilla_manager.writer.reports import Beat, Reports, is_reachable
from support.metadata import an_id
from support.writing import Clock, MadeUpBroker

_decoder = msgspec.json.Decoder(Beat)


def read(**changes: object) -> Beat:
    told = {**msgspec.to_builtins(MadeUpBroker(1).beat()), **changes}
    return _decoder.decode(json.dumps(told))


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
    ],
)
def test_a_heartbeat_that_is_not_one_is_refused(change: dict[str, object]) -> None:
    """Guarantee 7: nothing that a heartbeat says can be neither stored nor asked for."""
    with pytest.raises(msgspec.ValidationError):
        read(**change)


def test_a_broker_whose_disk_is_full_is_heard() -> None:
    """Below zero, its reserve is in use: it must not seem to be dead on top of that."""
    assert read(disk={"used_bytes": 5, "segments_left": -2}).disk.segments_left == -2


def test_a_heartbeat_may_say_more_than_is_known_here() -> None:
    """Brokers of a later version are heard, too."""
    assert read(replicas=[{**REPLICA, "mood": "good"}], later={"a": 1}).replicas[0].topic == "t"


@pytest.mark.parametrize(
    "host", ["localhost", "127.0.0.1", "::1", "fe80::1%eth0", "b-0.b.default.svc.cluster.local", "my_host"]
)
def test_names_and_addresses_of_hosts_are_taken(host: str) -> None:
    assert is_reachable(host)
    assert read(host=host).to_broker(None).url.startswith("http://")


def test_a_report_is_fresh_for_three_heartbeats_and_counts_as_old_after_an_order() -> None:
    clock = Clock()
    reports = Reports(clock)
    broker = MadeUpBroker(1)
    reports.take(broker.beat())
    assert reports.for_planning()[broker.id].fresh
    reports.changed(broker.id)
    assert not reports.for_planning()[broker.id].fresh
    reports.take(broker.beat())
    clock.move(3.0)
    assert reports.for_planning()[broker.id].fresh
    clock.move(0.1)
    assert not reports.for_planning()[broker.id].fresh
    assert broker.id in reports.for_planning(), "what it knows does not age"
    reports.forget_all()
    assert reports.for_planning() == {}


def test_what_was_decided_about_a_broker_is_not_changed_by_what_it_says() -> None:
    broker = MadeUpBroker(1)
    known = broker.beat(rack="r1").to_broker(None)
    decided = msgspec.structs.replace(broker.beat(), rack=None).to_broker(known)
    assert decided.rack == "r1", "an operator may have told it"
    assert broker.beat(rack="r2").to_broker(known).rack == "r2"
