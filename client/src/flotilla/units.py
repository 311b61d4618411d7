"""Internal: sizes, durations and times as users write them: in options, settings, resources and output. Pure.

Sizes have binary units, in both notations: 64MiB, and 64Mi as in Kubernetes. Output has the first one.
"""

from datetime import UTC, datetime, timedelta

_SIZES = {"": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40}
_PARSED_SIZES = {**_SIZES, **{unit[:-1]: size for unit, size in _SIZES.items() if unit}}
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 24 * 3600, "w": 7 * 24 * 3600}


def parse_size(text: str, least: int = 1) -> int:
    """Parse a number of bytes, such as 1048576, 1MiB or 1Mi. Raises ValueError."""
    number = text.rstrip("KMGTiB")
    unit = text[len(number) :]
    if unit not in _PARSED_SIZES or not _is_number(number, least):
        raise ValueError(
            f"{text!r} is not a size of at least {least}: use a number of bytes, or a unit as in 64MiB or 64Mi"
        )
    return int(number) * _PARSED_SIZES[unit]


def parse_duration_s(text: str) -> int:
    """Parse a duration in seconds, such as 30d or 12h. Raises ValueError."""
    number, unit = text[:-1], text[-1:]
    if unit not in _SECONDS or not _is_number(number):
        raise ValueError(f"{text!r} is not a duration: use a number and a unit, as in 90s, 15m, 12h, 30d or 4w")
    return int(number) * _SECONDS[unit]


def parse_count(text: str, least: int = 1) -> int:
    """Parse an integer. Raises ValueError."""
    if not _is_number(text, least):
        raise ValueError(f"{text!r} is not an integer of at least {least}")
    return int(text)


def parse_time(text: str) -> datetime:
    """Parse a time, such as 2026-01-31 or 2026-01-31T12:00:00+01:00; UTC without a zone. Raises ValueError."""
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        raise ValueError(f"{text!r} is not a time: use ISO 8601, as in 2026-01-31 or 2026-01-31T12:00:00Z") from None
    return found if found.tzinfo is not None else found.replace(tzinfo=UTC)


def parse_timestamp(text: str, now: datetime) -> datetime:
    """Parse a timestamp, or a negative duration such as -1h; not before 1970, as no record is. Raises ValueError."""
    try:
        is_ago = text.startswith("-")
        found = now - timedelta(seconds=parse_duration_s(text[1:])) if is_ago else parse_time(text)
        return max(found, _EPOCH)
    except (ValueError, OverflowError) as error:
        rule = "use ISO 8601, as in 2026-01-31T12:00:00Z, or a time ago, as in -1h"
        raise ValueError(f"{text!r} is not a time: {rule}") from error


def write_size(size: int) -> str:
    """Format a number of bytes exactly, in the largest unit that divides it."""
    unit = max((unit for unit, one in _SIZES.items() if size % one == 0), key=_SIZES.__getitem__)
    return f"{size // _SIZES[unit]}{unit}" if unit else f"{size}B"


def write_rough_size(size: int) -> str:
    """Format a number of bytes with one decimal, for comparison."""
    unit = max((unit for unit, one in _SIZES.items() if size >= one), key=_SIZES.__getitem__, default="")
    return f"{size / _SIZES[unit]:.1f}{unit}" if unit else f"{size}B"


def write_duration(duration_ms: int) -> str:
    """Format a duration exactly, in the largest unit that divides it."""
    units = {"ms": 1, **{unit: one * 1000 for unit, one in _SECONDS.items() if unit != "w"}}
    unit = max((unit for unit, one in units.items() if duration_ms % one == 0), key=units.__getitem__)
    return f"{duration_ms // units[unit]}{unit}" if duration_ms else "0s"


def write_time(at_ms: int) -> str:
    """Format a timestamp in UTC."""
    return datetime.fromtimestamp(at_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M")


def _is_number(text: str, least: int = 1) -> bool:
    return text.isascii() and text.isdecimal() and int(text) >= least
