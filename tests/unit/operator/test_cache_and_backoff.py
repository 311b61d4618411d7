"""The memory of the operator: cache, backoff and status updates."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from flotilla_operator.backoff import INITIAL_DELAY_S, MAX_DELAY_S, Backoff
from flotilla_operator.cache import Cache
from flotilla_operator.errors import Unavailable
from flotilla_operator.plans import EmitEvent
from flotilla_operator.status_updates import VOLATILE_S, needs_update, ready_event


def thing(version: int, uid: str = "u", name: str = "x") -> dict[str, Any]:
    return {"metadata": {"name": name, "uid": uid, "resourceVersion": str(version)}}


def refresh(cache: Cache, listed: list[dict[str, Any]], meanwhile: Callable[[], object] = lambda: None) -> None:
    """Refresh the cache with a list; events arrive while it is read."""

    async def read() -> list[dict[str, Any]]:
        meanwhile()
        return listed

    asyncio.run(cache.refresh("Topic", read()))


def versions(cache: Cache) -> dict[str, str]:
    return {one["metadata"]["name"]: one["metadata"]["resourceVersion"] for one in cache.all("Topic")}


def test_cache_keeps_the_newest_version() -> None:
    cache = Cache()
    assert cache.update("Topic", "ADDED", thing(5))
    assert not cache.update("Topic", "MODIFIED", thing(4))
    refresh(cache, [thing(3), thing(1, name="y")])
    assert versions(cache) == {"x": "5", "y": "1"}
    refresh(cache, [thing(9)])
    assert versions(cache) == {"x": "9"}, "only listed ones are kept"


def test_cache_keeps_an_object_that_was_added_while_it_was_listed() -> None:
    cache = Cache()
    refresh(cache, [thing(3)], lambda: cache.update("Topic", "ADDED", thing(7, name="new")))
    assert versions(cache) == {"new": "7", "x": "3"}


def test_cache_drops_an_object_that_was_deleted_while_it_was_listed() -> None:
    cache = Cache()
    cache.update("Topic", "ADDED", thing(3))
    refresh(cache, [thing(3)], lambda: cache.update("Topic", "DELETED", thing(6)))
    assert versions(cache) == {}
    refresh(cache, [thing(8, "other")])
    assert versions(cache) == {"x": "8"}, "the deletion counts for that list only"


def test_cache_keeps_an_object_that_was_recreated_before_it_was_listed() -> None:
    cache = Cache()
    cache.update("Topic", "ADDED", thing(3))
    refresh(cache, [thing(8, "other")], lambda: cache.update("Topic", "DELETED", thing(6)))
    assert versions(cache) == {"x": "8"}


def test_failed_list_keeps_the_cache() -> None:
    cache = Cache()
    cache.update("Topic", "ADDED", thing(3))

    async def fail() -> list[dict[str, Any]]:
        raise Unavailable("the API server is overloaded")

    with pytest.raises(Unavailable):
        asyncio.run(cache.refresh("Topic", fail()))
    assert versions(cache) == {"x": "3"}


def test_cache_ignores_the_deletion_of_an_older_object() -> None:
    cache = Cache()
    cache.update("Topic", "ADDED", thing(5, "new"))
    cache.update("Topic", "DELETED", thing(4, "old"))
    assert versions(cache) == {"x": "5"}
    cache.update("Topic", "DELETED", thing(6, "new"))
    assert versions(cache) == {}


def test_backoff_doubles_the_delay_up_to_a_maximum() -> None:
    backoff, now, waits = Backoff(), 0.0, []
    assert backoff.may_try("a", now)
    for _ in range(10):
        waits.append(backoff.failed("a", now))
        assert not backoff.may_try("a", now + waits[-1] - 0.01)
        now += waits[-1]
        assert backoff.may_try("a", now)
    assert waits[:4] == [INITIAL_DELAY_S, 2.0, 4.0, 8.0]
    assert max(waits) == MAX_DELAY_S
    backoff.succeeded("a")
    assert backoff.failed("a", now) == INITIAL_DELAY_S
    backoff.keep_only(set())
    assert backoff.may_try("a", now)


def status(ready: str, reason: str = "R", messages: int = 0) -> dict[str, Any]:
    condition = {"type": "Ready", "status": ready, "reason": reason, "message": "m"}
    return {"conditions": [condition], "messages": messages, "partitionStatus": [{"partition": 0, "lag": messages}]}


def test_status_with_new_figures_only_is_written_at_an_interval() -> None:
    assert not needs_update(status("True"), status("True"), 1e9)
    assert not needs_update(status("True"), status("True", messages=5), VOLATILE_S - 1)
    assert needs_update(status("True"), status("True", messages=5), VOLATILE_S)
    assert needs_update(status("True"), status("False"), 0)


def test_event_is_emitted_only_when_ready_changes() -> None:
    assert ready_event({}, status("False", "Creating")) == EmitEvent("Creating", "m")
    assert ready_event(status("False", "Creating"), status("True", "Ready")) == EmitEvent("Ready", "m")
    assert ready_event(status("True"), status("False", "NoLeader")) == EmitEvent("NoLeader", "m", is_warning=True)
    assert ready_event(status("True"), status("True", messages=7)) is None


def test_outage_of_managers_emits_no_events_but_for_what_is_wrong_afterwards() -> None:
    outage = status("Unknown", "ManagersUnavailable")
    assert ready_event(status("True"), outage) is None
    assert ready_event(outage, status("True")) is None
    assert ready_event(outage, status("False", "NoLeader")) == EmitEvent("NoLeader", "m", is_warning=True)
