"""What is done about Broker resources, and what they show."""

from typing import Any

import pytest

from flotilla_operator.brokers.children import make_children
from flotilla_operator.brokers.children.ours import why_not_ours
from flotilla_operator.brokers.plan import Observed, plan_brokers
from flotilla_operator.brokers.scaling import plan_lost_sets
from flotilla_operator.brokers.spec import read_set
from flotilla_operator.steps import Apply, Evict, Label, Plan, PutBroker, Remove, RemoveBroker, Step
from flotilla_operator.world import Broker, World

from .worlds import CLUSTER, NOW, broker, broker_id, broker_resource, pod, topic, world

ORDERS = topic("orders", (0, 1, 2), (1, 2, 0), (1, 0, 2))  # 1 leads two, 0 leads one, 2 none
ALL = (pod(0), pod(1), pod(2))


def found_set(resource: dict[str, Any], replicas: int = 3, revision: str = "new", **metadata: Any) -> dict[str, Any]:  # noqa: ANN401
    """The StatefulSet, as Kubernetes has it after it was applied."""
    wanted = read_set(resource, CLUSTER)
    made = make_children(wanted, replicas, [wanted.owner])[-1]
    made["metadata"] |= {"uid": "uid-sts", "generation": 4, **metadata}
    made["status"] = {"observedGeneration": 4, "updateRevision": revision}
    return made


def plan(
    resource: dict[str, Any] | None = None,
    pods: tuple[dict[str, Any], ...] = ALL,
    there: World | None = None,
    found: dict[str, Any] | None = None,
    **options: Any,  # noqa: ANN401 - as Observed has them
) -> Plan:
    """Plan for a set that is there, by default as it should be."""
    resource = resource or broker_resource()
    statefulset = found if found is not None else found_set(resource)
    observed = Observed(CLUSTER, statefulset, pods, world=there or world((ORDERS,)), **options)
    return plan_brokers(resource, observed, NOW)


def other(steps: tuple[Step, ...]) -> list[Step]:
    """All steps but those that apply children, which are in every plan."""
    return [one for one in steps if not isinstance(one, Apply)]


def shown(plan: Plan, kind: str) -> tuple[str, str, str]:
    assert plan.status is not None
    (one,) = [one for one in plan.status["conditions"] if one["type"] == kind]
    return one["status"], one["reason"], one["message"]


def phases(plan: Plan) -> list[tuple[str, str]]:
    assert plan.status is not None
    return [(one["name"].rpartition("-")[2], one["phase"]) for one in plan.status["brokers"]]


def test_a_new_set_gets_all_its_children_and_what_pods_need_comes_first() -> None:
    planned = plan_brokers(broker_resource(), Observed(CLUSTER, None, world=None, away="no manager answers"), NOW)
    kinds = [one.manifest["kind"] for one in planned.steps if isinstance(one, Apply)]
    assert kinds == ["ServiceAccount", "ConfigMap", "Service", "PodDisruptionBudget", "StatefulSet"]
    assert phases(planned) == [("0", "Pending"), ("1", "Pending"), ("2", "Pending")]
    assert shown(planned, "Ready")[:2] == ("False", "Pending")


def test_a_set_that_is_well_needs_nothing_and_is_ready() -> None:
    planned = plan()
    assert other(planned.steps) == []
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


def test_a_resource_that_is_deleted_is_left_to_kubernetes() -> None:
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
def test_phases_tell_how_a_broker_is(changed: dict[str, Any], there: dict[str, Any], phase: str) -> None:
    planned = plan(pods=(pod(0), pod(1), changed), there=world((ORDERS,), **there))
    assert phases(planned) == [("0", "Running"), ("1", "Running"), ("2", phase)]
    assert shown(planned, "Ready")[:2] == ("False", phase)


def test_a_broker_that_came_back_with_an_empty_disk_is_a_new_one_and_the_old_one_is_missed() -> None:
    """Guarantee 5: the rest serves; the conditions say which replicas are missing."""
    brokers = (broker(0), broker(1), broker(2, active=False), broker(3, ordinal=2))
    planned = plan(there=world((ORDERS,), brokers))
    assert phases(planned) == [("0", "Running"), ("1", "Running"), ("2", "Running"), ("2", "DiskLost")]
    status, reason, message = shown(planned, "FullyReplicated")
    assert (status, reason) == ("False", "DiskLost")
    assert message.startswith(
        "flotilla-broker-2 came back with an empty disk; 3 replicas were on the old one: orders/0"
    )
    assert planned.status is not None
    assert planned.status["brokers"][2]["id"] == broker_id(3)
    assert other(planned.steps) == [], "what is missed is not forgotten"


def test_nobody_is_lost_while_nobody_is_heard_of() -> None:
    """After a restart, managers have heard of nobody yet: who is there now is not known."""
    brokers = (broker(0), broker(1), broker(2, active=False), broker(3, ordinal=2, active=False))
    planned = plan(there=world((ORDERS,), brokers))
    assert other(planned.steps) == []
    assert planned.status is not None
    assert planned.status["brokers"][2]["id"] == broker_id(3), "the one that came last"


def test_an_old_broker_that_held_nothing_is_forgotten() -> None:
    brokers = (broker(0), broker(1), broker(4, ordinal=2, active=False), broker(2))
    assert other(plan(there=world((ORDERS,), brokers)).steps) == [RemoveBroker(broker_id(4))]


# -- updates ----------------------------------------------------------------------------------------------


def test_an_update_replaces_one_broker_and_whoever_leads_least_goes_first() -> None:
    old = (pod(0, "old"), pod(1, "old"), pod(2, "old"))
    planned = plan(pods=old)
    (step,) = other(planned.steps)
    assert isinstance(step, Evict)
    assert (step.pod, step.uid) == ("flotilla-broker-2", "uid-2")
    assert shown(planned, "Updated")[:2] == ("False", "Replacing")
    (step,) = other(plan(pods=(pod(0, "old"), pod(1, "old"), pod(2))).steps)
    assert isinstance(step, Evict)
    assert step.pod == "flotilla-broker-0"


@pytest.mark.parametrize(
    ("pods", "there", "why"),
    [
        ((pod(0, "old"), pod(1, "old")), {}, "flotilla-broker-2 to come back"),
        ((pod(0, "old"), pod(1, "old"), pod(2, leaving=True)), {}, "flotilla-broker-2 to come back"),
        (
            (pod(0, "old"), pod(1, "old"), pod(2, ready=False)),
            {},
            "flotilla-broker-2 (Starting: it is not ready yet) to be well",
        ),
        ((pod(0, "old"), pod(1, "old"), pod(2)), {"silent": (2,)}, "flotilla-broker-2 (Unreachable"),
        ((pod(0, "old"), pod(1, "old"), pod(2)), {"lag": {2: 5000}}, "flotilla-broker-2 (Lagging"),
        ((pod(0, "old"), pod(1, "old"), pod(2)), {"leaderless": True}, "all replicas to follow in 3 partitions"),
    ],
)
def test_an_update_waits_until_all_others_are_well(
    pods: tuple[dict[str, Any], ...], there: dict[str, Any], why: str
) -> None:
    """Guarantee 5: never are two brokers away at a time because of an update."""
    planned = plan(pods=pods, there=world((ORDERS,), **there))
    assert other(planned.steps) == []
    assert why in shown(planned, "Updated")[2]


def test_an_update_waits_while_managers_are_away() -> None:
    observed = Observed(CLUSTER, found_set(broker_resource()), (pod(0, "old"), pod(1), pod(2)), world=None, away="away")
    planned = plan_brokers(broker_resource(), observed, NOW)
    assert other(planned.steps) == []
    assert "managers" in shown(planned, "Updated")[2]


def test_a_broker_that_a_bad_image_broke_goes_first_whatever_else() -> None:
    """It serves nobody, and the change may be what mends it: an update must not wait for what it would mend."""
    broken = pod(1, "bad", ready=False, failure="ImagePullBackOff")
    (step,) = other(plan(pods=(pod(0, "old"), broken, pod(2, "old"))).steps)
    assert isinstance(step, Evict)
    assert step.pod == "flotilla-broker-1"


def test_one_that_is_not_ready_goes_first_if_all_others_are_well_and_waits_otherwise() -> None:
    slow = pod(1, "old", ready=False)
    (step,) = other(plan(pods=(pod(0, "old"), slow, pod(2))).steps)
    assert isinstance(step, Evict)
    assert step.pod == "flotilla-broker-1"
    assert other(plan(pods=(pod(0, "old"), slow, pod(2, ready=False))).steps) == [], "two would be away"
    lost = (broker(0), broker(1), broker(2), broker(9, 2, active=False))
    there = world((topic("orders", (0, 1, 9)),), lost)
    assert other(plan(pods=(pod(0, "old"), slow, pod(2)), there=there).steps) == [], "it may be one of two that serve"
    assert other(plan(pods=(pod(0, "old"), slow, pod(2)), there=world((ORDERS,), silent=(1,))).steps) == [step]


def test_all_that_a_bad_image_broke_are_replaced_one_after_the_other() -> None:
    """A new set whose image does not exist has nothing to lose."""
    broken = tuple(pod(at, "bad", ready=False, failure="ImagePullBackOff") for at in range(3))
    (step,) = other(plan(pods=broken, there=world()).steps)
    assert isinstance(step, Evict)


def test_pods_that_could_not_even_start_are_replaced_when_the_spec_is_mended() -> None:
    """A Secret that is missing, or no room: they are not failures to Kubernetes, and wait for ever."""
    stuck = tuple({**pod(at, "bad", ready=False), "status": {"phase": "Pending"}} for at in range(3))
    (step,) = other(plan(pods=stuck, there=world()).steps)
    assert isinstance(step, Evict)


def test_a_broken_broker_that_is_as_the_spec_says_stops_the_update() -> None:
    broken = pod(1, "new", ready=False, failure="ImagePullBackOff")
    planned = plan(pods=(pod(0, "old"), broken, pod(2, "old")))
    assert other(planned.steps) == []
    assert "flotilla-broker-1 (Failed: ImagePullBackOff: no such image)" in shown(planned, "Updated")[2]


def test_nothing_is_replaced_before_kubernetes_has_seen_the_change() -> None:
    found = found_set(broker_resource(), generation=5)
    assert other(plan(pods=(pod(0, "old"), pod(1, "old"), pod(2, "old")), found=found).steps) == []


def test_an_update_that_was_not_applied_yet_is_not_done() -> None:
    """Or a resource would be called updated before anything has happened."""
    planned = plan(broker_resource(config={"log_level": "debug"}), found=found_set(broker_resource()))
    assert shown(planned, "Updated")[:2] == ("False", "Waiting")
    assert other(planned.steps) == []
    assert planned.status is not None
    assert planned.status["updatedReplicas"] == 0


def test_with_on_delete_the_moment_is_the_users() -> None:
    planned = plan(broker_resource(update="OnDelete"), pods=(pod(0, "old"), pod(1), pod(2)))
    assert other(planned.steps) == []
    assert shown(planned, "Updated") == (
        "False",
        "WaitsForYou",
        "delete these pods when it suits you: flotilla-broker-0",
    )
    unseen = plan(broker_resource(update="OnDelete"), found=found_set(broker_resource(update="OnDelete"), generation=5))
    assert shown(unseen, "Updated")[:2] == ("False", "Waiting")


# -- scale ------------------------------------------------------------------------------------------------


def applied_replicas(planned: Plan) -> int:
    (one,) = [one.manifest for one in planned.steps if isinstance(one, Apply) and one.manifest["kind"] == "StatefulSet"]
    return int(one["spec"]["replicas"])


def test_more_brokers_are_made_at_once() -> None:
    resource = broker_resource(replicas=5)
    planned = plan(resource, found=found_set(resource, replicas=3))
    assert applied_replicas(planned) == 5
    assert shown(planned, "Running")[1] == "Pending"


FIVE = tuple(pod(at) for at in range(5))


def test_brokers_that_hold_replicas_stay_and_are_named() -> None:
    brokers = tuple(broker(at) for at in range(5))
    there = world((ORDERS, topic("more", (3, 1, 2))), brokers)
    planned = plan(pods=FIVE, there=there, found=found_set(broker_resource(), replicas=5))
    unwanted = {"wanted": False, "cordoned": False}
    assert other(planned.steps) == [PutBroker(broker_id(3), unwanted), PutBroker(broker_id(4), unwanted)]
    assert applied_replicas(planned) == 5, "nobody goes before managers know that nothing may come"
    assert shown(planned, "Scaled") == ("False", "ReplicasRemain", "flotilla-broker-3 holds 1 replica: more/0")

    told = (*brokers[:3], broker(3, wanted=False), broker(4, wanted=False))
    planned = plan(
        pods=FIVE, there=world((ORDERS, topic("more", (3, 1, 2))), told), found=found_set(broker_resource(), replicas=5)
    )
    assert applied_replicas(planned) == 4, "the last one holds nothing, and goes"
    assert other(planned.steps) == []


def test_brokers_that_hold_nothing_go_and_are_forgotten() -> None:
    told = (*(broker(at) for at in range(3)), broker(3, wanted=False), broker(4, wanted=False))
    planned = plan(pods=FIVE, there=world((ORDERS,), told), found=found_set(broker_resource(), replicas=5))
    assert applied_replicas(planned) == 3
    gone = (*told[:3], broker(3, wanted=False, active=False), broker(4, wanted=False, active=False))
    planned = plan(there=world((ORDERS,), gone))
    assert other(planned.steps) == [RemoveBroker(broker_id(3)), RemoveBroker(broker_id(4))]


def test_brokers_that_hold_replicas_stay_when_the_statefulset_is_made_anew() -> None:
    """Somebody deleted it, or it had to be replaced: its pods are there, and so are the brokers that hold something."""
    brokers = (*(broker(at) for at in range(3)), broker(3, wanted=False), broker(4, wanted=False))
    there = world((ORDERS, topic("more", (4, 1, 2))), brokers)
    for pods in (FIVE, FIVE[:3]):
        observed = Observed(CLUSTER, None, pods, world=there)
        assert applied_replicas(plan_brokers(broker_resource(), observed, NOW)) == 5
    for made in (found_set(broker_resource()), found_set(broker_resource(), replicas=5)):
        planned = plan(pods=FIVE[:3], there=there, found=made)
        assert applied_replicas(planned) == 5, "it was made when nobody knew, or somebody has scaled it"
        assert shown(planned, "Scaled")[:2] == ("False", "ReplicasRemain")


def test_brokers_of_a_set_that_is_gone_are_forgotten_when_they_hold_nothing() -> None:
    """Or managers would wait for them with every topic that is made."""
    host = "large-0.large.q.svc"
    gone = Broker(id=broker_id(7), host=host, port=8090, active=False)
    holds = Broker(id=broker_id(8), host="large-1.large.q.svc", port=8090, active=False)
    elsewhere = Broker(id=broker_id(9), host="large-0.large.other.svc", port=8090, active=False)
    there = world((topic("kept", (0, 1, 8)),), (*(broker(at, active=False) for at in range(3)), gone, holds, elsewhere))
    sets = frozenset({"flotilla-broker"})
    assert plan_lost_sets(there, "q", sets, frozenset()) == (RemoveBroker(gone.id),)
    assert plan_lost_sets(there, "q", sets | {"large"}, frozenset()) == ()
    assert plan_lost_sets(there, "q", sets, frozenset({"large-0"})) == ()


def test_a_broker_that_may_register_in_the_next_moment_stays() -> None:
    brokers = tuple(broker(at) for at in range(3))
    found = found_set(broker_resource(), replicas=4)
    starting = plan(pods=(*ALL, pod(3, ready=False)), there=world((ORDERS,), brokers), found=found)
    assert applied_replicas(starting) == 4
    broken = plan(
        pods=(*ALL, pod(3, ready=False, failure="ImagePullBackOff")), there=world((ORDERS,), brokers), found=found
    )
    assert applied_replicas(broken) == 3


def test_a_broker_that_comes_back_with_its_place_takes_part_again() -> None:
    """It was removed when there were fewer; its volume was kept, and so was its id."""
    resource = broker_resource(replicas=4)
    brokers = (broker(0), broker(1), broker(2), broker(3, wanted=False, removed=True, active=False))
    planned = plan(resource, pods=FIVE[:4], there=world((ORDERS,), brokers), found=found_set(resource, replicas=4))
    assert other(planned.steps) == [PutBroker(broker_id(3), {"wanted": True, "cordoned": False})]


def test_nobody_goes_while_managers_are_away() -> None:
    observed = Observed(CLUSTER, found_set(broker_resource(), replicas=5), FIVE, world=None, away="away")
    planned = plan_brokers(broker_resource(), observed, NOW)
    assert applied_replicas(planned) == 5
    assert shown(planned, "Scaled")[:2] == ("False", "ReplicasRemain")


def test_a_broker_that_is_wanted_again_takes_replicas_again() -> None:
    resource = broker_resource(replicas=4)
    brokers = (broker(0), broker(1), broker(2), broker(3, wanted=False))
    planned = plan(resource, pods=FIVE[:4], there=world((ORDERS,), brokers), found=found_set(resource, replicas=4))
    assert other(planned.steps) == [PutBroker(broker_id(3), {"wanted": True, "cordoned": False})]


# -- what was there before, and racks -----------------------------------------------------------------------


def test_a_set_that_somebody_else_made_is_made_anew_and_its_pods_go_on() -> None:
    """An installation from before there was an operator moves over: same names, same claims, no pod ends."""
    found = found_set(broker_resource(), ownerReferences=[])
    planned = plan(pods=tuple(pod(at, "old", is_old=True) for at in range(3)), found=found)
    labels = [one for one in planned.steps if isinstance(one, Label)]
    assert [(one.pod, one.labels) for one in labels] == [
        (f"flotilla-broker-{at}", {"flotilla.dev/broker": "flotilla-broker"}) for at in range(3)
    ]
    assert planned.steps[:3] == tuple(labels), "before anything selects by them"
    (removed,) = [one for one in planned.steps if isinstance(one, Remove)]
    assert removed == Remove("apps/v1", "StatefulSet", "flotilla-broker", "uid-sts", orphan=True)
    assert "StatefulSet" not in [one.manifest["kind"] for one in planned.steps if isinstance(one, Apply)]


def test_a_set_that_is_not_ours_is_left_alone() -> None:
    """What has our name, and neither our labels nor our owner, is not taken over."""
    found = found_set(broker_resource(), ownerReferences=[], labels={"app": "other"})
    found["spec"]["selector"] = {"matchLabels": {"app": "other"}}
    planned = plan(found=found)
    assert [one for one in other(planned.steps) if isinstance(one, Remove)] == []
    (applied,) = [one for one in planned.steps if isinstance(one, Apply) and one.manifest["kind"] == "StatefulSet"]
    told = why_not_ours(applied.manifest, found)
    assert told is not None
    assert told.startswith("there is a StatefulSet flotilla-broker that is not ours, as it lacks the label app.kuber")
    assert why_not_ours(applied.manifest, found_set(broker_resource(), labels={})) is None, "its owner is"
    assert why_not_ours(applied.manifest, found_set(broker_resource(), ownerReferences=[])) is None, "it was left"


def test_a_set_that_is_on_its_way_out_is_waited_for() -> None:
    planned = plan(found=found_set(broker_resource(), deletionTimestamp=NOW))
    assert "StatefulSet" not in [one.manifest["kind"] for one in planned.steps if isinstance(one, Apply)]
    assert not [one for one in planned.steps if isinstance(one, Remove)]


def test_racks_come_from_pods_or_from_their_nodes() -> None:
    resource = broker_resource(rack={"topologyKey": "zone"})
    nodes = {f"node-{at}": {"metadata": {"labels": {"zone": f"z{at}"}}} for at in range(2)}
    brokers = (broker(0), broker(1, rack="z1"), broker(2))
    planned = plan(resource, there=world((ORDERS,), brokers), nodes=nodes)
    assert other(planned.steps) == [PutBroker(broker_id(0), {"rack": "z0", "wanted": True, "cordoned": False})]
    assert planned.status is not None
    assert [one.get("rack") for one in planned.status["brokers"]] == ["z0", "z1", None]


def test_what_kubernetes_refuses_is_shown() -> None:
    planned = plan(refusal="spec.template.spec.containers[0].image: Required value")
    assert shown(planned, "Ready") == ("False", "Refused", "spec.template.spec.containers[0].image: Required value")


def test_what_fails_again_and_again_is_shown() -> None:
    planned = plan(waits_for="This pod has more than one PodDisruptionBudget")
    assert shown(planned, "Ready") == ("False", "Waiting", "This pod has more than one PodDisruptionBudget")
