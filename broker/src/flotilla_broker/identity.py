"""Who this broker is, and what it has promised to whom: kept in the log itself, as a group without entries.

The id is random and made once. It lives and dies with the log: a broker whose store is empty or damaged has lost
its promises (votes, acknowledgements), and so it comes back as somebody else, who never voted in any group. Members
of groups are ids, never host names, so nobody takes the newcomer for the one who is gone.
"""

import logging
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated

import msgspec

from flotilla_broker.log import Log, LogConfig, StoreUnreadable, open_folder
from flotilla_broker.partition.meta import kind_of

logger = logging.getLogger(__name__)

_FOLDER = "log"
_ASIDE = "damaged"

Port = Annotated[int, msgspec.Meta(ge=1, le=65535)]
Host = Annotated[str, msgspec.Meta(min_length=1, max_length=253, pattern=r"^[^\s\x00-\x1f\x7f/?#@]+$")]
BrokerId = Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{32}$")]


def is_host(text: str) -> bool:
    """Tell whether a text can be the name or address of a host."""
    try:
        msgspec.convert(text, Host)
    except msgspec.ValidationError:
        return False
    return True


class BrokerAddress(msgspec.Struct, frozen=True):
    """Where a broker is reached: by clients, and by other brokers."""

    host: Host
    port: Port
    peer_host: Host
    peer_port: Port
    tls: bool = False  # clients speak TLS with it

    @property
    def url(self) -> str:
        """The address for clients."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{'https' if self.tls else 'http'}://{host}:{self.port}"


class Start(msgspec.Struct, frozen=True, array_like=True):
    """One start of a broker: the how-manyth of its store, and a number that is drawn for it."""

    number: Annotated[int, msgspec.Meta(ge=0, le=(1 << 63) - 1)] = 0
    token: Annotated[bytes, msgspec.Meta(max_length=16)] = b""

    def is_older_than(self, seen: "Start") -> bool:
        """Tell whether this start is of a store that forgot `seen`: an earlier one, or the same number drawn anew."""
        return self.number < seen.number or (self.number == seen.number and self.token != seen.token)


class BrokerMeta(msgspec.Struct, frozen=True, tag="broker"):
    """What is kept."""

    id: BrokerId
    starts: int = 0  # how often this store was opened: one that is older than it was has fewer
    token: bytes = b""  # drawn at each start: two starts with the same number are told apart
    writer_epoch: int = 0  # the highest that was seen; orders of a lower one are refused
    brokers: dict[BrokerId, BrokerAddress] = {}
    seen: dict[BrokerId, Start] = {}  # how often other brokers had been started when they were last seen
    cluster_id: BrokerId | None = None  # which cluster this broker belongs to, once it was told
    closed: tuple[bytes, ...] = ()  # keys of groups in which this broker was a member, and must never be again
    version: int = 1


class IdentityUnreadable(Exception):
    """The broker's note in the log is there, and cannot be read: by a version that is too old, or for a mistake."""


class StaleWriter(Exception):
    """An order from a writer that was replaced."""


class ForeignCluster(Exception):
    """An order from a cluster that this broker does not belong to."""


class Identity:
    """The broker's own note in the log. Changes take effect at once and are durable with the next flush."""

    def __init__(self, log: Log, number: int, meta: BrokerMeta) -> None:
        self._log = log
        self._number = number
        self._meta = meta

    @property
    def id(self) -> str:
        """Who this broker is."""
        return self._meta.id

    @property
    def writer_epoch(self) -> int:
        """The highest epoch of a writer that was seen."""
        return self._meta.writer_epoch

    @property
    def cluster_id(self) -> str | None:
        """Which cluster this broker belongs to, if it was told."""
        return self._meta.cluster_id

    @property
    def start(self) -> Start:
        """How often this store was opened, and what was drawn for this time."""
        return Start(self._meta.starts, self._meta.token)

    @property
    def brokers(self) -> Mapping[str, BrokerAddress]:
        """Where the brokers are reached."""
        return self._meta.brokers

    def heed(self, writer_epoch: int) -> None:
        """Check an order's epoch, and remember it before the order is carried out; raises StaleWriter."""
        if writer_epoch < self._meta.writer_epoch:
            raise StaleWriter(
                f"the order is of writer epoch {writer_epoch}; epoch {self._meta.writer_epoch} has given orders since"
            )
        if writer_epoch > self._meta.writer_epoch:
            self._change(msgspec.structs.replace(self._meta, writer_epoch=writer_epoch))

    def check_cluster(self, cluster_id: str | None) -> None:
        """Check whose order it is, as far as both sides know; raises ForeignCluster."""
        if None not in {cluster_id, self._meta.cluster_id} and cluster_id != self._meta.cluster_id:
            raise ForeignCluster(
                f"the order is of cluster {cluster_id}; this broker belongs to another cluster, {self._meta.cluster_id}"
            )

    def join_cluster(self, cluster_id: str) -> None:
        """Belong to a cluster, for good; raises ForeignCluster."""
        self.check_cluster(cluster_id)
        if self._meta.cluster_id is None:
            self._change(msgspec.structs.replace(self._meta, cluster_id=cluster_id))

    def set_brokers(self, brokers: Mapping[str, BrokerAddress]) -> None:
        """Remember where the brokers are reached, for a start without any manager."""
        if dict(brokers) != self._meta.brokers:
            self._change(msgspec.structs.replace(self._meta, brokers=dict(brokers)))

    def start_of(self, peer: str) -> Start:
        """Tell how often another broker had been started when it was last seen."""
        return self._meta.seen.get(peer, Start())

    def saw(self, peer: str, start: Start) -> bool:
        """Take note of another broker's start; return whether its store is older than it was.

        Somebody who restores an old copy of a store brings back a broker that has forgotten votes and entries. It
        must not take part under its old id; the others remember, because it cannot.
        """
        if start.number > self.start_of(peer).number:
            self._change(msgspec.structs.replace(self._meta, seen={**self._meta.seen, peer: start}))
        return start.is_older_than(self.start_of(peer))

    def is_closed(self, key: bytes) -> bool:
        """Tell whether this broker must not be a member of a group: it was one, and its replica was removed."""
        return key in self._meta.closed

    def close(self, key: bytes) -> None:
        """Never be a member of a group again: what was promised in it is lost."""
        if not self.is_closed(key):
            self._change(msgspec.structs.replace(self._meta, closed=(*self._meta.closed, key)))

    def give_up(self, reason: str) -> None:
        """Never be this broker again: the next start puts the store aside and takes a new id."""
        self._log.quarantine(self._number, reason)

    def _change(self, meta: BrokerMeta) -> None:
        self._log.set_meta(self._number, _encode(meta))
        self._meta = meta

    def begin(self, token: bytes) -> None:
        """Count a start."""
        self._change(msgspec.structs.replace(self._meta, starts=self._meta.starts + 1, token=token))


def _encode(meta: BrokerMeta) -> bytes:
    """Write a note that can be read again: one that cannot would cost the broker everything at its next start."""
    data = msgspec.msgpack.encode(meta)
    msgspec.msgpack.decode(data, type=BrokerMeta)
    return data


def open_home(folder: Path, config: LogConfig, random_bytes: Callable[[int], bytes]) -> tuple[Log, Identity]:
    """Open a broker's data folder; make what is missing. A store that cannot be trusted is put aside."""
    folder.mkdir(parents=True, exist_ok=True)
    try:
        log = open_folder(folder / _FOLDER, config)
    except StoreUnreadable as error:
        return _start_over(folder, config, random_bytes, str(error))
    found = find_identity(log)
    if found is not None:
        found.begin(random_bytes(8))
        return log, found
    if log.fresh:
        return log, make_identity(log, random_bytes)
    log.close()
    return _start_over(folder, config, random_bytes, "it does not tell whose it is, or that was damaged")


def find_identity(log: Log) -> Identity | None:
    """Find the broker's note in a log; None if there is none that can be trusted. Raises IdentityUnreadable."""
    for number, group in log.groups.items():
        if kind_of(group.meta) != "broker":
            continue
        if group.quarantined:
            return None
        try:
            return Identity(log, number, msgspec.msgpack.decode(group.meta, type=BrokerMeta))
        except msgspec.DecodeError as error:
            raise IdentityUnreadable(f"what this store says of its broker cannot be read: {error}") from error
    return None


def make_identity(log: Log, random_bytes: Callable[[int], bytes]) -> Identity:
    """Become somebody."""
    meta = BrokerMeta(random_bytes(16).hex(), starts=1, token=random_bytes(8))
    return Identity(log, log.create_group(_encode(meta)), meta)


def _start_over(
    folder: Path, config: LogConfig, random_bytes: Callable[[int], bytes], reason: str
) -> tuple[Log, Identity]:
    aside = next(path for at in range(1, 1 << 20) if not (path := folder / f"{_FOLDER}.{_ASIDE}-{at}").exists())
    logger.error("the store in %s cannot be used: %s. It is put aside as %s", folder, reason, aside.name)
    (folder / _FOLDER).rename(aside)
    log = open_folder(folder / _FOLDER, config)
    identity = make_identity(log, random_bytes)
    logger.warning("this broker starts anew as %s: replicas that it had have to be placed again", identity.id)
    return log, identity
