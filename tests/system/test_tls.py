"""A cluster with TLS for all connections: clients, managers and brokers."""

import contextlib
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import trustme

from flotilla import Client
from flotilla.client.errors import ServerUnreachable
from flotilla.records import encode
from flotilla_manager import rebuild_command
from support import certificates
from support.certificates import Files
from support.cluster import BrokerProcess, wait_until
from support.fleet import Fleet, ManagerProcess

QUICK = ("--heartbeat-s", "0.1", "--election-s-min", "0.5", "--election-s-max", "1.0")


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return certificates.make_authority()


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory, authority: trustme.CA) -> Iterator[Fleet]:
    folder = Path(tmp_path_factory.mktemp("fleet"))
    with Fleet(folder, broker_flags=QUICK, tls=certificates.write(folder / "tls", authority)) as fleet:
        yield fleet


def files_of(fleet: Fleet) -> Files:
    assert fleet.tls is not None
    return fleet.tls


def append(fleet: Fleet, url: str, topic: str, *values: bytes) -> httpx.Response:
    query: dict[str, str | int] = {"topic": topic, "partition": 0}
    return httpx.post(
        f"{url}/v1/append", params=query, content=bytes(encode(values)), verify=files_of(fleet).client, timeout=40
    )


def ok(response: httpx.Response) -> dict[str, Any]:
    found: dict[str, Any] = response.json()
    assert response.status_code == 200, found
    return found


def shown(url: str, files: Files) -> bytes:
    """Return the certificate of a server."""
    host, port = url.removeprefix("https://").split(":")
    with (
        socket.create_connection((host, int(port)), timeout=10) as sock,
        files.client.wrap_socket(sock, server_hostname=host) as served,
    ):
        return served.getpeercert(binary_form=True) or b""


def test_messages_and_batches_work_over_tls(fleet: Fleet) -> None:
    """Readers forward topic changes to the writer, all over https."""
    fleet.create("through", partitions=1)
    producer, consumer = fleet.producer("through"), fleet.consumer("through")
    fleet.post("/producer/produce", topic="through", producer_id=producer, message="one")
    assert fleet.get("/consumer/consume", topic="through", consumer_id=consumer)["message"] == "one"
    assert ok(append(fleet, fleet.url, "through", b"two", b"x" * (3 << 20)))["base_offset"] == 1
    query: dict[str, str | int] = {"topic": "through", "partition": 0, "offset": 0, "max_bytes": 8 << 20}
    fetched = fleet.client.get("/v1/fetch", params=query)
    assert (fetched.status_code, fetched.headers["flotilla-next-offset"]) == (200, "3")
    assert len(fetched.content) > 3 << 20
    assert {one["url"].partition(":")[0] for one in fleet.get("/managers")["managers"]} == {"https"}


def test_metadata_has_broker_addresses_with_https(fleet: Fleet) -> None:
    """In metadata, and in errors of brokers that do not lead, so that clients reach leaders directly."""
    fleet.create("direct", partitions=1)
    answered = ok(fleet.client.get("/v1/metadata", params={"topic": "direct"}))
    urls = {one["id"]: one["url"] for one in answered["brokers"]}
    assert set(urls.values()) == {broker.url for broker in fleet.brokers}

    def refusals() -> list[dict[str, Any]]:
        answers = [append(fleet, url, "direct", b"m") for url in urls.values()]
        found = [one.json() for one in answers if one.status_code != 200]
        return found if [one["code"] for one in found] == ["not_leader"] * 2 else []

    leaders = {one["details"]["leader"]["url"] for one in wait_until("a leader that all know", refusals)}
    assert len(leaders) == 1
    assert leaders < set(urls.values())


def test_killed_broker_rejoins_over_tls(fleet: Fleet) -> None:
    fleet.create("survives", partitions=1)
    for at, broker in enumerate(fleet.brokers):
        broker.kill()
        assert ok(append(fleet, fleet.url, "survives", b"m"))["base_offset"] == at
        broker.start()
        broker.wait_alive()

    def agreed() -> bool:
        found = [
            [one["next_offset"] for one in broker.get("/v1/replicas")["replicas"] if one["topic"] == "survives"]
            for broker in fleet.brokers
        ]
        return found == [[len(fleet.brokers)]] * len(fleet.brokers)

    wait_until("all replicas to have everything", agreed)


def test_plain_http_is_rejected_on_every_port(fleet: Fleet) -> None:
    urls = {fleet.writer.url, fleet.url, *(one.own_url for one in fleet.readers), *(one.url for one in fleet.brokers)}
    for url in urls:
        with pytest.raises(httpx.TransportError):
            httpx.get(f"{url.replace('https', 'http')}/healthz", timeout=10)


def test_client_that_does_not_trust_the_ca_does_not_connect(fleet: Fleet) -> None:
    for url in (fleet.url, fleet.brokers[0].url):
        with pytest.raises(httpx.ConnectError, match="CERTIFICATE_VERIFY_FAILED"):
            httpx.get(f"{url}/healthz", timeout=10)


def test_broker_that_does_not_trust_the_managers_sends_no_heartbeats(fleet: Fleet, tmp_path: Path) -> None:
    """It runs, is not ready, and logs the reason."""
    other = certificates.write(tmp_path / "tls", certificates.make_authority())
    broker = BrokerProcess(tmp_path / "broker", ["--managers", fleet.url], tls=other)
    broker.start()
    try:
        wait_until("it to say so", lambda: "certificate verify failed" in broker.log())
        broker.wait_alive()
        assert broker.request("GET", "/readyz").status_code == 503
        assert len(fleet.get("/brokers")["brokers"]) == len(fleet.brokers)
    finally:
        broker.close()


def test_broker_can_be_added_by_its_address(fleet: Fleet) -> None:
    """A cluster with TLS uses https for a broker, unless the address has a scheme."""
    address = fleet.brokers[0].url.removeprefix("https://")
    for host in (address, f"https://{address}"):
        fleet.post("/admin/broker/add", broker_host=host)
    refused = fleet.client.post("/admin/broker/add", json={"broker_host": f"http://{address}"})
    assert refused.status_code == 400


def test_metadata_is_rebuilt_from_brokers_with_tls(
    fleet: Fleet, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    flags = ["--database", f"sqlite:///{tmp_path / 'rebuilt.db'}", "--dry-run", "--accept-problems"]
    for broker in fleet.brokers:
        flags += ["--broker", broker.url]
    assert rebuild_command.main(flags) == rebuild_command.EXIT_FAILED
    assert "certificate verify failed" in capsys.readouterr().err
    assert rebuild_command.main([*flags, "--ca", str(files_of(fleet).ca)]) == 0
    assert f"{len(fleet.brokers)} brokers" in capsys.readouterr().out


def test_replaced_certificate_is_used_without_a_restart(fleet: Fleet, authority: trustme.CA) -> None:
    files = files_of(fleet)
    urls = [fleet.writer.url, *(one.own_url for one in fleet.readers), *(one.url for one in fleet.brokers)]
    before = {shown(url, files) for url in urls}
    assert len(before) == 1
    certificates.write(files.cert.parent, authority)
    wait_until("the new one everywhere", lambda: before.isdisjoint(shown(url, files) for url in urls), 10)
    fleet.create("later", partitions=1)
    assert ok(append(fleet, fleet.url, "later", b"m"))["base_offset"] == 0


@pytest.mark.parametrize("wrong", ["missing", "other key"])
def test_unusable_certificate_prevents_the_start(tmp_path: Path, authority: trustme.CA, wrong: str) -> None:
    """Before anything is created or served, with the file and the reason."""
    files = certificates.write(tmp_path / "tls", authority)
    if wrong == "missing":
        files.cert.unlink()
    else:
        certificates.put(files.key, certificates.write(tmp_path / "other", authority).key.read_bytes())
    broker = BrokerProcess(tmp_path / "broker", tls=None, flags=files.flags)
    manager = ManagerProcess(tmp_path, "writer", "writer", f"sqlite:///{tmp_path / 'metadata.db'}", tls=files)
    for process in (broker, manager):
        with contextlib.closing(process):
            process.start()
            assert process.wait() == 2
            assert str(files.cert if wrong == "missing" else files.key) in process.log()
    assert not (tmp_path / "broker" / "data").exists()
    assert not (tmp_path / "metadata.db").exists()


@pytest.mark.parametrize("route", ["direct", "gateway"])
def test_client_library_trusts_only_the_given_ca(
    fleet: Fleet, tmp_path: Path, authority: trustme.CA, route: str
) -> None:
    ours, others = tmp_path / "ours.pem", tmp_path / "others.pem"
    authority.cert_pem.write_to_path(ours)
    certificates.make_authority().cert_pem.write_to_path(others)
    with Client(fleet.url, ca=ours, route=route) as client:
        client.topics.create(f"client-{route}", partitions=1)
        with client.producer() as producer:
            producer.send_many(f"client-{route}", [b"a", b"b"])
        records = client.consumer(f"client-{route}").records(until="end")
        assert [record.value for record in records] == [b"a", b"b"]
    with Client(fleet.url, ca=others, route=route, request_s=1) as client, pytest.raises(ServerUnreachable) as caught:
        client.topics.list()
    assert "certificate" in str(caught.value).lower()
    assert str(caught.value).endswith("Set `ca` or FLOTILLA_TLS_CA to the CA bundle of the server")
