"""One whole cluster, as `make run` starts it: three brokers, a writer and two readers. All smoke tests share it."""

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.upprocess import UpProcess


class System:
    """`flotilla up` on a data folder. It can be restarted."""

    def __init__(self, data: Path) -> None:
        self._data = data
        self.up = UpProcess(data)

    @property
    def url(self) -> str:
        return self.up.url

    def restart(self) -> None:
        """Stop everything gracefully, and start it again on the same data."""
        self.up.signal(signal.SIGTERM)
        assert self.up.wait() == 0
        self.up = UpProcess(self._data)
        self.up.wait_ready()


@pytest.fixture(scope="session")
def system(tmp_path_factory: pytest.TempPathFactory) -> Iterator[System]:
    made = System(tmp_path_factory.mktemp("system") / "data")
    try:
        made.up.wait_ready()
        yield made
    finally:
        with made.up:
            pass


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run the README's tour first: it lists all topics, and other tests create more."""
    items.sort(key=lambda item: "readme" not in item.path.name)
