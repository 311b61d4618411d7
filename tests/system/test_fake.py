"""What the fake of `flotilla.testing` promises, on real processes: the same bodies of tests, and the same answers."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from flotilla.testing import FakeFlotilla
from support.behaviour import BODIES, Body, name_of
from support.fleet import Fleet
from support.transcript import talk


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    with Fleet(Path(tmp_path_factory.mktemp("fleet"))) as fleet:
        yield fleet


@pytest.mark.parametrize("body", BODIES, ids=name_of)
def test_a_system_behaves_as_the_fake_does(fleet: Fleet, body: Body) -> None:
    body(fleet.url, name_of(body))


def test_both_answer_alike_word_for_word(fleet: Fleet) -> None:
    """Statuses, headers, codes, names and texts, of good and of bad requests: a program cannot tell them apart."""
    with FakeFlotilla() as fake:
        assert talk(fake.url) == talk(fleet.url)
