"""Duplicates are detected on every replica with the same log."""

import struct
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import product

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from flotilla.producers.errors import (
    EpochStale,
    InvalidProducerTable,
    ProducerError,
    ProducerRefused,
    ProducerTableMisuse,
    ProducerUnknown,
    SequenceGap,
    SequenceOverlap,
    SequenceReused,
)
from flotilla.producers.table import BATCHES_REMEMBERED, ProducerTable, Retry
from flotilla.records import BASE_SEQUENCE_MAX, NO_PRODUCER, RECORDS_MAX, BatchHeader

ANN = b"A" * 16
BOB = b"B" * 16
NAME = f"producer {ANN.hex()}, epoch"
DAY_MS = 24 * 60 * 60 * 1000


def batch(
    sequence: int = 0, *, producer: bytes = ANN, epoch: int = 0, count: int = 10, crc: int | None = None
) -> BatchHeader:
    return BatchHeader(
        attributes=0,
        total_bytes=0,
        body_bytes=0,
        stored_bytes=0,
        producer_id=producer,
        producer_epoch=epoch,
        base_sequence=sequence,
        count=count,
        crc=0xC0DE + sequence if crc is None else crc,
    )


def table_with(*headers: BatchHeader, committed: bool = True) -> ProducerTable:
    """Append each batch in an entry of its own: 1, 2, ... at offsets 100, 200, ... and times 1, 2, ..."""
    table = ProducerTable()
    for index, header in enumerate(headers, 1):
        table.append(index, header, index * 100, index)
    if committed:
        table.commit(len(headers))
    return table


def refusal(table: ProducerTable, header: BatchHeader, kind: type[ProducerRefused]) -> str:
    with pytest.raises(kind) as caught:
        table.check(header)
    return str(caught.value)


# -- what a batch is ----------------------------------------------------------------------------------------


def test_unknown_producer_may_start_at_0_in_any_epoch() -> None:
    assert ProducerTable().check(batch(0, epoch=7)) is None


@pytest.mark.parametrize("committed", [True, False])
def test_next_sequence_is_accepted(committed: bool) -> None:
    table = table_with(batch(0), batch(10), committed=committed)
    assert table.check(batch(20)) is None


def test_new_epoch_starts_at_0() -> None:
    assert table_with(batch(0)).check(batch(0, epoch=1)) is None


def test_batches_without_a_producer_are_not_tracked() -> None:
    anonymous = batch(producer=NO_PRODUCER)
    table = table_with(anonymous, anonymous)
    assert table.check(anonymous) is None
    assert table.check(batch(50, producer=NO_PRODUCER)) is None
    assert table.encode() == ProducerTable().encode()


@pytest.mark.parametrize("committed", [True, False])
def test_duplicates_of_remembered_batches_are_detected(committed: bool) -> None:
    headers = [batch(10 * n) for n in range(BATCHES_REMEMBERED)]
    table = table_with(*headers, committed=committed)
    assert [table.check(header) for header in headers] == [Retry(n, n * 100) for n in range(1, 6)]


def test_duplicates_are_detected_when_only_some_batches_are_committed() -> None:
    headers = [batch(10 * n) for n in range(7)]
    table = table_with(*headers, committed=False)
    table.commit(4)
    assert [table.check(header) for header in headers[2:]] == [Retry(n, n * 100) for n in range(3, 8)]
    assert "start at 20, 30, 40, 50, 60)" in refusal(table, headers[1], SequenceOverlap)
    with pytest.raises(SequenceOverlap) as caught:
        table.check(headers[1])
    assert caught.value.details == {"remembered_from": 20}


def test_duplicates_within_one_entry_have_their_own_offsets() -> None:
    table = ProducerTable()
    table.append(1, batch(0), 100, 1)
    table.append(1, batch(0, producer=BOB), 110, 1)
    table.append(1, batch(10), 120, 1)
    table.commit(1)
    assert table.check(batch(0, producer=BOB)) == Retry(1, 110)
    assert table.check(batch(10)) == Retry(1, 120)


def test_maximum_header_values_are_remembered() -> None:
    header = batch(BASE_SEQUENCE_MAX, epoch=2**63 - 1, count=RECORDS_MAX, crc=2**32 - 1)
    assert table_with(header).check(header) == Retry(1, 100)


# -- refusals and their messages ---------------------------------------------------------------------------


@pytest.mark.parametrize("committed", [True, False])
def test_reused_sequence_is_refused(committed: bool) -> None:
    table = table_with(batch(0), batch(10, crc=0xAB), batch(20), committed=committed)
    assert refusal(table, batch(10, crc=0xCD), SequenceReused) == (
        f"{NAME} 0: sequence 10 is taken; expected the same 10 records with CRC 0x000000ab, got 10 with 0x000000cd; "
        f"repeat a batch byte for byte, and send other records as sequence 30"
    )
    assert "expected the same 10 records with CRC 0x000000ab, got 9 with 0x000000ab" in refusal(
        table, batch(10, count=9, crc=0xAB), SequenceReused
    )


@pytest.mark.parametrize("committed", [True, False])
def test_sequence_gap_is_refused(committed: bool) -> None:
    table = table_with(batch(0), committed=committed)
    assert refusal(table, batch(11), SequenceGap) == (
        f"{NAME} 0: expected sequence 10, got 11; send the missing batches first, or raise the epoch and start at 0"
    )


def test_new_epoch_above_sequence_0_is_refused() -> None:
    assert refusal(table_with(batch(0)), batch(10, epoch=1), SequenceGap) == (
        f"{NAME} 1: expected sequence 0, as the epoch before was 0, got 10; start the new epoch at 0"
    )


def test_forgotten_batch_is_refused_as_overlap() -> None:
    table = table_with(*(batch(10 * n) for n in range(6)))
    assert len(table.encode()) == len(table_with(*(batch(10 * n) for n in range(5))).encode())
    assert refusal(table, batch(0), SequenceOverlap) == (
        f"{NAME} 0: expected sequence 60, got 0, where none of the last batches starts "
        f"(they start at 10, 20, 30, 40, 50); it is unknown whether these records were written before: "
        f"to send them anyway, raise the epoch and start at 0"
    )


def test_batch_starting_inside_another_is_refused() -> None:
    assert "expected sequence 10, got 5" in refusal(table_with(batch(0)), batch(5), SequenceOverlap)


def test_stale_epoch_is_refused_even_for_a_duplicate() -> None:
    table = table_with(batch(0), batch(0, epoch=4))
    assert refusal(table, batch(0), EpochStale) == (
        f"{NAME} 0: expected epoch 4 or above, got 0; stop if another instance of this producer has taken over, "
        f"else raise the epoch above 4 and start at 0"
    )


def test_unknown_producer_above_sequence_0_is_refused() -> None:
    assert refusal(table_with(batch(0, producer=BOB)), batch(10), ProducerUnknown) == (
        f"{NAME} 0: unknown, or expired after a long time without batches; expected sequence 0, got 10; "
        f"raise the epoch and start at 0"
    )


def test_every_refusal_has_its_own_code() -> None:
    kinds = (SequenceReused, SequenceGap, SequenceOverlap, EpochStale, ProducerUnknown)
    assert [kind.code for kind in kinds] == [
        "sequence_reused",
        "sequence_gap",
        "sequence_overlap",
        "epoch_stale",
        "unknown_producer",
    ]
    assert set(ProducerRefused.__subclasses__()) == set(kinds)
    assert issubclass(ProducerRefused, ProducerError)


def test_refused_batch_changes_nothing() -> None:
    table = table_with(batch(0))
    refusal(table, batch(20), SequenceGap)
    assert table.check(batch(10)) is None


# -- the log ------------------------------------------------------------------------------------------------


def test_truncation_restores_the_earlier_state() -> None:
    table = table_with(batch(0), batch(10), batch(0, epoch=1), batch(0, producer=BOB), committed=False)
    table.commit(1)
    table.truncate(3)
    assert table.check(batch(20)) is None
    assert table.check(batch(10)) == Retry(2, 200)
    table.truncate(2)
    assert table.check(batch(10)) is None
    assert refusal(table, batch(10, producer=BOB), ProducerUnknown)


def test_batch_can_replace_a_truncated_one() -> None:
    table = table_with(batch(0), batch(10, crc=1), committed=False)
    table.truncate(2)
    table.append(2, batch(10, crc=2), 700, 2)
    table.commit(2)
    assert table.check(batch(10, crc=2)) == Retry(2, 700)
    assert refusal(table, batch(10, crc=1), SequenceReused)


def test_committed_entries_cannot_be_truncated() -> None:
    table = table_with(batch(0), batch(10))
    with pytest.raises(ProducerTableMisuse, match="entry 2 cannot be truncated: entries up to 2 are committed"):
        table.truncate(2)
    table.truncate(3)
    assert table.check(batch(10)) == Retry(2, 200)


def test_entry_cannot_be_appended_before_a_later_or_committed_one() -> None:
    table = table_with(batch(0))
    with pytest.raises(ProducerTableMisuse, match="of entry 1 cannot be appended: the next may be of entry 2 or later"):
        table.append(1, batch(10), 200, 2)
    table.append(5, batch(10), 200, 2)
    with pytest.raises(ProducerTableMisuse, match="of entry 4 cannot be appended: the next may be of entry 5 or later"):
        table.append(4, batch(20), 300, 3)
    assert table.check(batch(20)) is None


def test_entries_without_batches_are_committed() -> None:
    table = ProducerTable()
    table.commit(8)
    table.append(12, batch(0), 0, 1)
    table.commit(11)
    assert (len(table), table.committed_index) == (0, 11)
    table.commit(20)
    assert (len(table), table.committed_index) == (1, 20)


def test_commit_is_idempotent() -> None:
    table = table_with(batch(0), batch(10))
    before = table.encode()
    table.commit(1)
    assert (table.encode(), table.committed_index) == (before, 2)


@pytest.mark.parametrize("committed", [True, False])
def test_discontinuous_batch_resets_its_producer(committed: bool) -> None:
    """The leader had expired the producer; this replica has not committed that expiry yet."""
    table = table_with(batch(0), batch(10), batch(0, count=50, crc=5), committed=committed)
    assert table.check(batch(0, count=50, crc=5)) == Retry(3, 300)
    assert table.check(batch(50)) is None
    assert "start at 0)" in refusal(table, batch(10), SequenceOverlap)


@pytest.mark.parametrize("committed", [True, False])
@pytest.mark.parametrize("epoch", [0, 2])
def test_batch_of_another_epoch_resets_its_producer(epoch: int, committed: bool) -> None:
    table = table_with(batch(0, epoch=1), batch(10, epoch=epoch), committed=committed)
    assert table.check(batch(20, epoch=epoch)) is None
    assert "start at 10)" in refusal(table, batch(0, epoch=epoch), SequenceOverlap)


# -- expiry -------------------------------------------------------------------------------------------------


def test_expiry_removes_producers_with_older_batches() -> None:
    table = table_with(batch(0), batch(0, producer=BOB), batch(10))
    assert table.expire(2) == 0
    assert table.expire(3) == 1
    assert len(table) == 1
    assert table.check(batch(20)) is None
    assert refusal(table, batch(10, producer=BOB), ProducerUnknown)


def test_batches_after_an_expiry_survive_it() -> None:
    table = table_with(batch(0), batch(10), batch(20), committed=False)
    table.commit(2)
    assert table.expire(100) == 1
    assert table.check(batch(30)) is None
    assert table.check(batch(20)) == Retry(3, 300)
    assert "start at 20)" in refusal(table, batch(10), SequenceOverlap)
    table.commit(3)
    assert table.check(batch(20)) == Retry(3, 300)
    assert "start at 20)" in refusal(table, batch(10), SequenceOverlap)


def test_truncation_after_an_expiry_leaves_the_producer_unknown() -> None:
    table = table_with(batch(0), batch(10), committed=False)
    table.commit(1)
    table.expire(100)
    table.truncate(2)
    assert refusal(table, batch(10), ProducerUnknown)


def test_no_expiry_is_due_below_the_limits() -> None:
    assert ProducerTable().expiry_due(10**15, age_ms_max=0, count_max=0) is None
    table = table_with(batch(0), batch(0, producer=BOB))
    assert table.expiry_due(1 + DAY_MS, age_ms_max=DAY_MS, count_max=2) is None


def test_expiry_is_due_for_inactive_producers() -> None:
    table = table_with(batch(0), batch(0, producer=BOB))
    assert table.expiry_due(2 + DAY_MS, age_ms_max=DAY_MS, count_max=2) == 2
    assert table.expire(2) == 1


def test_expiry_is_due_above_the_maximum_number_of_producers() -> None:
    table = ProducerTable()
    for index, time_ms in enumerate([5, 5, 6, 6, 7], 1):
        table.append(index, batch(0, producer=bytes([index]) * 16), 0, time_ms)
    table.commit(5)
    due = [table.expiry_due(7, age_ms_max=DAY_MS, count_max=limit) for limit in range(6)]
    assert due == [8, 7, 7, 6, 6, None]
    assert table.expire(7) == 4


def test_uncommitted_batches_do_not_expire() -> None:
    table = table_with(batch(0), batch(0, producer=BOB), committed=False)
    assert table.expiry_due(10**15, age_ms_max=0, count_max=0) is None
    assert table.expire(10**15) == 0
    assert table.check(batch(10)) is None


# -- the saved form -----------------------------------------------------------------------------------------

GOLDEN = bytes.fromhex(
    "9201"  # two items; version 1
    "92"  # two producers, by their last batch
    "c440" + "42" * 16 + "0300000000000000" + "0200000000000000" + "0a00000000000000"  # epoch, time, next sequence
    "0a000000" + "dec00000" + "c800000000000000" + "0200000000000000"  # count, CRC, base offset, entry
    "c458" + "41" * 16 + "0000000000000000" + "0300000000000000" + "0c00000000000000"
    "0a000000" + "dec00000" + "6400000000000000" + "0100000000000000"
    "02000000" + "e8c00000" + "2c01000000000000" + "0300000000000000"
)
GOLDEN_BATCHES = (batch(0), batch(0, producer=BOB, epoch=3), batch(10, count=2))


def test_encoding_matches_the_golden_bytes() -> None:
    assert table_with(*GOLDEN_BATCHES).encode() == GOLDEN
    assert ProducerTable().encode() == bytes.fromhex("920190")


def test_decoded_table_gives_the_same_results() -> None:
    table = ProducerTable.decode(GOLDEN, 9)
    assert (len(table), table.committed_index) == (2, 9)
    assert [table.check(header) for header in GOLDEN_BATCHES] == [Retry(1, 100), Retry(2, 200), Retry(3, 300)]
    assert table.expire(3) == 1
    assert table.check(batch(12)) is None


def test_uncommitted_batches_are_not_encoded() -> None:
    table = table_with(*GOLDEN_BATCHES)
    table.append(4, batch(12), 400, 4)
    assert table.encode() == GOLDEN


def saved(*items: object, version: object = 1) -> bytes:
    return msgspec.msgpack.encode((version, items))


def row(next_sequence: int, *batches: tuple[int, int], epoch: int = 0, offset: int = 0, time_ms: int = 1) -> bytes:
    """Pack a producer with batches of (count, entry)."""
    packed = (struct.pack("<IIqq", count, 7, offset, index) for count, index in batches)
    return struct.pack("<qqq", epoch, time_ms, next_sequence) + b"".join(packed)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "not a saved table: Input data was truncated"),
        (GOLDEN[:-1], "not a saved table: Input data was truncated"),
        (GOLDEN + b"\0", "trailing characters"),
        (b"\xc0", "Expected `array`, got `None`"),
        (b"\x92\x01" + b"\x91" * 100_000 + b"\0", "not a saved table: maximum recursion depth"),
        (saved(version=2), "the table has version 2; only version 1 is supported"),
        (saved(version="1"), "Expected `int`, got `str`"),
        (saved("text"), "Expected `bytes`, got `str`"),
        (saved(b""), "producer : 0 bytes are not a row"),
        (saved(ANN), "0 bytes are not a row"),
        (saved(ANN + row(0)), "24 bytes are not a row"),
        (saved(ANN + row(6, *[(1, 1)] * 6)), "168 bytes are not a row"),
        (saved(ANN + row(1, (1, 1)) + b"\0"), "49 bytes are not a row"),
        (saved(NO_PRODUCER + row(1, (1, 1))), "is reserved"),
        (saved(ANN + row(1, (1, 1)), ANN + row(1, (1, 2))), f"producer id {ANN.hex()} is reserved or duplicate"),
        (saved(ANN + row(1, (1, 1), epoch=-1)), "out of its range"),
        (saved(ANN + row(1, (1, 1), offset=-1)), "out of its range"),
        (saved(ANN + row(1, (1, 1), time_ms=-1)), "out of its range"),
        (saved(ANN + row(1, (1, -1))), "out of its range"),
        (saved(ANN + row(5, (0, 1))), "out of its range"),
        (saved(ANN + row(2, (1, 1), (2, 1))), "out of its range"),
        (saved(ANN + row(2, (1, 3), (1, 2))), r"entries \[3, 2\] are not in order up to 9"),
        (saved(ANN + row(2, (1, 3), (1, 10))), r"entries \[3, 10\] are not in order up to 9"),
    ],
)
def test_invalid_bytes_are_refused(data: bytes, message: str) -> None:
    with pytest.raises(InvalidProducerTable, match=message):
        ProducerTable.decode(data, 9)


def test_changed_byte_is_refused_or_decoded_as_it_is() -> None:
    for at, value in product(range(len(GOLDEN)), range(256)):
        data = GOLDEN[:at] + bytes([value]) + GOLDEN[at + 1 :]
        with suppress(InvalidProducerTable):
            assert ProducerTable.decode(data, 9).encode() == data


# -- against a model that replays the whole log ---------------------------------------------------------------


@dataclass
class Logged:
    """A batch in the log."""

    header: BatchHeader
    index: int
    base_offset: int
    time_ms: int


@dataclass
class Entry:
    """Batches, an expiry, or neither (a no-op)."""

    batches: list[Logged] = field(default_factory=list)
    expire_before_ms: int | None = None


def replay(log: list[Entry], committed: int, *, tail: bool) -> dict[bytes, list[Logged]]:
    """Return the remembered batches, oldest producer first; an uncommitted expiry has no effect."""
    known: dict[bytes, list[Logged]] = {}
    for index, entry in enumerate(log if tail else log[:committed], 1):
        limit_ms = entry.expire_before_ms
        if limit_ms is not None and index <= committed:
            known = {name: batches for name, batches in known.items() if batches[-1].time_ms >= limit_ms}
        for logged in entry.batches:
            before = known.pop(logged.header.producer_id, [])
            continued = before and (before[-1].header.producer_epoch, before[-1].header.last_sequence + 1) == (
                logged.header.producer_epoch,
                logged.header.base_sequence,
            )
            known[logged.header.producer_id] = [*before, logged][-5:] if continued else [logged]
    return known


def expected_answer(batches: list[Logged], header: BatchHeader) -> Retry | str | None:
    """Return the expected result of a check, or the code of the refusal."""
    if not batches:
        return "unknown_producer" if header.base_sequence > 0 else None
    last = batches[-1].header
    if header.producer_epoch != last.producer_epoch:
        if header.producer_epoch < last.producer_epoch:
            return "epoch_stale"
        return "sequence_gap" if header.base_sequence > 0 else None
    if header.base_sequence > last.last_sequence:
        return "sequence_gap" if header.base_sequence > last.last_sequence + 1 else None
    for logged in batches:
        if logged.header.base_sequence == header.base_sequence:
            same = (logged.header.count, logged.header.crc) == (header.count, header.crc)
            return Retry(logged.index, logged.base_offset) if same else "sequence_reused"
    return "sequence_overlap"


def answer(table: ProducerTable, header: BatchHeader) -> Retry | str | None:
    try:
        return table.check(header)
    except ProducerRefused as refused:
        return refused.code


def expected_bytes(known: dict[bytes, list[Logged]]) -> bytes:
    items = []
    for name, batches in known.items():
        last = batches[-1]
        item = name + struct.pack("<qqq", last.header.producer_epoch, last.time_ms, last.header.last_sequence + 1)
        for logged in batches:
            item += struct.pack("<IIqq", logged.header.count, logged.header.crc, logged.base_offset, logged.index)
        items.append(item)
    return saved(*items)


def learn(table: ProducerTable, index: int, entry: Entry) -> None:
    for logged in entry.batches:
        table.append(index, logged.header, logged.base_offset, logged.time_ms)


def commit(table: ProducerTable, log: list[Entry], index: int, step: Callable[[], int]) -> None:
    """Commit up to `index` in steps, as a replica does: never past an expiry that it has not applied."""
    while table.committed_index < index:
        wanted = min(index, table.committed_index + step())
        expiries = (at for at in range(table.committed_index + 1, wanted) if log[at - 1].expire_before_ms is not None)
        to = next(expiries, wanted)
        table.commit(to)
        limit_ms = log[to - 1].expire_before_ms
        if limit_ms is not None:
            table.expire(limit_ms)


PRODUCERS = st.sampled_from([ANN, BOB, b"C" * 16])
HEADERS = st.builds(
    batch,
    st.integers(0, 12),
    producer=st.one_of(PRODUCERS, st.just(NO_PRODUCER)),
    epoch=st.integers(0, 2),
    count=st.integers(1, 3),
    crc=st.integers(0, 1),
)


COUNTS = st.lists(st.integers(1, 3), min_size=1, max_size=4)
CHANGES: st.SearchStrategy[Callable[[BatchHeader], BatchHeader]] = st.sampled_from(
    [
        lambda header: header,
        lambda header: replace(header, count=9),
        lambda header: replace(header, crc=9),
        lambda header: replace(header, producer_epoch=1),
    ]
)


class ProducersMachine(RuleBasedStateMachine):
    """A table and its log, with all operations of a replica."""

    def __init__(self) -> None:
        super().__init__()
        self.table = ProducerTable()
        self.log: list[Entry] = []
        self.committed = 0

    def known(self, *, tail: bool) -> dict[bytes, list[Logged]]:
        known = replay(self.log, self.committed, tail=tail)
        known.pop(NO_PRODUCER, None)
        return known

    def time_ms(self) -> int:
        return max((logged.time_ms for entry in self.log for logged in entry.batches), default=10)

    def put(self, header: BatchHeader, wait_ms: int, *, joined: bool) -> None:
        time_ms = self.time_ms() + wait_ms
        if not joined or len(self.log) == self.committed or self.log[-1].expire_before_ms is not None:
            self.log.append(Entry())
        logged = Logged(header, len(self.log), 3 * sum(len(entry.batches) for entry in self.log), time_ms)
        self.log[-1].batches.append(logged)
        self.table.append(logged.index, header, logged.base_offset, time_ms)

    @rule(producer=PRODUCERS, counts=COUNTS, wait_ms=st.integers(0, 3), joined=st.booleans())
    def the_leader_takes_what_is_next(self, producer: bytes, counts: list[int], wait_ms: int, joined: bool) -> None:
        for count in counts:
            batches = self.known(tail=True).get(producer)
            last = batches[-1].header if batches else batch(-1, producer=producer, count=1)
            header = batch(last.last_sequence + 1, producer=producer, epoch=last.producer_epoch, count=count)
            assert self.table.check(header) is None
            self.put(header, wait_ms, joined=joined)

    @rule(producer=PRODUCERS, wait_ms=st.integers(0, 3))
    def a_producer_raises_its_epoch(self, producer: bytes, wait_ms: int) -> None:
        batches = self.known(tail=True).get(producer)
        epoch = batches[-1].header.producer_epoch + 1 if batches else 0
        self.put(batch(0, producer=producer, epoch=epoch, count=2), wait_ms, joined=False)

    @rule(header=HEADERS.filter(lambda header: header.producer_id != ANN), joined=st.booleans())
    def a_follower_takes_whatever_comes(self, header: BatchHeader, joined: bool) -> None:
        """Mostly from one producer, so that it gets several remembered batches."""
        self.put(header, 1, joined=joined)

    @rule(header=HEADERS)
    def a_client_sends_anything(self, header: BatchHeader) -> None:
        batches = self.known(tail=True).get(header.producer_id, [])
        expected = None if header.producer_id == NO_PRODUCER else expected_answer(batches, header)
        assert answer(self.table, header) == expected

    @rule(change=CHANGES)
    def a_client_sends_everything_again(self, change: Callable[[BatchHeader], BatchHeader]) -> None:
        for entry in self.log:
            for logged in entry.batches:
                self.a_client_sends_anything(change(logged.header))

    @rule()
    def a_new_leader_adds_a_no_op(self) -> None:
        self.log.append(Entry())

    @rule(age_ms=st.integers(-1, 8))
    def an_expiry_is_proposed(self, age_ms: int) -> None:
        self.log.append(Entry(expire_before_ms=self.time_ms() - age_ms))

    @precondition(lambda self: self.committed < len(self.log))
    @rule(data=st.data())
    def entries_are_committed(self, data: st.DataObject) -> None:
        self.committed = data.draw(st.integers(self.committed + 1, len(self.log)))
        commit(self.table, self.log, self.committed, lambda: data.draw(st.integers(1, 9)))

    @precondition(lambda self: self.committed < len(self.log))
    @rule(data=st.data())
    def entries_are_truncated(self, data: st.DataObject) -> None:
        index = data.draw(st.integers(self.committed + 1, len(self.log)))
        del self.log[index - 1 :]
        self.table.truncate(index)

    @rule()
    def the_replica_restarts(self) -> None:
        self.table = ProducerTable.decode(self.table.encode(), self.committed)
        for index, entry in enumerate(self.log[self.committed :], self.committed + 1):
            learn(self.table, index, entry)

    @rule(since_ms=st.integers(0, 5), age_ms_max=st.integers(0, 12), count_max=st.integers(0, 4))
    def the_leader_asks_for_an_expiry(self, since_ms: int, age_ms_max: int, count_max: int) -> None:
        now_ms = self.time_ms() + since_ms
        times = sorted(batches[-1].time_ms for batches in self.known(tail=False).values())
        excess = times[: max(0, len(times) - count_max)]
        going = [time_ms for time_ms in times if now_ms - time_ms > age_ms_max or time_ms in excess]
        due = self.table.expiry_due(now_ms, age_ms_max=age_ms_max, count_max=count_max)
        assert [time_ms for time_ms in times if due is not None and time_ms < due] == going
        assert (due is None) == (not going)

    @invariant()
    def the_committed_part_is_what_the_log_says(self) -> None:
        known = self.known(tail=False)
        assert len(self.table) == len(known)
        assert self.table.encode() == expected_bytes(known)

    @invariant()
    def the_tail_leaves_nothing_behind(self) -> None:
        """Committed and truncated batches leave the tail."""
        tail = [logged for entry in self.log[self.committed :] for logged in entry.batches]
        tracked = [logged.header.producer_id for logged in tail if logged.header.producer_id != NO_PRODUCER]
        assert [added.producer_id for added in self.table._tail] == tracked
        assert {name: len(batches) for name, batches in self.table._tail_of.items()} == {
            name: tracked.count(name) for name in tracked
        }


ProducersMachine.TestCase.settings = settings(
    settings(), max_examples=max(200, settings().max_examples), stateful_step_count=40
)
TestProducers = ProducersMachine.TestCase


# -- replicas agree -------------------------------------------------------------------------------------------


@st.composite
def logs(draw: st.DrawFn) -> list[Entry]:
    """Draw a log as leaders write it: each batch was accepted by a table with all earlier entries committed."""
    table, log, now_ms, next_offset = ProducerTable(), list[Entry](), 10, 0
    for _ in range(draw(st.integers(0, 40))):
        index = len(log) + 1
        now_ms += draw(st.integers(0, 3))
        entry = Entry(expire_before_ms=now_ms - draw(st.integers(0, 6)) if draw(st.integers(0, 4)) == 0 else None)
        header = batch(2 * draw(st.integers(0, 4)), producer=draw(PRODUCERS), epoch=draw(st.integers(0, 1)), count=2)
        if entry.expire_before_ms is None and answer(table, header) is None:
            entry.batches.append(Logged(header, index, next_offset, now_ms))
            next_offset += header.count
        log.append(entry)
        learn(table, index, entry)
        commit(table, log, index, lambda: 1)
    return log


@given(log=logs(), data=st.data())
def test_replicas_agree_for_any_commit_steps(log: list[Entry], data: st.DataObject) -> None:
    """One replica commits entry by entry, one all at once, one in random steps."""
    slow, fast, loose = ProducerTable(), ProducerTable(), ProducerTable()
    for index, entry in enumerate(log, 1):
        for table in (slow, fast, loose):
            learn(table, index, entry)
        commit(slow, log, index, lambda: 1)
        commit(loose, log, data.draw(st.integers(0, index)), lambda: data.draw(st.integers(1, 5)))
    commit(fast, log, len(log), lambda: len(log))
    commit(loose, log, len(log), lambda: len(log))
    assert slow.encode() == fast.encode() == loose.encode()


@given(log=logs(), headers=st.lists(HEADERS, max_size=20), data=st.data())
def test_new_leader_gives_the_results_of_the_old_one(
    log: list[Entry], headers: list[BatchHeader], data: st.DataObject
) -> None:
    """The follower only appended, and learned late which entries are committed."""
    leader, follower = ProducerTable(), ProducerTable()
    behind = data.draw(st.integers(0, len(log)))
    for index, entry in enumerate(log, 1):
        learn(leader, index, entry)
        commit(leader, log, index, lambda: 1)
        learn(follower, index, entry)
    commit(follower, log, behind, lambda: data.draw(st.integers(1, 5)))
    commit(follower, log, len(log), lambda: len(log))
    sent = [logged.header for entry in log for logged in entry.batches]
    assert [answer(follower, header) for header in sent + headers] == [
        answer(leader, header) for header in sent + headers
    ]


@given(log=logs())
def test_new_leader_knows_uncommitted_batches_of_the_old_one(log: list[Entry]) -> None:
    """Without an expiry in the log, results do not depend on which entries are committed."""
    log = [Entry(batches=entry.batches) for entry in log]
    committed, uncommitted = ProducerTable(), ProducerTable()
    for index, entry in enumerate(log, 1):
        learn(committed, index, entry)
        learn(uncommitted, index, entry)
    committed.commit(len(log))
    sent = [logged.header for entry in log for logged in entry.batches]
    assert [answer(uncommitted, header) for header in sent] == [answer(committed, header) for header in sent]
