"""Batches with a chosen producer id, on real processes: repeated work is stored once."""

from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest

from flotilla import Client
from flotilla.client.errors import DeliveryFailed
from support.fleet import Fleet

ID = b"an appender's id"
BATCHES = 8  # more than partitions remember
NUMBERS = count()


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    with Fleet(Path(tmp_path_factory.mktemp("fleet")), brokers=1) as fleet:
        yield fleet


@pytest.fixture(scope="module", params=["direct", "gateway"])
def client(fleet: Fleet, request: pytest.FixtureRequest) -> Iterator[Client]:
    with Client(fleet.url, route=request.param) as client:
        yield client


@pytest.fixture
def topic(client: Client) -> str:
    name = f"appended-{next(NUMBERS)}"
    client.topics.create(name, partitions=2, replication=1)
    return name


def batch(at: int, size: int = 10) -> list[bytes]:
    return [b"%d" % number for number in range(at * size, (at + 1) * size)]


def work(client: Client, topic: str, batches: int, epoch: int = 0) -> list[int | None]:
    """Append some batches with a new appender."""
    appender = client.appender(ID, epoch)
    return [appender.append(topic, 0, batch(at)) for at in range(batches)]


def stored(client: Client, topic: str) -> list[bytes]:
    found: list[bytes] = client.read_arrow(topic, columns=["value"])["value"].to_pylist()
    return found


def test_repeated_work_is_stored_once(fleet: Fleet, client: Client, topic: str) -> None:
    """After any part of it, and after a kill of its broker; then it continues."""
    assert work(client, topic, BATCHES) == [10 * at for at in range(BATCHES)]
    fleet.brokers[0].kill()
    fleet.brokers[0].start()
    again = work(client, topic, BATCHES + 1)
    assert again == [None] * (BATCHES - 5) + [10 * at for at in range(BATCHES - 5, BATCHES + 1)]
    assert stored(client, topic) == [b"%d" % at for at in range(10 * (BATCHES + 1))]


def test_records_are_recognised_after_any_interruption(client: Client, topic: str) -> None:
    """A batch that was cut short, because there seemed to be no more records, is found again, and so is the rest.

    It may happen several times to the same work, and lie before what is remembered.
    """
    values = batch(0, 250)
    for epoch, ends in enumerate([(3, 250), (31, 250), (78, 250), (3, 30, 31, 250), (110, 249, 250)]):
        for end in ends:
            appender = client.appender(ID, epoch)
            for at in range(0, end, 25):
                appender.append(topic, 1, values[at : min(at + 25, end)])
    found = client.read_arrow(topic, partitions=[1], columns=["value"])["value"].to_pylist()
    assert found == values * 5


def test_different_records_with_the_same_producer_id_are_rejected(client: Client, topic: str) -> None:
    """Nothing is stored where other records exist."""
    work(client, topic, BATCHES)
    other = client.appender(ID, 0)
    for at in range(BATCHES - 5):
        assert other.append(topic, 0, batch(at)) is None
    with pytest.raises(DeliveryFailed, match="expected the same 10 records"):
        other.append(topic, 0, [b"other"] * 10)
    with pytest.raises(DeliveryFailed, match="expected the same 10 records"):
        client.appender(ID, 0).append(topic, 0, [b"other"] * 100)
    assert stored(client, topic) == [b"%d" % at for at in range(10 * BATCHES)]


def test_appender_of_an_earlier_epoch_is_fenced(client: Client, topic: str) -> None:
    """A task that outlives its query does not disturb it; each partition has its own sequences."""
    work(client, topic, 1, epoch=2)
    with pytest.raises(DeliveryFailed, match="expected epoch 2 or above"):
        work(client, topic, 1, epoch=1)
    assert client.appender(ID, 2).append(topic, 1, [b"elsewhere"]) == 0
    assert stored(client, topic) == [*batch(0), b"elsewhere"]
