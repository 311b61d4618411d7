"""Consumer groups: members share partitions, take over from each other, and commit how far they have come."""

from collections.abc import Callable
from typing import Any

import httpx
import pytest

from flotilla import Client
from flotilla.client.errors import MemberGone, NotFound, Refused
from flotilla.client.positions import Place
from support.behaviour.records import SOON_S, numbers, send
from support.cluster import wait_until


def committed(client: Client, group: str) -> dict[int, int]:
    """Tell how far a group has come."""
    return {one.partition: one.offset for one in client.groups.offsets(group)}


def call(http: httpx.Client, group: str, what: str, **body: Any) -> tuple[int, Any]:  # noqa: ANN401 - any JSON
    """Make a call about a group by hand."""
    response = http.post(f"/v1/groups/{group}/{what}", json=body)
    return response.status_code, response.json()


def a_group_goes_on_where_it_was(url: str, name: str) -> None:
    """What was handed out is committed at the end, and not read again."""
    with Client(url) as client:
        client.topics.create(name, partitions=1)
        send(client, name, numbers(10))
        with client.consumer(name, group=name) as consumer:
            assert [record.offset for record in consumer.records(max_records=4)] == [0, 1, 2, 3]
        assert committed(client, name) == {0: 4}
        with client.consumer(name, group=name) as consumer:
            assert [record.offset for record in consumer.records(max_records=6)] == [4, 5, 6, 7, 8, 9]
            assert consumer.poll(0.2) is None


def commits_by_hand_are_the_only_ones(url: str, name: str) -> None:
    """All that was handed out, or what is given; it may go back."""
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
            consumer.commit({Place(name, 0): 1})
        assert committed(client, name) == {0: 1}


def members_share_partitions_and_take_over(url: str, name: str) -> None:
    """The second gets half when it comes; what it had is the first one's when it goes; each record comes once."""
    with Client(url) as client:
        client.topics.create(name, partitions=4)
        told: list[tuple[str, int]] = []
        with client.consumer(
            name,
            group=name,
            session_s=2,
            on_assigned=lambda places: told.append(("assigned", len(places))),
            on_revoked=lambda places: told.append(("revoked", len(places))),
        ) as one:
            wait_until("all partitions", lambda: one.poll(0.02) is None and len(one.assignment) == 4)
            with client.consumer(name, group=name, session_s=2) as two:
                wait_until(
                    "half of them",
                    lambda: one.poll(0.02) is None and two.poll(0.02) is None and len(two.assignment) == 2,
                )
                assert sorted([*one.assignment, *two.assignment]) == [Place(name, at) for at in range(4)]
                assert told == [("assigned", 4), ("revoked", 2)]
                for partition in range(4):
                    send(client, name, numbers(5), partition)
                found = [*one.records(max_records=10, timeout_s=SOON_S), *two.records(max_records=10, timeout_s=SOON_S)]
                places = sorted((record.partition, record.offset) for record in found)
                assert places == [(partition, offset) for partition in range(4) for offset in range(5)]
            wait_until("all partitions again", lambda: one.poll(0.02) is None and len(one.assignment) == 4)
            assert one.poll(0.1) is None, "what the other one had done is not done again"
        assert committed(client, name) == dict.fromkeys(range(4), 5)


def a_group_follows_its_topic_as_it_grows(url: str, name: str) -> None:
    """New partitions are read from their beginning, also by those who began with the latest."""
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


def a_member_that_falls_silent_is_replaced(url: str, name: str) -> None:
    """Its partitions go to the others when its time is over; what it says afterwards is refused."""
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


def a_member_whose_id_is_used_again_is_told(url: str, name: str) -> None:
    """Two processes with the same id would take turns for ever."""
    with Client(url) as client:
        client.topics.create(name, partitions=1)
        with (
            client.consumer(name, group=name, member_id="me", session_s=1) as one,
            client.consumer(name, group=name, member_id="me", session_s=1) as two,
        ):
            wait_until("the first", lambda: one.poll(0.02) is None and one.assignment)
            wait_until("the second", lambda: two.poll(0.02) is None and two.assignment)
            with pytest.raises(MemberGone, match=f"another consumer has joined group '{name}' as 'me'"):
                one.poll(SOON_S)
            send(client, name, numbers(1))
            assert two.poll(SOON_S) is not None
            assert client.groups.describe(name).generation == 2, "and it does not fight"


def who_does_not_own_a_partition_does_not_commit_to_it(url: str, name: str) -> None:
    """Nor does a stranger while there are members; and all members deal out in one way."""
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


def a_group_is_reset_described_and_deleted(url: str, name: str) -> None:
    """To either end, to an offset, by some records; what lies outside is brought to the nearest end."""
    with Client(url) as client:
        client.topics.create(name, partitions=1)
        send(client, name, numbers(10))
        with pytest.raises(NotFound, match=f"there is no group '{name}'"):
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
            with pytest.raises(Refused, match="has 1 member: stop them first, or use force"):
                client.groups.reset(name, to="earliest")
        client.groups.delete(name)
        with pytest.raises(NotFound):
            client.groups.offsets(name)
        client.groups.delete(name, missing_ok=True)


BODIES: list[Callable[[str, str], None]] = [
    a_group_goes_on_where_it_was,
    commits_by_hand_are_the_only_ones,
    members_share_partitions_and_take_over,
    a_group_follows_its_topic_as_it_grows,
    a_member_that_falls_silent_is_replaced,
    a_member_whose_id_is_used_again_is_told,
    who_does_not_own_a_partition_does_not_commit_to_it,
    a_group_is_reset_described_and_deleted,
]
