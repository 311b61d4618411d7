"""The address book: ids and addresses of the other brokers.

A broker dials, and accepts connections of, only the brokers in the book. The book is replaced as a whole; subscribers
are called after each change. Use it only on the event loop. `identity.py` stores it across restarts.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

from flotilla_broker.peers.errors import AddressInvalid

PEERS_MAX = 1024
_HOST_CHARACTERS_MAX = 253  # the limit of DNS
_PORT_MAX = 0xFFFF
_ID = re.compile(r"[0-9a-f]{32}")
_HOST = re.compile(r"[^\s\x00-\x1f\x7f]+")  # no spaces or control characters: hosts are logged


class Address(NamedTuple):
    """Address for other brokers."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class AddressBook:
    """Addresses of brokers by id. An entry of this broker itself has no effect."""

    def __init__(self, addresses: Mapping[str, tuple[str, int]] | None = None) -> None:
        self._addresses = check_addresses(addresses or {})
        self._subscribers: list[Callable[[], None]] = []

    def update(self, addresses: Mapping[str, tuple[str, int]]) -> None:
        """Replace the book; raises AddressInvalid and changes nothing then."""
        checked = check_addresses(addresses)
        if checked == self._addresses:
            return
        self._addresses = checked
        for notify in tuple(self._subscribers):
            notify()

    def get(self, peer: str) -> Address | None:
        """Return the address of a broker, or None."""
        return self._addresses.get(peer)

    def entries(self) -> dict[str, Address]:
        """Return a copy of all entries."""
        return dict(self._addresses)

    def subscribe(self, notify: Callable[[], None]) -> None:
        """Call `notify` after each change."""
        self._subscribers.append(notify)

    def unsubscribe(self, notify: Callable[[], None]) -> None:
        """Undo `subscribe`."""
        self._subscribers.remove(notify)

    def __contains__(self, peer: object) -> bool:
        return peer in self._addresses

    def __iter__(self) -> Iterator[str]:
        return iter(tuple(self._addresses))

    def __len__(self) -> int:
        return len(self._addresses)


def check_broker_id(broker: str) -> str:
    """Check a broker id and return it; raises AddressInvalid."""
    if not isinstance(broker, str) or _ID.fullmatch(broker) is None:
        raise AddressInvalid(f"invalid broker id {_shown(broker)}: must be 32 lower-case hexadecimal digits")
    return broker


def check_addresses(addresses: Mapping[str, tuple[str, int]]) -> dict[str, Address]:
    """Check all entries and return them; raises AddressInvalid."""
    if len(addresses) > PEERS_MAX:
        raise AddressInvalid(f"too many brokers: {len(addresses)}, the limit is {PEERS_MAX}")
    return {check_broker_id(peer): _check_address(peer, *address) for peer, address in addresses.items()}


def _check_address(peer: str, host: str, port: int) -> Address:
    if not isinstance(host, str) or len(host) > _HOST_CHARACTERS_MAX or _HOST.fullmatch(host) is None:
        raise AddressInvalid(f"broker {peer}: invalid host {_shown(host)}")
    if type(port) is not int or not 1 <= port <= _PORT_MAX:
        raise AddressInvalid(f"broker {peer}: invalid port {_shown(port)}: must be 1 to {_PORT_MAX}")
    return Address(host, port)


def _shown(value: object) -> str:
    return repr(value)[:80]  # untrusted and logged
