"""Rows become batches: the same whenever and however they come, with nothing lost on the way."""

from itertools import pairwise
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flotilla.client.partitioning import partition_of
from flotilla.records import decode, encode, encode_columns
from pyspark_flotilla import cutting
from pyspark_flotilla.cutting import Cut, Cutter, RowInvalid, Target

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


def cut(rows: list[dict[str, Any]], at: list[int], topic: str | None = None, schema: pa.Schema = SCHEMA) -> list[Cut]:
    """Cut rows that come in slices."""
    whole = pa.RecordBatch.from_pylist(rows, schema=schema)
    edges = [0, *sorted(min(one, len(rows)) for one in at), len(rows)]
    cutter = Cutter(TARGETS.__getitem__, topic, 7)
    found = [one for start, end in pairwise(edges) for one in cutter.add(whole.slice(start, end - start))]
    found += cutter.finish()
    assert cutter.rows == len(rows)
    return found


def packed(cuts: list[Cut]) -> dict[tuple[str, int], list[bytes]]:
    """What is sent to each partition, byte for byte."""
    found: dict[tuple[str, int], list[bytes]] = {}
    for one in cuts:
        found.setdefault(one.place, []).append(bytes(encode_columns(one.values, keys=one.keys, headers=one.headers)))
    return found


@given(rows_of_all_kinds, cuts, cuts)
def test_batches_do_not_depend_on_how_rows_are_sliced(
    rows: list[dict[str, Any]], one: list[int], other: list[int]
) -> None:
    """A task that runs again gets its rows in other slices, and has to send the same batches."""
    assert packed(cut(rows, one)) == packed(cut(rows, other))


@given(rows_of_all_kinds, cuts)
def test_each_row_is_a_record_of_its_partition_in_order_and_batches_are_no_larger_than_topics_take(
    rows: list[dict[str, Any]], slices: list[int]
) -> None:
    """Nothing is lost, doubled or moved; keys lie where a producer puts them."""
    found: dict[tuple[str, int], list[Any]] = {}
    for place, batches in packed(cut(rows, slices)).items():
        for batch in batches:
            assert len(batch) <= (TARGETS[place[0]].batch_bytes_max or cutting.BYTES_MAX)
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
def test_columns_are_packed_as_records_are(rows: list[dict[str, Any]], slices: list[int]) -> None:
    """There is one form of a batch: that without an object per record is the same, byte for byte."""
    for batches in packed(cut(rows, slices, "b")).values():
        for batch in batches:
            opened = decode(batch)
            assert batch == bytes(encode(opened.values, keys=opened.keys, headers=opened.headers))


@given(rows_of_all_kinds, cuts)
def test_rows_of_one_topic_go_where_rows_go_that_name_it(rows: list[dict[str, Any]], slices: list[int]) -> None:
    """There is a short way for rows that have a key and nothing else; it leads to the same place."""
    named = [{**row, "topic": "a", "partition": None} for row in rows]
    fields = pa.schema([SCHEMA.field("key"), SCHEMA.field("value"), SCHEMA.field("headers")])
    assert packed(cut(named, slices)) == packed(cut(named, slices, "a", fields))


def test_rows_without_a_key_take_turns_and_fill_batches() -> None:
    """However many there are: a thousand for one partition, and then the next."""
    rows = [{"value": str(at)} for at in range(25_000)]
    schema = pa.schema([("value", pa.string())])
    by_place = packed(cut(rows, [1, 999, 12_345], "b", schema))
    values = {place: [one for batch in some for one in decode(batch).values] for place, some in by_place.items()}
    assert values["b", 1] == [b"%d" % at for at in range(25_000) if at // 1000 % 2 == 0]
    assert values["b", 0] == [b"%d" % at for at in range(25_000) if at // 1000 % 2 == 1]
    assert [decode(one).header.count for one in by_place["b", 1]] == [cutting.RECORDS_MAX, 3_000]


def test_a_batch_ends_before_it_is_too_large() -> None:
    """By its bytes; a row that is larger than that has a batch of its own."""
    rows = [{"value": "x" * 300_000} for _ in range(7)] + [{"value": "y" * 3_000_000}, {"value": "z"}]
    (batches,) = packed(cut(rows, [2, 5], "single", pa.schema([("value", pa.string())]))).values()
    assert [decode(one).header.count for one in batches] == [3, 3, 1, 1, 1]


@pytest.mark.parametrize(
    ("row", "text"),
    [
        ({"value": None, "topic": "a"}, "a row has no value"),
        ({"value": "x", "topic": None}, "a row names no topic"),
        ({"value": "x", "topic": "a", "partition": 3}, "for partition 3 of 'a', which has 3"),
        ({"value": "x", "topic": "a", "partition": -1}, "for partition -1 of 'a'"),
        ({"value": "x", "topic": "a", "headers": [None]}, "a row has a header without a name"),
        ({"value": "x", "topic": "a", "headers": [{"key": None, "value": b"b"}]}, "a row has a header without a name"),
    ],
)
def test_rows_that_cannot_be_records_are_refused(row: dict[str, Any], text: str) -> None:
    with pytest.raises(RowInvalid, match=text):
        cut([row], [])


def test_headers_are_left_out_where_nobody_wants_them() -> None:
    rows = pa.RecordBatch.from_pylist([{"value": "x", "headers": [{"key": "a", "value": b"b"}]}], schema=SCHEMA)
    cutter = Cutter(TARGETS.__getitem__, "single", 0, include_headers=False)
    assert list(cutter.add(rows)) == []
    assert [one.headers for one in cutter.finish()] == [None]
