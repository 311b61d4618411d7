"""Back up and restore metadata with the commands of docs/kubernetes.md."""

from pathlib import Path

from flotilla import Client
from support.release import Release
from support.walk import blocks, follow

_LOSS = "DELETE FROM tokens; DELETE FROM commits"


def test_backup_restores_tokens_and_committed_offsets(release: Release, token: str, tmp_path: Path) -> None:
    """Tokens and committed offsets are only in the database. Records are on brokers and are not affected."""
    save, restore = blocks("docs/kubernetes.md", "Backup")
    with Client(release.url, token=token) as client, client.producer() as producer:
        client.topics.create("saved", partitions=1)
        for number in range(20):
            producer.send("saved", f"{number}".encode(), partition=0).result(30)
        assert consume_and_commit(client, 10) == [f"{number}".encode() for number in range(10)]

    done = follow(release.cluster, tmp_path, save, tmp_path)
    assert done.returncode == 0, done.stderr
    lost = release.exec("flotilla-postgresql-0", "psql", "-U", "postgres", "-d", "flotilla", "-c", _LOSS)
    assert "DELETE" in lost

    done = follow(release.cluster, tmp_path, restore, tmp_path)
    assert done.returncode == 0, done.stderr
    release.wait_ready()
    release.wait_reachable()
    with Client(release.url, token=token) as client:  # managers read tokens from the database when they start
        assert consume_and_commit(client, 10) == [f"{number}".encode() for number in range(10, 20)]


def consume_and_commit(client: Client, count: int) -> list[bytes]:
    """Consume `count` records as a group that starts at the earliest offset, and commit."""
    with client.consumer("saved", group="readers", start="earliest") as consumer:
        found: list[bytes] = []
        while len(found) < count:
            record = consumer.poll(30)
            assert record is not None, f"nothing more after {len(found)} records"
            found.append(record.value)
        consumer.commit()
    return found
