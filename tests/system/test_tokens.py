"""Life of tokens: created, distributed to all servers, used, revoked, expired; never stored in clear text."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from flotilla.access import system_token
from flotilla.records import encode
from support.access import ENVIRONMENT, SECRET, bearer
from support.cluster import wait_until
from support.fleet import Fleet
from support.upprocess import UpProcess

SOON_S = 5.0  # what is promised is about two seconds; the machine may be busy
BATCH = bytes(encode([b"hello"]))


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    folder = Path(tmp_path_factory.mktemp("fleet"))
    debug = ("--log-level", "debug")
    with Fleet(folder, readers=1, environment=ENVIRONMENT, manager_flags=debug, broker_flags=debug) as fleet:
        fleet.create("orders", partitions=1)
        yield fleet


def command(fleet: Fleet, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run `flotilla tokens`, with the secret unless a token is given."""
    who = environment or {"FLOTILLA_SECRET": SECRET}
    kept = {name: value for name, value in os.environ.items() if not name.startswith("FLOTILLA_")}
    return subprocess.run(
        [sys.executable, "-m", "flotilla.command", "tokens", *arguments],
        env={**kept, "FLOTILLA_URL": fleet.url, **who},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def make(fleet: Fleet, *grants: str, **more: Any) -> tuple[str, str]:  # noqa: ANN401 - any JSON
    """Create a token with the API; return its id and its text."""
    made = fleet.client.post("/v1/tokens", json={"name": "x", "grants": grants, **more}).raise_for_status().json()
    return made["id"], made["token"]


def statuses(fleet: Fleet, text: str) -> list[int]:
    """Read a topic from every manager and every broker; 0 means no response."""
    servers = [manager.own_url for manager in fleet.managers] + [broker.url for broker in fleet.brokers]
    query = "/v1/fetch?topic=orders&partition=0&offset=earliest&replica=any"
    found = []
    for url in servers:
        try:
            found.append(httpx.get(url + query, headers=bearer(text), timeout=20).status_code)
        except httpx.HTTPError:
            found.append(0)
    return found


def wait_known(fleet: Fleet, text: str) -> None:
    """Wait until a token is valid on all servers."""
    wait_until("the token to be known", lambda: set(statuses(fleet, text)) == {200})


def wait_refused(fleet: Fleet, text: str) -> None:
    """Wait until a token is valid on no server."""
    wait_until("the token to be refused", lambda: set(statuses(fleet, text)) == {401}, SOON_S)


# -- made, listed and revoked -------------------------------------------------------------------------------------


def test_command_creates_lists_and_revokes_tokens(fleet: Fleet) -> None:
    """The first token is created with the secret, and further ones with that token."""
    made = command(fleet, "create", "boss", "--grant", "admin")
    assert made.returncode == 0, made.stderr
    boss = made.stdout.strip()
    wait_until("it to be known", lambda: command(fleet, "list", FLOTILLA_TOKEN=boss).returncode == 0, 20)
    grants = ("--grant", "consume:orders", "--grant", "produce:orders")
    limits = ("--expires", "1h", "--bytes-per-s", "10MiB", "--requests-per-s", "500", "--in-flight-bytes", "64MiB")
    worker = command(fleet, "create", "worker", *grants, *limits, "--json", FLOTILLA_TOKEN=boss)
    answered = json.loads(worker.stdout)
    wait_known(fleet, answered["token"])
    listed = command(fleet, "list", FLOTILLA_TOKEN=boss)
    line = next(line for line in listed.stdout.splitlines() if answered["id"] in line)
    assert "worker  consume:orders produce:orders  10MiB/s, 500 requests/s, 64MiB in flight" in line
    assert answered["token"] not in listed.stdout
    assert command(fleet, "list", FLOTILLA_TOKEN=answered["token"]).stderr.startswith(
        "flotilla tokens: the scope admin"
    )
    revoked = command(fleet, "revoke", answered["id"], FLOTILLA_TOKEN=boss)
    assert revoked.returncode == 0, revoked.stderr
    wait_refused(fleet, answered["token"])
    again = command(fleet, "revoke", answered["id"], FLOTILLA_TOKEN=boss)
    assert (again.returncode, again.stderr) == (1, f"flotilla tokens: there is no token {answered['id']}\n")
    command(fleet, "revoke", boss.split("_")[1])


def test_api_creates_lists_and_revokes_tokens_and_never_returns_digests(fleet: Fleet) -> None:
    body = {"name": "über", "grants": ["admin:a*", "consume", "consume:*"], "expires_in_s": 60, "requests_per_s": 5}
    response = fleet.client.post("/v1/tokens", json=body)
    made = response.json()
    assert response.headers["cache-control"] == "no-store"
    text = made.pop("token")
    assert text.startswith(f"flt_{made['id']}_")
    assert made["grants"] == ["admin:a*", "consume:*"]
    assert made["expires_ms"] - made["created_ms"] == 60_000
    listed = fleet.client.get("/v1/tokens").json()["tokens"]
    assert made in listed
    assert all("digest" not in one and "token" not in one for one in listed)
    assert fleet.client.delete(f"/v1/tokens/{made['id']}").json() == {"status": "ok"}
    assert fleet.client.delete(f"/v1/tokens/{made['id']}").status_code == 404
    assert made not in fleet.client.get("/v1/tokens").json()["tokens"]


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"grants": []}, "grants"),
        ({"grants": ["fly:orders"]}, "produce, consume or admin"),
        ({"grants": ["produce:a b"]}, "a pattern of topic names"),
        ({"grants": ["produce"] * 101}, "grants"),
        ({"name": ""}, "name"),
        ({"name": "a\nb"}, "printable"),
        ({"expires_in_s": 0}, "expires_in_s"),
        ({"bytes_per_s": 0}, "bytes_per_s"),
        ({"digest": "f" * 64}, "digest"),
    ],
)
def test_invalid_token_requests_are_rejected_with_the_rule(fleet: Fleet, change: dict[str, Any], text: str) -> None:
    response = fleet.client.post("/v1/tokens", json={"name": "x", "grants": ["produce:x"], **change})
    assert response.status_code == 400
    assert response.json()["code"] == "bad_request"
    assert text in response.json()["message"]


# -- how they end -------------------------------------------------------------------------------------------------


def test_new_token_is_valid_on_every_manager_at_once(fleet: Fleet) -> None:
    for _ in range(5):
        _, text = make(fleet, "consume")
        assert [
            httpx.get(f"{manager.own_url}/v1/topics/orders", headers=bearer(text), timeout=20).status_code
            for manager in fleet.managers
        ] == [200] * len(fleet.managers)


def test_revoked_token_is_rejected_by_all_servers_within_seconds(fleet: Fleet) -> None:
    id_, text = make(fleet, "consume:orders")
    wait_known(fleet, text)
    began = time.monotonic()
    fleet.client.delete(f"/v1/tokens/{id_}").raise_for_status()
    wait_refused(fleet, text)
    assert time.monotonic() - began < SOON_S


def test_expired_token_is_rejected_by_all_servers(fleet: Fleet) -> None:
    _, text = make(fleet, "consume:orders", expires_in_s=6)
    wait_known(fleet, text)
    wait_until("it to expire", lambda: set(statuses(fleet, text)) == {401}, 10)


@pytest.mark.parametrize("how", ["revoked", "expired"])
def test_stream_ends_with_its_token(fleet: Fleet, how: str) -> None:
    """A stream that was opened with a valid token does not outlive it."""
    id_, text = make(fleet, "consume:orders", expires_in_s=8 if how == "expired" else 600)
    wait_known(fleet, text)
    url = f"{fleet.url}/v1/tail?topic=orders"
    with httpx.stream("GET", url, headers=bearer(text), timeout=20) as response:
        lines = response.iter_lines()
        assert next(lines) == ": listening"
        query = {"topic": "orders", "partition": "0"}
        fleet.client.post("/v1/append", params=query, content=BATCH).raise_for_status()
        assert "hello" in next(line for line in lines if line.startswith("data: "))
        if how == "revoked":
            fleet.client.delete(f"/v1/tokens/{id_}").raise_for_status()
        began = time.monotonic()
        rest = list(lines)
    assert time.monotonic() - began < 8 + SOON_S
    assert rest[-3] == "event: error"
    assert json.loads(rest[-2].removeprefix("data: "))["code"] == "unauthorized"


def test_waiting_fetch_returns_nothing_when_its_token_ends(fleet: Fleet) -> None:
    id_, text = make(fleet, "consume:orders")
    wait_known(fleet, text)
    query = "/v1/fetch?topic=orders&partition=0&offset=latest&wait_ms=6000"
    with httpx.Client(base_url=fleet.readers[0].own_url, headers=bearer(text), timeout=20) as client:
        assert client.get("/").status_code == 200
        fleet.client.delete(f"/v1/tokens/{id_}").raise_for_status()
        # It may still be accepted and then wait; the final response is an error.
        assert client.get(query).status_code == 401


def test_tokens_survive_a_kill_of_all_processes(fleet: Fleet) -> None:
    id_, text = make(fleet, "consume:orders")
    gone_id, gone = make(fleet, "consume:orders")
    wait_known(fleet, gone)
    fleet.client.delete(f"/v1/tokens/{gone_id}").raise_for_status()
    wait_refused(fleet, gone)
    fleet.kill_all()
    fleet.start()
    fleet.wait_ready()
    wait_known(fleet, text)
    assert set(statuses(fleet, gone)) == {401}
    fleet.client.delete(f"/v1/tokens/{id_}").raise_for_status()


# -- what is never written down -----------------------------------------------------------------------------------


def test_logs_metrics_and_files_contain_no_token_and_no_secret(fleet: Fleet) -> None:
    """Not even at level debug; files have ids and digests of tokens."""
    id_, text = make(fleet, "consume:orders", "produce:orders", "admin:orders")
    wait_known(fleet, text)
    forged = f"flt_{id_}_{'forged-' * 6}x"
    assert set(statuses(fleet, forged)) == {401}
    urls = [manager.own_url for manager in fleet.managers] + [broker.url for broker in fleet.brokers]
    shown = "".join(httpx.get(f"{url}/metrics").text for url in urls)
    assert "flotilla_follower_lag_entries{" in shown
    assert "orders" not in shown, "metrics are public: they have topic ids only"
    for url in urls:  # what goes wrong is logged with more than what goes right
        for target in ("/v1/append?topic=orders&partition=7", "/v1/tokens", "/nothing", "/v1/topics/x"):
            httpx.post(url + target, headers=bearer(text), content=b"x")
    hidden = {text, text.split("_", 2)[2], forged, SECRET, system_token(SECRET.encode())}
    for file in fleet.folder.rglob("*"):
        if file.is_file():
            content = file.read_bytes()
            assert not [secret[:12] for secret in hidden if secret.encode() in content], file
    assert not any(secret in shown for secret in hidden)
    assert id_ in fleet.writer.log()
    assert '"level":"debug"' in fleet.writer.log()


def test_rebuild_needs_the_secret_and_keeps_tokens(fleet: Fleet) -> None:
    _, text = make(fleet, "consume:orders")
    wait_known(fleet, text)
    fleet.writer.terminate()
    module = [sys.executable, "-m", "flotilla_manager.rebuild_command", "--force", "--database", fleet.database]
    brokers = [part for broker in fleet.brokers for part in ("--broker", broker.url)]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("FLOTILLA_")}
    for secret, code, said in ((None, 1, "FLOTILLA_SECRET"), (SECRET, 0, "Metadata written.")):
        who = {} if secret is None else {"FLOTILLA_SECRET": secret}
        ended = subprocess.run(
            [*module, *brokers], env={**environment, **who}, capture_output=True, text=True, timeout=60, check=False
        )
        assert (ended.returncode, said in ended.stdout + ended.stderr) == (code, True), ended.stderr
    fleet.writer.start()
    fleet.wait_ready()
    wait_known(fleet, text)


# -- flotilla up --------------------------------------------------------------------------------------------------


def test_up_with_auth_prints_how_to_create_the_first_token(tmp_path: Path) -> None:
    """The printed lines work as they are: create a token and a topic, send a message, and read it."""
    with UpProcess(tmp_path / "data dir", "--brokers", "1", "--auth", "on") as up:
        up.wait_ready()
        assert httpx.get(f"{up.url}/topics").status_code == 401
        lines = [line for line in up.output if line.startswith(("export ", "curl ", "p=$(curl", "c=$(curl"))]
        assert len(lines) == 4
        script = "\n".join(lines)
        folder = Path(sys.executable).parent
        ended = subprocess.run(
            ["sh", "-c", script],
            env={**os.environ, "PATH": f"{folder}:{os.environ['PATH']}"},
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert '"message":"hello"' in ended.stdout, ended.stdout + ended.stderr
        assert SECRET not in ended.stderr
