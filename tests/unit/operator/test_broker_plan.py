"""Plans and statuses of Broker resources."""

from typing import Any

import pytest

from flotilla_operator.brokers.children import make_children
from flotilla_operator.brokers.ownership import describe_foreign_owner
from flotilla_operator.brokers.plan import BrokerSetObservation, plan_broker_set
from flotilla_operator.brokers.scaling import plan_orphans
from flotilla_operator.brokers.spec import read_broker_set
from flotilla_operator.cluster_state import Broker, ClusterState
from flotilla_operator.plans import Action, Apply, Delete, Evict, Label, Plan, PutBroker, RemoveBroker

from .builders import CLUSTER, NOW, broker, broker_id, broker_resource, cluster_state, pod, topic

ORDERS = topic("orders", (0, 1, 2), (1, 2, 0), (1, 0, 2))  # 1 leads two, 0 leads one, 2 none
ALL = (pod(0), pod(1), pod(2))


def found_set(resource: dict[str, Any], replicas: int = 3, revision: str = "new", **metadata: Any) -> dict[str, Any]:  # noqa: ANN401
    """The StatefulSet as Kubernetes returns it after apply."""
    wanted = read_broker_set(resource, CLUSTER)
    made = make_children(wanted, replicas, [wanted.owner])[-1]
    made["metadata"] |= {"uid": "uid-sts", "generation": 4, **metadata}
    made["status"] = {"observedGeneration": 4, "updateRevision": revision}
    return made


def plan(
    resource: dict[str, Any] | None = None,
    pods: tuple[dict[str, Any], ...] = ALL,
    there: ClusterState | None = None,
    found: dict[str, Any] | None = None,
    **options: Any,  # noqa: ANN401 - as BrokerSetObservation has them
) -> Plan:
    """Plan for an existing set, by default one that matches the spec."""
    resource = resource or broker_resource()
    statefulset = found if found is not None else found_set(resource)
    observed = BrokerSetObservation(CLUSTER, statefulset, pods, state=there or cluster_state((ORDERS,)), **options)
    return plan_broker_set(resource, observed, NOW)


def other(actions: tuple[Action, ...]) -> list[Action]:
    """All actions but those that apply children, which are in every plan."""
    return [one for one in actions if not isinstance(one, Apply)]


def shown(plan: Plan, kind: str) -> tuple[str, str, str]:
    assert plan.status is not None
    (one,) = [one for one in plan.status["conditions"] if one["type"] == kind]
    return one["status"], one["reason"], one["message"]


def phases(plan: Plan) -> list[tuple[str, str]]:
    assert plan.status is not None
    return [(one["name"].rpartition("-")[2], one["phase"]) for one in plan.status["brokers"]]


def test_new_broker_set_gets_all_children_in_order_of_dependency() -> None:
    planned = plan_broker_set(
        broker_resource(), BrokerSetObservation(CLUSTER, None, state=None, managers_error="no manager answers"), NOW
    )
    kinds = [one.manifest["kind"] for one in planned.actions if isinstance(one, Apply)]
    assert kinds == ["ServiceAccount", "ConfigMap", "Service", "PodDisruptionBudget", "StatefulSet"]
    assert phases(planned) == [("0", "Pending"), ("1", "Pending"), ("2", "Pending")]
    assert shown(planned, "Ready")[:2] == ("False", "Pending")


def test_healthy_broker_set_is_ready_without_actions() -> None:
    planned = plan()
    assert other(planned.actions) == []
    assert planned.status is not None
    assert [one["status"] for one in planned.status["conditions"]] == ["True"] * 6
    assert {key: planned.status[key] for key in ("replicas", "readyReplicas", "updatedReplicas", "partitions")} == {
        "replicas": 3,
        "readyReplicas": 3,
        "updatedReplicas": 3,
        "partitions": 9,
    }
    assert planned.status["selector"].endswith("app.kubernetes.io/component=broker,flotilla.dev/broker=flotilla-broker")
    assert planned.status["brokers"][1] == {
        "name": "flotilla-broker-1",
        "phase": "Running",
        "node": "node-1",
        "id": broker_id(1),
        "partitions": 3,
        "leaders": 2,
        "diskBytes": 1 << 20,
    }


def test_deleted_broker_resource_has_an_empty_plan() -> None:
    resource = broker_resource()
    resource["metadata"]["deletionTimestamp"] = NOW
    assert plan(resource) == Plan()


# -- phases -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changed", "there", "phase"),
    [
        (pod(2, ready=False), {}, "Starting"),
        (pod(2, waits=True, ready=False), {}, "Pending"),
        (pod(2, failure="ImagePullBackOff", ready=False), {}, "Failed"),
        (pod(2, leaving=True), {}, "Leaving"),
        (pod(2), {"silent": (2,)}, "Unreachable"),
        (pod(2), {"lag": {2: 5000}}, "Lagging"),
    ],
)
def test_broker_phase_follows_pod_and_heartbeats(changed: dict[str, Any], there: dict[str, Any], phase: str) -> None:
    planned = plan(pods=(pod(0), pod(1), changed), there=cluster_state((ORDERS,), **there))
    assert phases(planned) == [("0", "Running"), ("1", "Running"), ("2", phase)]
    assert shown(planned, "Ready")[:2] == ("False", phase)


def test_broker_with_an_empty_disk_is_new_and_the_lost_one_is_reported() -> None:
    """Guarantee 5: the rest serves; the conditions say which replicas are missing."""
    brokers = (broker(0), broker(1), broker(2, active=False), broker(3, ordinal=2))
    planned = plan(there=cluster_state((ORDERS,), brokers))
    assert phases(planned) == [("0", "Running"), ("1", "Running"), ("2", "Running"), ("2", "DiskLost")]
    status, reason, message = shown(planned, "FullyReplicated")
    assert (status, reason) == ("False", "DiskLost")
    assert message.startswith("The disk of flotilla-broker-2 was lost with 3 replicas: orders/0")
    assert planned.status is not None
    assert planned.status["brokers"][2]["id"] == broker_id(3)
    assert other(planned.actions) == [], "the registration of the lost broker is kept"


def test_broker_is_not_lost_while_no_heartbeats_arrive() -> None:
    """After a restart, managers have no heartbeats: the current broker is not known."""
    brokers = (broker(0), broker(1), broker(2, active=False), broker(3, ordinal=2, active=False))
    planned = plan(there=cluster_state((ORDERS,), brokers))
    assert other(planned.actions) == []
    assert planned.status is not None
    assert planned.status["brokers"][2]["id"] == broker_id(3), "the one that came last"


def test_lost_broker_without_replicas_is_removed() -> None:
    brokers = (broker(0), broker(1), broker(4, ordinal=2, active=False), broker(2))
    assert other(plan(there=cluster_state((ORDERS,), brokers)).actions) == [RemoveBroker(broker_id(4), "")]


# -- updates ----------------------------------------------------------------------------------------------


def test_update_replaces_one_broker_and_starts_with_the_fewest_leaders() -> None:
    old = (pod(0, "old"), pod(1, "old"), pod(2, "old"))
    planned = plan(pods=old)
    (action,) = other(planned.actions)
    assert isinstance(action, Evict)
    assert (action.pod, action.uid) == ("flotilla-broker-2", "uid-2")
    assert shown(planned, "Updated")[:2] == ("False", "Replacing")
    (action,) = other(plan(pods=(pod(0, "old"), pod(1, "old"), pod(2))).actions)
    assert isinstance(action, Evict)
    assert action.pod == "flotilla-broker-0"


@pytest.mark.parametrize(
    ("pods", "there", "why"),
    [
        ((pod(0, "old"), pod(1, "old")), {}, "flotilla-broker-2 to restart"),
        ((pod(0, "old"), pod(1, "old"), pod(2, leaving=True)), {}, "flotilla-broker-2 to restart"),
        (
            (pod(0, "old"), pod(1, "old"), pod(2, ready=False)),
            {},
            "until all brokers are running. flotilla-broker-2 is Starting: The pod is not ready",
        ),
        ((pod(0, "old"), pod(1, "old"), pod(2)), {"silent": (2,)}, "flotilla-broker-2 is Unreachable"),
        ((pod(0, "old"), pod(1, "old"), pod(2)), {"lag": {2: 5000}}, "flotilla-broker-2 is Lagging"),
        (
            (pod(0, "old"), pod(1, "old"), pod(2)),
            {"leaderless": True},
            "until 3 partitions are fully replicated: orders/0",
        ),
    ],
)
def test_update_waits_until_all_other_brokers_are_healthy(
    pods: tuple[dict[str, Any], ...], there: dict[str, Any], why: str
) -> None:
    """Guarantee 5: an update never stops two brokers at a time."""
    planned = plan(pods=pods, there=cluster_state((ORDERS,), **there))
    assert other(planned.actions) == []
    assert why in shown(planned, "Updated")[2]


def test_update_waits_while_managers_are_unavailable() -> None:
    observed = BrokerSetObservation(
        CLUSTER, found_set(broker_resource()), (pod(0, "old"), pod(1), pod(2)), state=None, managers_error="away"
    )
    planned = plan_broker_set(broker_resource(), observed, NOW)
    assert other(planned.actions) == []
    assert "managers" in shown(planned, "Updated")[2]


def test_update_replaces_a_broker_with_a_bad_image_first() -> None:
    """It does not serve, and the update may repair it: an update must not wait for a broker that it repairs."""
    broken = pod(1, "bad", ready=False, failure="ImagePullBackOff")
    (action,) = other(plan(pods=(pod(0, "old"), broken, pod(2, "old"))).actions)
    assert isinstance(action, Evict)
    assert action.pod == "flotilla-broker-1"


def test_update_replaces_an_unready_broker_first_only_if_all_others_are_healthy() -> None:
    slow = pod(1, "old", ready=False)
    (action,) = other(plan(pods=(pod(0, "old"), slow, pod(2))).actions)
    assert isinstance(action, Evict)
    assert action.pod == "flotilla-broker-1"
    assert other(plan(pods=(pod(0, "old"), slow, pod(2, ready=False))).actions) == [], (
        "two brokers would be unavailable"
    )
    lost = (broker(0), broker(1), broker(2), broker(9, 2, active=False))
    there = cluster_state((topic("orders", (0, 1, 9)),), lost)
    assert other(plan(pods=(pod(0, "old"), slow, pod(2)), there=there).actions) == [], (
        "it may be one of two brokers that serve"
    )
    assert other(plan(pods=(pod(0, "old"), slow, pod(2)), there=cluster_state((ORDERS,), silent=(1,))).actions) == [
        action
    ]


def test_update_replaces_all_brokers_with_a_bad_image_one_by_one() -> None:
    """A new set whose image does not exist holds no replicas."""
    broken = tuple(pod(at, "bad", ready=False, failure="ImagePullBackOff") for at in range(3))
    (action,) = other(plan(pods=broken, there=cluster_state()).actions)
    assert isinstance(action, Evict)


def test_update_replaces_pods_that_never_started() -> None:
    """A missing Secret, or no capacity: such pods are pending forever, but not failed."""
    stuck = tuple({**pod(at, "bad", ready=False), "status": {"phase": "Pending"}} for at in range(3))
    (action,) = other(plan(pods=stuck, there=cluster_state()).actions)
    assert isinstance(action, Evict)


def test_update_stops_if_an_updated_broker_fails() -> None:
    broken = pod(1, "new", ready=False, failure="ImagePullBackOff")
    planned = plan(pods=(pod(0, "old"), broken, pod(2, "old")))
    assert other(planned.actions) == []
    assert (
        "flotilla-broker-1 is Failed: The container does not run: ImagePullBackOff: no such image"
        in shown(planned, "Updated")[2]
    )


def test_update_waits_for_the_statefulset_controller() -> None:
    found = found_set(broker_resource(), generation=5)
    assert other(plan(pods=(pod(0, "old"), pod(1, "old"), pod(2, "old")), found=found).actions) == []


def test_update_is_not_complete_before_it_is_applied() -> None:
    """Otherwise a resource would be Updated before any pod is replaced."""
    planned = plan(broker_resource(config={"log_level": "debug"}), found=found_set(broker_resource()))
    assert shown(planned, "Updated")[:2] == ("False", "Waiting")
    assert other(planned.actions) == []
    assert planned.status is not None
    assert planned.status["updatedReplicas"] == 0


def test_on_delete_leaves_the_deletion_of_pods_to_the_user() -> None:
    planned = plan(broker_resource(update="OnDelete"), pods=(pod(0, "old"), pod(1), pod(2)))
    assert other(planned.actions) == []
    assert shown(planned, "Updated") == (
        "False",
        "PodDeletionRequired",
        "spec.update is OnDelete; delete these pods to update them: flotilla-broker-0",
    )
    unseen = plan(broker_resource(update="OnDelete"), found=found_set(broker_resource(update="OnDelete"), generation=5))
    assert shown(unseen, "Updated")[:2] == ("False", "Waiting")


# -- scale ------------------------------------------------------------------------------------------------


def applied_replicas(planned: Plan) -> int:
    (one,) = [
        one.manifest for one in planned.actions if isinstance(one, Apply) and one.manifest["kind"] == "StatefulSet"
    ]
    return int(one["spec"]["replicas"])


def test_scale_up_creates_all_brokers_at_once() -> None:
    resource = broker_resource(replicas=5)
    planned = plan(resource, found=found_set(resource, replicas=3))
    assert applied_replicas(planned) == 5
    assert shown(planned, "Running")[1] == "Pending"


FIVE = tuple(pod(at) for at in range(5))


def test_scale_down_keeps_and_names_brokers_with_replicas() -> None:
    brokers = tuple(broker(at) for at in range(5))
    there = cluster_state((ORDERS, topic("more", (3, 1, 2))), brokers)
    planned = plan(pods=FIVE, there=there, found=found_set(broker_resource(), replicas=5))
    unwanted = {"wanted": False, "cordoned": False}
    assert other(planned.actions) == [PutBroker(broker_id(3), unwanted, ""), PutBroker(broker_id(4), unwanted, "")]
    assert applied_replicas(planned) == 5, "no pod is deleted before managers stop placing replicas on it"
    assert shown(planned, "Scaled") == (
        "False",
        "ReplicasRemain",
        "The scale-down waits for flotilla-broker-3, which still holds 1 replica: more/0",
    )

    brokers = (*brokers[:3], broker(3, wanted=False), broker(4, wanted=False))
    planned = plan(
        pods=FIVE,
        there=cluster_state((ORDERS, topic("more", (3, 1, 2))), brokers),
        found=found_set(broker_resource(), replicas=5),
    )
    assert applied_replicas(planned) == 4, "the last broker holds no replicas"
    assert other(planned.actions) == []


def test_scale_down_removes_brokers_without_replicas() -> None:
    brokers = (*(broker(at) for at in range(3)), broker(3, wanted=False), broker(4, wanted=False))
    planned = plan(pods=FIVE, there=cluster_state((ORDERS,), brokers), found=found_set(broker_resource(), replicas=5))
    assert applied_replicas(planned) == 3
    gone = (*brokers[:3], broker(3, wanted=False, active=False), broker(4, wanted=False, active=False))
    planned = plan(there=cluster_state((ORDERS,), gone))
    assert other(planned.actions) == [RemoveBroker(broker_id(3), ""), RemoveBroker(broker_id(4), "")]


def test_recreated_statefulset_keeps_brokers_with_replicas() -> None:
    """It was deleted or recreated: its pods exist, and brokers with replicas count."""
    brokers = (*(broker(at) for at in range(3)), broker(3, wanted=False), broker(4, wanted=False))
    there = cluster_state((ORDERS, topic("more", (4, 1, 2))), brokers)
    for pods in (FIVE, FIVE[:3]):
        observed = BrokerSetObservation(CLUSTER, None, pods, state=there)
        assert applied_replicas(plan_broker_set(broker_resource(), observed, NOW)) == 5
    for made in (found_set(broker_resource()), found_set(broker_resource(), replicas=5)):
        planned = plan(pods=FIVE[:3], there=there, found=made)
        assert applied_replicas(planned) == 5, "the StatefulSet has too few or the old number of replicas"
        assert shown(planned, "Scaled")[:2] == ("False", "ReplicasRemain")


def test_brokers_of_a_deleted_set_are_removed_if_they_hold_no_replicas() -> None:
    """Otherwise managers would wait for them whenever a topic is created."""
    host = "large-0.large.q.svc"
    gone = Broker(id=broker_id(7), host=host, port=8090, active=False)
    holds = Broker(id=broker_id(8), host="large-1.large.q.svc", port=8090, active=False)
    elsewhere = Broker(id=broker_id(9), host="large-0.large.other.svc", port=8090, active=False)
    there = cluster_state(
        (topic("kept", (0, 1, 8)),), (*(broker(at, active=False) for at in range(3)), gone, holds, elsewhere)
    )
    sets = frozenset({"flotilla-broker"})
    assert plan_orphans(there, "q", sets, frozenset()) == (RemoveBroker(gone.id, ""),)
    assert plan_orphans(there, "q", sets | {"large"}, frozenset()) == ()
    assert plan_orphans(there, "q", sets, frozenset({"large-0"})) == ()


def test_scale_down_keeps_a_starting_broker() -> None:
    brokers = tuple(broker(at) for at in range(3))
    found = found_set(broker_resource(), replicas=4)
    starting = plan(pods=(*ALL, pod(3, ready=False)), there=cluster_state((ORDERS,), brokers), found=found)
    assert applied_replicas(starting) == 4
    broken = plan(
        pods=(*ALL, pod(3, ready=False, failure="ImagePullBackOff")),
        there=cluster_state((ORDERS,), brokers),
        found=found,
    )
    assert applied_replicas(broken) == 3


def test_removed_broker_takes_part_again_after_scale_up() -> None:
    """A scale-down removed it, and kept its volume and its id."""
    resource = broker_resource(replicas=4)
    brokers = (broker(0), broker(1), broker(2), broker(3, wanted=False, removed=True, active=False))
    planned = plan(
        resource, pods=FIVE[:4], there=cluster_state((ORDERS,), brokers), found=found_set(resource, replicas=4)
    )
    assert other(planned.actions) == [PutBroker(broker_id(3), {"wanted": True, "cordoned": False}, "")]


def test_scale_down_waits_while_managers_are_unavailable() -> None:
    observed = BrokerSetObservation(
        CLUSTER, found_set(broker_resource(), replicas=5), FIVE, state=None, managers_error="away"
    )
    planned = plan_broker_set(broker_resource(), observed, NOW)
    assert applied_replicas(planned) == 5
    assert shown(planned, "Scaled")[:2] == ("False", "ManagersUnavailable")


def test_unwanted_broker_is_wanted_again_after_scale_up() -> None:
    resource = broker_resource(replicas=4)
    brokers = (broker(0), broker(1), broker(2), broker(3, wanted=False))
    planned = plan(
        resource, pods=FIVE[:4], there=cluster_state((ORDERS,), brokers), found=found_set(resource, replicas=4)
    )
    assert other(planned.actions) == [PutBroker(broker_id(3), {"wanted": True, "cordoned": False}, "")]


# -- what was there before, and racks -----------------------------------------------------------------------


def test_statefulset_of_an_older_chart_is_recreated_without_its_pods() -> None:
    """An installation without an operator is adopted: same names, same claims, no pod stops."""
    found = found_set(broker_resource(), ownerReferences=[])
    planned = plan(pods=tuple(pod(at, "old", is_old=True) for at in range(3)), found=found)
    labels = [one for one in planned.actions if isinstance(one, Label)]
    assert [(one.pod, one.labels) for one in labels] == [
        (f"flotilla-broker-{at}", {"flotilla.dev/broker": "flotilla-broker"}) for at in range(3)
    ]
    assert planned.actions[:3] == tuple(labels), "before anything selects by them"
    (removed,) = [one for one in planned.actions if isinstance(one, Delete)]
    assert removed == Delete("StatefulSet", "flotilla-broker", "uid-sts", orphan=True)
    assert "StatefulSet" not in [one.manifest["kind"] for one in planned.actions if isinstance(one, Apply)]


def test_foreign_statefulset_is_left_unchanged() -> None:
    """An object with the same name, but without the labels and the owner, is not adopted."""
    found = found_set(broker_resource(), ownerReferences=[], labels={"app": "other"})
    found["spec"]["selector"] = {"matchLabels": {"app": "other"}}
    planned = plan(found=found)
    assert [one for one in other(planned.actions) if isinstance(one, Delete)] == []
    (applied,) = [one for one in planned.actions if isinstance(one, Apply) and one.manifest["kind"] == "StatefulSet"]
    text = describe_foreign_owner(applied.manifest, found)
    assert text is not None
    assert text.startswith("StatefulSet flotilla-broker exists and does not belong to Flotilla (missing label app.kub")
    assert describe_foreign_owner(applied.manifest, found_set(broker_resource(), labels={})) is None, (
        "the owner reference is Flotilla's"
    )
    assert describe_foreign_owner(applied.manifest, found_set(broker_resource(), ownerReferences=[])) is None, (
        "the labels are Flotilla's; its owner was deleted"
    )


def test_statefulset_in_deletion_is_not_applied() -> None:
    planned = plan(found=found_set(broker_resource(), deletionTimestamp=NOW))
    assert "StatefulSet" not in [one.manifest["kind"] for one in planned.actions if isinstance(one, Apply)]
    assert not [one for one in planned.actions if isinstance(one, Delete)]


def test_racks_are_read_from_labels_of_pods_or_nodes() -> None:
    resource = broker_resource(rack={"topologyKey": "zone"})
    nodes = {f"node-{at}": {"metadata": {"labels": {"zone": f"z{at}"}}} for at in range(2)}
    brokers = (broker(0), broker(1, rack="z1"), broker(2))
    planned = plan(resource, there=cluster_state((ORDERS,), brokers), nodes=nodes)
    assert other(planned.actions) == [PutBroker(broker_id(0), {"rack": "z0", "wanted": True, "cordoned": False}, "")]
    assert planned.status is not None
    assert [one.get("rack") for one in planned.status["brokers"]] == ["z0", "z1", None]


def test_rejection_is_shown_in_accepted() -> None:
    planned = plan(rejection="spec.template.spec.containers[0].image: Required value")
    assert shown(planned, "Ready") == ("False", "Rejected", "spec.template.spec.containers[0].image: Required value")


def test_repeated_error_is_shown_in_accepted() -> None:
    planned = plan(repeated_error="This pod has more than one PodDisruptionBudget")
    assert shown(planned, "Ready") == ("False", "Waiting", "This pod has more than one PodDisruptionBudget")
