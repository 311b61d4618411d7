"""Options of the data source: parsing and validation."""

import logging

import pytest

from pyspark_flotilla.options import (
    EARLIEST,
    LATEST,
    AtTimestamp,
    Connection,
    OffsetSpecs,
    OptionInvalid,
    Subscription,
    read_options,
    write_options,
)

ORDERS = {"subscribe": "orders"}


def test_kafka_address_is_accepted_and_kafka_client_options_are_ignored(caplog: pytest.LogCaptureFixture) -> None:
    given = {"kafka.bootstrap.servers": "flotilla:80, other:80", "kafka.group.id": "x", **ORDERS}
    with caplog.at_level(logging.WARNING):
        options = read_options(given, is_stream=True)
    assert options.connection.url == "http://flotilla:80,http://other:80"
    assert "ignored an option of Kafka clients: option=kafka.group.id" in caplog.text


def test_option_names_are_case_insensitive() -> None:
    options = read_options({"SUBSCRIBE": "a, b,a", "startingoffsets": "LATEST"}, is_stream=True)
    assert options.subscription == Subscription(topics=("a", "b"))
    assert options.start == OffsetSpecs(LATEST)


def test_batches_start_at_earliest_and_streams_at_latest() -> None:
    assert read_options(ORDERS, is_stream=False).start == OffsetSpecs(EARLIEST)
    assert read_options(ORDERS, is_stream=True).start == OffsetSpecs(LATEST)


def test_connection_options_are_read_and_the_token_is_not_in_repr() -> None:
    given = {"url": "https://x", "tokenFile": "/t", "ca": "/ca", "route": "gateway", **ORDERS}
    assert read_options(given, is_stream=False).connection == Connection("https://x", None, "/t", "/ca", "gateway")
    hidden = read_options({"token": "secret", **ORDERS}, is_stream=False)
    assert "secret" not in repr(hidden)


@pytest.mark.parametrize(
    ("given", "subscription"),
    [
        ({"path": "orders"}, Subscription(topics=("orders",))),
        ({"subscribePattern": "log-.*"}, Subscription(pattern="log-.*")),
        ({"assign": '{"b": [1, 0], "a": [2]}'}, Subscription(partitions=(("a", 2), ("b", 0), ("b", 1)))),
    ],
)
def test_topics_are_selected_by_name_pattern_or_partition(given: dict[str, str], subscription: Subscription) -> None:
    assert read_options(given, is_stream=False).subscription == subscription


def test_timestamp_for_all_takes_precedence_over_timestamps_by_partition_and_these_over_offsets() -> None:
    given = {**ORDERS, "startingOffsets": '{"orders": {"0": 5, "1": -2}}'}
    specs = read_options(given, is_stream=True).start
    assert (specs.of(("orders", 0)), specs.of(("orders", 1))) == (5, EARLIEST)
    with pytest.raises(OptionInvalid, match="partition 2 of 'orders' is missing"):
        specs.of(("orders", 2))
    given["startingOffsetsByTimestamp"] = '{"orders": {"0": 1000}}'
    assert read_options(given, is_stream=True).start.of(("orders", 0)) == AtTimestamp(1000)
    given["startingTimestamp"] = "2000"
    assert read_options(given, is_stream=True).start == OffsetSpecs(AtTimestamp(2000))


@pytest.mark.parametrize(
    ("given", "is_stream", "message"),
    [
        ({}, False, "set exactly one of subscribe"),
        ({"subscribe": "a", "assign": '{"a": [0]}'}, False, "set exactly one of subscribe"),
        ({"subscribePattern": "("}, False, "which is not a regular expression"),
        ({"assign": "a"}, False, "assign is 'a'; it must be"),
        ({"assign": '{"a": []}'}, False, "it must be a list of partitions"),
        ({"assign": '{"a": ["0"]}'}, False, "it must be a list of partitions"),
        (
            {**ORDERS, "startingOffset": "earliest"},
            False,
            "unknown option startingOffset; did you mean startingOffsets",
        ),
        ({**ORDERS, "x": "1"}, False, "unknown option x; known options: url"),
        ({**ORDERS, "topic": "a"}, False, "option topic applies to writes only"),
        ({**ORDERS, "maxOffsetsPerTrigger": "5"}, False, "applies to streaming queries only"),
        ({**ORDERS, "endingOffsets": "latest"}, True, "applies to batch queries only"),
        ({**ORDERS, "startingOffsets": "latest"}, False, "must not be latest"),
        ({**ORDERS, "startingOffsets": '{"orders": {"0": -1}}'}, False, "must not be latest"),
        ({**ORDERS, "endingOffsets": "earliest"}, False, "must not be earliest"),
        ({**ORDERS, "startingOffsets": "first"}, False, "must be earliest, latest or"),
        ({**ORDERS, "startingOffsets": '{"orders": {"0": -3}}'}, False, "expected e.g."),
        ({**ORDERS, "startingOffsets": '{"orders": {"x": 3}}'}, False, "expected e.g."),
        ({**ORDERS, "startingOffsets": '{"orders": 3}'}, False, "expected e.g."),
        ({**ORDERS, "startingTimestamp": "yesterday"}, False, "milliseconds since 1970"),
        ({**ORDERS, "failOnDataLoss": "no"}, False, "failOnDataLoss is 'no'; it must be true or false"),
        ({**ORDERS, "minPartitions": "0"}, False, "a number of at least 1"),
        ({**ORDERS, "route": "sideways"}, False, "auto, direct or gateway"),
        ({"subscribe": " , "}, False, "subscribe is ','; it must name a topic"),
        ({"path": ","}, False, r"load\(topic\) is ','; it must name a topic"),
        ({**ORDERS, "token": "a", "tokenFile": "b"}, False, "token and tokenFile are exclusive"),
        ({**ORDERS, "url": "a", "kafka.bootstrap.servers": "b"}, False, "are exclusive"),
    ],
)
def test_invalid_options_are_rejected_by_name(given: dict[str, str], is_stream: bool, message: str) -> None:
    with pytest.raises(OptionInvalid, match=message):
        read_options(given, is_stream=is_stream)


def test_write_options_are_read_and_validated() -> None:
    options = write_options({"topic": "orders", "compression": "zstd", "checkpointLocation": "/c"}, is_stream=True)
    assert (options.topic, options.compression) == ("orders", "zstd")
    with pytest.raises(OptionInvalid, match="option startingOffsets applies to reads only"):
        write_options({"startingOffsets": "latest"}, is_stream=False)
    with pytest.raises(OptionInvalid, match="none, zstd or auto"):
        write_options({"compression": "gzip"}, is_stream=False)
    assert write_options({"topic": "orders", "runId": "monday"}, is_stream=False).run_id == "monday"
    with pytest.raises(OptionInvalid, match="runId applies to batch writes only"):
        write_options({"topic": "orders", "runId": "monday"}, is_stream=True)
    with pytest.raises(OptionInvalid, match="301 characters; the maximum is 300"):
        write_options({"topic": "orders", "runId": "x" * 301}, is_stream=False)
