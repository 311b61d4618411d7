"""Brokers in requests of administrators: by name, address or id."""

import pytest

from flotilla.protocol.errors import Refusal
from flotilla_manager.model import Broker, Snapshot, Writer
from flotilla_manager.writer.brokers import find
from support.metadata import a_broker


def snapshot(*brokers: Broker) -> Snapshot:
    writer = Writer(epoch=1, url="http://writer", heartbeat=1)
    return Snapshot(version=1, cluster_id="c", writer=writer, topics=(), brokers=brokers)


def test_name_means_the_active_broker() -> None:
    lost, now = a_broker(1, active=False, name="broker-1"), a_broker(2, name="broker-1")
    assert find(snapshot(lost, now), "broker-1") == now
    assert find(snapshot(lost), "broker-1") == lost


def test_address_takes_precedence_over_a_name() -> None:
    one = a_broker(1)
    assert find(snapshot(a_broker(2, port=8082, name=one.address), one), one.address) == one


def test_unknown_broker_is_rejected_with_the_command_that_lists_brokers() -> None:
    text = "No broker has the name, address or id 'nowhere:1'; `flotilla brokers list` shows all."
    with pytest.raises(Refusal) as caught:
        find(snapshot(a_broker(1)), "nowhere:1")
    assert (caught.value.code, str(caught.value)) == ("bad_request", text)


def test_name_of_two_active_brokers_is_rejected() -> None:
    same = [a_broker(number, port=8080 + number, name="same") for number in (1, 2)]
    with pytest.raises(Refusal, match="Several brokers have the name same; use the address or the id of one"):
        find(snapshot(*same), "same")
