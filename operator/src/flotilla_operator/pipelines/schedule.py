"""When a run is due, by a line as cron has it, in UTC. Pure."""

from datetime import UTC, datetime

from cronsim import CronSim, CronSimError

_FIELDS = 5
_SAMPLE = datetime(2026, 1, 1, tzinfo=UTC)


def check(cron: str) -> None:
    """See whether it is one; raises ValueError."""
    example = '"*/10 * * * *" for every ten minutes'
    why = None if len(cron.split()) == _FIELDS else f"it has not {_FIELDS} fields"
    try:
        next(CronSim(cron, _SAMPLE))
    except CronSimError as error:
        why = why or str(error)
    except StopIteration:
        why = why or "it never comes"
    if why is not None:
        raise ValueError(f'schedule is "{cron}", which cron does not understand ({why}); as in {example}')


def following(cron: str, moment: datetime) -> datetime:
    """Give the first time after a moment."""
    return next(CronSim(cron, moment.astimezone(UTC)))


def last_due(cron: str, since: datetime, now: datetime) -> datetime | None:
    """Give the last time after `since` that has come; None if none has. What was missed is made up for once."""
    if following(cron, since) > now:
        return None
    moment = now.astimezone(UTC).replace(microsecond=0)
    if moment.second == 0 and (found := _at(cron, moment)) is not None:
        return found
    return next(CronSim(cron, moment, reverse=True))


def _at(cron: str, moment: datetime) -> datetime | None:
    """Give a moment if it is one of the schedule."""
    before = next(CronSim(cron, moment, reverse=True))
    return moment if following(cron, before) == moment else None
