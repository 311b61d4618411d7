"""Arrow uses the columns of a batch in place, without a copy."""

import pyarrow as pa
import pytest

from flotilla.records import Column, Compression, decode, encode, split

VALUES = [b"first", b"", b"third and longest", b"4"] * 10
KEYS = [b"k1", None, b"", b"key"] * 10


def to_arrow(column: Column) -> pa.Array:
    validity = None if column.validity is None else pa.py_buffer(column.validity)
    buffers = [validity, pa.py_buffer(column.offsets), pa.py_buffer(column.data)]
    return pa.Array.from_buffers(pa.binary(), len(column.offsets) - 1, buffers)


@pytest.mark.parametrize("compression", Compression)
def test_arrow_arrays_are_built_from_the_columns(compression: Compression) -> None:
    opened = decode(encode(VALUES, keys=KEYS, compression=compression))
    assert opened.key_column is not None
    for column, expected in [(opened.value_column, VALUES), (opened.key_column, KEYS)]:
        array = to_arrow(column)
        array.validate(full=True)
        assert array.to_pylist() == expected
    assert to_arrow(opened.key_column).null_count == 10


def test_arrow_arrays_share_the_memory_of_the_batch() -> None:
    """The layout is that of Arrow's binary arrays, from the producer to Spark."""
    batch = encode(VALUES, keys=KEYS)
    body = pa.py_buffer(batch).address + 96
    opened = decode(batch)
    assert opened.key_column is not None
    values, keys = to_arrow(opened.value_column).buffers(), to_arrow(opened.key_column).buffers()
    values_bytes, offsets_bytes, validity_bytes = sum(map(len, VALUES)), 4 * 41 + 4, 8
    after_values = body + offsets_bytes + values_bytes + -values_bytes % 8
    assert values[0] is None
    assert [buffer.address for buffer in values[1:]] == [body, body + offsets_bytes]
    assert [buffer.address for buffer in keys] == [
        after_values,
        after_values + validity_bytes,
        after_values + validity_bytes + offsets_bytes,
    ]


def test_timestamps_are_an_int64_array_without_a_copy() -> None:
    batch = encode([b"a", b"b"], timestamps_ms=[-1, 2**62])
    column = decode(batch).timestamp_column
    assert column is not None
    array = pa.Array.from_buffers(pa.timestamp("ms"), 2, [None, pa.py_buffer(column)])
    array.validate(full=True)
    assert array.cast(pa.int64()).to_pylist() == [-1, 2**62]
    assert array.buffers()[1].address == pa.py_buffer(batch).address + len(batch) - 16


def test_columns_of_all_batches_of_a_fetch_response_are_aligned() -> None:
    answer = encode([b"odd"]) + encode([b"a", b"bc"], keys=[None, b"k"]) + encode([b"x"], timestamps_ms=[1])
    for part in split(answer):
        opened = decode(part)
        columns = [opened.value_column, *([opened.key_column] if opened.key_column else [])]
        assert all(pa.py_buffer(column.offsets).address % 8 == 0 for column in columns)
        assert all(to_arrow(column).validate(full=True) is None for column in columns)
