"""Readers: the driver finds out which records a query is about, and each task fetches its share from the brokers."""

import functools
import logging
import re
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
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

STALE_S = 5.0  # for which a broker may believe that it leads, and answer with what it had; brokers need 3
_AGAIN_S = 0.25
ASK_S_MIN = 0.05  # between two questions what there is: Spark asks a hundred times a second while nothing comes


class DataLoss(Exception):
    """Records that a query should read are not there any more."""


class Share(InputPartition):
    """What one task reads."""

    def __init__(self, span: Span) -> None:
        super().__init__(span)
        self.span = span


# -- on the driver ------------------------------------------------------------------------------------------


def find(client: "Client", options: ReadOptions, *, may_lack: bool = False) -> dict[Place, Bounds]:
    """Ask which partitions there are, and where each begins and ends. Raises OptionInvalid, TopicMissing.

    With `may_lack`, those that are not there are left out: a query that has begun looks at them by itself.
    """
    from flotilla.client.errors import NotAllowed, TopicMissing  # noqa: PLC0415 - what is pickled does not bring it along

    choice = options.choice
    names: Sequence[str] = choice.topics or sorted({topic for topic, _ in choice.places})
    if choice.pattern is not None:
        pattern = re.compile(choice.pattern)
        names = [one.name for one in client.topics.list() if pattern.fullmatch(one.name)]
    found: dict[Place, Bounds] = {}
    for name in names:
        try:
            found |= {
                (name, one.index): Bounds(one.first_offset, one.next_offset) for one in client.topics.offsets(name)
            }
        except TopicMissing:
            if not may_lack and choice.pattern is None:  # one that matched may have been removed a moment later
                raise
        except NotAllowed:
            if choice.pattern is None:
                raise
            _tell_once(f"topic '{name}' matches '{choice.pattern}', but this token may not read it: it is left out")
    missing = [f"{partition} of '{topic}'" for topic, partition in choice.places if (topic, partition) not in found]
    if missing and not may_lack:
        raise OptionInvalid(f"assign names partitions that are not there: {', '.join(missing)}")
    return {place: bounds for place, bounds in found.items() if not choice.places or place in choice.places}


@functools.cache
def _tell_once(text: str) -> None:
    logger.warning("%s", text)


def find_moment(client: "Client", topic: str, ms: int) -> dict[int, int]:
    """Ask where the records of a topic begin that were appended at a time or later; by partition."""
    found = client.topics.offsets(topic, at=ms)
    return {one.index: one.next_offset if one.offset is None else one.offset for one in found}


def share(spans: Iterable[Span], options: ReadOptions) -> Sequence[InputPartition]:
    """Share records out among tasks."""
    return [Share(one) for one in offsets.split(spans, options.min_partitions, options.max_records_per_partition)]


def lose(texts: Iterable[str], options: ReadOptions) -> None:
    """Tell what is not there. Raises DataLoss, unless a query does without."""
    found = list(texts)
    if found and options.fail_on_data_loss:
        hint = "With failOnDataLoss=false (an application: with --allow-loss) a query goes on without"
        raise DataLoss(f"{'; '.join(found)}. {hint}")
    for text in found:
        logger.warning("%s", text)


def behind_the_end(wanted: Mapping[Place, int], known: Mapping[Place, Bounds]) -> list[str]:
    """Tell of offsets that lie behind the end of their partitions."""
    return [
        f"partition {partition} of '{topic}' ends at {known[topic, partition].next}, before {at}: its last records are "
        "lost, or the topic was made anew"
        for (topic, partition), at in sorted(wanted.items())
        if (topic, partition) in known and known[topic, partition].next < at
    ]


# -- in tasks -----------------------------------------------------------------------------------------------


def fetch(client: "Client", span: Span, columns: Sequence[str]) -> Iterator["pa.RecordBatch"]:
    """Fetch records that were there when they were shared out; what was removed since is left out.

    Who says that there are fewer leads no more, and does not know it yet; or the topic was made anew.
    """
    start, until_s = span.start, time.monotonic() + STALE_S
    while True:
        for batch in client.iter_arrow(
            span.topic,
            partitions=[span.partition],
            start={span.partition: start},
            end={span.partition: span.end},
            columns=columns,
            on_gone="earliest",
        ):
            if batch.num_rows:
                start = batch.column("offset")[-1].as_py() + 1
                yield batch
        if start >= span.end or time.monotonic() > until_s:
            return
        there = {one.index: one.first_offset for one in client.topics.offsets(span.topic)}
        if there.get(span.partition, span.end) >= span.end:
            return  # all of it is gone
        time.sleep(_AGAIN_S)


def read(options: ReadOptions, partition: InputPartition) -> Iterator["pa.RecordBatch"]:
    """Fetch records, as Spark's columns. Raises DataLoss, unless a query does without what is gone."""
    from flotilla.client.errors import TopicMissing  # noqa: PLC0415 - what is pickled does not bring its modules along
    from pyspark_flotilla.columns import convert, wanted  # noqa: PLC0415

    if not isinstance(partition, Share):
        return  # where there is nothing to share out, Spark has one task nevertheless
    span, count = partition.span, 0
    with connect(options.where) as client:
        try:
            for batch in fetch(client, span, wanted(include_headers=options.include_headers)):
                count += batch.num_rows
                yield convert(batch)
        except TopicMissing:
            if options.fail_on_data_loss:
                raise
    if count < span.count:
        text = (
            f"{span.count - count} of the records {span.start} to {span.end - 1} of partition {span.partition} of "
            f"'{span.topic}' are not there: they were removed, or the topic was made anew"
        )
        lose([text], options)


# -- what Spark calls ---------------------------------------------------------------------------------------


class BatchReader(DataSourceReader):
    """Reads what is there when the query begins."""

    def __init__(self, options: ReadOptions) -> None:
        self._options = options

    def partitions(self) -> Sequence[InputPartition]:
        """Share the records out."""
        options = self._options
        with connect(options.where) as client:

            def moment(topic: str, ms: int) -> Mapping[int, int]:
                return find_moment(client, topic, ms)

            until_s = time.monotonic() + STALE_S
            while True:
                known = find(client, options)
                starts = offsets.resolve(options.start, known, moment)
                ends = offsets.resolve(options.end, known, moment)
                lost = [*behind_the_end(starts, known), *behind_the_end(ends, known)]
                if not lost or time.monotonic() > until_s:
                    break
                time.sleep(_AGAIN_S)
        lose(lost, options)
        spans = [
            Span(*place, start, max(start, min(ends[place], known[place].next)))
            for place, start in sorted(starts.items())
        ]
        return share(spans, options)

    def read(self, partition: InputPartition) -> Iterator["pa.RecordBatch"]:
        """Fetch a share, in a task."""
        return read(self._options, partition)


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads what comes, one micro-batch after the other. Partitions that are new are read from their beginning.

    The first one is empty: it has Spark write down where the query begins. Spark keeps where micro-batches end, and
    asks anew for the start of the first if that is run again, when `earliest` or `latest` may be something else.
    """

    def __init__(self, options: ReadOptions) -> None:
        self._options = options
        self._client: Client | None = None
        self._asked_at = 0.0
        self._known: dict[Place, Bounds] = {}  # as it was when last asked for
        self._initial: dict[Place, int] | None = None
        self._is_new = True  # until the first micro-batch, or one that is run again, was planned
        self._told: set[str] = set()  # losses that a query goes on without
        self._until: dict[Place, int] | None = None  # where a query ends that reads what is available now

    def __getstate__(self) -> dict[str, Any]:
        """Be sent to a task, which has connections of its own."""
        return {**self.__dict__, "_client": None}

    def _connect(self) -> "Client":
        if self._client is None:
            self._client = connect(self._options.where)
        return self._client

    def _ask(self, *, may_lack: bool = True) -> dict[Place, Bounds]:
        time.sleep(max(0.0, self._asked_at + ASK_S_MIN - time.monotonic()))
        self._known = find(self._connect(), self._options, may_lack=may_lack)
        self._asked_at = time.monotonic()
        return self._known

    def initialOffset(self) -> Offsets:  # noqa: N802 - Spark's name
        """Tell where a query begins that has no checkpoint."""
        known = self._ask(may_lack=False)

        def moment(topic: str, ms: int) -> Mapping[int, int]:
            return find_moment(self._connect(), topic, ms)

        self._initial = offsets.resolve(self._options.start, known, moment)
        return offsets.to_json(self._initial)

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """Tell how much a micro-batch takes."""
        most = self._options.max_offsets_per_trigger
        return ReadAllAvailable() if most is None else ReadMaxRows(most)

    def latestOffset(self, start: Offsets, limit: ReadLimit) -> Offsets:  # noqa: N802
        """Tell where the next micro-batch ends."""
        begun = offsets.from_json(start)
        is_first, self._is_new = self._is_new and begun == self._initial, False
        if is_first:
            return offsets.to_json(begun)
        known = self._look(begun)
        self._look_for_losses(begun, known)
        most = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        return offsets.to_json(offsets.advance(begun, known, self._until, most))

    def _look(self, begun: Mapping[Place, int]) -> dict[Place, Bounds]:
        """Ask what there is. Raises TopicMissing for a topic that was never there.

        Where a partition ends before what was read of it, it was made anew; or somebody answers who leads no more,
        which passes.
        """
        from flotilla.client.errors import TopicMissing  # noqa: PLC0415 - as above

        known, until_s = self._ask(), time.monotonic() + STALE_S
        while behind_the_end(begun, known) and time.monotonic() < until_s:
            known = self._ask()
        there = {topic for topic, _ in (*known, *begun)}
        for name in self._options.choice.topics:
            if name not in there:
                raise TopicMissing(f"there is no topic '{name}'", "not_found", {})
        return known

    def _look_for_losses(self, begun: Mapping[Place, int], known: Mapping[Place, Bounds]) -> None:
        """See that what a query has read is still of the same topics, and tell each loss once."""
        lost = [f"partition {partition} of '{topic}'" for topic, partition in sorted(set(begun) - set(known))]
        found = {f"{one} is not there any more, or not chosen any more" for one in lost} | set(
            behind_the_end(begun, known)
        )
        lose(sorted(found - self._told), self._options)
        self._told = found

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Note where a query ends that reads what is available now."""
        self._until = {place: bounds.next for place, bounds in self._ask().items()}

    def reportLatestOffset(self) -> Offsets:  # noqa: N802
        """Tell what there was when the micro-batch was planned, for the query's progress."""
        return offsets.to_json({place: bounds.next for place, bounds in self._known.items()})

    def partitions(self, start: Offsets, end: Offsets) -> Sequence[InputPartition]:
        """Share a micro-batch out: in the same way whenever it is asked for, as it may be run again."""
        self._is_new = False
        begun = offsets.from_json(start)
        ends = sorted(offsets.from_json(end).items())
        spans = [Span(*place, begun[place], at) for place, at in ends if place in begun]
        return share(spans, self._options)

    def read(self, partition: InputPartition) -> Iterator["pa.RecordBatch"]:
        """Fetch a share, in a task."""
        return read(self._options, partition)

    def stop(self) -> None:
        """Hang up."""
        client, self._client = self._client, None
        if client is not None:
            client.close()
