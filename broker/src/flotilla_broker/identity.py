"""The identity of this broker, stored in its log as the meta of a group without entries.

The id is random and created once, with the log. A broker whose log is empty or damaged may have lost votes and
acknowledged entries. It gets a new id, under which it never voted in any group. Members of groups are ids, not host
names, so the new broker is not mistaken for the old one.
"""

import logging
from collections import deque
from collections.abc import Callable, Mapping
from math import inf
from pathlib import Path
from typing import Annotated, Any

import msgspec

from flotilla_broker.log import DiskFull, Log, LogConfig, StoreUnreadable, open_folder
from flotilla_broker.partition.meta import type_of
from flotilla_server.broker_starts import Lsn, Start

logger = logging.getLogger(__name__)

_FOLDER = "log"
_ASIDE = "damaged"
_PAST_STARTS = 16

Port = Annotated[int, msgspec.Meta(ge=1, le=65535)]
Host = Annotated[str, msgspec.Meta(min_length=1, max_length=253, pattern=r"^[^\s\x00-\x1f\x7f/?#@]+$")]
BrokerId = Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{32}$")]


NAME_RULE = "1 to 253 characters without spaces"
Name = Annotated[str, msgspec.Meta(max_length=253, pattern=r"^[^\s\x00-\x1f\x7f]*$(?!\n)")]


def is_host(text: str) -> bool:
    """Whether a text is a valid host name or address."""
    return _is(Host, text)


def is_name(text: str) -> bool:
    """Whether a text is a valid broker name."""
    return text != "" and _is(Name, text)


def _is(type_: Any, text: str) -> bool:  # noqa: ANN401 - an annotated type has no type of its own
    try:
        msgspec.convert(text, type_)
    except msgspec.ValidationError:
        return False
    return True


class BrokerAddress(msgspec.Struct, frozen=True):
    """Addresses of a broker: for clients, and for other brokers."""

    host: Host
    port: Port
    peer_host: Host
    peer_port: Port
    tls: bool = False  # for clients
    name: Name = ""  # for users; empty if the broker has none

    @property
    def url(self) -> str:
        """The address for clients."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{'https' if self.tls else 'http'}://{host}:{self.port}"


class BrokerMeta(msgspec.Struct, frozen=True, tag="broker"):
    """The stored identity. Field names are part of the disk format."""

    id: BrokerId
    starts: int = 0  # number of times this log was opened; lower in an older copy
    token: bytes = b""  # random, distinguishes two starts with the same number
    writer_epoch: int = 0  # the highest seen; commands of a lower one are rejected
    brokers: dict[BrokerId, BrokerAddress] = {}
    seen: dict[
        BrokerId, Start
    ] = {}  # the last known start of other brokers, and the LSN up to which their logs were durable
    cluster_id: BrokerId | None = None  # set once
    closed: tuple[bytes, ...] = ()  # keys of groups whose replica was removed: never join again
    version: int = 1
    unconfirmed_lsn: Lsn | None = None  # where the first unconfirmed start found the log
    folder_id: str = ""  # of the log folder at the last start; empty if 0.2 wrote this
    is_copy: bool = False  # of the folder of a running broker; until all replicas have caught up
    is_closed: bool = False  # the last start has ended normally


class IdentityInvalid(Exception):
    """The identity in the log cannot be decoded, for example because a later version wrote it."""


class StaleWriter(Exception):
    """A command of a replaced writer."""


class ForeignCluster(Exception):
    """A command of another cluster."""


class Identity:
    """The identity of this broker. Changes take effect at once and are durable after the next flush."""

    def __init__(self, log: Log, number: int, meta: BrokerMeta) -> None:
        self._log = log
        self._number = number
        self._meta = meta
        self._past: dict[str, deque[tuple[int, bytes]]] = {}  # last accepted starts of other brokers
        self._heard: dict[str, Start] = {}  # starts of other brokers with LSNs that are not stored yet
        self._own_frames = (log.last_lsn, log.last_lsn)  # LSNs of trailing frames that are the identity's
        self._recovered_lsn = log.recovered_lsn if meta.unconfirmed_lsn is None else meta.unconfirmed_lsn
        self._confirmed_at: float = 0 if self.is_new else inf  # LSN of the frame that says so
        self._is_copy = False

    @property
    def id(self) -> str:
        """Id of this broker."""
        return self._meta.id

    @property
    def writer_epoch(self) -> int:
        """The highest writer epoch seen."""
        return self._meta.writer_epoch

    @property
    def cluster_id(self) -> str | None:
        """The cluster of this broker, if it is set."""
        return self._meta.cluster_id

    @property
    def start(self) -> Start:
        """The current start, with the LSN up to which the log is known to be durable."""
        return Start(self._meta.starts, self._meta.token, self.reported_lsn)

    @property
    def is_new(self) -> bool:
        """Whether this is the first start of this identity: it has made no promise before."""
        return self._meta.starts <= 1

    @property
    def is_copy(self) -> bool:
        """Whether this start runs on a copy of the folder of a running broker, and not all replicas had caught up.

        A copy of the folder of a stopped broker has everything, until that broker starts again.
        """
        return self._is_copy

    @property
    def is_confirmed(self) -> bool:
        """Whether it is certain that the log is not an older copy."""
        return self._confirmed_at != inf

    @property
    def recovered_lsn(self) -> int:
        """Where this start found the log. Unconfirmed starts before it do not count."""
        return self._recovered_lsn

    @property
    def reported_lsn(self) -> int:
        """The LSN that others may remember: this log never goes below it, unless it is replaced by an older copy.

        It stays at `recovered_lsn` until the start is confirmed and the confirmation is durable. It does not count
        trailing frames of the identity, nor marks: otherwise brokers would remember each other's LSNs for ever.
        """
        durable = self._log.durable_lsn
        if durable < self._confirmed_at:
            return self._recovered_lsn
        first, last = self._own_frames
        is_own = first <= durable and (durable <= last or self._log.content_lsn <= last)
        return first if is_own else durable

    @property
    def brokers(self) -> Mapping[str, BrokerAddress]:
        """Addresses of all brokers."""
        return self._meta.brokers

    def label(self, peer: str) -> str:
        """Return the name of another broker, or its id if its name is unknown or not unique."""
        address = self._meta.brokers.get(peer)
        if address is None or not address.name:
            return peer
        is_unique = sum(one.name == address.name for one in self._meta.brokers.values()) == 1
        return address.name if is_unique else peer

    def check_writer_epoch(self, writer_epoch: int) -> None:
        """Check the epoch of a command, and store a higher one; raises StaleWriter."""
        if writer_epoch < self._meta.writer_epoch:
            raise StaleWriter(
                f"command of writer epoch {writer_epoch} rejected: current is epoch {self._meta.writer_epoch}"
            )
        if writer_epoch > self._meta.writer_epoch:
            self._change(msgspec.structs.replace(self._meta, writer_epoch=writer_epoch))

    def check_cluster(self, cluster_id: str | None) -> None:
        """Check the cluster of a command, if both sides have one; raises ForeignCluster."""
        if None not in {cluster_id, self._meta.cluster_id} and cluster_id != self._meta.cluster_id:
            raise ForeignCluster(
                f"command of cluster {cluster_id} rejected: broker belongs to another cluster, {self._meta.cluster_id}"
            )

    def join_cluster(self, cluster_id: str) -> None:
        """Assign this broker to a cluster permanently; raises ForeignCluster."""
        self.check_cluster(cluster_id)
        if self._meta.cluster_id is None:
            self._change(msgspec.structs.replace(self._meta, cluster_id=cluster_id))

    def set_brokers(self, brokers: Mapping[str, BrokerAddress]) -> None:
        """Store the addresses of all brokers, for a start without managers."""
        if dict(brokers) != self._meta.brokers:
            self._change(msgspec.structs.replace(self._meta, brokers=dict(brokers)))

    def start_of(self, peer: str) -> Start:
        """Return the last known start of another broker."""
        return self._heard.get(peer) or self._meta.seen.get(peer, Start())

    def record_start(self, peer: str, start: Start, recovered_lsn: int | None = None) -> bool:
        """Record another broker's start; return whether its log is an older copy.

        A start that was accepted before is none, even if another one was accepted since: that one is of a clone.
        A broker with an older copy of its log, for example from a backup, has lost votes and entries. It must not take
        part under its old id. It cannot know that itself, so other brokers remember its starts.
        """
        known = self.start_of(peer)
        past = self._past.setdefault(peer, deque((known.key,), _PAST_STARTS))
        if start.key not in past and start.is_older_copy(recovered_lsn, known):
            return True
        if start.is_same(known):
            self.record_lsn(peer, start.lsn)
        else:
            past.append(start.key)
            start = msgspec.structs.replace(start, lsn=max(start.lsn, known.lsn))
            self._change(msgspec.structs.replace(self._meta, seen={**self._meta.seen, peer: start}))
            self._heard.pop(peer, None)
        return False

    def record_lsn(self, peer: str, lsn: int) -> None:
        """Record the LSN up to which the log of another broker is durable. `store_lsns` makes the record durable."""
        known = self.start_of(peer)
        if lsn > known.lsn:
            self._heard[peer] = msgspec.structs.replace(known, lsn=lsn)

    def store_lsns(self) -> bool:
        """Store what `record_lsn` recorded; return whether anything was stored.

        Not on a full disk: its reserve is for terms and votes.
        """
        if not self._heard:
            return False
        meta = msgspec.structs.replace(self._meta, seen={**self._meta.seen, **self._heard})
        try:
            self._log.admit(len(_encode(meta)))
        except DiskFull:
            return False
        self._change(meta)
        self._heard.clear()
        return True

    def confirm_start(self) -> None:
        """Record that this start continues the last one: the folder is no older copy. Idempotent."""
        if not self.is_confirmed:
            self._change(msgspec.structs.replace(self._meta, unconfirmed_lsn=None))
            self._confirmed_at = self._log.last_lsn

    def record_caught_up(self) -> None:
        """Record that all replicas of a copy have caught up: from the next start on, it is like any other folder."""
        if self._meta.is_copy:
            self._change(msgspec.structs.replace(self._meta, is_copy=False))
        self._is_copy = False

    def record_close(self) -> None:
        """Record that this start ends normally."""
        self._change(msgspec.structs.replace(self._meta, is_closed=True))

    def is_closed(self, key: bytes) -> bool:
        """Whether the replica of a group was removed here, so that this broker must not join it again."""
        return key in self._meta.closed

    def close(self, key: bytes) -> None:
        """Never join a group again: votes in it are lost."""
        if not self.is_closed(key):
            self._change(msgspec.structs.replace(self._meta, closed=(*self._meta.closed, key)))

    def retire(self, reason: str) -> None:
        """Retire this id: the next start renames the log and takes a new id."""
        self._log.quarantine(self._number, reason)

    def _change(self, meta: BrokerMeta) -> None:
        before, content = self._log.last_lsn, self._log.content_lsn
        self._log.set_meta(self._number, _encode(meta))
        self._meta = meta
        first, last = self._own_frames
        self._own_frames = (first if content <= last else before, self._log.last_lsn)

    def count_start(self, token: bytes) -> None:
        """Count a start. It is not confirmed yet."""
        meta, folder_id = self._meta, self._log.folder_id
        self._is_copy = meta.is_copy or (meta.folder_id not in {"", folder_id} and not meta.is_closed)
        self._change(
            msgspec.structs.replace(
                meta,
                starts=meta.starts + 1,
                token=token,
                unconfirmed_lsn=self._recovered_lsn,
                folder_id=folder_id,
                is_copy=self._is_copy,
                is_closed=False,
            )
        )
        self._confirmed_at = inf


def _encode(meta: BrokerMeta) -> bytes:
    """Encode the identity, and check that it can be decoded: otherwise the next start would lose the log."""
    data = msgspec.msgpack.encode(meta)
    msgspec.msgpack.decode(data, type=BrokerMeta)
    return data


def open_data_folder(folder: Path, config: LogConfig, random_bytes: Callable[[int], bytes]) -> tuple[Log, Identity]:
    """Open or create the data folder. An unusable log is renamed, and a new one created."""
    folder.mkdir(parents=True, exist_ok=True)
    try:
        log = open_folder(folder / _FOLDER, config)
    except StoreUnreadable as error:
        return _start_over(folder, config, random_bytes, str(error))
    found = find_identity(log)
    if found is not None:
        found.count_start(random_bytes(8))
        return log, found
    if log.fresh:
        return log, create_identity(log, random_bytes)
    log.close()
    return _start_over(folder, config, random_bytes, "its broker identity is missing or damaged")


def find_identity(log: Log) -> Identity | None:
    """Find the identity in a log; None if it is missing or quarantined. Raises IdentityInvalid."""
    for number, group in log.groups.items():
        if type_of(group.meta) != "broker":
            continue
        if group.quarantined:
            return None
        try:
            return Identity(log, number, msgspec.msgpack.decode(group.meta, type=BrokerMeta))
        except msgspec.DecodeError as error:
            raise IdentityInvalid(
                f"cannot decode the broker identity in the log: {error}; was it written by a later version?"
            ) from error
    return None


def create_identity(log: Log, random_bytes: Callable[[int], bytes]) -> Identity:
    """Create an identity with a random id."""
    meta = BrokerMeta(random_bytes(16).hex(), starts=1, token=random_bytes(8), folder_id=log.folder_id)
    return Identity(log, log.create_group(_encode(meta)), meta)


def _start_over(
    folder: Path, config: LogConfig, random_bytes: Callable[[int], bytes], reason: str
) -> tuple[Log, Identity]:
    aside = next(path for at in range(1, 1 << 20) if not (path := folder / f"{_FOLDER}.{_ASIDE}-{at}").exists())
    logger.error("log is unusable and was renamed folder=%s renamed_to=%s reason=%r", folder, aside.name, reason)
    (folder / _FOLDER).rename(aside)
    log = open_folder(folder / _FOLDER, config)
    identity = create_identity(log, random_bytes)
    logger.warning("broker got a new id, all its replicas must be placed again id=%s", identity.id)
    return log, identity
