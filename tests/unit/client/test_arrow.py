"""Records as Arrow columns in the memory of the batch."""

import re
import subprocess
import sys
import tracemalloc
from array import array
from collections.abc import Callable, Iterable
from itertools import chain

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flotilla import arrow
from flotilla.arrow import SCAN, SCHEMA, count_up, select, to_record_batch, to_record_batches
from flotilla.client.errors import ConfigInvalid, DataInvalid
from flotilla.client.positions import ConsumerBatch, ConsumerRecord, TopicPartition
from flotilla.records import BadRecordHeaders, Batch, BatchInvalid, Compression, CrcMismatch, assign, decode, encode
from flotilla.records.decoding import _PlainScan
from unit.records.forge import HEADERS, batch_around, offsets, pad
from unit.records.strategies import Records, records

PLACE = TopicPartition("t", 3)
MANY = 20_000


def rows_of(batches: Iterable[pa.RecordBatch]) -> list[ConsumerRecord]:
    """Read columns back, record by record."""
    found = []
    for batch in batches:
        batch.validate(full=True)
        assert batch.schema == SCHEMA
        # Any int64 may be a timestamp, and Python's datetime has not as many.
        times = [batch[name].cast(pa.int64()).to_pylist() for name in ("timestamp", "append_time")]
        others = batch.drop_columns(["timestamp", "append_time"]).to_pylist()
        for row, timestamp, append_time in zip(others, *times, strict=True):
            headers = tuple((pair["name"], pair["value"]) for pair in row["headers"] or ())
            place, rest = (row["topic"], row["partition"], row["offset"]), (row["key"], row["value"])
            found.append(ConsumerRecord(*place, timestamp, *rest, headers, append_time))
    return found


def stored(base_offset: int, some: Records, compression: Compression = Compression.NONE) -> bytes:
    batch = some.encode(compression)
    assign(batch, base_offset, 1_000 + base_offset)
    return bytes(batch)


@given(records(), st.sampled_from(Compression), st.integers(0, 2**40), st.data())
def test_arrow_columns_equal_the_consumer_records(
    some: Records, compression: Compression, base_offset: int, data: st.DataObject
) -> None:
    """Any choice of keys, headers and timestamps, compressed or not, from any record on."""
    start = data.draw(st.integers(0, len(some.values) - 1))
    batch = ConsumerBatch(*PLACE, decode(stored(base_offset, some, compression)), start)
    assert rows_of([batch.to_arrow()]) == list(batch)


def repeated(some: Records, times: int) -> Records:
    return Records(
        some.values * times,
        some.keys and some.keys * times,
        some.headers and some.headers * times,
        some.timestamps_ms and some.timestamps_ms * times,
    )


PART = st.tuples(st.builds(repeated, records(count_max=8), st.sampled_from([1, 100])), st.sampled_from(Compression))


@given(st.lists(PART, max_size=6), st.data())
def test_consecutive_batches_become_the_records_of_a_range(
    parts: list[tuple[Records, Compression]], data: st.DataObject
) -> None:
    """Small and large ones, cut where the range begins and ends."""
    body, sent, at = b"", list[ConsumerRecord](), 0
    for some, compression in parts:
        batch = stored(at, some, compression)
        body, at = body + batch, at + len(some.values)
        sent += ConsumerBatch(*PLACE, decode(batch))
    start, end = data.draw(st.integers(0, at + 2)), data.draw(st.integers(0, at + 2))
    assert rows_of(to_record_batches(PLACE, body, start, end)) == sent[start:end]


def test_consecutive_small_batches_are_merged() -> None:
    """A topic of single records does not become a table with one chunk per record; a large batch is not copied."""
    sizes = [1] * 50 + [arrow._SMALL] + [1, 2, 3]
    body, at = b"", 0
    for size in sizes:
        body, at = body + stored(at, Records([b"v"] * size, None, None, None)), at + size
    made = list(to_record_batches(PLACE, body, 0, at))
    assert [len(batch) for batch in made] == [50, arrow._SMALL, 6]
    assert [row.offset for row in rows_of(made)] == list(range(at))


def test_merged_batch_stays_below_the_size_limit_of_an_array(monkeypatch: pytest.MonkeyPatch) -> None:
    """Arrow's offsets have 32 bits."""
    monkeypatch.setattr(arrow, "_ROWS_BYTES_MAX", 2_000)
    body = b"".join(stored(at, Records([bytes(900)], None, None, None)) for at in range(7))
    assert [len(batch) for batch in to_record_batches(PLACE, body, 0, 7)] == [2, 2, 2, 1]


def addresses(column: pa.Array) -> list[int]:
    return [buffer.address for buffer in column.buffers() if buffer is not None]


def test_values_keys_and_timestamps_share_the_memory_of_the_batch() -> None:
    """No copy per record or per column."""
    some = Records([b"value"] * MANY, [b"key", None] * (MANY // 2), None, list(range(MANY)))
    body = stored(0, some)
    begin = pa.py_buffer(body).address
    (batch,) = to_record_batches(PLACE, body, 10, MANY - 10)
    for name in ("key", "value", "timestamp"):
        assert all(begin < address < begin + len(body) for address in addresses(batch[name])), name


@pytest.mark.parametrize(
    ("value", "key", "columns", "end"),
    [
        (b"value" * 20, b"key", ["timestamp", "key"], MANY),
        (b"v", b"key" * 100, ["value"], MANY),
        (b"value", b"key", list(SCHEMA.names), 100),
    ],
    ids=["values", "keys", "most records"],
)
def test_selected_columns_do_not_retain_the_memory_of_others(
    value: bytes, key: bytes, columns: list[str], end: int
) -> None:
    """Keys do not retain large values, values no large keys, and a record does not retain its whole batch."""
    some = Records([value] * MANY, [key, None] * (MANY // 2), None, list(range(MANY)))
    body = stored(0, some)
    begin = pa.py_buffer(body).address
    whole = to_record_batch(PLACE, decode(body)).slice(10, end - 10)
    (batch,) = to_record_batches(PLACE, body, 10, end, select(columns))
    assert batch.equals(whole.select(columns))
    for column in batch.columns:
        assert not any(begin <= address < begin + len(body) for address in addresses(column))


@pytest.mark.parametrize(
    "some",
    [
        Records([b"x" * 100] * MANY, None, None, None),
        Records([b"x" * 100] * MANY, [b"key", None] * (MANY // 2), [(("a", b"b"),), ()] * (MANY // 2), [7**20] * MANY),
    ],
    ids=["values", "everything"],
)
def test_conversion_creates_no_python_object_per_record(some: Records) -> None:
    """Neither permanent nor temporary: the limit is too small for even one number per record."""
    body = stored(10**12, some)
    assert sum(map(len, to_record_batches(PLACE, body, 10**12, 10**13))) == MANY  # whatever is made once is made
    tracemalloc.start()
    try:
        made = list(to_record_batches(PLACE, body, 10**12, 10**13))
        kept, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert sum(map(len, made)) == MANY
    constants = MANY * (4 + 4 + 8)  # topic, partition and append time, as bytes
    a_number_each = MANY * 24
    assert kept < constants + 10_000
    assert peak < constants + a_number_each


def test_only_selected_columns_are_built_in_the_given_order() -> None:
    """Headers that are not selected are not decoded."""
    broken = Batch(*vars(decode(encode([b"v"]))).values())
    batch = Batch(broken.header, broken.value_column, None, broken.value_column, None)
    made = to_record_batch(PLACE, batch, schema=select(["offset", "value"]))
    assert made.to_pydict() == {"offset": [0], "value": [b"v"]}
    with pytest.raises(BadRecordHeaders, match="headers of a record: the length of a name"):
        to_record_batch(PLACE, batch)
    with pytest.raises(DataInvalid, match="t-3: batch at offset 0 is damaged: headers of a record"):
        ConsumerBatch(*PLACE, batch).to_arrow()
    body = bytes(batch_around(offsets(0, 1) + pad(b"v") + offsets(0, 1) + pad(b"h"), count=1, attributes=HEADERS))
    assert [one.to_pydict() for one in to_record_batches(PLACE, body, 0, 1, select("value"))] == [{"value": [b"v"]}]
    with pytest.raises(BadRecordHeaders, match="headers of record 0: the length of a name"):
        list(to_record_batches(PLACE, body, 0, 1))
    assert select("key").names == ["key"]
    assert select(None) == SCHEMA


@pytest.mark.parametrize("columns", [["colour"], [], ["key", "key"], ""])
def test_unknown_column_error_lists_the_valid_columns(columns: list[str] | str) -> None:
    with pytest.raises(ConfigInvalid, match="columns must be some of key, value, topic, partition, offset"):
        select(columns)


def test_damaged_batch_raises() -> None:
    """A table has exactly what the producer sent."""
    body = bytearray(stored(0, Records([b"value"] * 100, None, None, None)))
    body[200] ^= 1
    with pytest.raises(CrcMismatch):
        list(to_record_batches(PLACE, bytes(body), 0, 100))


@pytest.mark.parametrize("size", [1, arrow._SMALL])
@pytest.mark.parametrize(
    ("starts", "message"),
    [
        ([1], "records start at offset 1, requested 0"),
        ([0, 2], "batch at offset 2, but the previous one ends at 1"),
        ([0, 0], "batch at offset 0, but the previous one ends at 1"),
        ([0, 1, 2, 1], "batch at offset 1, but the previous one ends at 3"),
    ],
)
def test_missing_or_repeated_records_raise(starts: list[int], message: str, size: int) -> None:
    """A table never differs from the log, whatever servers respond."""
    some = Records([b"v"] * size, None, None, None)
    body = b"".join(stored(start * size, some) for start in starts)
    expected = re.sub(r"\d+", lambda number: str(int(number[0]) * size), message)
    with pytest.raises(BatchInvalid, match=expected):
        list(to_record_batches(PLACE, body, 0, 1_000))


INT32, INT64 = st.integers(-(2**31), 2**31 - 1), st.integers(-(2**63), 2**63 - 1)


@given(st.lists(INT32, min_size=2) | st.lists(INT32, min_size=2).map(sorted))
def test_numpy_and_python_checks_of_offsets_agree(numbers: list[int]) -> None:
    """Arrow trusts offsets, so the check must be exact."""
    view = memoryview(array("i", numbers))
    assert SCAN.is_non_decreasing(view) == _PlainScan().is_non_decreasing(view) == (sorted(numbers) == numbers)


@given(st.lists(st.tuples(st.integers(0, 2), st.booleans()), min_size=1), st.integers(0, 7))
def test_numpy_and_python_checks_of_nulls_agree(items: list[tuple[int, bool]], more: int) -> None:
    """A null item has no bytes; there may be more validity bits than items."""
    lengths = [length for length, _ in items]
    offsets = memoryview(array("i", [sum(lengths[:at]) for at in range(len(items) + 1)]))
    nulls = bytes(flag for _, flag in items) + b"\x01" * more
    expected = not any(length for length, flag in items if flag)
    assert SCAN.are_nulls_empty(offsets, nulls) == _PlainScan().are_nulls_empty(offsets, nulls) == expected


@given(st.lists(INT64, min_size=1))
def test_numpy_and_python_conversions_of_timestamps_agree(numbers: list[int]) -> None:
    """Every int64 is valid."""
    view = memoryview(array("q", numbers))
    assert SCAN.bounds(view) == _PlainScan().bounds(view) == (min(numbers), max(numbers))


@pytest.mark.parametrize("count", [count_up, arrow._count_up_by_sum])
def test_offset_column_counts_up(count: Callable[[int, int], pa.Array]) -> None:
    """With every supported version of pyarrow."""
    for first in (0, 5, 2**62):
        made = count(first, 3)
        assert (made.type, made.to_pylist()) == (pa.int64(), [first, first + 1, first + 2])


WITHOUT = """
import sys
from flotilla import Client, FlotillaError
import flotilla.client.tables
assert "pyarrow" not in sys.modules and "pandas" not in sys.modules
sys.modules[{library!r}] = None
client = Client("http://127.0.0.1:1")
try:
    client.{method}("orders")
except ImportError as error:
    assert isinstance(error, FlotillaError)
    print(error)
"""


@pytest.mark.parametrize(
    ("library", "method", "extra"),
    [("pyarrow", "read_arrow", "arrow"), ("pyarrow", "iter_arrow", "arrow"), ("pandas", "read_pandas", "pandas")],
)
def test_missing_library_error_names_what_to_install(library: str, method: str, extra: str) -> None:
    """The libraries are optional: they are imported when a table is requested."""
    script = WITHOUT.format(library=library, method=method)
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False, timeout=60)
    message = f"{library} is not installed (extra {extra!r} of the client): pip install {library}\n"
    assert (done.stdout, done.stderr) == (message, "")


def test_all_batches_of_a_range_have_one_schema() -> None:
    """Small and large batches have the same columns of the same types."""
    bodies = [stored(0, Records([b"v"], None, None, None)), stored(1, Records([b"v"] * 100, None, None, [1] * 100))]
    batches = chain.from_iterable(to_record_batches(PLACE, body, at, 1_000) for at, body in enumerate(bodies))
    table = pa.Table.from_batches(batches)
    assert (len(table), table.schema) == (101, SCHEMA)
    assert table.combine_chunks()["topic"].to_pylist() == ["t"] * 101
