"""The table of codes: what each refusal carries, and a page in the docs that is made from it."""

import subprocess
import sys
from pathlib import Path

import pytest

from flotilla.net.codes import CODES
from flotilla.serving.errors import RETRYABLE, Refusal

ROOT = Path(__file__).resolve().parents[3]


def test_the_page_of_codes_is_made_from_the_table() -> None:
    """Whoever adds a code tells users of it: `tools/error_docs.py` writes docs/errors.md."""
    done = subprocess.run(
        [sys.executable, ROOT / "tools" / "error_docs.py", "--check"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def test_the_tool_takes_nothing_else() -> None:
    done = subprocess.run(
        [sys.executable, ROOT / "tools" / "error_docs.py", "--chek"], capture_output=True, text=True, check=False
    )
    assert (done.returncode, "usage" in done.stderr) == (2, True)


@pytest.mark.parametrize("code", sorted(CODES))
def test_a_meaning_is_whole_sentences_and_says_what_is_wrong(code: str) -> None:
    meaning = CODES[code].meaning
    assert meaning[0].isupper()
    assert meaning.endswith(".")
    assert "|" not in meaning


def test_what_may_pass_by_itself_says_when_to_try_again() -> None:
    assert Refusal("busy", "too much").headers == {"retry-after": "1"}
    assert Refusal("no_leader", "none").headers == {"retry-after": "1"}
    assert Refusal("conflict", "no").headers == {}
    assert "quota_exceeded" in RETRYABLE


def test_a_refusal_may_know_better_when_to_try_again() -> None:
    refusal = Refusal("quota_exceeded", "enough for now", quota="bytes_per_s", retry_after_s=17)
    assert refusal.headers == {"retry-after": "17"}
    assert refusal.to_dict()["details"] == {"quota": "bytes_per_s", "retry_after_s": 17}


@pytest.mark.parametrize("given", ["soon", None, -1, 0, 1.5])
def test_a_detail_that_is_no_time_is_no_reason_to_fail(given: object) -> None:
    """Managers make brokers' refusals their own, details included."""
    assert Refusal("busy", "too much", retry_after_s=given).headers == {"retry-after": "1"}


def test_whoever_is_not_known_is_told_how_to_say_who_it_is() -> None:
    assert Refusal("unauthorized", "who?").headers == {"www-authenticate": "Bearer"}
    assert Refusal("forbidden", "no").headers == {}
