"""Who the other brokers are, and where.

The book is the list of the brokers that this one talks to: who is not in it is neither dialed nor let in. It may
change at run time, as a whole; whoever subscribed is told after each change and compares the book with what it has.
It belongs to the thread of the loop. `identity.py` keeps it over a restart.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

from flotilla_broker.peers.errors import AddressInvalid

PEERS_MAX = 1024
_HOST_CHARACTERS_MAX = 253  # the longest name that DNS has
_PORT_MAX = 0xFFFF
_ID = re.compile(r"[0-9a-f]{32}")
_HOST = re.compile(r"[^\s\x00-\x1f\x7f]+")  # neither blanks nor control characters: it appears in the log


class Address(NamedTuple):
    """Where a broker listens."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class AddressBook:
    """The addresses of the other brokers by id. It may hold the broker itself as well, which is of no effect."""

    def __init__(self, addresses: Mapping[str, tuple[str, int]] | None = None) -> None:
        self._addresses = check_addresses(addresses or {})
        self._subscribers: list[Callable[[], None]] = []

    def update(self, addresses: Mapping[str, tuple[str, int]]) -> None:
        """Replace the whole book, or raise AddressInvalid and change nothing."""
        checked = check_addresses(addresses)
        if checked == self._addresses:
            return
        self._addresses = checked
        for notify in tuple(self._subscribers):
            notify()

    def get(self, peer: str) -> Address | None:
        """Return the address of a broker; None if it is not in the book."""
        return self._addresses.get(peer)

    def entries(self) -> dict[str, Address]:
        """Return a copy of all entries."""
        return dict(self._addresses)

    def subscribe(self, notify: Callable[[], None]) -> None:
        """Have `notify` called after each change."""
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
    """Return the id if it is one: 32 lower-case hexadecimal digits."""
    if not isinstance(broker, str) or _ID.fullmatch(broker) is None:
        raise AddressInvalid(f"{_shown(broker)} is not the id of a broker: 32 lower-case hexadecimal digits")
    return broker


def check_addresses(addresses: Mapping[str, tuple[str, int]]) -> dict[str, Address]:
    """Return the entries if all of them are sound."""
    if len(addresses) > PEERS_MAX:
        raise AddressInvalid(f"{len(addresses)} brokers are too many, {PEERS_MAX} is the limit")
    return {check_broker_id(peer): _check_address(peer, *address) for peer, address in addresses.items()}


def _check_address(peer: str, host: str, port: int) -> Address:
    if not isinstance(host, str) or len(host) > _HOST_CHARACTERS_MAX or _HOST.fullmatch(host) is None:
        raise AddressInvalid(f"broker {peer}: {_shown(host)} is not a host")
    if type(port) is not int or not 1 <= port <= _PORT_MAX:
        raise AddressInvalid(f"broker {peer}: {_shown(port)} is not a port, from 1 to {_PORT_MAX}")
    return Address(host, port)


def _shown(value: object) -> str:
    return repr(value)[:80]  # it may come from a damaged file, and is about to be logged
