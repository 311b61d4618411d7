"""Upgrade of an installation from before the operator: same names and volumes, while records flow."""

from collections.abc import Iterator
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
_SET = "broker/flotilla-broker"
_PARTITIONS = 2


@pytest.fixture
def older(cluster: Cluster, tmp_path: Path) -> Iterator[Release]:
    """An installation of the old chart with current images."""
    made = small_release(cluster, tmp_path, _NAMESPACE, chart=_OLD, has_operator=False, image_tag=TAG)
    made.install()
    yield made
    made.remove()


def upgrade_chart(older: Release) -> None:
    """Upgrade to the current chart."""
    older.chart = CHART
    older.upgrade()
    older.wait_condition(_SET, "Updated")
    older.wait_ready()


def claims(older: Release) -> dict[str, str]:
    """Return the uid of each PersistentVolumeClaim by name."""
    return {one["metadata"]["name"]: one["metadata"]["uid"] for one in older.get("pvc")["items"]}


@pytest.mark.usefixtures("bare_cluster")
def test_operator_adopts_brokers_of_an_older_chart_without_loss(older: Release) -> None:
    """Guarantees 1 to 5, while Helm gives up the brokers' objects and the operator adopts them."""
    token, before = older.token(), claims(older)
    with older.keep_forwarding("service/flotilla", 80) as url:
        with Client(url, token=token, route="gateway") as client:
            client.topics.create("moved", partitions=_PARTITIONS)
        with open_producer(url, "gateway", token=token, delivery_s=180.0) as producer:
            senders = [Sender("p0", producer, "moved", _PARTITIONS, pause_s=0.05)]
            wait_progress(senders, 50)

            def upgrade() -> None:
                upgrade_chart(older)
                wait_progress(senders, 50)

            run_while(senders, upgrade)
    with older.brokers() as brokers:
        assert broken_promises(senders, brokers, "moved", _PARTITIONS) == []
    assert all(send.outcome == "ok" for sender in senders for send in sender.sends), (
        "every record was acknowledged in time"
    )
    assert claims(older) == before
    owner = older.get("statefulset/flotilla-broker")["metadata"]["ownerReferences"][0]
    assert (owner["kind"], owner["name"]) == ("Broker", "flotilla-broker")
    older.wait_condition("topic/moved", "Ready")
    older.upgrade("--set=brokers.config.log_level=debug")
    older.wait_condition(_SET, "Updated")
    assert older.get(_SET)["spec"]["config"] == {"log_level": "debug"}
    older.kubectl("scale", _SET, "--replicas=4")
    older.upgrade(
        "--set=brokers.config.log_level=debug", "--set=brokers.update=OnDelete"
    )  # Helm manages the resource now
    made = older.get(_SET)
    assert (made["spec"]["update"], made["spec"]["replicas"]) == ("OnDelete", 4), "the value of replicas did not change"
    older.rollback(2)  # revision 2 has no Broker, so Helm would delete it without the annotation `keep`
    assert older.get(_SET)["metadata"]["uid"] == made["metadata"]["uid"]
    assert "deletionTimestamp" not in older.get(_SET)["metadata"]
    older.wait_ready()


@pytest.mark.usefixtures("bare_cluster")
def test_upgraded_installation_can_be_uninstalled_and_reinstalled(older: Release) -> None:
    """A hook created the Broker, since Helm could not, and a hook deletes it. Volumes and topics are kept."""
    before = claims(older)
    upgrade_chart(older)
    older.apply(topic("kept", partitions=1, deletionPolicy="Delete"))
    older.wait_condition("topic/kept", "Ready")
    older.apply(waiting_pipeline("waits"))
    wait_until("the driver to be created", lambda: older.pods("spark-driver"), 60)
    was = older.get("topic/kept")
    older.uninstall()
    assert older.get("broker,statefulset,pod,service")["items"] == []
    assert claims(older).keys() == before.keys() | {"waits-checkpoint"}
    assert was["metadata"]["finalizers"] == ["flotilla.dev/topic"]
    assert "finalizers" not in older.get("topic/kept")["metadata"], "no operator is left that could remove them"
    older.install()
    older.wait_ready()
    older.wait_condition("topic/kept", "Ready")
    assert older.get("topic/kept")["status"]["topicId"] == was["status"]["topicId"]


@pytest.mark.usefixtures("release")
def test_upgrade_with_existing_crds(older: Release) -> None:
    """As beside another installation: Helm creates the Broker itself, without a hook."""
    before = claims(older)
    upgrade_chart(older)
    assert claims(older) == before
    older.upgrade("--set=brokers.config.log_level=debug")
    older.wait_condition(_SET, "Updated")
    assert older.get(_SET)["spec"]["config"] == {"log_level": "debug"}
