"""Addresses and messages of `flotilla.myqueue`."""

import pytest

from flotilla.client.errors import ConfigInvalid, DataInvalid, RecordInvalid
from flotilla.myqueue import Consumer, MyConsumer, MyProducer, Producer
from flotilla.myqueue.texts import check_topic, decode_base64, decode_message, encode_message, parse_broker


@pytest.mark.parametrize(
    ("broker", "url"),
    [
        ("10.110.10.216:5000", "http://10.110.10.216:5000"),
        ("localhost:8080", "http://localhost:8080"),
        ("[::1]:8080", "http://[::1]:8080"),
        ("http://host:8080/", "http://host:8080"),
        ("https://queue.example", "https://queue.example"),
        ("a:1, https://b:2", "http://a:1,https://b:2"),
    ],
)
def test_broker_address_is_host_port_or_url(broker: str, url: str) -> None:
    assert parse_broker(broker) == url


@pytest.mark.parametrize(
    "broker", ["", "localhost", ":8080", "host:port", "host:0", "ftp://host:1", "http://h:1/x", "::1"]
)
def test_invalid_broker_address_is_rejected(broker: str) -> None:
    with pytest.raises(ConfigInvalid, match=r"is not an address: use host:port or a URL, such as 127\.0\.0\.1:8080"):
        parse_broker(broker)
    with pytest.raises(ConfigInvalid, match="broker"):
        MyProducer("T1", broker)


def test_text_message_round_trips() -> None:
    assert decode_message(encode_message("zwölf \U0001f6a2\n"), "it") == "zwölf \U0001f6a2\n"
    with pytest.raises(RecordInvalid, match=r"must be str, not bytes"):
        encode_message(b"bytes")  # type: ignore[arg-type]
    with pytest.raises(RecordInvalid, match="cannot be encoded as UTF-8"):
        encode_message("\udc80")


def test_binary_message_is_rejected_with_its_position() -> None:
    with pytest.raises(DataInvalid, match="the message at 5 is not UTF-8 text"):
        decode_message(b"\xff", "the message at 5")
    with pytest.raises(DataInvalid, match="the message at 5 is not UTF-8 text"):
        decode_base64("/w==", "the message at 5")


def test_other_topics_are_rejected() -> None:
    check_topic("T1", ("T1", "T2"))
    with pytest.raises(ConfigInvalid, match=r"topic 'T3' was not passed to the constructor; its topics are: T1, T2"):
        check_topic("T3", ("T1", "T2"))


def test_aliases_are_the_same_class() -> None:
    assert (Producer, Consumer) == (MyProducer, MyConsumer)
