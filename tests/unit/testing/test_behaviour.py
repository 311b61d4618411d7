"""The fake behaves like real servers: tests/system/test_fake.py runs the same bodies against these."""

from collections.abc import Iterator

import pytest

from flotilla.testing import FakeFlotilla
from support.behaviour import BODIES, Body, name_of


@pytest.fixture(scope="module")
def fake() -> Iterator[FakeFlotilla]:
    with FakeFlotilla() as fake:
        yield fake


@pytest.mark.parametrize("body", BODIES, ids=name_of)
def test_fake_behaves_like_real_servers(fake: FakeFlotilla, body: Body) -> None:
    body(fake.url, name_of(body))
