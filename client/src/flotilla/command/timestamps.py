"""Times in options: timestamps, and negative durations from now."""

from datetime import UTC, datetime, timedelta

from flotilla.units import parse_duration_s, parse_time

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def parse_timestamp(text: str, now: datetime) -> datetime:
    """Parse a timestamp, or a negative duration such as -1h; not before 1970, as no record is. Raises ValueError."""
    try:
        is_ago = text.startswith("-")
        found = now - timedelta(seconds=parse_duration_s(text[1:])) if is_ago else parse_time(text)
        return max(found, _EPOCH)
    except (ValueError, OverflowError) as error:
        raise ValueError(f"{error}, or a negative duration, such as -1h") from error
