"""API, client and consumer groups on real processes: servers behave like the fake of `flotilla.testing`."""

import pytest

from flotilla.testing import FakeFlotilla
from smoke.conftest import System
from support.behaviour import BODIES, Body, name_of
from support.transcript import transcribe


@pytest.mark.parametrize("body", BODIES, ids=name_of)
def test_cluster_behaves_like_the_fake(system: System, body: Body) -> None:
    body(system.url, name_of(body))


def test_cluster_and_fake_return_the_same_responses(system: System) -> None:
    """Statuses, headers, codes, names and messages, of valid and invalid requests."""
    with FakeFlotilla() as fake:
        assert transcribe(fake.url) == transcribe(system.url)
