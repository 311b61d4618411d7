"""Ranges of records as tables, on real processes: by offset and timestamp, by both routes, while servers fail."""

import asyncio
import doctest
import re
from collections.abc import Iterator
from datetime import UTC, datetime
from itertools import count
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from flotilla import AsyncClient, Client
from flotilla.arrow import SCHEMA
from flotilla.client import range_reader
from flotilla.client.errors import ClientClosed, ConfigInvalid, OffsetOutOfRange, TableTooLarge, TopicMissing
from flotilla.client.positions import ConsumerRecord
from support.fleet import Fleet

PARTITIONS = 3
COUNT = 3_000
NUMBERS = count()


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    with Fleet(Path(tmp_path_factory.mktemp("fleet")), brokers=1) as fleet:
        yield fleet


@pytest.fixture(scope="module", params=["direct", "gateway"])
def client(fleet: Fleet, request: pytest.FixtureRequest) -> Iterator[Client]:
    with Client(fleet.url, route=request.param) as client:
        yield client


@pytest.fixture
def topic(client: Client) -> Iterator[str]:
    """Create a topic with all kinds of batches: large, small, compressed, with and without optional parts."""
    name = f"tables-{next(NUMBERS)}"
    client.topics.create(name, partitions=PARTITIONS, replication=1)
    fill(client, name)
    yield name
    client.topics.delete(name)


def fill(client: Client, topic: str) -> None:
    values = [f"value {at}".encode() for at in range(COUNT)]
    with client.producer(compression="zstd") as packed, client.producer() as plain:
        plain.send_many(topic, values, keys=[b"key" if at % 3 else None for at in range(COUNT)])
        plain.flush()
        packed.send_many(topic, values, headers=[(("trace", b"%d" % (at % 7)),) for at in range(COUNT)])
        packed.flush()
        for partition in range(PARTITIONS):
            plain.send(topic, b"", partition=partition, timestamp_ms=1_700_000_000_000 + partition)
            plain.flush()


def consumed(client: Client, topic: str) -> list[ConsumerRecord]:
    """Return all records of a consumer, partition by partition."""
    with client.consumer(topic) as consumer:
        return sorted(consumer.records(until="end"), key=lambda record: (record.partition, record.offset))


def rows_of(table: pa.Table) -> list[ConsumerRecord]:
    table.validate(full=True)
    for name in ("timestamp", "append_time"):
        table = table.set_column(table.schema.get_field_index(name), name, table[name].cast(pa.int64()))
    return [
        ConsumerRecord(
            row["topic"], row["partition"], row["offset"], row["timestamp"], row["key"], row["value"],
            tuple((pair["name"], pair["value"]) for pair in row["headers"] or ()), row["append_time"],
        )
        for row in table.to_pylist()
    ]  # fmt: skip


def test_table_equals_the_records_of_a_consumer(client: Client, topic: str) -> None:
    """Every record with all its parts; partition by partition, each in order."""
    table = client.read_arrow(topic)
    assert table.schema == SCHEMA
    assert rows_of(table) == consumed(client, topic)
    assert len(table) == 2 * COUNT + PARTITIONS


def test_range_has_exact_bounds(client: Client, topic: str) -> None:
    """Offsets for all partitions, by partition, and timestamps; the end is exclusive, so that ranges tile."""
    everything = consumed(client, topic)

    def check(wanted: Any, **options: Any) -> None:  # noqa: ANN401 - which records, and any options
        assert rows_of(client.read_arrow(topic, **options)) == [one for one in everything if wanted(one)]

    check(lambda one: 10 <= one.offset < 700, start=10, end=700)
    check(lambda one: one.partition == 1, partitions=[1])
    check(lambda one: one.partition > 0 and one.offset >= 5 * one.partition, start={1: 5, 2: 10})
    check(lambda one: one.partition == 0 and one.offset < 3, end={0: 3})
    check(lambda _: False, start="latest")
    check(lambda _: False, start=10**6)
    times = sorted({one.append_time_ms for one in everything})
    middle = datetime.fromtimestamp(times[len(times) // 2] / 1000, UTC)
    before, after = client.read_arrow(topic, end=middle), client.read_arrow(topic, start=middle)
    assert sorted(rows_of(before) + rows_of(after)) == sorted(everything)
    assert pc.max(before["append_time"]).as_py() < middle <= pc.min(after["append_time"]).as_py()


def test_range_of_any_size_is_read_in_pieces(client: Client, topic: str) -> None:
    """Each partition in order, all columns or some; the iteration can be stopped."""
    batches = list(client.iter_arrow(topic, columns=["partition", "offset"]))
    assert {tuple(batch.schema.names) for batch in batches} == {("partition", "offset")}
    found = [(row["partition"], row["offset"]) for batch in batches for row in batch.to_pylist()]
    assert sorted(found, key=lambda place: place[0]) == [(one.partition, one.offset) for one in consumed(client, topic)]
    for batch in client.iter_arrow(topic):
        assert len(batch)
        break


def test_latest_is_the_end_when_the_read_started(client: Client, topic: str) -> None:
    """A table is well defined while others produce."""
    batches = client.iter_arrow(topic, columns=["offset"])
    with client.producer() as producer:
        producer.send_many(topic, [b"late"] * 100)
    assert sum(map(len, batches)) == 2 * COUNT + PARTITIONS


def test_pandas_frame_has_the_same_columns(client: Client, topic: str) -> None:
    """In Arrow memory, without a Python object per record."""
    frame = client.read_pandas(topic)
    kinds = {field.name: pd.ArrowDtype(field.type) for field in SCHEMA if field.name != "topic"}
    assert frame.dtypes.drop("topic").to_dict() == kinds
    assert isinstance(frame["topic"].dtype, pd.CategoricalDtype)
    assert frame["value"].tolist() == [one.value for one in consumed(client, topic)]
    assert frame.groupby("partition")["offset"].count().sum() == 2 * COUNT + PARTITIONS


def test_removed_records_are_reported_or_left_out(client: Client, topic: str) -> None:
    """By default, a table is complete or an error."""
    client.topics.delete_records(topic, {0: 100})
    with pytest.raises(OffsetOutOfRange, match=f"{topic}-0: 90 records from offset 10 were deleted") as caught:
        client.read_arrow(topic, partitions=[0], start=10, end=200)
    assert caught.value.first_offset == 100
    left = client.read_arrow(topic, partitions=[0], start=10, end=200, on_gone="earliest")
    assert left["offset"].to_pylist() == list(range(100, 200))
    assert client.read_arrow(topic, partitions=[0], end=200)["offset"].to_pylist() == list(range(100, 200))


def test_empty_table_has_all_columns(client: Client, topic: str) -> None:
    """Programs that use columns also work without records."""
    assert client.read_arrow(topic, partitions=[]).schema == SCHEMA
    frame = client.read_pandas(topic, start="latest", columns=["offset", "value"])
    assert (list(frame.columns), len(frame)) == (["offset", "value"], 0)


def test_invalid_ranges_are_rejected_with_a_hint(client: Client, topic: str) -> None:
    """Each error has what to do."""
    with pytest.raises(TableTooLarge, match=r"max_bytes \(10000\).*iter_arrow"):
        client.read_arrow(topic, max_bytes=10_000)
    with pytest.raises(TopicMissing, match="has no partition 9"):
        client.read_arrow(topic, partitions=[0, 9])
    with pytest.raises(TopicMissing, match="topic 'nowhere' does not exist"):
        client.iter_arrow("nowhere")
    with pytest.raises(ConfigInvalid, match="columns must be some of"):
        client.iter_arrow(topic, columns=["colour"])


def test_async_client_reads_the_same_tables(fleet: Fleet, client: Client, topic: str) -> None:
    """Both APIs share one implementation."""

    async def read() -> tuple[pa.Table, pd.DataFrame, int]:
        async with AsyncClient(fleet.url) as own:
            rows = 0
            async for batch in own.iter_arrow(topic):
                rows += len(batch)
            async for _ in own.iter_arrow(topic):  # what is under way ends with the client
                break
            return await own.read_arrow(topic), await own.read_pandas(topic), rows

    table, frame, rows = asyncio.run(read())
    assert table.equals(client.read_arrow(topic))
    assert len(table) == len(frame) == rows


def test_batches_of_a_consumer_are_converted_to_columns(client: Client, topic: str) -> None:
    """For streaming, with new records, positions and commits."""
    with client.consumer(topic, partitions=[0]) as consumer:
        table = pa.Table.from_batches(batch.to_arrow() for batch in consumer.batches(until="end"))
    assert rows_of(table) == rows_of(client.read_arrow(topic, partitions=[0]))


def test_iteration_ends_with_its_client(fleet: Fleet, topic: str) -> None:
    """Continuing raises an error, and nothing stays open."""
    with Client(fleet.url) as own:
        batches = own.iter_arrow(topic)
        next(batches)
    with pytest.raises(ClientClosed):
        list(batches)


def test_range_is_read_while_the_broker_is_killed(fleet: Fleet, monkeypatch: pytest.MonkeyPatch) -> None:
    """The read waits for leaders; no record is missing or duplicated."""
    monkeypatch.setattr(range_reader, "FETCH_BYTES", 1)  # one batch per fetch response, so that much is left to fetch
    values = [b"%099d" % at for at in range(20_000)]
    with Client(fleet.url) as client:
        client.topics.create("killed", partitions=4, replication=1)
        with client.producer(batch_bytes=50_000) as producer:
            producer.send_many("killed", values)
        batches = client.iter_arrow("killed", columns=["value"])
        found = [next(batches)]
        fleet.brokers[0].kill()
        fleet.brokers[0].start()
        found += batches
        assert sorted(pa.Table.from_batches(found)["value"].to_pylist()) == values


def test_examples_of_the_docs_print_the_documented_output(fleet: Fleet) -> None:
    """Unchanged."""
    page = (Path(__file__).parents[2] / "docs" / "tables.md").read_text(encoding="utf-8")
    text = "\n".join(re.findall(r"^```pycon\n(.*?)^```", page, flags=re.DOTALL | re.MULTILINE))
    said: list[str] = []
    with Client(fleet.url) as client:
        examples = doctest.DocTestParser().get_doctest(text, {"client": client}, "docs/tables.md", None, 0)
        assert doctest.DocTestRunner().run(examples, out=said.append).failed == 0, "".join(said)
