"""kill -9 of each role under load, and a restart of everything: no acknowledged record is lost."""

import os
import signal

import httpx
import pytest

from flotilla import Client
from smoke.conftest import System
from support.clientload import Sender, open_producer, run_while, wait_progress
from support.cluster import wait_until
from support.history import Read, violations
from support.load import read_name, read_replica
from support.upprocess import ApiReader

BROKERS = ("broker-1", "broker-2", "broker-3")
PARTITIONS = 2
RECORDS = 200  # acknowledged before, during and after a kill


def leader_of(system: System, topic: str) -> str:
    """Return the name of the process that leads partition 0 of a topic."""
    metadata = httpx.get(f"{system.url}/v1/metadata", params={"topic": topic}, timeout=10).json()
    leader = metadata["topics"][0]["partitions"][0]["leader"]
    return next(name for name in BROKERS if system.up.ask(name, "/v1/broker")["id"] == leader)


@pytest.mark.parametrize("role", ["leader", "writer", "reader-1"])
def test_killed_process_is_restarted_and_no_acknowledged_record_is_lost(system: System, role: str) -> None:
    """Guarantees 1 to 4: acknowledged records exist once, in order, while `flotilla up` restarts the process."""
    topic = f"kill-{role}"
    with Client(system.url) as client, open_producer(system.url) as producer:
        client.topics.create(topic, partitions=PARTITIONS)
        sender = Sender("p", producer, topic, PARTITIONS)

        def kill() -> None:
            wait_progress([sender], RECORDS)
            name = leader_of(system, topic) if role == "leader" else role
            killed = system.up.pids()[name]
            os.kill(killed, signal.SIGKILL)
            wait_progress([sender], RECORDS)
            wait_until(f"another {name}", lambda: system.up.pids().get(name, killed) != killed)
            wait_progress([sender], RECORDS)

        run_while([sender], kill)
        reads = [
            Read("c", record.partition, record.offset, read_name(record.value))
            for record in client.consumer(topic).records(until="end")
        ]
        replicas = [read_replica(ApiReader(system.url), topic, partition) for partition in range(PARTITIONS)]  # type: ignore[arg-type]  # same interface
    assert len(reads) == len(sender.sent)
    assert violations(sender.sends, replicas, reads) == []


def test_records_and_committed_offsets_survive_a_restart_of_everything(system: System) -> None:
    with Client(system.url) as client:
        client.topics.create("restarted", partitions=1)
        with client.producer() as producer:
            producer.send_many("restarted", [b"one", b"two", b"three"])
        with client.consumer("restarted", group="restarted") as consumer:
            first = next(iter(consumer.records()))
            consumer.commit()
        assert first.value == b"one"
    system.restart()
    with Client(system.url) as client, client.consumer("restarted", group="restarted") as consumer:
        assert next(iter(consumer.records())).value == b"two"
