"""Labels of brokers in tables: the name, if it is unique."""

from flotilla.client.admin.brokers import label_brokers
from flotilla.client.cluster import BrokerInfo

ONE, TWO, THREE = (digit * 32 for digit in "123")


def test_broker_label_is_its_name() -> None:
    brokers = [BrokerInfo(ONE, "http://b:1", name="broker-1"), BrokerInfo(TWO, "http://b:2", name="broker-2")]
    assert label_brokers(brokers) == {ONE: "broker-1", TWO: "broker-2"}


def test_broker_label_without_a_name_is_the_id_prefix() -> None:
    assert label_brokers([BrokerInfo(ONE, "http://b:1")]) == {ONE: "11111111"}


def test_broker_label_of_an_inactive_predecessor_has_the_id_prefix() -> None:
    brokers = [
        BrokerInfo(ONE, "http://b:1", name="broker-1", active=False),
        BrokerInfo(TWO, "http://b:1", name="broker-1"),
        BrokerInfo(THREE, "http://b:3", name="broker-3", active=False),
    ]
    assert label_brokers(brokers) == {ONE: "broker-1(11111111)", TWO: "broker-1", THREE: "broker-3"}


def test_broker_labels_of_two_active_brokers_with_one_name_have_the_id_prefix() -> None:
    brokers = [BrokerInfo(ONE, "http://b:1", name="same"), BrokerInfo(TWO, "http://b:2", name="same")]
    assert label_brokers(brokers) == {ONE: "same(11111111)", TWO: "same(22222222)"}
