"""Sizes, durations and times: parsing and formatting."""

from collections.abc import Callable
from datetime import UTC, datetime

import pytest

from flotilla.units import (
    parse_count,
    parse_duration_s,
    parse_size,
    parse_time,
    write_duration,
    write_rough_size,
    write_size,
    write_time,
)


@pytest.mark.parametrize(
    ("parse", "text", "value"),
    [
        (parse_size, "1", 1),
        (parse_size, "10KiB", 10_240),
        (parse_size, "64MiB", 64 << 20),
        (parse_size, "2TiB", 2 << 40),
        (parse_size, "2Gi", 2 << 30),
        (parse_size, "512Ki", 512 << 10),
        (parse_size, "64Mi", 64 << 20),
        (parse_size, "2Ti", 2 << 40),
        (parse_duration_s, "90s", 90),
        (parse_duration_s, "15m", 900),
        (parse_duration_s, "12h", 43_200),
        (parse_duration_s, "30d", 2_592_000),
        (parse_duration_s, "4w", 2_419_200),
        (parse_count, "100", 100),
    ],
)
def test_parser_accepts_all_units(parse: Callable[[str], int], text: str, value: int) -> None:
    assert parse(text) == value


@pytest.mark.parametrize("text", ["", "0", "-1", "1.5MiB", "MiB", "1MB", "10 MiB", "1iB", "1M", "Mi", "٣"])
def test_invalid_size_is_rejected_with_an_example(text: str) -> None:
    with pytest.raises(ValueError, match="a unit as in 64MiB or 64Mi"):
        parse_size(text)


def test_least_value_may_be_zero() -> None:
    assert (parse_size("0", least=0), parse_count("0", least=0)) == (0, 0)


@pytest.mark.parametrize("text", ["", "d", "0d", "30", "1.5h", "-1d", "30 d", "1y", "٣d"])
def test_invalid_duration_is_rejected_with_an_example(text: str) -> None:
    with pytest.raises(ValueError, match="30d"):
        parse_duration_s(text)


@pytest.mark.parametrize("text", ["", "0", "-1", "1.5", "x"])
def test_invalid_count_is_rejected(text: str) -> None:
    with pytest.raises(ValueError, match="not an integer of at least 1"):
        parse_count(text)


@pytest.mark.parametrize(
    ("size", "text"), [(1, "1B"), (1000, "1000B"), (1024, "1KiB"), (10 << 20, "10MiB"), (1 << 40, "1TiB")]
)
def test_formatted_size_parses_to_the_same_size(size: int, text: str) -> None:
    assert write_size(size) == text
    assert parse_size(text.removesuffix("B") if text[-2].isdecimal() else text) == size


def test_time_is_formatted_in_utc() -> None:
    assert write_time(0) == "1970-01-01 00:00"
    assert write_time(1_700_000_000_000) == "2023-11-14 22:13"


def test_time_without_a_zone_is_utc() -> None:
    assert parse_time("2026-01-31") == datetime(2026, 1, 31, tzinfo=UTC)
    assert parse_time("2026-01-31T12:30Z") == datetime(2026, 1, 31, 12, 30, tzinfo=UTC)
    assert parse_time("2026-01-31T12:30+01:00") == datetime(2026, 1, 31, 11, 30, tzinfo=UTC)
    for text in ("", "yesterday", "31.1.2026", "2026-13-01"):
        with pytest.raises(ValueError, match="2026-01-31T12:00:00Z"):
            parse_time(text)


@pytest.mark.parametrize(
    ("duration_ms", "text"),
    [(0, "0s"), (5, "5ms"), (1500, "1500ms"), (10_000, "10s"), (90_000, "90s"), (3_600_000, "1h"), (604_800_000, "7d")],
)
def test_duration_is_formatted_in_the_largest_unit_that_divides_it(duration_ms: int, text: str) -> None:
    assert write_duration(duration_ms) == text


@pytest.mark.parametrize(
    ("size", "text"), [(0, "0B"), (1023, "1023B"), (1536, "1.5KiB"), (10 << 20, "10.0MiB"), (5 << 40, "5.0TiB")]
)
def test_rough_size_has_one_decimal(size: int, text: str) -> None:
    assert write_rough_size(size) == text
