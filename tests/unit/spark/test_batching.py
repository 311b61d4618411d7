"""Rows to batches: the same batches for any slicing of the rows, and every row in one of them."""

from itertools import pairwise
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flotilla.client.partitioning import partition_of
from flotilla.records import decode, encode, encode_columns
from pyspark_flotilla import batching
from pyspark_flotilla.batching import Batch, RowBatcher, RowInvalid, Target

HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
SCHEMA = pa.schema(
    [
        ("key", pa.binary()),
        ("value", pa.string()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("headers", HEADERS),
    ]
)
TARGETS = {"a": Target(3, batch_bytes_max=600), "b": Target(2), "single": Target(1)}

pairs = st.fixed_dictionaries({"key": st.sampled_from(["x", "y"]), "value": st.binary(max_size=3) | st.none()})
rows_of_all_kinds = st.lists(
    st.fixed_dictionaries(
        {
            "key": st.none() | st.binary(max_size=4),
            "value": st.text(max_size=40),
            "topic": st.sampled_from(["a", "b"]),
            "partition": st.none() | st.integers(0, 1),
            "headers": st.none() | st.lists(pairs, max_size=2),
        }
    ),
    min_size=1,
    max_size=60,
)
cuts = st.lists(st.integers(0, 60), max_size=6)


def cut(rows: list[dict[str, Any]], at: list[int], topic: str | None = None, schema: pa.Schema = SCHEMA) -> list[Batch]:
    """Batch rows that arrive in slices."""
    whole = pa.RecordBatch.from_pylist(rows, schema=schema)
    edges = [0, *sorted(min(one, len(rows)) for one in at), len(rows)]
    batcher = RowBatcher(TARGETS.__getitem__, topic, 7)
    found = [one for start, end in pairwise(edges) for one in batcher.add(whole.slice(start, end - start))]
    found += batcher.finish()
    assert batcher.rows == len(rows)
    return found


def packed(cuts: list[Batch]) -> dict[tuple[str, int], list[bytes]]:
    """Return the encoded batches of each partition."""
    found: dict[tuple[str, int], list[bytes]] = {}
    for one in cuts:
        found.setdefault(one.partition, []).append(
            bytes(encode_columns(one.values, keys=one.keys, headers=one.headers))
        )
    return found


@given(rows_of_all_kinds, cuts, cuts)
def test_batches_do_not_depend_on_how_rows_are_sliced(
    rows: list[dict[str, Any]], one: list[int], other: list[int]
) -> None:
    """A retried task can get its rows in other slices, and must send the same batches."""
    assert packed(cut(rows, one)) == packed(cut(rows, other))


@given(rows_of_all_kinds, cuts)
def test_each_row_is_a_record_of_its_partition_in_order_and_batches_respect_the_limits_of_the_topic(
    rows: list[dict[str, Any]], slices: list[int]
) -> None:
    """Keys select the same partitions as in the producer."""
    found: dict[tuple[str, int], list[Any]] = {}
    for place, batches in packed(cut(rows, slices)).items():
        for batch in batches:
            assert len(batch) <= (TARGETS[place[0]].batch_bytes_max or batching.BYTES_MAX)
            for record in decode(batch):
                found.setdefault(place, []).append((record.key, record.value, record.headers or ()))
    wanted: dict[tuple[str, int], list[Any]] = {}
    for row in rows:
        count = TARGETS[row["topic"]].partitions
        partition = row["partition"]
        if partition is None:
            partition = 7 % count if row["key"] is None else partition_of(row["key"], count)
        headers = tuple((one["key"], one["value"] or b"") for one in row["headers"] or ())
        wanted.setdefault((row["topic"], partition), []).append((row["key"], row["value"].encode(), headers))
    assert found == wanted


@given(rows_of_all_kinds, cuts)
def test_columns_are_encoded_like_records(rows: list[dict[str, Any]], slices: list[int]) -> None:
    """Encoding without an object per record yields the same bytes."""
    for batches in packed(cut(rows, slices, "b")).values():
        for batch in batches:
            opened = decode(batch)
            assert batch == bytes(encode(opened.values, keys=opened.keys, headers=opened.headers))


@given(rows_of_all_kinds, cuts)
def test_topic_option_and_topic_column_select_the_same_partitions(
    rows: list[dict[str, Any]], slices: list[int]
) -> None:
    """Rows with only a key have a fast path with the same result."""
    named = [{**row, "topic": "a", "partition": None} for row in rows]
    fields = pa.schema([SCHEMA.field("key"), SCHEMA.field("value"), SCHEMA.field("headers")])
    assert packed(cut(named, slices)) == packed(cut(named, slices, "a", fields))


def test_rows_without_a_key_are_distributed_round_robin_in_runs_of_1000() -> None:
    """Runs are long enough to fill batches."""
    rows = [{"value": str(at)} for at in range(25_000)]
    schema = pa.schema([("value", pa.string())])
    by_place = packed(cut(rows, [1, 999, 12_345], "b", schema))
    values = {place: [one for batch in some for one in decode(batch).values] for place, some in by_place.items()}
    assert values["b", 1] == [b"%d" % at for at in range(25_000) if at // 1000 % 2 == 0]
    assert values["b", 0] == [b"%d" % at for at in range(25_000) if at // 1000 % 2 == 1]
    assert [decode(one).header.count for one in by_place["b", 1]] == [batching.RECORDS_MAX, 3_000]


def test_batch_is_closed_before_it_exceeds_its_size_limit() -> None:
    """A row above the limit gets its own batch."""
    rows = [{"value": "x" * 300_000} for _ in range(7)] + [{"value": "y" * 3_000_000}, {"value": "z"}]
    (batches,) = packed(cut(rows, [2, 5], "single", pa.schema([("value", pa.string())]))).values()
    assert [decode(one).header.count for one in batches] == [3, 3, 1, 1, 1]


@pytest.mark.parametrize(
    ("row", "text"),
    [
        ({"value": None, "topic": "a"}, "column value is null in a row"),
        ({"value": "x", "topic": None}, "column topic is null in a row"),
        (
            {"value": "x", "topic": "a", "partition": 3},
            "column partition is 3 in a row, but topic 'a' has 3 partitions",
        ),
        ({"value": "x", "topic": "a", "partition": -1}, "column partition is -1 in a row, but topic 'a'"),
        ({"value": "x", "topic": "a", "headers": [None]}, "a row has a header without a key"),
        ({"value": "x", "topic": "a", "headers": [{"key": None, "value": b"b"}]}, "a row has a header without a key"),
    ],
)
def test_rows_that_are_not_records_are_rejected(row: dict[str, Any], text: str) -> None:
    with pytest.raises(RowInvalid, match=text):
        cut([row], [])


def test_headers_are_dropped_without_include_headers() -> None:
    rows = pa.RecordBatch.from_pylist([{"value": "x", "headers": [{"key": "a", "value": b"b"}]}], schema=SCHEMA)
    batcher = RowBatcher(TARGETS.__getitem__, "single", 0, include_headers=False)
    assert list(batcher.add(rows)) == []
    assert [one.headers for one in batcher.finish()] == [None]
