"""Timestamps as users pass them: a datetime with time zone, or milliseconds since 1970. Pure."""

from datetime import datetime

from flotilla.client.config import require


def to_ms(moment: datetime | int, name: str) -> int:
    """Convert a timestamp to milliseconds. Raises ConfigInvalid, which names the option."""
    if isinstance(moment, datetime):
        require(moment.tzinfo is not None, name, "a datetime with a time zone, as in datetime.now(UTC)", moment)
        found = int(moment.timestamp() * 1000)
    else:
        found = moment
    require(found >= 0, name, "1970 or later", moment)
    return found
