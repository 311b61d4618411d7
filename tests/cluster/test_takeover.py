"""Upgrade of the only installation, from before the operator: same names and volumes, while records flow."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from cluster.harness.cluster import Cluster
from cluster.harness.images import CHART, TAG
from flotilla import Client
from support.clientload import Sender, broken_promises, open_producer, run_while, wait_progress
from support.cluster import wait_until
from support.release import Release
from support.small import small_release

from .test_operator import waiting_pipeline
from .test_topics import topic

_NAMESPACE = "older"
_OLD = Path(__file__).parent / "charts" / "flotilla-0.1.0.tgz"  # the last version without an operator
BROKERS = "broker/flotilla-broker"
_PARTITIONS = 2


@contextmanager
def installed(cluster: Cluster, folder: Path) -> Iterator[Release]:
    """Install the old chart with current images; remove it at the end."""
    made = small_release(cluster, folder, _NAMESPACE, chart=_OLD, has_operator=False, image_tag=TAG)
    made.install()
    yield made
    made.remove()


@pytest.fixture(scope="module")
def first(bare_cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Release]:
    """The only installation on a cluster. The first test upgrades it, and the next ones continue with it."""
    with installed(bare_cluster, tmp_path_factory.mktemp("first")) as made:
        yield made


def upgrade_chart(older: Release) -> None:
    """Upgrade to the current chart."""
    older.chart = CHART
    older.upgrade()
    older.wait_condition(BROKERS, "Updated")
    older.wait_ready()


def claims(older: Release) -> dict[str, str]:
    """Return the uid of each PersistentVolumeClaim by name."""
    return {one["metadata"]["name"]: one["metadata"]["uid"] for one in older.get("pvc")["items"]}


def test_operator_adopts_brokers_of_an_older_chart_without_loss(first: Release) -> None:
    """Guarantees 1 to 5, while Helm gives up the brokers' objects and the operator adopts them."""
    token, before = first.token(), claims(first)
    with first.keep_forwarding("service/flotilla", 80) as url:
        with Client(url, token=token, route="gateway") as client:
            client.topics.create("moved", partitions=_PARTITIONS)
        with open_producer(url, "gateway", token=token, delivery_s=180.0) as producer:
            senders = [Sender("p0", producer, "moved", _PARTITIONS, pause_s=0.05)]
            wait_progress(senders, 50)

            def upgrade() -> None:
                upgrade_chart(first)
                wait_progress(senders, 50)

            run_while(senders, upgrade)
    with first.brokers() as brokers:
        assert broken_promises(senders, brokers, "moved", _PARTITIONS) == []
    assert all(send.outcome == "ok" for sender in senders for send in sender.sends), (
        "every record was acknowledged in time"
    )
    assert claims(first) == before
    owner = first.get("statefulset/flotilla-broker")["metadata"]["ownerReferences"][0]
    assert (owner["kind"], owner["name"]) == ("Broker", "flotilla-broker")
    first.wait_condition("topic/moved", "Ready")
    first.upgrade("--set=brokers.config.log_level=debug")
    first.wait_condition(BROKERS, "Updated")
    assert first.get(BROKERS)["spec"]["config"] == {"log_level": "debug"}
    first.kubectl("scale", BROKERS, "--replicas=4")
    first.upgrade(
        "--set=brokers.config.log_level=debug", "--set=brokers.update=OnDelete"
    )  # Helm manages the resource now
    made = first.get(BROKERS)
    assert (made["spec"]["update"], made["spec"]["replicas"]) == ("OnDelete", 4), "the value of replicas did not change"
    first.rollback(2)  # revision 2 has no Broker, so Helm would delete it without the annotation `keep`
    assert first.get(BROKERS)["metadata"]["uid"] == made["metadata"]["uid"]
    assert "deletionTimestamp" not in first.get(BROKERS)["metadata"]
    first.wait_ready()


def test_upgraded_installation_can_be_uninstalled_and_reinstalled(first: Release) -> None:
    """A hook created the Broker, since Helm could not, and a hook deletes it. Volumes and topics are kept.

    The test before has rolled back to the revision of that hook.
    """
    first.kubectl("scale", BROKERS, "--replicas=3")
    first.wait_condition(BROKERS, "Scaled")
    before = claims(first)
    first.apply(topic("kept", partitions=1, deletionPolicy="Delete"))
    first.wait_condition("topic/kept", "Ready")
    first.apply(waiting_pipeline("waits"))
    wait_until("the driver to be created", lambda: first.pods("spark-driver"), 60)
    was = first.get("topic/kept")
    first.uninstall()
    assert first.get("broker,statefulset,pod,service")["items"] == []
    assert claims(first).keys() == before.keys() | {"waits-checkpoint"}
    assert was["metadata"]["finalizers"] == ["flotilla.dev/topic"]
    assert "finalizers" not in first.get("topic/kept")["metadata"], "no operator is left that could remove them"
    first.install()
    first.wait_ready()
    first.wait_condition("topic/kept", "Ready")
    assert first.get("topic/kept")["status"]["topicId"] == was["status"]["topicId"]
