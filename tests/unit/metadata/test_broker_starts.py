"""The last starts of brokers in the database."""

import pytest

from flotilla_manager.metadata import Store
from flotilla_manager.metadata.errors import Fenced
from flotilla_server.broker_starts import Start
from support.metadata import an_id

A, B = an_id(1), an_id(2)


def test_starts_are_inserted_and_updated_without_a_new_version(store: Store) -> None:
    """Otherwise every manager would load the topology again each second."""
    epoch = store.take_over("http://one:1")
    version = store.version()
    assert store.broker_starts() == {}
    store.put_broker_starts(epoch, {A: Start(1, b"\1\2", 7), B: Start(2, b"", 0)})
    store.put_broker_starts(epoch, {A: Start(3, b"\3", (1 << 63) - 1)})
    assert store.broker_starts() == {A: Start(3, b"\3", (1 << 63) - 1), B: Start(2, b"", 0)}
    assert store.version() == version


def test_replaced_writer_stores_no_start(store: Store) -> None:
    """Guarantee 6."""
    epoch = store.take_over("http://one:1")
    store.take_over("http://two:1")
    with pytest.raises(Fenced):
        store.put_broker_starts(epoch, {A: Start(1, b"", 7)})
    assert store.broker_starts() == {}
