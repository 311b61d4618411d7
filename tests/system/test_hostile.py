"""Hostile input, full disks, old copies of stores: brokers continue to run."""

import random
import shutil
import signal
import socket
from pathlib import Path

import httpx
import psutil
import pytest
import trustme

from flotilla.records import encode
from support.cluster import BrokerProcess, Cluster, wait_until
from support.load import Load

QUICK = ("--heartbeat-s", "0.1", "--election-s-min", "0.5", "--election-s-max", "1.0")
REPLICA = f"/v1/replicas/{'1' * 32}/0/1"


def throw(port: int, data: bytes) -> None:
    """Send bytes to a port, and read the response."""
    with socket.create_connection(("127.0.0.1", port), timeout=5) as sock:
        try:
            sock.sendall(data)
            sock.shutdown(socket.SHUT_WR)
            while sock.recv(1 << 16):
                continue
        except OSError:
            return  # the broker hung up, as it should


def mutate(rng: random.Random, data: bytes) -> bytes:
    """Change, cut or repeat a part of a valid message."""
    start, end = sorted(rng.randrange(len(data) + 1) for _ in range(2))
    kind = rng.randrange(3)
    if kind == 0:
        return data[:start] + rng.randbytes(end - start) + data[end:]
    return data[:start] + (data[start:end] * 2 if kind == 1 else b"") + data[end:]


@pytest.mark.parametrize("port", ["clients", "brokers"])
def test_broker_survives_arbitrary_bytes_on_its_ports(tmp_path: Path, port: str) -> None:
    """All network input is validated. Memory stays bounded."""
    rng = random.Random(port)
    with Cluster(tmp_path, flags=QUICK) as cluster:
        cluster.create("t")
        broker = cluster.leader()
        before = psutil.Process(broker.pid).memory_info().rss
        batch = bytes(encode([b"x" * 50] * 3))
        head = (
            f"POST /v1/append?topic=t&partition=0 HTTP/1.1\\r\\nHost: b\\r\\nContent-Length: {len(batch)}\\r\\n\\r\\n"
        )
        hello = bytes.fromhex("464c") + bytes(64)
        seed = head.encode() + batch if port == "clients" else hello
        number = broker.port if port == "clients" else broker.peer_port
        for _ in range(150):
            throw(number, rng.randbytes(rng.randrange(1, 3000)) if rng.random() < 0.4 else mutate(rng, seed))
        throw(number, b"\\xff" * (4 << 20))
        answer = broker.request("POST", "/v1/append?topic=t&partition=0", content=batch)
        assert answer.status_code == 200
        assert psutil.Process(broker.pid).memory_info().rss - before < 64 << 20
        assert all(other.is_running for other in cluster.brokers)
        assert cluster.leader() is broker


def post(broker: BrokerProcess, body: bytes) -> httpx.Response:
    """Append a batch."""
    return broker.request("POST", "/v1/append?topic=t&partition=0", content=body)


def fill_up(broker: BrokerProcess) -> httpx.Response:
    """Append large batches until the disk is full."""
    ballast = random.Random(1).randbytes(4 << 20)
    for number in range(100):
        body = bytes(encode([b"ballast %d " % number + ballast]))
        answer = post(broker, body)
        if answer.status_code != 200:
            return answer
    raise AssertionError("the disk does not get full")


def test_full_disk_rejects_appends_until_space_is_freed(tmp_path: Path) -> None:
    """Acknowledged records are kept; the reserve is for operations that free space."""
    flags = (*QUICK, "--segment-bytes", "20MiB", "--log-bytes-max", "120MiB")
    with Cluster(tmp_path, flags=flags) as cluster:
        cluster.create("t")
        load = Load("t", 1, cluster.brokers, random.Random(1), pause_s=0.02)

        def fill() -> None:
            load.wait_progress(50)
            answer = fill_up(cluster.leader())
            assert answer.json()["code"] in {"disk_full", "not_leader", "no_leader", "unknown_outcome"}
            cluster.create("t", retention_bytes=1 << 20)
            wait_until("retention", lambda: cluster.describe(cluster.leader())["first_offset"] > 0)
            large = bytes(encode([b"ballast 1000 " + bytes(4 << 20)]))
            wait_until("room", lambda: post(cluster.leader(), large).status_code == 200)
            load.wait_progress(50)

        load.run_while(fill)
        cluster.wait_agreed()
        assert [line for line in load.violations() if "producer='ballast'" not in line] == []


def test_broker_with_an_outdated_store_takes_a_new_id(tmp_path: Path) -> None:
    """A restored copy lacks votes and entries. The broker cannot detect it; the others do."""
    with Cluster(tmp_path, flags=QUICK) as cluster:
        cluster.create("t")
        load = Load("t", 1, cluster.brokers, random.Random(2))
        load.run_while(lambda: load.wait_progress(50))
        cluster.wait_agreed()
        victim = next(broker for broker in cluster.brokers if broker is not cluster.leader())
        before = victim.id
        victim.signal(signal.SIGTERM)
        victim.wait()
        shutil.copytree(victim.data, tmp_path / "backup")
        victim.start()
        victim.wait_alive()
        wait_until("the others", lambda: len(victim.get("/v1/broker")["connected"]) == 2)
        load.run_while(lambda: load.wait_progress(50))
        victim.kill()
        shutil.rmtree(victim.data)
        shutil.copytree(tmp_path / "backup", victim.data)
        victim.start()
        assert victim.wait() != 0
        assert "older copy" in victim.log()
        victim.start()
        victim.wait_alive()
        assert victim.id != before
        load.brokers = [broker for broker in cluster.brokers if broker is not victim]
        assert load.violations() == []


def test_broker_with_another_secret_is_rejected(tmp_path: Path) -> None:
    """Without the secret there is no connection, with any id."""
    with Cluster(tmp_path, environment={"FLOTILLA_SECRET": "a secret of all brokers"}) as cluster:
        wait_until("connections", lambda: all(len(b.get("/v1/broker")["connected"]) == 2 for b in cluster.brokers))
        stranger = cluster.brokers[0]
        stranger.kill()
        stranger.set_environment({"FLOTILLA_SECRET": "what a stranger guesses"})
        stranger.start()
        stranger.wait_alive()
        wait_until("a refusal", lambda: any("has another secret" in b.log() for b in cluster.brokers))
        assert stranger.get("/v1/broker")["connected"] == []
        assert "a stranger guesses" not in stranger.log()


@pytest.mark.parametrize(
    ("flags", "text"),
    [
        (["--port", "99999"], "port must be from 0 to 65535"),
        (["--segment-bytes", "many"], "--segment-bytes: 'many' is not a size"),
        (["--peer-host", "0.0.0.0"], "secret is required, because peer_host 0.0.0.0"),  # noqa: S104 - it is refused
        (["--heartbeat-s", "5"], "heartbeat_s=5.0 must be above 0"),
        (["--peer-cert", "x"], "peer_cert, peer_key and peer_ca must be set together"),
        (
            ["--peer-cert", "no/c", "--peer-key", "no/k", "--peer-ca", "no/a"],
            "peer_ca no/a cannot be loaded: No such file",
        ),
        (["--managers", "http://m:1", "--host", "0.0.0.0"], "advertise_host must be set to a reachable host"),  # noqa: S104 - refused
        (["--durability", "hope"], "--durability: 'hope' must be fsync, os or memory"),
    ],
)
def test_invalid_setting_is_named_with_its_rule(tmp_path: Path, flags: list[str], text: str) -> None:
    broker = BrokerProcess(tmp_path, flags)
    broker.start()
    assert broker.wait() == 2
    assert text in broker.log()
    broker.close()


def test_brokers_with_certificates_require_mutual_tls(tmp_path: Path) -> None:
    """A peer without a certificate of the same CA is rejected."""
    ours, other = trustme.CA(), trustme.CA()
    flags = certificates(tmp_path / "ours", ours)
    with Cluster(tmp_path / "cluster", flags=(*QUICK, *flags)) as cluster:
        cluster.create("t")
        assert post(cluster.leader(), bytes(encode([b"x"]))).status_code == 200
        stranger = cluster.brokers[0]
        stranger.kill()
        stranger.set_flags((*QUICK, *certificates(tmp_path / "other", other)))
        stranger.start()
        stranger.wait_alive()
        wait_until("a refusal", lambda: any("certificate" in broker.log().lower() for broker in cluster.brokers))
        assert stranger.get("/v1/broker")["connected"] == []
        assert post(cluster.leader(), bytes(encode([b"y"]))).status_code == 200


def certificates(folder: Path, authority: trustme.CA) -> list[str]:
    """Issue a certificate for this machine; return the flags."""
    folder.mkdir()
    issued = authority.issue_cert("127.0.0.1", "localhost")
    authority.cert_pem.write_to_path(str(folder / "ca.pem"))
    issued.private_key_pem.write_to_path(str(folder / "key.pem"))
    issued.cert_chain_pems[0].write_to_path(str(folder / "cert.pem"))
    return [flag for name in ("ca", "key", "cert") for flag in (f"--peer-{name}", str(folder / f"{name}.pem"))]
