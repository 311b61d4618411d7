"""The address book."""

import pytest

from flotilla_broker.peers import Address, AddressBook, AddressInvalid, check_broker_id
from flotilla_broker.peers.addresses import PEERS_MAX

A, B = "a" * 32, "0123456789abcdef0123456789abcdef"
ENTRIES = {A: ("broker-0.brokers", 7001), B: ("::1", 7002)}


def test_address_is_formatted_as_host_and_port() -> None:
    assert str(Address("broker-0", 7001)) == "broker-0:7001"
    assert str(Address("::1", 7001)) == "[::1]:7001"


@pytest.mark.parametrize("wrong", ["", "a" * 31, "a" * 33, "A" * 32, "g" * 32, "a" * 32 + "\n", 7, None])
def test_broker_id_is_32_lower_case_hexadecimal_digits(wrong: str) -> None:
    assert check_broker_id(B) == B
    with pytest.raises(AddressInvalid):
        check_broker_id(wrong)


@pytest.mark.parametrize(
    ("host", "port"),
    [("", 1), ("a b", 1), ("a\nb", 1), ("x" * 254, 1), ("a", 0), ("a", 65536), ("a", True), ("a", "1")],
)
def test_invalid_entry_is_rejected_and_changes_nothing(host: str, port: int) -> None:
    book = AddressBook({A: ("host", 1)})
    with pytest.raises(AddressInvalid):
        book.update({B: ("host", 1), A: (host, port)})
    assert book.entries() == {A: Address("host", 1)}


def test_too_many_brokers_are_rejected() -> None:
    with pytest.raises(AddressInvalid):
        AddressBook({f"{n:032x}": ("host", 1) for n in range(PEERS_MAX + 1)})


def test_subscribers_are_notified_only_of_changes() -> None:
    book, heard = AddressBook(), []
    notify = lambda: heard.append(len(book))  # noqa: E731 - it has to be the same object twice
    book.subscribe(notify)
    book.update(ENTRIES)
    book.update(dict(ENTRIES))
    book.update({})
    book.unsubscribe(notify)
    book.update(ENTRIES)
    assert heard == [2, 0]
    assert book.get(A) == ("broker-0.brokers", 7001)
    assert set(book) == {A, B}
    assert A in book
    assert "other" not in book
