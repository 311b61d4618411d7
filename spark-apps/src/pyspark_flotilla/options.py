"""The options of `spark.read.format("flotilla")` and its kin: those of Kafka's source, read and checked. Pure.

Whoever comes from Kafka changes the name of the format and the address: `kafka.bootstrap.servers` may stay what it is
called. Other options of Kafka's clients mean nothing here, and are ignored with a warning. Whatever else is not known
is refused by name, because a misspelt option would otherwise be a silent one.
"""

import difflib
import json
import logging
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

logger = logging.getLogger("pyspark_flotilla")

EARLIEST, LATEST = -2, -1  # as Kafka's source writes them
_ADDRESS = "kafka.bootstrap.servers"
_FOREIGN = "kafka."
_TUNING = ("groupidprefix", "fetchoffset.", "kafkaconsumer.")  # of Kafka's clients as well, by other names
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

Place = tuple[str, int]


class OptionInvalid(ValueError):
    """An option is missing, unknown, or means nothing. The text names it, and says what it may be."""


@dataclass(frozen=True)
class Moment:
    """A time, in milliseconds since 1970, that stands for the first offset from then on."""

    ms: int


Edge = int | Moment  # an offset, EARLIEST, LATEST, or a time


@dataclass(frozen=True)
class Edges:
    """Where to begin, or to end: for each partition that is named, and for all others."""

    others: Edge
    named: Mapping[Place, Edge] = field(default_factory=dict)
    covers_all: bool = True  # whether partitions that are not named have an edge, too

    def of(self, place: Place) -> Edge:
        """Give that of a partition; raises OptionInvalid."""
        if place not in self.named and not self.covers_all:
            raise OptionInvalid(f"offsets are given by partition, and none for partition {place[1]} of '{place[0]}'")
        return self.named.get(place, self.others)


@dataclass(frozen=True)
class Where:
    """The system, and who asks."""

    url: str | None = None
    token: str | None = field(default=None, repr=False)
    token_file: str | None = None
    ca: str | None = None
    route: str = "auto"


@dataclass(frozen=True)
class Choice:
    """Which partitions: of topics by name, by a pattern, or one by one. Exactly one of these is given."""

    topics: tuple[str, ...] = ()
    pattern: str | None = None
    places: tuple[Place, ...] = ()


@dataclass(frozen=True)
class ReadOptions:
    """What is read."""

    where: Where
    choice: Choice
    start: Edges
    end: Edges = Edges(LATEST)
    fail_on_data_loss: bool = True
    include_headers: bool = False
    min_partitions: int | None = None
    max_records_per_partition: int | None = None
    max_offsets_per_trigger: int | None = None


@dataclass(frozen=True)
class WriteOptions:
    """Where rows go. Without a topic, each row names its own."""

    where: Where
    topic: str | None = None
    include_headers: bool = True
    compression: str = "auto"
    run_id: str | None = None  # of a batch: whoever writes the same rows again under it stores nothing twice


def read_options(options: Mapping[str, str], *, is_stream: bool) -> ReadOptions:
    """Read the options of a reader; raises OptionInvalid."""
    allowed = (*_COMMON, *_READ, *(_STREAM if is_stream else _BATCH))
    refused = {
        **dict.fromkeys(_BATCH if is_stream else _STREAM, f"is for {'batch' if is_stream else 'streaming'} queries"),
        **dict.fromkeys(set(_WRITE) - {"includeHeaders"}, "is for writing"),
    }
    given = _Given(options, allowed, refused)
    return ReadOptions(
        where=_read_where(given),
        choice=_read_choice(given),
        start=_read_edges(given, "starting", EARLIEST if not is_stream else LATEST, LATEST if not is_stream else None),
        end=_read_edges(given, "ending", LATEST, EARLIEST) if not is_stream else Edges(LATEST),
        fail_on_data_loss=given.flag("failOnDataLoss", default=True),
        include_headers=given.flag("includeHeaders", default=False),
        min_partitions=given.count("minPartitions"),
        max_records_per_partition=given.count("maxRecordsPerPartition"),
        max_offsets_per_trigger=given.count("maxOffsetsPerTrigger") if is_stream else None,
    )


def write_options(options: Mapping[str, str], *, is_stream: bool) -> WriteOptions:
    """Read the options of a writer; raises OptionInvalid."""
    refused = dict.fromkeys((*_READ, *_BATCH, *_STREAM), "is for reading")
    given = _Given(options, (*_COMMON, *_WRITE), refused)
    run_id = given.text("runId")
    if run_id is not None and is_stream:
        raise OptionInvalid("the option runId is for batches: a stream is known by its checkpoint")
    if run_id is not None and len(run_id) > _RUN_ID_MAX:
        raise OptionInvalid(f"runId has {len(run_id)} characters; it may have {_RUN_ID_MAX}")
    compression = given.text("compression") or "auto"
    if compression not in {"none", "zstd", "auto"}:
        raise OptionInvalid(f"compression is '{compression}'; it must be none, zstd or auto")
    return WriteOptions(
        where=_read_where(given),
        topic=_read_topic(given),
        include_headers=given.flag("includeHeaders", default=True),
        compression=compression,
        run_id=run_id,
    )


def _read_topic(given: "_Given") -> str | None:
    topic, path = given.text("topic"), given.text("path")
    if topic is not None and path is not None:
        raise OptionInvalid("topic and save(topic) are two names of one thing: give one of them")
    return topic or path


class _Given:
    """What a user has given, whose names are the same in capitals and small letters."""

    def __init__(self, options: Mapping[str, str], allowed: tuple[str, ...], refused: Mapping[str, str]) -> None:
        self._values = {name.lower(): str(value).strip() for name, value in options.items()}
        known = {name.lower() for name in allowed}
        reasons = {name.lower(): (name, why) for name, why in refused.items()}
        for name in options:
            small = name.lower()
            if small in known or small == _ADDRESS:
                continue
            if small.startswith((_FOREIGN, *_TUNING)):
                logger.warning("the option %s is of Kafka's clients, and means nothing here", name)
            elif small in reasons:
                raise OptionInvalid(f"the option {reasons[small][0]} {reasons[small][1]}")
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
            raise OptionInvalid(f"{name} is '{text}'; it must be a number from 1 on")
        return int(text)


def _unknown(name: str, allowed: tuple[str, ...]) -> str:
    near = difflib.get_close_matches(name.lower(), [one.lower() for one in allowed], 1)
    meant = next((one for one in allowed if near and one.lower() == near[0]), None)
    hint = f"; did you mean {meant}?" if meant is not None else f"; there are {', '.join(allowed)}"
    return f"there is no option {name}{hint}"


def _read_where(given: _Given) -> Where:
    url, servers = given.text("url"), given.text(_ADDRESS)
    if url is not None and servers is not None:
        raise OptionInvalid(f"url and {_ADDRESS} are two names of one thing: give one of them")
    found = url or servers
    if found is not None:
        parts = [part.strip() for part in found.split(",") if part.strip()]
        found = ",".join(part if "://" in part else f"http://{part}" for part in parts)
    route = given.text("route") or "auto"
    if route not in {"auto", "direct", "gateway"}:
        raise OptionInvalid(f"route is '{route}'; it must be auto, direct or gateway")
    if given.text("token") is not None and given.text("tokenFile") is not None:
        raise OptionInvalid("token and tokenFile are two ways to give one thing: give one of them")
    return Where(found, given.text("token"), given.text("tokenFile"), given.text("ca"), route)


def _read_choice(given: _Given) -> Choice:
    ways = {"subscribe": given.text("subscribe"), "assign": given.text("assign")}
    ways |= {"subscribePattern": given.text("subscribePattern"), "path": given.text("path")}
    (way, text), *more = [one for one in ways.items() if one[1]] or [("", "")]
    if more or not text:
        raise OptionInvalid("say which topics: give exactly one of subscribe, subscribePattern, assign, or load(topic)")
    if way in {"subscribe", "path"}:
        names = tuple(dict.fromkeys(part.strip() for part in text.split(",") if part.strip()))
        if not names:
            raise OptionInvalid(f"{'load(topic)' if way == 'path' else way} is '{text}', which names no topic")
        return Choice(topics=names)
    if way == "subscribePattern":
        try:
            re.compile(text)
        except re.error as error:
            raise OptionInvalid(f"subscribePattern is '{text}', which is no regular expression: {error}") from error
        return Choice(pattern=text)
    return Choice(places=_read_places(text))


def _read_places(text: str) -> tuple[Place, ...]:
    found = _read_json(text, "assign", '{"orders": [0, 1]}')
    for name, numbers in found.items():
        if not isinstance(numbers, list) or not numbers or not all(_is_count(one) for one in numbers):
            raise OptionInvalid(f"assign says of '{name}' {numbers!r}; it must be a list of partitions, as in [0, 1]")
    return tuple(sorted({(name, number) for name, numbers in found.items() for number in numbers}))


def _read_edges(given: _Given, side: str, default: int, forbidden: int | None) -> Edges:
    """Read one side. As in Kafka's source, a time for all wins over times by partition, and these over offsets."""
    for_all, by_time = given.text(f"{side}Timestamp"), given.text(f"{side}OffsetsByTimestamp")
    if for_all is not None:
        if not for_all.isdecimal():
            raise OptionInvalid(f"{side}Timestamp is '{for_all}'; it must be milliseconds since 1970")
        return Edges(Moment(int(for_all)))
    if by_time is not None:
        times = _read_numbers(by_time, f"{side}OffsetsByTimestamp", 0)
        return Edges(default, {place: Moment(ms) for place, ms in times.items()}, covers_all=False)
    text = given.text(f"{side}Offsets")
    if text is None:
        return Edges(default)
    if text.lower() in _NAMES:
        edges = Edges(_NAMES[text.lower()])
    else:
        edges = Edges(default, _read_numbers(text, f"{side}Offsets", EARLIEST), covers_all=False)
    if forbidden is not None and forbidden in {edges.others if not edges.named else None, *edges.named.values()}:
        name = "latest" if forbidden == LATEST else "earliest"
        raise OptionInvalid(f"{side}Offsets must not be {name} ({forbidden}) in a batch: nothing would be read")
    return edges


def _read_numbers(text: str, option: str, least: int) -> dict[Place, int]:
    example = '{"orders": {"0": 23, "1": -2}}'
    found = _read_json(text, option, f"earliest, latest or {example}" if least < 0 else example)
    numbers: dict[Place, int] = {}
    for topic, by_partition in found.items():
        if not isinstance(by_partition, dict):
            raise OptionInvalid(f"{option} says of '{topic}' {by_partition!r}; it must be as in {example}")
        for partition, number in by_partition.items():
            is_number = isinstance(number, int) and not isinstance(number, bool) and number >= least
            if not partition.isdecimal() or not is_number:
                raise OptionInvalid(f"{option} says {partition}: {number!r} of '{topic}'; it must be as in {example}")
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
