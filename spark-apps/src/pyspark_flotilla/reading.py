"""Readers: the driver finds out which records a query is about, and each task fetches its share from the brokers."""

import logging
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow

from pyspark_flotilla import offsets
from pyspark_flotilla.connecting import connect
from pyspark_flotilla.offsets import Bounds, Offsets, Span
from pyspark_flotilla.options import OptionInvalid, Place, ReadOptions

if TYPE_CHECKING:
    import pyarrow as pa

    from flotilla import Client

logger = logging.getLogger("pyspark_flotilla")


class DataLoss(Exception):
    """Records that a query should read are not there any more."""


class Share(InputPartition):
    """What one task reads."""

    def __init__(self, span: Span) -> None:
        super().__init__(span)
        self.span = span


def find(client: "Client", options: ReadOptions) -> dict[Place, Bounds]:
    """Ask which partitions there are, and where each begins and ends."""
    choice = options.choice
    names: Sequence[str] = choice.topics or sorted({topic for topic, _ in choice.places})
    if choice.pattern is not None:
        pattern = re.compile(choice.pattern)
        names = [one.name for one in client.topics.list() if pattern.fullmatch(one.name)]
    found = {
        (name, one.index): Bounds(one.first_offset, one.next_offset)
        for name in names
        for one in client.topics.offsets(name)
    }
    missing = [f"{partition} of '{topic}'" for topic, partition in choice.places if (topic, partition) not in found]
    if missing:
        raise OptionInvalid(f"assign names partitions that are not there: {', '.join(missing)}")
    return {place: bounds for place, bounds in found.items() if not choice.places or place in choice.places}


def read(options: ReadOptions, span: Span) -> Iterator["pa.RecordBatch"]:
    """Fetch records, as Spark's columns. Raises DataLoss, unless a query does without what is gone."""
    from pyspark_flotilla.columns import convert, wanted  # noqa: PLC0415 - only tasks need pyarrow

    must_be_whole = options.fail_on_data_loss and not span.may_begin_later
    count = 0
    with connect(options.where) as client:
        for batch in client.iter_arrow(
            span.topic,
            partitions=[span.partition],
            start={span.partition: span.start},
            end={span.partition: span.end},
            columns=wanted(include_headers=options.include_headers),
            on_gone="earliest",
        ):
            count += batch.num_rows
            yield convert(batch)
    if count == span.count:
        return
    text = (
        f"{span.count - count} of the records {span.start} to {span.end - 1} of partition {span.partition} of "
        f"'{span.topic}' are not there: they were removed, or the topic was made anew"
    )
    if must_be_whole:
        raise DataLoss(f"{text}. With failOnDataLoss=false a query goes on without them")
    logger.warning("%s", text)


class BatchReader(DataSourceReader):
    """Reads what is there when the query begins."""

    def __init__(self, options: ReadOptions) -> None:
        self._options = options

    def partitions(self) -> Sequence[InputPartition]:
        """Share the records out."""
        options = self._options
        with connect(options.where) as client:
            known = find(client, options)

            def moment(topic: str, ms: int) -> Mapping[int, int]:
                return {one.index: one.offset or 0 for one in client.topics.offsets(topic, at=ms)}

            starts = offsets.resolve(options.start, known, moment)
            ends = offsets.resolve(options.end, known, moment)
        spans = [Span(*place, start, max(start, ends[place])) for place, start in sorted(starts.items())]
        shares = offsets.split(spans, options.min_partitions, options.max_records_per_partition)
        return [Share(one) for one in shares]

    def read(self, partition: InputPartition) -> Iterator["pa.RecordBatch"]:
        """Fetch a share, in a task."""
        assert isinstance(partition, Share)  # noqa: S101 - Spark gives what `partitions` has made
        return read(self._options, partition.span)


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads what comes, one micro-batch after the other. Partitions that are new are read from their beginning."""

    def __init__(self, options: ReadOptions) -> None:
        self._options = options
        self._client: Client | None = None
        self._until: dict[Place, int] | None = None  # where a query ends that reads what is available now

    def __getstate__(self) -> dict[str, Any]:
        """Be sent to a task, which has connections of its own."""
        return {**self.__dict__, "_client": None}

    def _ask(self) -> dict[Place, Bounds]:
        if self._client is None:
            self._client = connect(self._options.where)
        return find(self._client, self._options)

    def initialOffset(self) -> Offsets:  # noqa: N802 - Spark's name
        """Tell where a query begins that has no checkpoint."""
        known = self._ask()

        def moment(topic: str, ms: int) -> Mapping[int, int]:
            assert self._client is not None  # noqa: S101
            return {one.index: one.offset or 0 for one in self._client.topics.offsets(topic, at=ms)}

        return offsets.to_json(offsets.resolve(self._options.start, known, moment))

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """Tell how much a micro-batch takes."""
        most = self._options.max_offsets_per_trigger
        return ReadAllAvailable() if most is None else ReadMaxRows(most)

    def latestOffset(self, start: Offsets | None = None, limit: ReadLimit | None = None) -> Offsets:  # noqa: N802
        """Tell where the next micro-batch ends."""
        begun = offsets.from_json(start or {})
        known = self._ask()
        self._check(begun, known)
        latest = {place: max(bounds.next, begun.get(place, 0)) for place, bounds in known.items()}
        if self._until is not None:
            latest = {place: max(begun.get(place, 0), at) for place, at in self._until.items()}
        most = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        if limit is None:
            most = self._options.max_offsets_per_trigger
        gone = {place: at for place, at in begun.items() if place not in latest}
        return offsets.to_json({**gone, **offsets.limit(begun, latest, most)})

    def _check(self, begun: Mapping[Place, int], known: Mapping[Place, Bounds]) -> None:
        """See that what a query has read is still of the same topics."""
        lost = [f"partition {partition} of '{topic}'" for topic, partition in begun if (topic, partition) not in known]
        short = [
            f"partition {partition} of '{topic}' ends at {known[topic, partition].next}, before {at}"
            for (topic, partition), at in begun.items()
            if (topic, partition) in known and known[topic, partition].next < at
        ]
        for text in [*(f"{one} is not there any more" for one in lost), *short]:
            if self._options.fail_on_data_loss:
                raise DataLoss(f"{text}. With failOnDataLoss=false a query goes on without it")
            logger.warning("%s", text)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Note where a query ends that reads what is available now."""
        self._until = {place: bounds.next for place, bounds in self._ask().items()}

    def reportLatestOffset(self) -> Offsets:  # noqa: N802
        """Tell what there is, for the query's progress."""
        return offsets.to_json({place: bounds.next for place, bounds in self._ask().items()})

    def partitions(self, start: Offsets, end: Offsets) -> Sequence[InputPartition]:
        """Share a micro-batch out."""
        begun = offsets.from_json(start)
        spans = [
            Span(*place, begun.get(place, 0), at, may_begin_later=place not in begun)
            for place, at in sorted(offsets.from_json(end).items())
        ]
        options = self._options
        shares = offsets.split(spans, options.min_partitions, options.max_records_per_partition)
        return [Share(one) for one in shares]

    def read(self, partition: InputPartition) -> Iterator["pa.RecordBatch"]:
        """Fetch a share, in a task."""
        assert isinstance(partition, Share)  # noqa: S101 - Spark gives what `partitions` has made
        return read(self._options, partition.span)

    def stop(self) -> None:
        """Hang up."""
        if self._client is not None:
            self._client.close()
            self._client = None
