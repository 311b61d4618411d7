"""The walk through the HTTP API: it notices each answer that is not as it should be, and leaves nothing behind."""

import asyncio

import pytest

from flotilla.experiments.api_walk import Answer, Body, Tried, find_trouble, walk


def answer(status: int, body: Body) -> Answer:
    return Answer(status, body, f"<{dict(body)}>")


@pytest.mark.parametrize(
    ("status", "body", "trouble"),
    [
        (200, {"size": 3, "sizes": [1, 2]}, None),
        (503, {}, "it answers 503 <{}>, and the status should be 200"),
        (200, {"size": 4, "sizes": []}, "it answers 200 <{'size': 4, 'sizes': []}>, and size should be 3"),
        (200, {"size": 3, "sizes": [1]}, "it answers 200 <{'size': 3, 'sizes': [1]}>, which is not as it should be"),
        (200, {"size": 3}, "it answers 200 <{'size': 3}>, which is not as it should be"),
    ],
)
def test_what_is_wrong_with_an_answer_is_said(status: int, body: Body, trouble: str | None) -> None:
    assert find_trouble(answer(status, body), 200, {"size": 3}, lambda found: len(found["sizes"]) == 2) == trouble


def test_a_server_that_answers_nonsense_fails_at_every_call() -> None:
    """No call counts as ok that did not answer as promised, and what comes later is tried all the same."""
    tried: list[Tried] = []
    asked: list[str] = []

    async def ask(method: str, target: str, _: Body | None) -> Answer:
        asked.append(f"{method} {target}")
        return answer(418, {})

    asyncio.run(walk(ask, tried.append, "mine"))
    assert len(tried) == len(asked) > 70
    assert all(one.trouble for one in tried)
    assert asked[-1] == "DELETE /topics/mine"
    paths = {one.call.partition(" ")[2].partition("?")[0].replace("/mine", "/x") for one in tried}
    assert {"/", "/topics", "/size", "/consumer/consume", "/v1/fetch", "/v1/topics/x/offsets", "/readyz"} <= paths


def test_its_topic_is_deleted_also_if_the_walk_is_cut_short() -> None:
    asked: list[str] = []

    async def ask(method: str, target: str, _: Body | None) -> Answer:
        asked.append(f"{method} {target}")
        if target == "/producer/register":
            raise ConnectionError(target)
        return answer(200, {})

    with pytest.raises(ConnectionError):
        asyncio.run(walk(ask, lambda _: None, "mine"))
    assert "DELETE /topics/mine" in asked
