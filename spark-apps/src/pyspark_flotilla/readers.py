"""Readers: the driver determines the offset range of a query, and each task fetches a part of it from brokers."""

import functools
import logging
import re
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow

from pyspark_flotilla import offsets
from pyspark_flotilla.connection import connect
from pyspark_flotilla.offsets import OffsetRange, Offsets, PartitionOffsets
from pyspark_flotilla.options import OptionInvalid, ReadOptions, TopicPartition

if TYPE_CHECKING:
    import pyarrow as pa

    from flotilla import Client

logger = logging.getLogger("pyspark_flotilla")

# A former leader can answer with an old end of its log until it steps down, which takes brokers up to 3 s.
STALE_LEADER_S = 5.0
_RETRY_S = 0.25
POLL_S_MIN = 0.05  # Spark asks for the latest offsets a hundred times a second while no records arrive


class DataLoss(Exception):
    """Records that a query has to read no longer exist."""


class RangePartition(InputPartition):
    """The offset range that one task reads."""

    def __init__(self, range_: OffsetRange) -> None:
        super().__init__(range_)
        self.range = range_


# -- on the driver ------------------------------------------------------------------------------------------


def list_offsets(
    client: "Client", options: ReadOptions, *, allow_missing: bool = False
) -> dict[TopicPartition, PartitionOffsets]:
    """Return the offsets of all selected partitions. Raises OptionInvalid and TopicMissing.

    With `allow_missing`, missing topics and partitions are left out: a running query checks for them itself.
    """
    from flotilla import NotAllowed, TopicMissing  # noqa: PLC0415 - see `connect`

    selected = options.subscription
    names: Sequence[str] = selected.topics or sorted({topic for topic, _ in selected.partitions})
    if selected.pattern is not None:
        pattern = re.compile(selected.pattern)
        names = [one.name for one in client.topics.list() if pattern.fullmatch(one.name)]
    found: dict[TopicPartition, PartitionOffsets] = {}
    for name in names:
        try:
            found |= {
                (name, one.index): PartitionOffsets(one.first_offset, one.next_offset)
                for one in client.topics.offsets(name)
            }
        except TopicMissing:
            if not allow_missing and selected.pattern is None:  # a topic that matched can be deleted meanwhile
                raise
        except NotAllowed:
            if selected.pattern is None:
                raise
            _warn_once(f"topic skipped, the token cannot read it: topic={name} pattern={selected.pattern}")
    missing = [
        f"{partition} of '{topic}'" for topic, partition in selected.partitions if (topic, partition) not in found
    ]
    if missing and not allow_missing:
        raise OptionInvalid(f"assign names partitions that do not exist: {', '.join(missing)}")
    return {tp: one for tp, one in found.items() if not selected.partitions or tp in selected.partitions}


@functools.cache
def _warn_once(text: str) -> None:
    logger.warning("%s", text)


def offsets_at_timestamp(client: "Client", topic: str, ms: int) -> dict[int, int]:
    """Return the first offset that was appended at or after a timestamp, by partition; the end if there is none."""
    found = client.topics.offsets(topic, at=ms)
    return {one.index: one.next_offset if one.offset is None else one.offset for one in found}


def plan_tasks(ranges: Iterable[OffsetRange], options: ReadOptions) -> Sequence[InputPartition]:
    """Divide records among tasks."""
    parts = offsets.split(ranges, options.min_partitions, options.max_records_per_partition)
    return [RangePartition(one) for one in parts]


def report_loss(texts: Iterable[str], options: ReadOptions) -> None:
    """Raise DataLoss, or log the losses with failOnDataLoss=false."""
    found = list(texts)
    if found and options.fail_on_data_loss:
        hint = "To continue without them, set failOnDataLoss=false (in an application: --allow-loss)"
        raise DataLoss(f"{'; '.join(found)}. {hint}")
    for text in found:
        logger.warning("%s", text)


def beyond_end(wanted: Mapping[TopicPartition, int], available: Mapping[TopicPartition, PartitionOffsets]) -> list[str]:
    """Describe the offsets that are beyond the end of their partitions."""
    return [
        f"partition {partition} of '{topic}' ends at {available[topic, partition].next}, before {at}: its last records "
        "were lost, or the topic was recreated"
        for (topic, partition), at in sorted(wanted.items())
        if (topic, partition) in available and available[topic, partition].next < at
    ]


# -- in tasks -----------------------------------------------------------------------------------------------


def fetch(client: "Client", range_: OffsetRange, columns: Sequence[str]) -> Iterator["pa.RecordBatch"]:
    """Fetch the records of a range that was planned before. Records that were removed since are left out.

    If the partition ends before the range, a former leader answered, or the topic was recreated: retry for a while.
    """
    start, until_s = range_.start, time.monotonic() + STALE_LEADER_S
    while True:
        for batch in client.iter_arrow(
            range_.topic,
            partitions=[range_.partition],
            start={range_.partition: start},
            end={range_.partition: range_.end},
            columns=columns,
            on_gone="earliest",
        ):
            if batch.num_rows:
                start = batch.column("offset")[-1].as_py() + 1
                yield batch
        if start >= range_.end or time.monotonic() > until_s:
            return
        first = {one.index: one.first_offset for one in client.topics.offsets(range_.topic)}
        if first.get(range_.partition, range_.end) >= range_.end:
            return  # the whole range was removed
        time.sleep(_RETRY_S)


def read(options: ReadOptions, partition: InputPartition) -> Iterator["pa.RecordBatch"]:
    """Fetch the records of a task as Spark columns. Raises DataLoss if some are missing and failOnDataLoss is set."""
    from flotilla import TopicMissing  # noqa: PLC0415 - see `connect`
    from pyspark_flotilla.columns import convert, fetched_columns  # noqa: PLC0415

    if not isinstance(partition, RangePartition):
        return  # Spark runs one task even if there are no partitions
    range_, count = partition.range, 0
    with connect(options.connection) as client:
        try:
            for batch in fetch(client, range_, fetched_columns(include_headers=options.include_headers)):
                count += batch.num_rows
                yield convert(batch)
        except TopicMissing:
            if options.fail_on_data_loss:
                raise
    if count < range_.count:
        text = (
            f"{range_.count - count} of the records {range_.start} to {range_.end - 1} of partition {range_.partition} "
            f"of '{range_.topic}' are missing: they were removed, or the topic was recreated"
        )
        report_loss([text], options)


# -- interfaces of Spark ------------------------------------------------------------------------------------


class BatchReader(DataSourceReader):
    """Reads the records that exist when the query starts."""

    def __init__(self, options: ReadOptions) -> None:
        self._options = options

    def partitions(self) -> Sequence[InputPartition]:
        """Plan the tasks. Retries while offsets are beyond the end, because a former leader may have answered."""
        options = self._options
        with connect(options.connection) as client:

            def at_timestamp(topic: str, ms: int) -> Mapping[int, int]:
                return offsets_at_timestamp(client, topic, ms)

            until_s = time.monotonic() + STALE_LEADER_S
            while True:
                available = list_offsets(client, options)
                starts = offsets.resolve(options.start, available, at_timestamp)
                ends = offsets.resolve(options.end, available, at_timestamp)
                lost = [*beyond_end(starts, available), *beyond_end(ends, available)]
                if not lost or time.monotonic() > until_s:
                    break
                time.sleep(_RETRY_S)
        report_loss(lost, options)
        ranges = [
            OffsetRange(*tp, start, max(start, min(ends[tp], available[tp].next)))
            for tp, start in sorted(starts.items())
        ]
        return plan_tasks(ranges, options)

    def read(self, partition: InputPartition) -> Iterator["pa.RecordBatch"]:
        """Fetch the records of a task."""
        return read(self._options, partition)


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads micro-batches. New partitions are read from their first offset.

    The first micro-batch is empty, so that the checkpoint has the starting offsets of the query. Spark stores the end
    of each micro-batch only, and calls `initialOffset` again if the first one is repeated; by then, `earliest` and
    `latest` can be other offsets.
    """

    def __init__(self, options: ReadOptions) -> None:
        self._options = options
        self._client: Client | None = None
        self._refreshed_s = 0.0
        self._available: dict[TopicPartition, PartitionOffsets] = {}  # as of the last refresh
        self._initial: dict[TopicPartition, int] | None = None
        self._is_new = True  # until the first micro-batch, or a repeated one, was planned
        self._reported: set[str] = set()  # losses that are logged already
        self._stop_at: dict[TopicPartition, int] | None = None  # end of a query with trigger(availableNow=True)

    def __getstate__(self) -> dict[str, Any]:
        """Leave the client out of the pickle: a task opens its own connections."""
        return {**self.__dict__, "_client": None}

    def _connect(self) -> "Client":
        if self._client is None:
            self._client = connect(self._options.connection)
        return self._client

    def _refresh(self, *, allow_missing: bool = True) -> dict[TopicPartition, PartitionOffsets]:
        time.sleep(max(0.0, self._refreshed_s + POLL_S_MIN - time.monotonic()))
        self._available = list_offsets(self._connect(), self._options, allow_missing=allow_missing)
        self._refreshed_s = time.monotonic()
        return self._available

    def initialOffset(self) -> Offsets:  # noqa: N802 - Spark's name
        """Return the starting offsets of a query without a checkpoint."""
        available = self._refresh(allow_missing=False)

        def at_timestamp(topic: str, ms: int) -> Mapping[int, int]:
            return offsets_at_timestamp(self._connect(), topic, ms)

        self._initial = offsets.resolve(self._options.start, available, at_timestamp)
        return offsets.to_json(self._initial)

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """Return the maximum size of a micro-batch."""
        records_max = self._options.max_offsets_per_trigger
        return ReadAllAvailable() if records_max is None else ReadMaxRows(records_max)

    def latestOffset(self, start: Offsets, limit: ReadLimit) -> Offsets:  # noqa: N802
        """Return the end of the next micro-batch."""
        start_at = offsets.from_json(start)
        is_first, self._is_new = self._is_new and start_at == self._initial, False
        if is_first:
            return offsets.to_json(start_at)
        available = self._refresh_past(start_at)
        self._check_losses(start_at, available)
        records_max = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        return offsets.to_json(offsets.plan_end(start_at, available, self._stop_at, records_max))

    def _refresh_past(self, start_at: Mapping[TopicPartition, int]) -> dict[TopicPartition, PartitionOffsets]:
        """Refresh until no partition ends before `start_at`, or until only recreated topics explain it.

        Raises TopicMissing for a topic that never existed.
        """
        from flotilla import TopicMissing  # noqa: PLC0415 - see `connect`

        available, until_s = self._refresh(), time.monotonic() + STALE_LEADER_S
        while beyond_end(start_at, available) and time.monotonic() < until_s:
            available = self._refresh()
        seen = {topic for topic, _ in (*available, *start_at)}
        for name in self._options.subscription.topics:
            if name not in seen:
                raise TopicMissing(f"topic '{name}' does not exist", "not_found", {})
        return available

    def _check_losses(
        self, start_at: Mapping[TopicPartition, int], available: Mapping[TopicPartition, PartitionOffsets]
    ) -> None:
        """Report partitions that disappeared or were recreated, each once."""
        missing = sorted(set(start_at) - set(available))
        found = {
            f"partition {partition} of '{topic}' no longer exists, or is no longer selected"
            for topic, partition in missing
        } | set(beyond_end(start_at, available))
        report_loss(sorted(found - self._reported), self._options)
        self._reported = found

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Fix the end of a query with trigger(availableNow=True)."""
        self._stop_at = {tp: one.next for tp, one in self._refresh().items()}

    def reportLatestOffset(self) -> Offsets:  # noqa: N802
        """Return the ends of all partitions as of the last plan, for the progress of the query."""
        return offsets.to_json({tp: one.next for tp, one in self._available.items()})

    def partitions(self, start: Offsets, end: Offsets) -> Sequence[InputPartition]:
        """Plan the tasks of a micro-batch. The plan depends on the offsets alone, because a micro-batch can repeat."""
        self._is_new = False
        start_at = offsets.from_json(start)
        ends = sorted(offsets.from_json(end).items())
        ranges = [OffsetRange(*tp, start_at[tp], at) for tp, at in ends if tp in start_at]
        return plan_tasks(ranges, self._options)

    def read(self, partition: InputPartition) -> Iterator["pa.RecordBatch"]:
        """Fetch the records of a task."""
        return read(self._options, partition)

    def stop(self) -> None:
        """Close the client."""
        client, self._client = self._client, None
        if client is not None:
            client.close()
