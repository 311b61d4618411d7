"""Options of the data source: those of Kafka's, read; what is unknown, or means nothing, is refused by name."""

import logging

import pytest

from pyspark_flotilla.options import (
    EARLIEST,
    LATEST,
    Choice,
    Edges,
    Moment,
    OptionInvalid,
    Where,
    read_options,
    write_options,
)

ORDERS = {"subscribe": "orders"}


def test_a_job_of_kafkas_changes_the_format_and_the_address(caplog: pytest.LogCaptureFixture) -> None:
    given = {"kafka.bootstrap.servers": "flotilla:80, other:80", "kafka.group.id": "x", **ORDERS}
    with caplog.at_level(logging.WARNING):
        options = read_options(given, is_stream=True)
    assert options.where.url == "http://flotilla:80,http://other:80"
    assert "kafka.group.id is of Kafka's clients, and means nothing here" in caplog.text


def test_names_are_the_same_in_capitals_and_small_letters() -> None:
    options = read_options({"SUBSCRIBE": "a, b,a", "startingoffsets": "LATEST"}, is_stream=True)
    assert options.choice == Choice(topics=("a", "b"))
    assert options.start == Edges(LATEST)


def test_batches_begin_at_the_beginning_and_streams_with_what_comes() -> None:
    assert read_options(ORDERS, is_stream=False).start == Edges(EARLIEST)
    assert read_options(ORDERS, is_stream=True).start == Edges(LATEST)


def test_where_the_system_is_and_who_asks() -> None:
    given = {"url": "https://x", "tokenFile": "/t", "ca": "/ca", "route": "gateway", **ORDERS}
    assert read_options(given, is_stream=False).where == Where("https://x", None, "/t", "/ca", "gateway")
    hidden = read_options({"token": "secret", **ORDERS}, is_stream=False)
    assert "secret" not in repr(hidden)


@pytest.mark.parametrize(
    ("given", "choice"),
    [
        ({"path": "orders"}, Choice(topics=("orders",))),
        ({"subscribePattern": "log-.*"}, Choice(pattern="log-.*")),
        ({"assign": '{"b": [1, 0], "a": [2]}'}, Choice(places=(("a", 2), ("b", 0), ("b", 1)))),
    ],
)
def test_topics_are_chosen_in_one_of_three_ways(given: dict[str, str], choice: Choice) -> None:
    assert read_options(given, is_stream=False).choice == choice


def test_a_time_for_all_wins_over_times_by_partition_and_these_over_offsets() -> None:
    given = {**ORDERS, "startingOffsets": '{"orders": {"0": 5, "1": -2}}'}
    edges = read_options(given, is_stream=True).start
    assert (edges.of(("orders", 0)), edges.of(("orders", 1))) == (5, EARLIEST)
    with pytest.raises(OptionInvalid, match="none for partition 2 of 'orders'"):
        edges.of(("orders", 2))
    given["startingOffsetsByTimestamp"] = '{"orders": {"0": 1000}}'
    assert read_options(given, is_stream=True).start.of(("orders", 0)) == Moment(1000)
    given["startingTimestamp"] = "2000"
    assert read_options(given, is_stream=True).start == Edges(Moment(2000))


@pytest.mark.parametrize(
    ("given", "is_stream", "message"),
    [
        ({}, False, "give exactly one of subscribe"),
        ({"subscribe": "a", "assign": '{"a": [0]}'}, False, "give exactly one of subscribe"),
        ({"subscribePattern": "("}, False, "which is no regular expression"),
        ({"assign": "a"}, False, "assign is 'a'; it must be"),
        ({"assign": '{"a": []}'}, False, "it must be a list of partitions"),
        ({"assign": '{"a": ["0"]}'}, False, "it must be a list of partitions"),
        (
            {**ORDERS, "startingOffset": "earliest"},
            False,
            "there is no option startingOffset; did you mean startingOffsets",
        ),
        ({**ORDERS, "x": "1"}, False, "there is no option x; there are url"),
        ({**ORDERS, "topic": "a"}, False, "the option topic is for writing"),
        ({**ORDERS, "maxOffsetsPerTrigger": "5"}, False, "is for streaming queries"),
        ({**ORDERS, "endingOffsets": "latest"}, True, "is for batch queries"),
        ({**ORDERS, "startingOffsets": "latest"}, False, "must not be latest"),
        ({**ORDERS, "startingOffsets": '{"orders": {"0": -1}}'}, False, "must not be latest"),
        ({**ORDERS, "endingOffsets": "earliest"}, False, "must not be earliest"),
        ({**ORDERS, "startingOffsets": "first"}, False, "must be earliest, latest or"),
        ({**ORDERS, "startingOffsets": '{"orders": {"0": -3}}'}, False, "it must be as in"),
        ({**ORDERS, "startingOffsets": '{"orders": {"x": 3}}'}, False, "it must be as in"),
        ({**ORDERS, "startingOffsets": '{"orders": 3}'}, False, "it must be as in"),
        ({**ORDERS, "startingTimestamp": "yesterday"}, False, "milliseconds since 1970"),
        ({**ORDERS, "failOnDataLoss": "no"}, False, "failOnDataLoss is 'no'; it must be true or false"),
        ({**ORDERS, "minPartitions": "0"}, False, "a number from 1 on"),
        ({**ORDERS, "route": "sideways"}, False, "auto, direct or gateway"),
        ({"subscribe": " , "}, False, "subscribe is ',', which names no topic"),
        ({"path": ","}, False, r"load\(topic\) is ',', which names no topic"),
        ({**ORDERS, "token": "a", "tokenFile": "b"}, False, "token and tokenFile are two ways to give one thing"),
        ({**ORDERS, "url": "a", "kafka.bootstrap.servers": "b"}, False, "two names of one thing"),
    ],
)
def test_what_means_nothing_is_refused_by_name(given: dict[str, str], is_stream: bool, message: str) -> None:
    with pytest.raises(OptionInvalid, match=message):
        read_options(given, is_stream=is_stream)


def test_options_of_writers() -> None:
    options = write_options({"topic": "orders", "compression": "zstd", "checkpointLocation": "/c"}, is_stream=True)
    assert (options.topic, options.compression) == ("orders", "zstd")
    with pytest.raises(OptionInvalid, match="the option startingOffsets is for reading"):
        write_options({"startingOffsets": "latest"}, is_stream=False)
    with pytest.raises(OptionInvalid, match="none, zstd or auto"):
        write_options({"compression": "gzip"}, is_stream=False)
    assert write_options({"topic": "orders", "runId": "monday"}, is_stream=False).run_id == "monday"
    with pytest.raises(OptionInvalid, match="runId is for batches"):
        write_options({"topic": "orders", "runId": "monday"}, is_stream=True)
    with pytest.raises(OptionInvalid, match="301 characters; it may have 300"):
        write_options({"topic": "orders", "runId": "x" * 301}, is_stream=False)
