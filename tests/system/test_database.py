"""A whole cluster on a real PostgreSQL, which is restarted, killed and frozen under load."""

import random
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from support.cluster import wait_until
from support.fleet import Fleet
from support.load import Load
from support.postgres import Postgres, running_postgres
from support.simpleclients import SimpleClients, SimpleConsumer, SimpleProducer
from support.upprocess import UpProcess

QUICK = ("--heartbeat-s", "0.1", "--election-s-min", "0.5", "--election-s-max", "1.0")
AWAY = "The database is unavailable; try again."


@pytest.fixture
def postgres() -> Iterator[Postgres]:
    with running_postgres() as server:
        yield server


@pytest.fixture
def fleet(tmp_path: Path, postgres: Postgres) -> Iterator[Fleet]:
    with Fleet(tmp_path, database=postgres.new_database(), broker_flags=QUICK) as fleet:
        yield fleet


def test_postgresql_that_is_restarted_and_killed_under_load_loses_nothing(fleet: Fleet, postgres: Postgres) -> None:
    """Guarantees 1 to 5 and exactly-once consumption, while the database is restarted and killed."""
    fleet.create("simple", 2)
    fleet.create("programs", 2)
    ids = [fleet.consumer("simple") for _ in range(3)]
    clients = SimpleClients(
        "simple",
        2,
        fleet.brokers,
        [SimpleProducer(f"p{at}", "simple", 2, fleet.producer("simple"), fleet.url) for at in range(3)],
        [SimpleConsumer(f"c{at}", "simple", id_, fleet.url) for at, id_ in enumerate(ids)],
    )
    load = Load("programs", 2, fleet.brokers, random.Random(7), gateways=[fleet.url], pause_s=0.005)

    def disturb() -> None:
        for hurt in (postgres.restart, postgres.kill):
            clients.wait_progress(20)
            load.wait_progress(20)
            hurt()
            if hurt == postgres.kill:
                postgres.start()
            before = [len(one.reads) for one in clients.consumers]
            wait_until("consume to work again", lambda before=before: all_have_read(clients, before))  # type: ignore[misc]

    load.run_while(lambda: clients.run_while(disturb))
    assert clients.violations() == []
    assert load.violations() == []
    fleet.create("afterwards")
    assert fleet.get("/topics")["topics"] == ["simple", "programs", "afterwards"]


def all_have_read(clients: SimpleClients, before: list[int]) -> bool:
    """Return whether every consumer has received messages since."""
    return all(len(one.reads) > count for one, count in zip(clients.consumers, before, strict=True))


def wait_known(fleet: Fleet) -> None:
    """Wait until each manager has heard of topic and producer: within a second or so, without being asked."""
    known = ("flotilla_cached_producers 1.0", 'flotilla_topics{state="ready"} 1.0')

    def everybody_knows() -> bool:
        answered = [httpx.get(f"{one.own_url}/metrics").text for one in fleet.managers]
        return all(line in text for text in answered for line in known)

    wait_until("all managers to know topic and producer", everybody_knows)


def test_produce_and_fetch_continue_without_the_database_and_other_requests_return_503(
    fleet: Fleet, postgres: Postgres
) -> None:
    """Without the database, produce and `/v1` fetch continue; other requests return 503; all recover by themselves."""
    fleet.create("t", 1)
    producer, consumer = fleet.producer("t"), fleet.consumer("t")
    managers = [one.own_url for one in fleet.managers]
    known = {"topic": "t", "producer_id": producer}
    wait_known(fleet)
    postgres.stop()
    try:
        for url in managers:
            answer = httpx.post(f"{url}/producer/produce", json={**known, "message": "meanwhile"}, timeout=30)
            assert answer.status_code == 200, answer.text
            fetched = httpx.get(f"{url}/v1/fetch?topic=t&partition=0&offset=0", timeout=30)
            assert fetched.status_code == 200
            assert httpx.get(f"{url}/v1/metadata?topic=t", timeout=30).json()["missing"] == []
        consumed = fleet.client.get("/consumer/consume", params={"topic": "t", "consumer_id": consumer})
        assert (consumed.status_code, consumed.json()["message"]) == (503, AWAY)
        assert consumed.headers["retry-after"]
        for method, path, body in (
            ("GET", "/topics", None),
            ("GET", "/managers", None),
            ("POST", "/topics", {"name": "n"}),
            ("POST", "/producer/register", {"topic": "t"}),
        ):
            response = fleet.client.request(method, path, json=body)
            assert response.status_code == 503, (path, response.text)
            assert response.json()["status"] == "failure"
        assert httpx.get(f"{fleet.url}/healthz").status_code == 200
    finally:
        postgres.start()
    params = {"topic": "t", "consumer_id": consumer}
    wait_until("consume", lambda: fleet.client.get("/consumer/consume", params=params).status_code == 200)
    fleet.create("n")


def test_hanging_database_times_out(fleet: Fleet, postgres: Postgres) -> None:
    """A database that hangs with open connections delays neither produce nor other requests forever."""
    fleet.create("t", 1)
    producer, consumer = fleet.producer("t"), fleet.consumer("t")
    produce = {"topic": "t", "producer_id": producer, "message": "m"}
    wait_known(fleet)
    postgres.freeze()
    try:
        began = time.monotonic()
        fleet.post("/producer/produce", **produce)
        fleet.post("/producer/produce", **produce)
        assert fleet.client.get("/v1/metadata?topic=t").json()["missing"] == [], "leaders can be looked up"
        assert time.monotonic() - began < 10
        params = {"topic": "t", "consumer_id": consumer}
        assert fleet.client.get("/consumer/consume", params=params, timeout=40).status_code == 503
    finally:
        postgres.thaw()
    wait_until("consume", lambda: fleet.client.get("/consumer/consume", params=params).status_code == 200)


def test_managers_wait_for_a_database_that_starts_later(tmp_path: Path, postgres: Postgres) -> None:
    fleet = Fleet(tmp_path, database=postgres.new_database(), brokers=1, readers=1)
    postgres.stop()
    try:
        fleet.start()
        wait_until("the writer to say so", lambda: "waiting for the database" in fleet.writer.log())
        response = httpx.get(f"{fleet.writer.url}/readyz", timeout=30)
        assert response.status_code == 503
        assert "database" in response.json()["reasons"][0]
        postgres.start()
        fleet.wait_ready()
        fleet.create("t")
    finally:
        fleet.close()


def test_up_works_on_postgresql(tmp_path: Path, postgres: Postgres) -> None:
    with UpProcess(tmp_path / "data", "--database", postgres.new_database()) as up:
        up.wait_ready()
        created = httpx.post(f"{up.url}/topics", json={"name": "t"}, timeout=30)
        assert created.status_code == 200, created.text
        assert not list((tmp_path / "data").glob("metadata.sqlite*"))
