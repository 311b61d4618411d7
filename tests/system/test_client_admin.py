"""The admin API of the client on a real cluster, and the examples of the docs."""

import doctest
import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from flotilla import Client
from flotilla.access import system_token
from flotilla.client.admin import GroupReset
from flotilla.client.errors import NotAllowed, NotFound, OffsetOutOfRange, Refused, TopicExists, TopicMissing
from flotilla.records import encode
from support.access import ENVIRONMENT, SECRET
from support.cluster import wait_until
from support.fleet import Fleet

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    with Fleet(Path(tmp_path_factory.mktemp("fleet"))) as fleet:
        yield fleet


def test_examples_of_the_docs_print_the_documented_output(tmp_path: Path) -> None:
    text = "\n".join(
        re.findall(
            r"^```pycon\n(.*?)^```",
            (ROOT / "docs/client.md").read_text(encoding="utf-8"),
            flags=re.DOTALL | re.MULTILINE,
        )
    )
    said: list[str] = []
    with Fleet(tmp_path, readers=1) as fleet, Client(fleet.url) as client:
        example = doctest.DocTestParser().get_doctest(text, {"client": client}, "docs/client.md", None, 0)
        assert len(example.examples) > 10
        failed = doctest.DocTestRunner().run(example, out=said.append).failed
    assert failed == 0, "".join(said)


def test_topics_are_created_configured_and_deleted(fleet: Fleet) -> None:
    with Client(f"{fleet.url},{fleet.writer.url}") as client:
        made = client.topics.create("a.topic", partitions=1, retention_ms=None, compression="zstd")
        assert (made.retention_ms, made.compression, made.replication) == (None, "zstd", 3)
        with pytest.raises(TopicExists):
            client.topics.create("a.topic")
        assert client.topics.create("a.topic", exist_ok=True).id == made.id
        assert client.topics.configure("a.topic", retention_ms=5000, compression=None).compression is None
        before = datetime.now(UTC)
        batch = bytes(encode([b"x"] * 4))
        fleet.client.post("/v1/append?topic=a.topic&partition=0", content=batch).raise_for_status()
        (offsets,) = client.topics.offsets("a.topic", at=before - timedelta(minutes=1))
        assert (offsets.first_offset, offsets.next_offset, offsets.offset) == (0, 4, 0)
        with pytest.raises(OffsetOutOfRange, match="is above the next offset") as caught:
            client.topics.delete_records("a.topic", {0: 5})
        assert caught.value.next_offset == 4
        assert client.topics.delete_records("a.topic", {0: 3})[0].first_offset == 3
        (partition,) = client.topics.partitions("a.topic")
        assert (partition.records, partition.leader in made.partitions[0].replicas) == (1, True)
        assert len(client.topics.grow("a.topic", 2).partitions) == 2
        with pytest.raises(Refused) as refused:
            client.topics.grow("a.topic", 1)
        assert refused.value.code == "conflict"
        client.topics.delete("a.topic")
        client.topics.delete("a.topic", missing_ok=True)
        with pytest.raises(TopicMissing):
            client.topics.delete("a.topic")


def test_groups_are_reset_in_every_way(fleet: Fleet) -> None:
    with Client(fleet.url) as client:
        client.topics.create("moved", partitions=1)
        batch = bytes(encode([b"x"] * 10))
        fleet.client.post("/v1/append?topic=moved&partition=0", content=batch).raise_for_status()
        with pytest.raises(NotFound, match="group 'movers' does not exist"):
            client.groups.offsets("movers")
        assert client.groups.reset("movers", offset=4, topics=["moved"]) == (GroupReset("moved", 0, None, 4),)
        assert client.groups.reset("movers", shift=2, dry_run=True)[0].new_offset == 6
        assert client.groups.describe("movers").lag == 6
        moment = datetime.now(UTC) + timedelta(hours=1)
        assert client.groups.reset("movers", to=moment, partitions=[("moved", 0)])[0].new_offset == 10
        assert client.groups.offsets("movers", "moved")[0].offset == 10
        with pytest.raises(TopicMissing, match="topic 'nowhere' does not exist"):
            client.groups.reset("movers", to="latest", topics=["nowhere"])
        assert "movers" in [one.name for one in client.groups.list()]
        client.groups.delete("movers")
        client.groups.delete("movers", missing_ok=True)


def test_admin_requests_wait_for_the_writer(fleet: Fleet) -> None:
    """A writer that is unavailable for some seconds causes no error."""
    with Client(fleet.url) as client:
        fleet.writer.kill()
        fleet.writer.start()
        assert client.topics.create("patience", partitions=1, exist_ok=True).name == "patience"
        assert len(client.brokers.list()) == 3


def test_tokens_are_created_used_and_revoked(tmp_path: Path) -> None:
    with (
        Fleet(tmp_path, brokers=1, readers=1, environment=ENVIRONMENT) as fleet,
        Client(fleet.url, token=system_token(SECRET.encode())) as client,
    ):
        made = client.tokens.create("shop", ["consume:orders"], expires_in=timedelta(hours=1), requests_per_s=50)
        assert [one.id for one in client.tokens.list()] == [made.id]

        def knows() -> bool:
            try:
                with Client(fleet.url, token=made.token) as shop:
                    return shop.topics.list() == ()
            except NotAllowed:
                return False

        wait_until("the token to be known", knows)
        with Client(fleet.url, token=made.token) as shop, pytest.raises(NotAllowed, match="the scope admin") as caught:
            shop.tokens.list()
        assert caught.value.code == "forbidden"
        client.tokens.revoke(made.id)
        with pytest.raises(NotFound, match=f"there is no token {made.id}"):
            client.tokens.revoke(made.id)
        wait_until("it to be refused", lambda: not knows())
