"""Fixtures of the Spark tests: one cluster of real processes, and one Spark session in this process."""

from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from flotilla import Client
from support.fleet import Fleet
from support.sparks import session

_NUMBERS = count()


@pytest.fixture(scope="session")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    """Three brokers that no test kills: tests that kill brokers start their own cluster."""
    with Fleet(Path(tmp_path_factory.mktemp("fleet")), brokers=3) as fleet:
        yield fleet


@pytest.fixture(scope="session")
def client(fleet: Fleet) -> Iterator[Client]:
    with Client(fleet.url) as client:
        yield client


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    made = session("tests")
    yield made
    made.stop()


@pytest.fixture
def name() -> str:
    """A topic name that no other test uses."""
    return f"topic-{next(_NUMBERS)}"
