"""Consumer groups: assignment, takeover and commits."""

from collections.abc import Callable
from typing import Any

import httpx
import pytest

from flotilla import Client
from flotilla.client.errors import MemberGone, NotFound, Refused
from flotilla.client.positions import TopicPartition
from support.behaviour.records import SOON_S, numbers, send
from support.cluster import wait_until


def committed(client: Client, group: str) -> dict[int, int]:
    """Return the committed offsets of a group."""
    return {one.partition: one.offset for one in client.groups.offsets(group)}


def call(http: httpx.Client, group: str, what: str, **body: Any) -> tuple[int, Any]:  # noqa: ANN401 - any JSON
    """Send a request about a group."""
    response = http.post(f"/v1/groups/{group}/{what}", json=body)
    return response.status_code, response.json()


def group_continues_from_its_committed_offsets(url: str, name: str) -> None:
    """Consumed records are committed at close, and not read again."""
    with Client(url) as client:
        client.topics.create(name, partitions=1)
        send(client, name, numbers(10))
        with client.consumer(name, group=name) as consumer:
            assert [record.offset for record in consumer.records(max_records=4)] == [0, 1, 2, 3]
        assert committed(client, name) == {0: 4}
        with client.consumer(name, group=name) as consumer:
            assert [record.offset for record in consumer.records(max_records=6)] == [4, 5, 6, 7, 8, 9]
            assert consumer.poll(0.2) is None


def manual_commits_are_the_only_ones_without_auto_commit(url: str, name: str) -> None:
    """All consumed records, or given offsets, which can be lower."""
    with Client(url) as client:
        client.topics.create(name, partitions=1)
        send(client, name, numbers(10))
        with client.consumer(name, group=name, auto_commit_s=None) as consumer:
            assert len(list(consumer.records(max_records=3))) == 3
            consumer.commit()
            assert committed(client, name) == {0: 3}
            assert len(list(consumer.records(max_records=3))) == 3
        assert committed(client, name) == {0: 3}
        with client.consumer(name, group=name, auto_commit_s=None) as consumer:
            record = consumer.poll(SOON_S)
            assert record is not None
            assert record.offset == 3
            consumer.commit({TopicPartition(name, 0): 1})
        assert committed(client, name) == {0: 1}


def members_share_partitions_and_take_over(url: str, name: str) -> None:
    """A second member gets half of the partitions, and the first gets them back; each record is read once."""
    with Client(url) as client:
        client.topics.create(name, partitions=4)
        events: list[tuple[str, int]] = []
        with client.consumer(
            name,
            group=name,
            session_s=2,
            on_assigned=lambda places: events.append(("assigned", len(places))),
            on_revoked=lambda places: events.append(("revoked", len(places))),
        ) as one:
            wait_until("all partitions", lambda: one.poll(0.02) is None and len(one.assignment) == 4)
            with client.consumer(name, group=name, session_s=2) as two:
                wait_until(
                    "half of them",
                    lambda: one.poll(0.02) is None and two.poll(0.02) is None and len(two.assignment) == 2,
                )
                assert sorted([*one.assignment, *two.assignment]) == [TopicPartition(name, at) for at in range(4)]
                assert events == [("assigned", 4), ("revoked", 2)]
                for partition in range(4):
                    send(client, name, numbers(5), partition)
                found = [*one.records(max_records=10, timeout_s=SOON_S), *two.records(max_records=10, timeout_s=SOON_S)]
                places = sorted((record.partition, record.offset) for record in found)
                assert places == [(partition, offset) for partition in range(4) for offset in range(5)]
            wait_until("all partitions again", lambda: one.poll(0.02) is None and len(one.assignment) == 4)
            assert one.poll(0.1) is None, "records that the other member processed are not delivered again"
        assert committed(client, name) == dict.fromkeys(range(4), 5)


def group_reads_new_partitions_of_its_topic(url: str, name: str) -> None:
    """From their first offset, also with auto_offset_reset=latest."""
    with Client(url) as client:
        client.topics.create(name, partitions=1)
        send(client, name, [b"old"])
        with client.consumer(name, group=name, start="latest", session_s=1) as consumer:
            wait_until("a partition", lambda: consumer.poll(0.02) is None and consumer.assignment)
            client.topics.grow(name, 2)
            send(client, name, [b"grown"], 1)
            send(client, name, [b"new"], 0)
            found = consumer.records(max_records=2, timeout_s=SOON_S)
            assert {record.value for record in found} == {b"grown", b"new"}


def silent_member_is_replaced(url: str, name: str) -> None:
    """Its partitions go to other members after the session timeout, and its later requests are rejected."""
    with Client(url) as client, httpx.Client(base_url=url, timeout=30) as http:
        client.topics.create(name, partitions=1)
        send(client, name, numbers(3))
        status, silent = call(http, name, "join", topics=[name], member_id="silent", timeout_ms=1000)
        assert (status, silent["assigned"], silent["state"]) == (200, [{"topic": name, "partition": 0}], "stable")
        with client.consumer(name, group=name, session_s=1) as consumer:
            assert [record.offset for record in consumer.records(max_records=3, timeout_s=SOON_S)] == [0, 1, 2]
            member = {"member_id": "silent", "generation": silent["generation"]}
            assert call(http, name, "heartbeat", **member)[1]["code"] == "unknown_member"
            commit = {**member, "offsets": [{"topic": name, "partition": 0, "offset": 1}]}
            assert call(http, name, "commit", **commit)[1]["code"] == "unknown_member"


def reused_member_id_is_reported_to_the_replaced_member(url: str, name: str) -> None:
    """Two processes with the same id would replace each other endlessly."""
    with Client(url) as client:
        client.topics.create(name, partitions=1)
        with (
            client.consumer(name, group=name, member_id="me", session_s=1) as one,
            client.consumer(name, group=name, member_id="me", session_s=1) as two,
        ):
            wait_until("the first", lambda: one.poll(0.02) is None and one.assignment)
            wait_until("the second", lambda: two.poll(0.02) is None and two.assignment)
            with pytest.raises(MemberGone, match=f"another consumer joined group '{name}' with member_id 'me'"):
                one.poll(SOON_S)
            send(client, name, numbers(1))
            assert two.poll(SOON_S) is not None
            assert client.groups.describe(name).generation == 2, "the previous member does not rejoin"


def only_the_owner_of_a_partition_commits_to_it(url: str, name: str) -> None:
    """Non-members cannot commit while there are members, and all members use one assignor."""
    with Client(url) as client, httpx.Client(base_url=url, timeout=30) as http:
        client.topics.create(name, partitions=2)
        _, one = call(http, name, "join", topics=[name], member_id="one", timeout_ms=30_000)
        _, two = call(http, name, "join", topics=[name], member_id="two", timeout_ms=30_000)
        assert (len(one["assigned"]), two["assigned"], two["pending"]) == (2, [], 1)
        row = {"topic": name, "partition": 1, "offset": 0}
        member = {"member_id": "two", "generation": two["generation"]}
        status, refused = call(http, name, "commit", offsets=[row], **member)
        assert (status, refused["code"]) == (409, "not_owner")
        assert refused["details"] == {"partitions": [{"topic": name, "partition": 1}]}
        named = f"member 'two' does not own {name}/1 in generation {two['generation']}"
        assert refused["message"] == f"{named}: stop processing it, and sync"
        assert call(http, name, "commit", offsets=[row])[1]["code"] == "conflict"
        status, refused = call(http, name, "join", topics=[name], member_id="three", strategy="range")
        assert (status, refused["code"], refused["details"]) == (409, "conflict", {"strategy": "sticky"})
        assert call(http, name, "leave", member_id="one", generation=0)[1]["code"] == "stale_generation"
        beaten = call(http, name, "heartbeat", member_id="one", generation=one["generation"], held=2)[1]
        assert (beaten["sync"], beaten["state"]) == (True, "rebalancing")
        with pytest.raises(Refused) as full:
            client.groups.delete(name)
        assert (full.value.code, full.value.details) == ("group_not_empty", {"members": 2})
        client.groups.delete(name, force=True)


def groups_are_reset_described_and_deleted(url: str, name: str) -> None:
    """To earliest, latest, an offset or by a number of records; offsets out of range are clamped."""
    with Client(url) as client:
        client.topics.create(name, partitions=1)
        send(client, name, numbers(10))
        with pytest.raises(NotFound, match=f"group '{name}' does not exist"):
            client.groups.describe(name)
        assert client.groups.reset(name, to="latest", topics=[name])[0].new_offset == 10
        steps: list[tuple[dict[str, Any], int]] = [
            ({"to": "earliest"}, 0),
            ({"offset": 7}, 7),
            ({"shift": -2}, 5),
            ({"shift": 100}, 10),
            ({"offset": 2, "dry_run": True}, 2),
        ]
        for step, expected in steps:
            (found,) = client.groups.reset(name, **step)
            assert (found.topic, found.partition, found.new_offset) == (name, 0, expected), step
        described = client.groups.describe(name)
        assert (described.state, described.members, described.lag) == ("empty", (), 0)
        assert name in [group.name for group in client.groups.list()]
        with client.consumer(name, group=name) as consumer:
            wait_until("a partition", lambda: consumer.poll(0.02) is None and consumer.assignment)
            (member,) = client.groups.describe(name).members
            assert [(place.topic, place.partition) for place in member.assigned] == [(name, 0)]
            with pytest.raises(Refused, match="has 1 member: stop them, or use force to remove them"):
                client.groups.reset(name, to="earliest")
        client.groups.delete(name)
        with pytest.raises(NotFound):
            client.groups.offsets(name)
        client.groups.delete(name, missing_ok=True)


BODIES: list[Callable[[str, str], None]] = [
    group_continues_from_its_committed_offsets,
    manual_commits_are_the_only_ones_without_auto_commit,
    members_share_partitions_and_take_over,
    group_reads_new_partitions_of_its_topic,
    silent_member_is_replaced,
    reused_member_id_is_reported_to_the_replaced_member,
    only_the_owner_of_a_partition_commits_to_it,
    groups_are_reset_described_and_deleted,
]
