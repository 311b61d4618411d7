"""Error codes: contents of refusals, and the generated docs."""

import subprocess
import sys
from pathlib import Path

import pytest

from flotilla.net.codes import CODES
from flotilla.protocol.errors import RETRYABLE, Refusal

ROOT = Path(__file__).resolve().parents[3]


def test_error_docs_are_generated_from_the_codes() -> None:
    """`tools/error_docs.py` generates docs/errors.md, so that every code is documented."""
    done = subprocess.run(
        [sys.executable, ROOT / "tools" / "error_docs.py", "--check"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def test_error_docs_tool_rejects_unknown_arguments() -> None:
    done = subprocess.run(
        [sys.executable, ROOT / "tools" / "error_docs.py", "--chek"], capture_output=True, text=True, check=False
    )
    assert (done.returncode, "usage" in done.stderr) == (2, True)


@pytest.mark.parametrize("code", sorted(CODES))
def test_meaning_of_a_code_is_complete_sentences(code: str) -> None:
    meaning = CODES[code].meaning
    assert meaning[0].isupper()
    assert meaning.endswith(".")
    assert "|" not in meaning


def test_retryable_refusal_has_retry_after() -> None:
    assert Refusal("busy", "too much").headers == {"retry-after": "1"}
    assert Refusal("no_leader", "none").headers == {"retry-after": "1"}
    assert Refusal("conflict", "no").headers == {}
    assert "quota_exceeded" in RETRYABLE


def test_retry_after_comes_from_the_details() -> None:
    refusal = Refusal("quota_exceeded", "enough for now", quota="bytes_per_s", retry_after_s=17)
    assert refusal.headers == {"retry-after": "17"}
    assert refusal.to_dict()["details"] == {"quota": "bytes_per_s", "retry_after_s": 17}


@pytest.mark.parametrize("given", ["soon", None, -1, 0, 1.5])
def test_invalid_retry_after_detail_is_ignored(given: object) -> None:
    """Managers forward brokers' refusals with their details."""
    assert Refusal("busy", "too much", retry_after_s=given).headers == {"retry-after": "1"}


def test_unauthorized_refusal_has_www_authenticate() -> None:
    assert Refusal("unauthorized", "who?").headers == {"www-authenticate": "Bearer"}
    assert Refusal("forbidden", "no").headers == {}
