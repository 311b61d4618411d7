"""Output to streams with limited encodings."""

import io
import json
import sys
from collections.abc import Callable

import pytest

from flotilla.command.output import print_json, print_lines


def printed(monkeypatch: pytest.MonkeyPatch, print_: Callable[[], None]) -> bytes:
    """Print to a stream with a limited encoding."""
    out = io.BytesIO()
    with io.TextIOWrapper(out, encoding="latin-1") as narrow:
        monkeypatch.setattr(sys, "stdout", narrow)
        print_()
        narrow.flush()
        return out.getvalue()


def test_unencodable_characters_become_question_marks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Results are printed even if a histogram cannot be encoded."""
    found = printed(monkeypatch, lambda: print_lines("caf\u00e9", "\u2588\u2588 2 ms"))
    assert found == b"caf\xe9\n?? 2 ms\n"


def test_json_output_escapes_unencodable_characters(monkeypatch: pytest.MonkeyPatch) -> None:
    answer = {"file": "\u2588 \udcff"}
    assert json.loads(printed(monkeypatch, lambda: print_json(answer))) == answer


@pytest.mark.parametrize("out", [None, io.StringIO()])
def test_closed_and_in_memory_output_accepts_all_characters(
    monkeypatch: pytest.MonkeyPatch, out: io.StringIO | None
) -> None:
    monkeypatch.setattr(sys, "stdout", out)
    print_lines("\u2588")
    print_json({})
    assert out is None or out.getvalue() == "\u2588\n{}\n"
