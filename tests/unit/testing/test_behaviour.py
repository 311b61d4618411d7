"""The fake behaves as a system does: the same bodies run against real servers in tests/system/test_fake.py."""

from collections.abc import Iterator

import pytest

from flotilla.testing import FakeFlotilla
from support.behaviour import BODIES, Body, name_of


@pytest.fixture(scope="module")
def fake() -> Iterator[FakeFlotilla]:
    with FakeFlotilla() as fake:
        yield fake


@pytest.mark.parametrize("body", BODIES, ids=name_of)
def test_the_fake_behaves_as_a_system_does(fake: FakeFlotilla, body: Body) -> None:
    body(fake.url, name_of(body))
