"""The API test: finds wrong responses, and deletes its topic."""

import asyncio

import pytest

from flotilla.experiments.api_test import Answer, Body, CallResult, find_problem, run_test


def answer(status: int, body: Body) -> Answer:
    return Answer(status, body, f"<{dict(body)}>")


@pytest.mark.parametrize(
    ("status", "body", "trouble"),
    [
        (200, {"size": 3, "sizes": [1, 2]}, None),
        (503, {}, "response is 503 <{}>; expected status 200"),
        (200, {"size": 4, "sizes": []}, "response is 200 <{'size': 4, 'sizes': []}>; expected size 3"),
        (
            200,
            {"size": 3, "sizes": [1]},
            "response is 200 <{'size': 3, 'sizes': [1]}>, which is not the expected content",
        ),
        (200, {"size": 3}, "response is 200 <{'size': 3}>, which is not the expected content"),
    ],
)
def test_problem_with_a_response_is_described(status: int, body: Body, trouble: str | None) -> None:
    assert find_problem(answer(status, body), 200, {"size": 3}, lambda found: len(found["sizes"]) == 2) == trouble


def test_invalid_server_fails_at_every_call() -> None:
    """Every wrong response is a failure, and later calls are still tested."""
    tried: list[CallResult] = []
    asked: list[str] = []

    async def ask(method: str, target: str, _: Body | None) -> Answer:
        asked.append(f"{method} {target}")
        return answer(418, {})

    asyncio.run(run_test(ask, tried.append, "mine"))
    assert len(tried) == len(asked) > 70
    assert all(one.trouble for one in tried)
    assert asked[-1] == "DELETE /topics/mine"
    paths = {one.call.partition(" ")[2].partition("?")[0].replace("/mine", "/x") for one in tried}
    assert {"/", "/topics", "/size", "/consumer/consume", "/v1/fetch", "/v1/topics/x/offsets", "/readyz"} <= paths


def test_topic_is_deleted_if_the_test_is_interrupted() -> None:
    asked: list[str] = []

    async def ask(method: str, target: str, _: Body | None) -> Answer:
        asked.append(f"{method} {target}")
        if target == "/producer/register":
            raise ConnectionError(target)
        return answer(200, {})

    with pytest.raises(ConnectionError):
        asyncio.run(run_test(ask, lambda _: None, "mine"))
    assert "DELETE /topics/mine" in asked
