"""`flotilla topics`, `groups` and `brokers` on a real system: with and without authentication, and on a terminal."""

import json
import os
import pty
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import httpx
import pytest

from flotilla.client.errors import NotAllowed
from flotilla.myqueue import ApiHandler
from flotilla.records import encode
from support.access import ENVIRONMENT, SECRET
from support.cluster import free_port, wait_until
from support.fleet import Fleet

LIMIT_S = 60


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    with Fleet(Path(tmp_path_factory.mktemp("fleet")), readers=1) as fleet:
        yield fleet


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    folder = Path(tmp_path_factory.mktemp("guarded"))
    with Fleet(folder, brokers=1, readers=1, environment=ENVIRONMENT) as fleet:
        fleet.create("orders", partitions=1, replication=1)
        fleet.create("hidden", partitions=1, replication=1)
        yield fleet


def command(arguments: str, url: str, **who: str) -> tuple[Sequence[str], dict[str, str]]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("FLOTILLA_")}
    return [sys.executable, "-m", "flotilla.command", *arguments.split()], {**kept, "FLOTILLA_URL": url, **who}


def run(fleet: Fleet, arguments: str, **who: str) -> subprocess.CompletedProcess[str]:
    line, environment = command(arguments, fleet.url, **who)
    return subprocess.run(
        line,
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )


def out(fleet: Fleet, arguments: str, **who: str) -> str:
    """Run a command that must succeed; return its output."""
    done = run(fleet, arguments, **who)
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    return done.stdout


def run_json(fleet: Fleet, arguments: str, **who: str) -> Any:  # noqa: ANN401 - any JSON
    return json.loads(out(fleet, f"{arguments} --json", **who))


def refused(fleet: Fleet, arguments: str, **who: str) -> str:
    """Run a command that must fail; return its error."""
    done = run(fleet, arguments, **who)
    assert (done.returncode, done.stdout) == (1, ""), done.stdout
    return done.stderr.strip()


def append(fleet: Fleet, topic: str, count: int) -> None:
    query: dict[str, str | int] = {"topic": topic, "partition": 0}
    fleet.client.post("/v1/append", params=query, content=bytes(encode([b"x"] * count))).raise_for_status()


def commit(fleet: Fleet, group: str, topic: str, offset: int) -> None:
    body = {"offsets": [{"topic": topic, "partition": 0, "offset": offset}]}
    fleet.client.post(f"/v1/groups/{group}/commit", json=body).raise_for_status()


# -- lifecycle --------------------------------------------------------------------------------------------------------


def test_topic_can_be_created_changed_emptied_and_deleted(fleet: Fleet) -> None:
    assert "2 partitions, 3 replicas each" in out(fleet, "topics create life --retention 2d")
    assert refused(fleet, "topics create life") == (
        "flotilla topics: topic 'life' already exists; to accept an existing topic, use --exist-ok"
    )
    assert run_json(fleet, "topics create life --exist-ok")["retention_ms"] == 172_800_000
    changed = run_json(fleet, "topics config life --batch-bytes-max 1MiB --unset retention")
    assert (changed["retention_ms"], changed["batch_bytes_max"]) == (None, 1 << 20)
    assert "partitions" in refused(fleet, "topics grow life 1")
    assert len(run_json(fleet, "topics grow life 3")["partitions"]) == 3
    append(fleet, "life", 5)
    described = run_json(fleet, "topics describe life")
    assert [one["records"] for one in described["partitions"]] == [5, 0, 0]
    assert described["partitions"][0]["leader"] in described["topic"]["partitions"][0]["replicas"]
    assert out(fleet, "topics delete-records life 0=3").splitlines()[1].split() == ["0", "3", "5"]
    assert "is above the next offset" in refused(fleet, "topics delete-records life 0=9")
    emptied = run_json(fleet, "topics delete-records life --all")["partitions"]
    assert [one["first_offset"] for one in emptied] == [5, 0, 0]
    assert "life" in out(fleet, "topics list")
    assert out(fleet, "topics delete life") == "topic 'life' deleted\n"
    assert refused(fleet, "topics describe life") == "flotilla topics: topic 'life' does not exist"
    assert out(fleet, "topics delete life --missing-ok") == "topic 'life' does not exist\n"
    assert "does not exist" in refused(fleet, "topics delete life")


def test_group_can_be_described_reset_and_deleted(fleet: Fleet) -> None:
    out(fleet, "topics create read --partitions 1")
    append(fleet, "read", 10)
    commit(fleet, "readers", "read", 4)
    assert "lag 6" in out(fleet, "groups describe readers")
    for where, old, new in (
        ("--to earliest", 4, 0),
        ("--to latest", 0, 10),
        ("--shift -3 --partition read:0", 10, 7),
        ("--offset 99 --topic read", 7, 10),
        ("--to 2020-01-01", 10, 0),
    ):
        planned = run_json(fleet, f"groups reset readers {where} --dry-run")["partitions"]
        assert planned == run_json(fleet, f"groups reset readers {where}")["partitions"]
        assert planned == [{"topic": "read", "partition": 0, "old_offset": old, "new_offset": new}]
    join = {"topics": ["read"], "member_id": "me", "timeout_ms": 60_000}
    fleet.client.post("/v1/groups/readers/join", json=join).raise_for_status()
    (group,) = run_json(fleet, "groups list")["groups"]
    assert (group["name"], group["members"], group["topics"]) == ("readers", 1, ["read"])
    assert "me" in out(fleet, "groups describe readers")
    assert "stop them, or use force to remove them" in refused(fleet, "groups reset readers --to latest")
    assert "stop them, or use force" in refused(fleet, "groups delete readers")
    assert out(fleet, "groups delete readers --force") == "group 'readers' deleted\n"
    assert refused(fleet, "groups describe readers") == "flotilla groups: group 'readers' does not exist"


def test_brokers_are_listed_with_their_replicas(fleet: Fleet) -> None:
    out(fleet, "topics create held --partitions 1")
    brokers = run_json(fleet, "brokers list")["brokers"]
    assert {one["url"] for one in brokers} == {broker.url for broker in fleet.brokers}
    held = [one for broker in brokers for one in broker["partitions"] if one["topic"] == "held"]
    assert (len(held), sum(one["is_leader"] for one in held)) == (3, 1)
    first = brokers[0]
    assert run_json(fleet, f"brokers describe {first['id'][:8]}")["id"] == first["id"]
    assert refused(fleet, "brokers describe xyz") == "flotilla brokers: broker 'xyz' does not exist"
    host = first["url"].removeprefix("http://")
    fleet.post("/admin/broker/deactivate", broker_host=host)
    try:
        wait_until("it to be known", lambda: "cordoned" in out(fleet, f"brokers describe {first['url']}"))
    finally:
        fleet.post("/admin/broker/activate", broker_host=host)


# -- terminals --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("typed", "code"), [(b"n\n", 1), (b"y\n", 0)])
def test_delete_asks_for_confirmation_on_a_terminal(fleet: Fleet, typed: bytes, code: int) -> None:
    out(fleet, "topics create doomed --partitions 1 --exist-ok")
    line, environment = command("topics delete doomed", fleet.url)
    ours, theirs = pty.openpty()
    try:
        os.write(ours, typed)
        done = subprocess.run(
            line, env=environment, stdin=theirs, capture_output=True, text=True, timeout=LIMIT_S, check=False
        )
    finally:
        os.close(ours)
        os.close(theirs)
    assert done.returncode == code, done.stderr
    assert done.stderr.startswith("Permanently delete topic 'doomed' and all its records? [y/N] ")
    assert ("doomed" in out(fleet, "topics list")) is (code == 1)


def test_closed_pipe_ends_the_command_silently(fleet: Fleet) -> None:
    line, environment = command("topics list", fleet.url)
    reader, writer = os.pipe()
    os.close(reader)
    try:
        done = subprocess.run(
            line, env=environment, stdout=writer, stderr=subprocess.PIPE, text=True, timeout=LIMIT_S, check=False
        )
    finally:
        os.close(writer)
    assert (done.returncode, done.stderr) == (141, "")


def test_unreachable_manager_fails_fast() -> None:
    line, environment = command("topics list", f"http://127.0.0.1:{free_port()}")
    done = subprocess.run(line, env=environment, capture_output=True, text=True, timeout=20, check=False)
    assert done.returncode == 1
    assert f"cannot reach {environment['FLOTILLA_URL']}: " in done.stderr
    assert "Is it running? Start a local cluster with `flotilla up`" in done.stderr


# -- with authentication ----------------------------------------------------------------------------------------------


def make_token(fleet: Fleet, *grants: str) -> str:
    """Create a token, and wait until managers accept it."""
    made = run_json(fleet, f"tokens create x {' '.join(f'--grant {one}' for one in grants)}", FLOTILLA_SECRET=SECRET)
    text = str(made["token"])
    headers = {"authorization": f"Bearer {text}"}
    urls = [f"{manager.own_url}/v1/topics" for manager in fleet.managers]
    wait_until("it to be known", lambda: all(httpx.get(url, headers=headers).status_code == 200 for url in urls))
    return text


def test_requests_without_token_are_rejected(guarded: Fleet) -> None:
    for arguments in ("topics list", "topics describe orders", "groups list", "brokers list", "topics create x"):
        assert "authentication required: set FLOTILLA_TOKEN" in refused(guarded, arguments)
    forged = f"flt_{'0' * 16}_{'x' * 43}"
    assert "token rejected by http://" in refused(guarded, "topics list", FLOTILLA_TOKEN=forged)


def test_token_limits_what_is_visible_and_allowed(guarded: Fleet) -> None:
    """A token for one topic sees only this topic, and changes nothing."""
    reader = {"FLOTILLA_TOKEN": make_token(guarded, "consume:orders")}
    assert [one["name"] for one in run_json(guarded, "topics list", **reader)["topics"]] == ["orders"]
    assert run_json(guarded, "topics describe orders", **reader)["partitions"][0]["next_offset"] == 0
    (broker,) = run_json(guarded, "brokers list", **reader)["brokers"]
    assert {one["topic"] for one in broker["partitions"]} == {"orders"}
    assert "the scope admin on topic 'orders' is missing" in refused(guarded, "topics delete orders", **reader)
    assert "'hidden'" in refused(guarded, "topics describe hidden", **reader)
    commit(guarded, "secret", "hidden", 0)
    assert "no consumer groups found" in run(guarded, "groups list", **reader).stderr
    assert "lacks the scope consume" in refused(guarded, "groups describe secret", **reader)
    admin = {"FLOTILLA_TOKEN": make_token(guarded, "admin")}
    assert run_json(guarded, "topics create made --replication 1", **admin)["replication"] == 1
    assert [one["name"] for one in run_json(guarded, "groups list", **admin)["groups"]] == ["secret"]
    out(guarded, "groups delete secret", **admin)
    out(guarded, "topics delete made", **admin)


def test_secret_has_all_permissions(guarded: Fleet, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text(SECRET)
    names = [one["name"] for one in run_json(guarded, f"topics list --secret-file {tmp_path / 'secret'}")["topics"]]
    assert {"orders", "hidden"} <= set(names)


def test_context_option_uses_its_own_token(guarded: Fleet, tmp_path: Path) -> None:
    """Variables do not affect `--context`."""
    (tmp_path / "token").write_text(make_token(guarded, "consume:orders"))
    own = {"FLOTILLA_CONFIG": str(tmp_path / "config.toml")}
    for task in (f"set near --token-file {tmp_path / 'token'}", "set bare"):
        assert run(guarded, f"contexts {task} --url {guarded.url}", **own).returncode == 0
    everybody = {**own, "FLOTILLA_SECRET": SECRET}
    assert [one["name"] for one in run_json(guarded, "topics list --context near", **everybody)["topics"]] == ["orders"]
    assert "set a token file for context 'bare'" in refused(guarded, "topics list --context bare", **everybody)
    assert {"orders", "hidden"} <= {one["name"] for one in run_json(guarded, "topics list", **everybody)["topics"]}


def test_experiment_processes_use_the_token(guarded: Fleet, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text(SECRET)
    plan = f"experiment 2P2C --steps 5 --log-loc {tmp_path / 'logs'}"
    for task in (plan, f"experiment api-test {guarded.url}"):
        assert "authentication required" in refused(guarded, task).splitlines()[-1]
    who = f"--secret-file {tmp_path / 'secret'}"
    assert out(guarded, f"{plan} {who}").splitlines()[-1].startswith("ok: 2 consumers")
    assert out(guarded, f"experiment api-test {guarded.url} {who}").splitlines()[-1].startswith("ok: ")


def test_api_handler_raises_not_allowed(guarded: Fleet) -> None:
    with ApiHandler(guarded.url) as api, pytest.raises(NotAllowed, match="a token is missing"):
        api.list_topics()
    reader = make_token(guarded, "consume:orders")
    with ApiHandler(guarded.url, token=reader) as api, pytest.raises(NotAllowed, match="the scope admin"):
        api.delete_topic("orders")
