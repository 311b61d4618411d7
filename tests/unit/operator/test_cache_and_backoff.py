"""The memory of the operator: cache, backoff and status updates."""

from typing import Any

from flotilla_operator.backoff import INITIAL_DELAY_S, MAX_DELAY_S, Backoff
from flotilla_operator.cache import Cache
from flotilla_operator.plans import EmitEvent
from flotilla_operator.status_updates import VOLATILE_S, needs_update, ready_event


def thing(version: int, uid: str = "u", name: str = "x") -> dict[str, Any]:
    return {"metadata": {"name": name, "uid": uid, "resourceVersion": str(version)}}


def test_cache_keeps_the_newest_version() -> None:
    cache = Cache()
    assert cache.update("Topic", "ADDED", thing(5))
    assert not cache.update("Topic", "MODIFIED", thing(4))
    cache.replace("Topic", [thing(3), thing(1, name="y")])
    assert [one["metadata"]["resourceVersion"] for one in cache.all("Topic")] == ["5", "1"]
    cache.replace("Topic", [thing(9)])
    assert [one["metadata"]["resourceVersion"] for one in cache.all("Topic")] == ["9"], "only listed ones are kept"


def test_cache_ignores_the_deletion_of_an_older_object() -> None:
    cache = Cache()
    cache.update("Topic", "ADDED", thing(5, "new"))
    cache.update("Topic", "DELETED", thing(4, "old"))
    assert cache.get("Topic", "x") is not None
    cache.update("Topic", "DELETED", thing(6, "new"))
    assert cache.get("Topic", "x") is None


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
