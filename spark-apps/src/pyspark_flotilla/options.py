"""Options of `spark.read.format("flotilla")`, readStream, write and writeStream: parsing and validation. Pure.

The options are those of Spark's Kafka source, so that a job can be ported by changing the format name and the address.
`kafka.bootstrap.servers` is accepted as the address. Other options of Kafka clients are ignored with a warning. Any
other unknown option is an error, so that a misspelt option is not ignored.
"""

import difflib
import json
import logging
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from flotilla.limits import COMPRESSIONS, PRODUCER_COMPRESSIONS

logger = logging.getLogger("pyspark_flotilla")

EARLIEST, LATEST = -2, -1  # as in Spark's Kafka source
_ADDRESS = "kafka.bootstrap.servers"
_FOREIGN = "kafka."
_TUNING = ("groupidprefix", "fetchoffset.", "kafkaconsumer.")  # options of Kafka clients with another prefix
_NAMES = {"earliest": EARLIEST, "latest": LATEST}

_COMMON = ("url", "token", "tokenFile", "ca", "route", "path")
_READ = (
    "subscribe",
    "assign",
    "subscribePattern",
    "startingOffsets",
    "startingTimestamp",
    "startingOffsetsByTimestamp",
    "failOnDataLoss",
    "includeHeaders",
    "minPartitions",
    "maxRecordsPerPartition",
)
_BATCH = ("endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp")
_STREAM = ("maxOffsetsPerTrigger",)
_WRITE = ("topic", "includeHeaders", "compression", "runId", "checkpointLocation", "queryName")
_RUN_ID_MAX = 300

TopicPartition = tuple[str, int]


class OptionInvalid(ValueError):
    """An option is missing, unknown or invalid. The message names the option and the allowed values."""


@dataclass(frozen=True)
class AtTimestamp:
    """The first offset at or after a timestamp in milliseconds since 1970."""

    ms: int


OffsetSpec = int | AtTimestamp  # an offset, EARLIEST, LATEST, or a timestamp


@dataclass(frozen=True)
class OffsetSpecs:
    """Starting or ending offsets: by partition, and a default for partitions that are not named."""

    default: OffsetSpec
    by_partition: Mapping[TopicPartition, OffsetSpec] = field(default_factory=dict)
    has_default: bool = True  # if False, all partitions must be named

    def of(self, tp: TopicPartition) -> OffsetSpec:
        """Return the spec of a partition; raises OptionInvalid if it has none."""
        if tp not in self.by_partition and not self.has_default:
            raise OptionInvalid(f"offsets must name all partitions; partition {tp[1]} of '{tp[0]}' is missing")
        return self.by_partition.get(tp, self.default)


@dataclass(frozen=True)
class Connection:
    """Address of the cluster, and credentials."""

    url: str | None = None
    token: str | None = field(default=None, repr=False)
    token_file: str | None = None
    ca: str | None = None
    route: str = "auto"


@dataclass(frozen=True)
class Subscription:
    """Selected topics: by name, by pattern, or partition by partition. Exactly one of the fields is set."""

    topics: tuple[str, ...] = ()
    pattern: str | None = None
    partitions: tuple[TopicPartition, ...] = ()


@dataclass(frozen=True)
class ReadOptions:
    """Options of a read."""

    connection: Connection
    subscription: Subscription
    start: OffsetSpecs
    end: OffsetSpecs = OffsetSpecs(LATEST)
    fail_on_data_loss: bool = True
    include_headers: bool = False
    min_partitions: int | None = None
    max_records_per_partition: int | None = None
    max_offsets_per_trigger: int | None = None


@dataclass(frozen=True)
class WriteOptions:
    """Options of a write. Without a topic, each row names its own."""

    connection: Connection
    topic: str | None = None
    include_headers: bool = True
    compression: str = "auto"
    run_id: str | None = None  # repeating a batch write with the same run_id and rows stores nothing twice


def read_options(options: Mapping[str, str], *, is_stream: bool) -> ReadOptions:
    """Parse the options of a reader; raises OptionInvalid."""
    allowed = (*_COMMON, *_READ, *(_STREAM if is_stream else _BATCH))
    rejected = {
        **dict.fromkeys(
            _BATCH if is_stream else _STREAM, f"applies to {'batch' if is_stream else 'streaming'} queries only"
        ),
        **dict.fromkeys(set(_WRITE) - {"includeHeaders"}, "applies to writes only"),
    }
    given = _RawOptions(options, allowed, rejected)
    return ReadOptions(
        connection=_read_connection(given),
        subscription=_read_subscription(given),
        start=_read_offset_specs(given, "starting", LATEST, None)
        if is_stream
        else _read_offset_specs(given, "starting", EARLIEST, LATEST),
        end=_read_offset_specs(given, "ending", LATEST, EARLIEST) if not is_stream else OffsetSpecs(LATEST),
        fail_on_data_loss=given.flag("failOnDataLoss", default=True),
        include_headers=given.flag("includeHeaders", default=False),
        min_partitions=given.count("minPartitions"),
        max_records_per_partition=given.count("maxRecordsPerPartition"),
        max_offsets_per_trigger=given.count("maxOffsetsPerTrigger") if is_stream else None,
    )


def write_options(options: Mapping[str, str], *, is_stream: bool) -> WriteOptions:
    """Parse the options of a writer; raises OptionInvalid."""
    rejected = dict.fromkeys((*_READ, *_BATCH, *_STREAM), "applies to reads only")
    given = _RawOptions(options, (*_COMMON, *_WRITE), rejected)
    run_id = given.text("runId")
    if run_id is not None and is_stream:
        raise OptionInvalid("option runId applies to batch writes only: a stream is identified by its checkpoint")
    if run_id is not None and len(run_id) > _RUN_ID_MAX:
        raise OptionInvalid(f"runId has {len(run_id)} characters; the maximum is {_RUN_ID_MAX}")
    compression = given.text("compression") or "auto"
    if compression not in PRODUCER_COMPRESSIONS:
        raise OptionInvalid(f"compression is '{compression}'; it must be {', '.join(COMPRESSIONS)} or auto")
    return WriteOptions(
        connection=_read_connection(given),
        topic=_read_topic(given),
        include_headers=given.flag("includeHeaders", default=True),
        compression=compression,
        run_id=run_id,
    )


def _read_topic(given: "_RawOptions") -> str | None:
    topic, path = given.text("topic"), given.text("path")
    if topic is not None and path is not None:
        raise OptionInvalid("topic and save(topic) are exclusive: set one of them")
    return topic or path


class _RawOptions:
    """Options as given, with case-insensitive names. Rejects unknown names."""

    def __init__(self, options: Mapping[str, str], allowed: tuple[str, ...], rejected: Mapping[str, str]) -> None:
        self._values = {name.lower(): str(value).strip() for name, value in options.items()}
        known = {name.lower() for name in allowed}
        reasons = {name.lower(): (name, why) for name, why in rejected.items()}
        for name in options:
            lower = name.lower()
            if lower in known or lower == _ADDRESS:
                continue
            if lower.startswith((_FOREIGN, *_TUNING)):
                logger.warning("ignored an option of Kafka clients: option=%s", name)
            elif lower in reasons:
                raise OptionInvalid(f"option {reasons[lower][0]} {reasons[lower][1]}")
            else:
                raise OptionInvalid(_unknown(name, allowed))

    def text(self, name: str) -> str | None:
        return self._values.get(name.lower()) or None

    def flag(self, name: str, *, default: bool) -> bool:
        text = (self.text(name) or str(default)).lower()
        if text not in {"true", "false"}:
            raise OptionInvalid(f"{name} is '{text}'; it must be true or false")
        return text == "true"

    def count(self, name: str) -> int | None:
        text = self.text(name)
        if text is None:
            return None
        if not text.isdecimal() or int(text) < 1:
            raise OptionInvalid(f"{name} is '{text}'; it must be a number of at least 1")
        return int(text)


def _unknown(name: str, allowed: tuple[str, ...]) -> str:
    near = difflib.get_close_matches(name.lower(), [one.lower() for one in allowed], 1)
    meant = next((one for one in allowed if near and one.lower() == near[0]), None)
    hint = f"; did you mean {meant}?" if meant is not None else f"; known options: {', '.join(allowed)}"
    return f"unknown option {name}{hint}"


def _read_connection(given: _RawOptions) -> Connection:
    url, servers = given.text("url"), given.text(_ADDRESS)
    if url is not None and servers is not None:
        raise OptionInvalid(f"url and {_ADDRESS} are exclusive: set one of them")
    found = url or servers
    if found is not None:
        parts = [part.strip() for part in found.split(",") if part.strip()]
        found = ",".join(part if "://" in part else f"http://{part}" for part in parts)
    route = given.text("route") or "auto"
    if route not in {"auto", "direct", "gateway"}:
        raise OptionInvalid(f"route is '{route}'; it must be auto, direct or gateway")
    if given.text("token") is not None and given.text("tokenFile") is not None:
        raise OptionInvalid("token and tokenFile are exclusive: set one of them")
    return Connection(found, given.text("token"), given.text("tokenFile"), given.text("ca"), route)


def _read_subscription(given: _RawOptions) -> Subscription:
    ways = {"subscribe": given.text("subscribe"), "assign": given.text("assign")}
    ways |= {"subscribePattern": given.text("subscribePattern"), "path": given.text("path")}
    (way, text), *more = [one for one in ways.items() if one[1]] or [("", "")]
    if more or not text:
        raise OptionInvalid(
            "no unique topic selection: set exactly one of subscribe, subscribePattern, assign and load(topic)"
        )
    if way in {"subscribe", "path"}:
        names = tuple(dict.fromkeys(part.strip() for part in text.split(",") if part.strip()))
        if not names:
            raise OptionInvalid(f"{'load(topic)' if way == 'path' else way} is '{text}'; it must name a topic")
        return Subscription(topics=names)
    if way == "subscribePattern":
        try:
            re.compile(text)
        except re.error as error:
            raise OptionInvalid(f"subscribePattern is '{text}', which is not a regular expression: {error}") from error
        return Subscription(pattern=text)
    return Subscription(partitions=_read_partitions(text))


def _read_partitions(text: str) -> tuple[TopicPartition, ...]:
    found = _read_json(text, "assign", '{"orders": [0, 1]}')
    for name, numbers in found.items():
        if not isinstance(numbers, list) or not numbers or not all(_is_count(one) for one in numbers):
            raise OptionInvalid(f"assign is {numbers!r} for '{name}'; it must be a list of partitions, e.g. [0, 1]")
    return tuple(sorted({(name, number) for name, numbers in found.items() for number in numbers}))


def _read_offset_specs(given: _RawOptions, side: str, default: int, forbidden: int | None) -> OffsetSpecs:
    """Parse the options of one side, `starting` or `ending`.

    As in Spark's Kafka source, a timestamp for all partitions takes precedence over timestamps by partition, and these
    over offsets.
    """
    for_all, by_time = given.text(f"{side}Timestamp"), given.text(f"{side}OffsetsByTimestamp")
    if for_all is not None:
        if not for_all.isdecimal():
            raise OptionInvalid(f"{side}Timestamp is '{for_all}'; it must be milliseconds since 1970")
        return OffsetSpecs(AtTimestamp(int(for_all)))
    if by_time is not None:
        times = _read_numbers(by_time, f"{side}OffsetsByTimestamp", 0)
        return OffsetSpecs(default, {tp: AtTimestamp(ms) for tp, ms in times.items()}, has_default=False)
    text = given.text(f"{side}Offsets")
    if text is None:
        return OffsetSpecs(default)
    if text.lower() in _NAMES:
        specs = OffsetSpecs(_NAMES[text.lower()])
    else:
        specs = OffsetSpecs(default, _read_numbers(text, f"{side}Offsets", EARLIEST), has_default=False)
    used = set(specs.by_partition.values()) if specs.by_partition else {specs.default}
    if forbidden is not None and forbidden in used:
        name = "latest" if forbidden == LATEST else "earliest"
        raise OptionInvalid(f"{side}Offsets must not be {name} ({forbidden}) in a batch: nothing would be read")
    return specs


def _read_numbers(text: str, option: str, minimum: int) -> dict[TopicPartition, int]:
    example = '{"orders": {"0": 23, "1": -2}}'
    found = _read_json(text, option, f"earliest, latest or {example}" if minimum < 0 else example)
    numbers: dict[TopicPartition, int] = {}
    for topic, by_partition in found.items():
        if not isinstance(by_partition, dict):
            raise OptionInvalid(f"{option} is {by_partition!r} for '{topic}'; expected e.g. {example}")
        for partition, number in by_partition.items():
            is_number = isinstance(number, int) and not isinstance(number, bool) and number >= minimum
            if not partition.isdecimal() or not is_number:
                raise OptionInvalid(f"{option} is {partition}: {number!r} for '{topic}'; expected e.g. {example}")
            numbers[topic, int(partition)] = number
    return numbers


def _read_json(text: str, option: str, example: str) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except ValueError as error:
        raise OptionInvalid(f"{option} is '{text}'; it must be {example} ({error})") from error
    if not isinstance(found, dict) or not found:
        raise OptionInvalid(f"{option} is '{text}'; it must be {example}")
    return found


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0
