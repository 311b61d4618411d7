"""When a run is due, by a cron expression in UTC. Pure."""

from datetime import UTC, datetime

from cronsim import CronSim, CronSimError

_FIELDS = 5
_SAMPLE = datetime(2026, 1, 1, tzinfo=UTC)


def check(cron: str) -> None:
    """Validate a cron expression; raises ValueError."""
    found = len(cron.split())
    why = None if found == _FIELDS else f"it has {found} fields instead of {_FIELDS}"
    try:
        next(CronSim(cron, _SAMPLE))
    except CronSimError as error:
        why = why or str(error)
    except StopIteration:
        why = why or "it never matches"
    if why is not None:
        raise ValueError(f'spec.schedule "{cron}" is not a valid cron expression ({why}); example: "*/10 * * * *"')


def following(cron: str, moment: datetime) -> datetime:
    """Return the next scheduled time after `moment`."""
    return next(CronSim(cron, moment.astimezone(UTC)))


def last_due(cron: str, since: datetime, now: datetime) -> datetime | None:
    """Return the last scheduled time after `since`, up to `now`, if any. One run makes up for all missed ones."""
    if following(cron, since) > now:
        return None
    moment = now.astimezone(UTC).replace(microsecond=0)
    if moment.second == 0 and (found := _at(cron, moment)) is not None:
        return found
    return next(CronSim(cron, moment, reverse=True))


def _at(cron: str, moment: datetime) -> datetime | None:
    """Return the moment if it is a scheduled time."""
    before = next(CronSim(cron, moment, reverse=True))
    return moment if following(cron, before) == moment else None
