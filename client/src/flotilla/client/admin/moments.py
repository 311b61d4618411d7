"""Moments, as people give them: a datetime with its time zone, or milliseconds since 1970. Pure."""

from datetime import datetime

from flotilla.client.config import require


def to_ms(moment: datetime | int, name: str) -> int:
    """Turn a moment into milliseconds; raises ConfigInvalid, which names the option."""
    if isinstance(moment, datetime):
        require(moment.tzinfo is not None, name, "a time with a time zone, as in datetime.now(UTC)")
        found = int(moment.timestamp() * 1000)
    else:
        found = moment
    require(found >= 0, name, "1970 or later")
    return found
