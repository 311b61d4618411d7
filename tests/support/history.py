"""Checks of a history: outcomes of sends, records of replicas, and records read by consumers.

Pure: it takes three lists and returns descriptions of violations. The rules are the guarantees:

1. An acknowledged record exists exactly once, at the acknowledged offset.
2. A failed record does not exist. A record with an unknown outcome exists at most once.
3. The records of one producer in one partition are in the order in which they were sent.
4. All replicas of a partition are equal where they overlap; offsets have no gaps.
5. Consumers read what replicas hold, and their offsets never decrease.

A record is identified by (producer, number), which tests put into its value.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import pairwise
from typing import NamedTuple


class Outcome(StrEnum):
    """Outcome of a send."""

    OK = "ok"
    FAILED = "failed"
    UNKNOWN = "unknown"


class Name(NamedTuple):
    """Identity of a record: the n-th of a producer."""

    producer: str
    number: int


class Send(NamedTuple):
    """A sent record; `offset` if it was acknowledged. Sends of a producer are in order."""

    name: Name
    partition: int
    outcome: Outcome
    offset: int | None = None


class Read(NamedTuple):
    """A record that a consumer received. Reads of a consumer are in order."""

    consumer: str
    partition: int
    offset: int
    name: Name


@dataclass(frozen=True)
class Replica:
    """Records of one replica of a partition, from `first_offset` on."""

    broker: str
    partition: int
    records: Sequence[Name]
    first_offset: int = 0

    @property
    def next_offset(self) -> int:
        """Offset after the last record."""
        return self.first_offset + len(self.records)


def violations(sends: Iterable[Send], replicas: Iterable[Replica], reads: Iterable[Read] = ()) -> list[str]:
    """Return descriptions of violations; empty if there are none."""
    sends_of, replicas_of, reads_of = defaultdict(list), defaultdict(list), defaultdict(list)
    for send in sends:
        sends_of[send.partition].append(send)
    for replica in replicas:
        replicas_of[replica.partition].append(replica)
    for read in reads:
        reads_of[read.partition].append(read)
    found: list[str] = []
    for partition in sorted({*sends_of, *replicas_of, *reads_of}):
        holders = replicas_of[partition]
        if not holders:
            found.append(f"partition {partition}: no replica is left")
            continue
        longest = max(holders, key=lambda replica: replica.next_offset)
        found += _check_replicas(longest, holders)
        found += _check_sends(sends_of[partition], longest)
        found += _check_reads(reads_of[partition], longest)
    return found


def _check_replicas(longest: Replica, holders: list[Replica]) -> list[str]:
    """Compare each replica with the longest one, where they overlap."""
    found = []
    for replica in holders:
        start = max(replica.first_offset, longest.first_offset)
        ours = replica.records[start - replica.first_offset :]
        theirs = longest.records[start - longest.first_offset :][: len(ours)]
        for ahead, (one, other) in enumerate(zip(ours, theirs, strict=True)):
            if one != other:
                found.append(
                    f"partition {replica.partition}: at offset {start + ahead} {replica.broker} holds {one}, "
                    f"{longest.broker} {other}"
                )
                break
    return found


def _check_sends(sends: list[Send], held: Replica) -> list[str]:
    offsets: dict[Name, int] = {}
    counts = Counter(held.records)
    found = [f"partition {held.partition}: {name} is there {n} times" for name, n in counts.items() if n > 1]
    for offset, name in enumerate(held.records, start=held.first_offset):
        offsets.setdefault(name, offset)
    sent = {send.name for send in sends}
    found += [f"partition {held.partition}: {name} was never sent" for name in counts if name not in sent]
    for send in sends:
        found += _check_send(send, offsets.get(send.name), held)
    found += _check_order(sends, offsets, held)
    return found


def _check_send(send: Send, offset: int | None, held: Replica) -> list[str]:
    where = f"partition {held.partition}: {send.name}"
    if send.outcome == Outcome.FAILED and offset is not None:
        return [f"{where} had failed, and is at offset {offset}"]
    if send.outcome != Outcome.OK:
        return []
    if send.offset is None:
        return [f"{where} was acknowledged without an offset"]
    if send.offset < held.first_offset:
        return []  # removed by retention
    if offset is None:
        return [f"{where} was acknowledged at offset {send.offset}, and is lost"]
    return [] if offset == send.offset else [f"{where} was acknowledged at offset {send.offset}, and is at {offset}"]


def _check_order(sends: list[Send], offsets: dict[Name, int], held: Replica) -> list[str]:
    found = []
    last: dict[str, Send] = {}
    for send in sends:
        if send.name not in offsets:
            continue
        before = last.get(send.name.producer)
        if before is not None and offsets[before.name] > offsets[send.name]:
            found.append(f"partition {held.partition}: {send.name} was sent after {before.name}, and lies before it")
        last[send.name.producer] = send
    return found


def _check_reads(reads: list[Read], held: Replica) -> list[str]:
    found = []
    of_consumer: dict[str, list[Read]] = defaultdict(list)
    for read in reads:
        of_consumer[read.consumer].append(read)
        at = read.offset - held.first_offset
        if at >= len(held.records):
            found.append(f"partition {held.partition}: {read.consumer} read offset {read.offset}; no replica holds it")
        elif at >= 0 and held.records[at] != read.name:
            found.append(
                f"partition {held.partition}: {read.consumer} read {read.name} at offset {read.offset}, "
                f"where {held.records[at]} is"
            )
    for consumer, own in of_consumer.items():
        for before, after in pairwise(own):
            if after.offset <= before.offset:
                found.append(f"partition {held.partition}: {consumer} read offset {after.offset} after {before.offset}")
    return found
