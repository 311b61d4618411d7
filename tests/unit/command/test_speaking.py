"""What is printed where an output does not have all of the letters."""

import io
import json
import sys
from collections.abc import Callable

import pytest

from flotilla.command.speaking import say, say_json


def printed(monkeypatch: pytest.MonkeyPatch, print_: Callable[[], None]) -> bytes:
    """Print to an output that has a few letters only."""
    out = io.BytesIO()
    with io.TextIOWrapper(out, encoding="latin-1") as narrow:
        monkeypatch.setattr(sys, "stdout", narrow)
        print_()
        narrow.flush()
        return out.getvalue()


def test_letters_that_an_output_does_not_have_are_question_marks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever was measured is not lost because it cannot be drawn."""
    found = printed(monkeypatch, lambda: say("caf\u00e9", "\u2588\u2588 2 ms"))
    assert found == b"caf\xe9\n?? 2 ms\n"


def test_json_stays_what_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    answer = {"file": "\u2588 \udcff"}
    assert json.loads(printed(monkeypatch, lambda: say_json(answer))) == answer


@pytest.mark.parametrize("out", [None, io.StringIO()])
def test_an_output_that_is_closed_or_in_memory_has_all_letters(
    monkeypatch: pytest.MonkeyPatch, out: io.StringIO | None
) -> None:
    monkeypatch.setattr(sys, "stdout", out)
    say("\u2588")
    say_json({})
    assert out is None or out.getvalue() == "\u2588\n{}\n"
