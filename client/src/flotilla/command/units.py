"""Sizes and times, as people write and read them. Pure."""

from datetime import UTC, datetime

_SIZES = {"": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40}
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 24 * 3600, "w": 7 * 24 * 3600}


def parse_size(text: str) -> int:
    """Read a number of bytes, as in 1048576 or 1MiB; raises ValueError."""
    number = text.rstrip("KMGTiB")
    unit = text[len(number) :]
    if unit not in _SIZES or not _is_positive(number):
        raise ValueError(f"{text!r} is not a size; write a number of bytes above 0, or as in 64MiB")
    return int(number) * _SIZES[unit]


def parse_duration_s(text: str) -> int:
    """Read a time in seconds, as in 30d or 12h; raises ValueError."""
    number, unit = text[:-1], text[-1:]
    if unit not in _SECONDS or not _is_positive(number):
        raise ValueError(f"{text!r} is not a time; write it as in 90s, 15m, 12h, 30d or 4w")
    return int(number) * _SECONDS[unit]


def parse_count(text: str) -> int:
    """Read a number above 0; raises ValueError."""
    if not _is_positive(text):
        raise ValueError(f"{text!r} is not a number above 0")
    return int(text)


def write_size(size: int) -> str:
    """Write a number of bytes, in the largest unit that it fills."""
    unit = max((unit for unit, one in _SIZES.items() if size % one == 0), key=_SIZES.__getitem__)
    return f"{size // _SIZES[unit]}{unit}" if unit else f"{size}B"


def write_time(at_ms: int) -> str:
    """Write a moment, as UTC."""
    return datetime.fromtimestamp(at_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M")


def parse_time(text: str) -> datetime:
    """Read a moment, as in 2026-01-31 or 2026-01-31T12:00:00+01:00; without a zone it is UTC; raises ValueError."""
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        raise ValueError(f"{text!r} is not a moment; write it as in 2026-01-31 or 2026-01-31T12:00:00Z") from None
    return found if found.tzinfo is not None else found.replace(tzinfo=UTC)


def write_duration(duration_ms: int) -> str:
    """Write a time, in the largest unit that it fills."""
    units = {"ms": 1, **{unit: one * 1000 for unit, one in _SECONDS.items() if unit != "w"}}
    unit = max((unit for unit, one in units.items() if duration_ms % one == 0), key=units.__getitem__)
    return f"{duration_ms // units[unit]}{unit}" if duration_ms else "0s"


def write_rough_size(size: int) -> str:
    """Write a number of bytes as people compare them: with one digit behind the point."""
    unit = max((unit for unit, one in _SIZES.items() if size >= one), key=_SIZES.__getitem__, default="")
    return f"{size / _SIZES[unit]:.1f}{unit}" if unit else f"{size}B"


def _is_positive(text: str) -> bool:
    return text.isascii() and text.isdecimal() and int(text) > 0
