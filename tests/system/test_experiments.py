"""`flotilla experiment` on a real system, also while a broker is killed."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import psutil
import pytest

from flotilla import Client
from support.cluster import wait_until
from support.fleet import Fleet

LIMIT_S = 120


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    with Fleet(Path(tmp_path_factory.mktemp("fleet")), readers=1) as fleet:
        yield fleet


def begin(fleet: Fleet, folder: Path, *arguments: str) -> subprocess.Popen[str]:
    """Start `flotilla experiment` in a folder."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("FLOTILLA_")}
    return subprocess.Popen(
        [sys.executable, "-m", "flotilla.command", "experiment", *arguments],
        env={**kept, "FLOTILLA_URL": fleet.url},
        cwd=folder,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def end(process: subprocess.Popen[str], code: int = 0) -> str:
    """Wait for the end; return the output."""
    try:
        out, err = process.communicate(timeout=LIMIT_S)
    finally:
        process.kill()
    assert process.returncode == code, (out, err)
    return out + err


def run(fleet: Fleet, folder: Path, *arguments: str, code: int = 0) -> str:
    return end(begin(fleet, folder, *arguments), code)


def stored(fleet: Fleet, topic: str) -> int:
    found = fleet.client.get(f"/v1/topics/{topic}/offsets").json()
    return sum(one["next_offset"] for one in found.get("partitions", ()))


def test_2p2c_can_be_repeated(fleet: Fleet, tmp_path: Path) -> None:
    """Consumers start at latest, so earlier runs have no effect. Existing files are not generated again."""
    first = run(fleet, tmp_path, "2P2C", "--steps", "20")
    assert "ok: 2 consumers received " in first
    files = {path.name: path.read_text() for path in (tmp_path / "2P2C").iterdir()}
    assert sorted(files) == ["consumer_1.txt", "consumer_2.txt", "producer_1.txt", "producer_2.txt"]
    again = json.loads(run(fleet, tmp_path, "2P2C", "--json"))
    assert (again["ok"], again["problems"]) == (True, [])
    assert sum(one["received"] for one in again["tallies"]) == 2 * sum(
        len(files[name].splitlines()) - 2 for name in ("producer_1.txt", "producer_2.txt")
    )


def test_5p3c_succeeds_while_a_broker_is_killed(fleet: Fleet, tmp_path: Path) -> None:
    """With one of three brokers killed, nothing is lost, duplicated or out of order."""
    process = begin(fleet, tmp_path, "5P3C", "--steps", "200", "--prefix", "killed-")
    wait_until("some messages to be sent", lambda: stored(fleet, "killed-T1") > 30, LIMIT_S)
    with Client(fleet.url) as client:
        leader = client.topics.describe("killed-T1").partitions[0].leader
    victim = next(broker for broker in fleet.brokers if broker.id == leader)
    victim.kill()
    try:
        assert process.poll() is None, "it was killed in the middle"
        printed = end(process)
    finally:
        victim.start()
        victim.wait_alive()
    assert "ok: 3 consumers received " in printed


def steps(id_: int, topics: Sequence[str], fleet: Fleet) -> list[str]:
    """Options of a single step, in their traditional form."""
    return ["--id", str(id_), "--topics", *topics, "--broker", fleet.url.removeprefix("http://"), "--log_loc", "./test"]


def test_single_steps_are_a_complete_experiment(fleet: Fleet, tmp_path: Path) -> None:
    (tmp_path / "test").mkdir()
    for id_ in (1, 2):
        rows = "".join(f"21:52:23\tINFO\t\tP{id_}-{at // 2}\t\tS{1 + at % 2}\n" for at in range(10))
        (tmp_path / "test" / f"producer_{id_}.txt").write_text(rows)
    consumer = begin(fleet, tmp_path, "consume", *steps(7, ("S1", "S2"), fleet))
    assert consumer.stderr is not None
    assert consumer.stderr.readline() == "consumer 7 subscribed to S1 S2; press Ctrl-C to stop\n"
    for id_ in (1, 2):
        assert (
            run(fleet, tmp_path, "produce", *steps(id_, ("S1", "S2"), fleet)) == f"producer {id_}: 10 messages sent\n"
        )
    consumer.send_signal(signal.SIGINT)
    assert end(consumer) == "consumer 7: 20 messages in test/consumer_7.txt\n"
    assert run(fleet, tmp_path, "check", "test").endswith(
        "ok: 1 consumer received 20 messages, each once and in order\n"
    )


def test_messages_of_other_producers_are_found(fleet: Fleet, tmp_path: Path) -> None:
    run(fleet, tmp_path, "sample", "test", "--plan", "2P2C", "--steps", "2")
    options = ["--id", "1", "--topics", "T1", "T2", "--log-loc", "test", "--prefix", "strange-"]
    consumer = begin(fleet, tmp_path, "consume", *options, "--until-input-ends", "--json")
    assert consumer.stdout is not None
    assert json.loads(consumer.stdout.readline()) == {"messages": 0}
    with Client(fleet.url) as client, client.producer() as producer:
        producer.send("strange-T2", b"who\tam I? \xff").result()
    run(fleet, tmp_path, "produce", *options)
    end(consumer)  # which closes its input
    printed = run(fleet, tmp_path, "check", "test", code=1)
    assert "consumer_1.txt line 4: message does not come from a producer of the experiment (T2)" in printed
    assert "producer_2.txt line 3 is missing (T1)" in printed, "it was not started"


def test_topic_with_several_partitions_is_rejected(fleet: Fleet, tmp_path: Path) -> None:
    fleet.create("wide-T2", partitions=2)
    printed = run(fleet, tmp_path, "2P2C", "--prefix", "wide-", code=1)
    assert "topic 'wide-T2' has 2 partitions, but an experiment needs exactly one" in printed


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGKILL, -9)])
def test_interrupted_experiment_leaves_no_process(
    fleet: Fleet, tmp_path: Path, number: signal.Signals, code: int
) -> None:
    topic = f"left-{number.name}-T1"
    process = begin(fleet, tmp_path, "2P2C", "--steps", "3000", "--prefix", topic.removesuffix("T1"))
    wait_until("some messages to be sent", lambda: stored(fleet, topic) > 10, LIMIT_S)
    children = psutil.Process(process.pid).children(recursive=True)
    assert len(children) == 4
    process.send_signal(number)
    end(process, code)
    wait_until("all of it to end", lambda: not any(child.is_running() for child in children))


def test_consumer_stops_after_timeout_and_reports_unwritable_file(fleet: Fleet, tmp_path: Path) -> None:
    options = ["--id", "1", "--topics", "quiet", "quiet", "--log-loc"]
    assert "consumer 1: 0 messages in quiet/consumer_1.txt" in run(
        fleet, tmp_path, "consume", *options, "quiet", "--timeout", "1s"
    )
    printed = run(fleet, tmp_path, "consume", *options, "quiet/consumer_1.txt", code=2)
    assert "consumer_1.txt cannot be written" in printed


def test_api_test_passes(fleet: Fleet, tmp_path: Path) -> None:
    before = fleet.get("/topics")["topics"]
    printed = run(fleet, tmp_path, "api-test", fleet.url)
    assert "failed" not in printed
    assert printed.splitlines()[-1].startswith("ok: ")
    answered = json.loads(run(fleet, tmp_path, "api-test", fleet.url.removeprefix("http://"), "--json"))
    assert answered["ok"]
    assert len(answered["calls"]) == len(printed.splitlines()) - 1 > 70
    assert fleet.get("/topics")["topics"] == before, "its topic is gone"
