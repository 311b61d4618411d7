"""An installation from before there was an operator moves over: same names, same volumes, while records flow."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from cluster.harness.cluster import Cluster
from cluster.harness.images import CHART
from support.clientload import Sender, broken_promises, open_producer, run_while, wait_progress
from support.release import Release
from support.small import small_release

_NAMESPACE = "older"
_OLD = Path(__file__).parent / "charts" / "flotilla-0.1.0.tgz"  # the last one without an operator
_PARTITIONS = 2


@pytest.fixture
def older(cluster: Cluster, tmp_path: Path) -> Iterator[Release]:
    """A system that the old chart has installed; images are today's."""
    made = small_release(cluster, tmp_path, _NAMESPACE, chart=_OLD, has_operator=False)
    made.install()
    yield made
    made.remove()


def test_an_upgrade_takes_brokers_over_and_costs_nothing(older: Release) -> None:
    """Guarantees 1 to 5, while Helm lets brokers go and the operator takes them."""
    token = older.token()
    claims = {one["metadata"]["name"]: one["metadata"]["uid"] for one in older.get("pvc")["items"]}
    with older.keep_forwarding("service/flotilla", 80) as url:
        older.exec("deployment/flotilla-writer", *_made("moved"))
        with open_producer(url, "gateway", token=token, delivery_s=180.0) as producer:
            senders = [Sender("p0", producer, "moved", _PARTITIONS, pause_s=0.05)]
            wait_progress(senders, 50)

            def upgrade() -> None:
                older.chart = CHART
                older.upgrade()
                older.wait_condition("broker/flotilla-broker", "Updated")
                older.wait_ready()
                wait_progress(senders, 50)

            run_while(senders, upgrade)
    with older.brokers() as brokers:
        assert broken_promises(senders, brokers, "moved", _PARTITIONS) == []
    assert all(send.outcome == "ok" for sender in senders for send in sender.sends), "all of it was in time"
    assert {one["metadata"]["name"]: one["metadata"]["uid"] for one in older.get("pvc")["items"]} == claims
    owner = older.get("statefulset/flotilla-broker")["metadata"]["ownerReferences"][0]
    assert (owner["kind"], owner["name"]) == ("Broker", "flotilla-broker")
    older.wait_condition("topic/moved", "Ready")
    older.upgrade("--set=brokers.config.log_level=debug")  # from now on, the resource is Helm's
    older.wait_condition("broker/flotilla-broker", "Updated")
    assert older.get("broker/flotilla-broker")["spec"]["config"] == {"log_level": "debug"}


def _made(name: str) -> tuple[str, ...]:
    where = ("--url", "http://127.0.0.1:8080", "--secret-file", "/etc/flotilla/secret/secret")
    return ("flotilla", "topics", "create", name, "--partitions", str(_PARTITIONS), *where)
