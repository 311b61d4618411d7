"""Administration: topics, brokers, tokens, and errors."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import pytest

from flotilla import Client
from flotilla.client.errors import NotFound, Refused, TopicExists, TopicMissing
from support.behaviour.records import numbers, send


def topics_are_created_configured_and_deleted(url: str, name: str) -> None:
    """Settings change only when they are given, and None removes one."""
    with Client(url) as client:
        made = client.topics.create(name, partitions=2, replication=1, retention_ms=60_000, compression="zstd")
        assert (made.name, len(made.partitions), made.retention_ms, made.compression) == (name, 2, 60_000, "zstd")
        assert client.topics.describe(name).id == made.id
        assert client.topics.create(name, exist_ok=True).id == made.id
        with pytest.raises(TopicExists, match="Topic already exists"):
            client.topics.create(name)
        changed = client.topics.configure(name, retention_ms=None, batch_bytes_max=4096)
        assert (changed.retention_ms, changed.batch_bytes_max, changed.compression) == (None, 4096, "zstd")
        assert client.topics.list()[-1] == client.topics.describe(name)
        with pytest.raises(Refused, match="the number cannot be decreased") as fewer:
            client.topics.grow(name, 1)
        assert fewer.value.code == "conflict"
        client.topics.delete(name)
        with pytest.raises(TopicMissing, match=f"topic '{name}' does not exist"):
            client.topics.describe(name)
        with pytest.raises(TopicMissing, match="Topic does not exist"):
            client.topics.delete(name)
        client.topics.delete(name, missing_ok=True)
        assert client.topics.create(name, partitions=1).id != made.id, "the token is new"


def invalid_topic_requests_are_rejected(url: str, name: str) -> None:
    """They change nothing."""
    with Client(url) as client:
        for partitions in (0, 1001):
            with pytest.raises(Refused) as refused:
                client.topics.create(name, partitions=partitions)
            assert refused.value.code == "bad_request"
        with pytest.raises(Refused) as refused:
            client.topics.create(f"-{name}")
        assert refused.value.code == "bad_request"
        assert name not in [topic.name for topic in client.topics.list()]
        with pytest.raises(TopicMissing):
            client.topics.grow(name, 3)


def offsets_have_the_first_and_the_next_offset_of_partitions(url: str, name: str) -> None:
    """And the first offset at a timestamp."""
    with Client(url) as client:
        client.topics.create(name, partitions=2)
        send(client, name, numbers(3), 1)
        now = datetime.now(UTC)
        found = [(one.index, one.first_offset, one.next_offset) for one in client.topics.offsets(name)]
        assert found == [(0, 0, 0), (1, 0, 3)]
        assert [one.offset for one in client.topics.offsets(name, now - timedelta(hours=1))] == [0, 0]
        assert [one.offset for one in client.topics.offsets(name, now + timedelta(hours=1))] == [0, 3]
        described = client.topics.partitions(name)
        assert [(one.index, one.records, one.first_offset, one.next_offset) for one in described] == [
            (0, 0, 0, 0), (1, 3, 0, 3),
        ]  # fmt: skip
        assert all(one.leader in one.replicas for one in described)


def brokers_list_the_replicas_of_partitions(url: str, name: str) -> None:
    """The leader of a partition is one of its members."""
    with Client(url) as client:
        topic = client.topics.create(name, partitions=3)
        brokers = client.brokers.list()
        assert all(broker.active and not broker.cordoned for broker in brokers)
        held = [part for broker in brokers for part in broker.partitions if part.topic == name]
        assert len(held) == 3 * topic.replication
        assert sorted(part.partition for part in held if part.is_leader) == [0, 1, 2]
        assert client.brokers.describe(brokers[0].url) == client.brokers.describe(brokers[0].id)
        assert sorted(str(broker.name) for broker in brokers) == [f"broker-{at + 1}" for at in range(len(brokers))]
        assert [client.brokers.describe(str(broker.name)).id for broker in brokers] == [broker.id for broker in brokers]
        with pytest.raises(NotFound, match="broker 'nobody' does not exist"):
            client.brokers.describe("nobody")


def tokens_are_created_listed_and_revoked(url: str, name: str) -> None:
    """Their text is returned once."""
    with Client(url) as client:
        made = client.tokens.create(name, [f"produce:{name}"], expires_in=timedelta(hours=1), requests_per_s=5)
        assert made.token.startswith(f"flt_{made.id}_")
        (listed,) = [token for token in client.tokens.list() if token.name == name]
        assert (listed.id, listed.grants, listed.requests_per_s) == (made.id, (f"produce:{name}",), 5)
        assert (listed.expires_ms or 0) - listed.created_ms == 3_600_000
        client.tokens.revoke(made.id)
        with pytest.raises(NotFound, match=f"there is no token {made.id}"):
            client.tokens.revoke(made.id)
        with pytest.raises(Refused, match="is not a grant"):
            client.tokens.create(name, ["everything"])


BODIES: list[Callable[[str, str], None]] = [
    topics_are_created_configured_and_deleted,
    invalid_topic_requests_are_rejected,
    offsets_have_the_first_and_the_next_offset_of_partitions,
    brokers_list_the_replicas_of_partitions,
    tokens_are_created_listed_and_revoked,
]
