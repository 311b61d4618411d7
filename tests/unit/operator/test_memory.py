"""What the operator remembers: the latest of each resource, what failed, and what was shown."""

from typing import Any

from flotilla_operator.cache import Cache
from flotilla_operator.patience import FIRST_S, LAST_S, Patience
from flotilla_operator.showing import FIGURES_S, news, should_show
from flotilla_operator.steps import Tell


def thing(version: int, uid: str = "u", name: str = "x") -> dict[str, Any]:
    return {"metadata": {"name": name, "uid": uid, "resourceVersion": str(version)}}


def test_the_latest_version_counts_whichever_way_it_came() -> None:
    cache = Cache()
    assert cache.hear("Topic", "ADDED", thing(5))
    assert not cache.hear("Topic", "MODIFIED", thing(4))
    cache.replace("Topic", [thing(3), thing(1, name="y")])
    assert [one["metadata"]["resourceVersion"] for one in cache.all("Topic")] == ["5", "1"]
    cache.replace("Topic", [thing(9)])
    assert [one["metadata"]["resourceVersion"] for one in cache.all("Topic")] == ["9"], "what is not listed is gone"


def test_the_end_of_an_older_one_is_not_the_end_of_its_successor() -> None:
    cache = Cache()
    cache.hear("Topic", "ADDED", thing(5, "new"))
    cache.hear("Topic", "DELETED", thing(4, "old"))
    assert cache.get("Topic", "x") is not None
    cache.hear("Topic", "DELETED", thing(6, "new"))
    assert cache.get("Topic", "x") is None


def test_what_fails_again_is_left_alone_for_longer_up_to_a_limit() -> None:
    patience, now, waits = Patience(), 0.0, []
    assert patience.may_try("a", now)
    for _ in range(10):
        waits.append(patience.failed("a", now))
        assert not patience.may_try("a", now + waits[-1] - 0.01)
        now += waits[-1]
        assert patience.may_try("a", now)
    assert waits[:4] == [FIRST_S, 2.0, 4.0, 8.0]
    assert max(waits) == LAST_S
    patience.succeeded("a")
    assert patience.failed("a", now) == FIRST_S
    patience.keep_only(set())
    assert patience.may_try("a", now)


def status(ready: str, reason: str = "R", messages: int = 0) -> dict[str, Any]:
    condition = {"type": "Ready", "status": ready, "reason": reason, "message": "m"}
    return {"conditions": [condition], "messages": messages, "partitionStatus": [{"partition": 0, "lag": messages}]}


def test_figures_alone_are_shown_now_and_then_and_all_else_at_once() -> None:
    assert not should_show(status("True"), status("True"), 1e9)
    assert not should_show(status("True"), status("True", messages=5), FIGURES_S - 1)
    assert should_show(status("True"), status("True", messages=5), FIGURES_S)
    assert should_show(status("True"), status("False"), 0)


def test_people_hear_when_something_becomes_ready_or_not_and_of_nothing_else() -> None:
    assert news({}, status("False", "BeingMade")) == Tell("BeingMade", "m")
    assert news(status("False", "BeingMade"), status("True", "Ready")) == Tell("Ready", "m")
    assert news(status("True"), status("False", "NoLeader")) == Tell("NoLeader", "m", warning=True)
    assert news(status("True"), status("True", messages=7)) is None
