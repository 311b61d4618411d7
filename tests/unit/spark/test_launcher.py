import argparse
from pathlib import Path

import pytest

from flotilla.testing import FakeFlotilla
from flotilla_spark.errors import PreflightFailed
from flotilla_spark.launcher import check_topics

_ADVICE = "pass a valid token in FLOTILLA_TOKEN or --token-file"


@pytest.mark.parametrize(
    ("source", "has_file", "advice"),
    [
        (None, False, _ADVICE),
        ("key 'token' of Secret mine", False, "check key 'token' of Secret mine"),
        ("key 'token' of Secret mine", True, _ADVICE),
    ],
)
def test_rejected_token_is_reported_with_its_source(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, source: str | None, has_file: bool, advice: str
) -> None:
    if source is not None:
        monkeypatch.setenv("FLOTILLA_TOKEN_SOURCE", source)
    (tmp_path / "token").write_text("secret")
    with FakeFlotilla() as fake:
        fake.refuse("/v1/", "unauthorized", times=None, message="token rejected")
        token_file = str(tmp_path / "token") if has_file else None
        options = argparse.Namespace(url=fake.url, token_file=token_file, ca=None, route="auto", topics=["logs"])
        with pytest.raises(PreflightFailed, match=advice) as caught:
            check_topics(options, ["logs"])
    assert str(caught.value) == f"token rejected; {advice}"
