"""Start of the operator: it waits for its CRDs."""

import asyncio
from typing import Any

import pytest

from flotilla_operator import __main__ as start
from flotilla_operator.errors import NotFound


class KubernetesWithoutCrds:
    """A fake of Kubernetes: CRDs are missing for some requests, and then it does not answer."""

    def __init__(self, missing: int, *, answers: bool) -> None:
        self._missing = missing
        self._answers = answers

    async def list(self, _: str) -> list[dict[str, Any]]:
        if self._missing > 0:
            self._missing -= 1
            raise NotFound("no such kind")
        if not self._answers:
            await asyncio.Event().wait()
        return []


@pytest.mark.parametrize(
    ("missing", "answers", "problem"),
    [
        (2, True, None),
        (0, False, "no response in 0.2 s"),
        (1, False, "CRDs are missing"),
        (10**6, True, "CRDs are missing"),
    ],
)
def test_operator_waits_for_its_crds_for_a_limited_time(
    missing: int, answers: bool, problem: str | None, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(start, "_WAIT_S", 0.2)
    monkeypatch.setattr(start, "_PAUSE_S", 0.01)
    kubernetes: Any = KubernetesWithoutCrds(missing, answers=answers)
    assert asyncio.run(start._wait_for_crds(kubernetes, ("Topic",))) is (problem is None)
    assert problem is None or problem in caplog.text
