"""Plans and statuses of Topic resources."""

from typing import Any

import pytest

from flotilla_operator.names import FINALIZER, MIRRORED
from flotilla_operator.plans import DeleteTopic, EmitEvent, PutTopic, ReleaseTopic, SetFinalizers
from flotilla_operator.topics.plan import TopicObservation, plan_releases, plan_topic
from flotilla_operator.topics.spec import read_spec

from .builders import NOW, broker, cluster_state, topic, topic_resource

OWNER = "Topic q/orders"


def shown(status: dict[str, Any] | None, kind: str) -> tuple[str, str, str]:
    assert status is not None
    (one,) = [one for one in status["conditions"] if one["type"] == kind]
    return one["status"], one["reason"], one["message"]


def test_new_topic_is_created_from_the_spec() -> None:
    resource = topic_resource(
        partitions=4,
        replication=3,
        retention={"time": "2d", "size": "10GiB"},
        config={"batchBytesMax": 65536, "compression": "zstd"},
    )
    plan = plan_topic(resource, TopicObservation(cluster_state()), NOW)
    body = {
        "owner": OWNER,
        "partitions": 4,
        "replication": 3,
        "retention_ms": 172_800_000,
        "retention_bytes": 10 << 30,
        "batch_bytes_max": 65536,
        "compression": "zstd",
    }
    assert plan.actions == (PutTopic("orders", body),)
    assert shown(plan.status, "Ready") == ("False", "Creating", "The topic is being created")


def test_omitted_fields_are_left_to_managers() -> None:
    plan = plan_topic(topic_resource(), TopicObservation(cluster_state()), NOW)
    assert plan.actions == (PutTopic("orders", {"owner": OWNER}),)


@pytest.mark.parametrize(
    ("spec", "brokers", "reason"),
    [
        ({}, 3, "Waiting"),  # the third is on its way
        ({"replication": 3}, 3, "Waiting"),
        ({"replication": 5}, 3, "TooFewBrokers"),
    ],
)
def test_topic_waits_for_enough_brokers(spec: dict[str, Any], brokers: int, reason: str) -> None:
    """Managers would place it on the registered brokers, and placement never changes."""
    there = cluster_state(brokers=(broker(0), broker(1), broker(2, wanted=False), broker(3, 1, active=False)))
    plan = plan_topic(topic_resource(**spec), TopicObservation(there, broker_count=brokers), NOW)
    assert plan.actions == ()
    needed = spec.get("replication", 3)
    text = f"Replication {needed} needs {needed} brokers, but 2 are registered"
    text += "; add brokers, or remove spec.replication" if reason == "TooFewBrokers" else ""
    assert shown(plan.status, "Ready") == ("False", reason, text)


@pytest.mark.parametrize(("spec", "brokers"), [({}, 2), ({}, 0), ({"replication": 2}, 3)])
def test_topic_is_created_when_enough_brokers_are_registered(spec: dict[str, Any], brokers: int) -> None:
    """A cluster of two has no third to wait for."""
    there = cluster_state(brokers=(broker(0), broker(1)))
    assert plan_topic(topic_resource(**spec), TopicObservation(there, broker_count=brokers), NOW).actions != ()


def test_forever_and_unlimited_remove_the_limit() -> None:
    resource = topic_resource(retention={"time": "forever", "size": "unlimited"})
    spec = read_spec(resource)
    assert dict(spec.retention) == {"retention_ms": None, "retention_bytes": None}


def test_topic_that_matches_the_spec_is_ready_without_actions() -> None:
    found = topic("orders", (0, 1, 2), (1, 2, 0), owner=OWNER)
    called = {one.id: one.host.partition(".")[0] for one in cluster_state().brokers}
    plan = plan_topic(topic_resource(partitions=2), TopicObservation(cluster_state((found,)), broker_names=called), NOW)
    assert plan.actions == ()
    assert plan.status is not None
    assert {one["type"]: one["status"] for one in plan.status["conditions"]} == dict.fromkeys(
        ("Ready", "Accepted", "Placed", "FullyReplicated"), "True"
    )
    assert (plan.status["topicId"], plan.status["partitions"], plan.status["replication"]) == (found.id, 2, 3)
    assert (plan.status["messages"], plan.status["bytes"], plan.status["observedGeneration"]) == (20, 2000, 3)
    assert plan.status["partitionStatus"][1] == {
        "partition": 1,
        "leader": "flotilla-broker-1",
        "replicas": ["flotilla-broker-1", "flotilla-broker-2", "flotilla-broker-0"],
        "lag": 0,
        "messages": 10,
        "bytes": 1000,
    }


@pytest.mark.parametrize(
    ("found", "spec"),
    [
        ({"owner": None}, {}),
        ({}, {"partitions": 3}),
        ({}, {"retention": {"time": "1h"}}),
        ({}, {"retention": {"size": "1MiB"}}),
        ({"batch_bytes_max": 4096}, {"config": {"batchBytesMax": 8192}}),
        ({}, {"config": {"compression": "zstd"}}),
    ],
)
def test_drift_of_a_topic_is_repaired(found: dict[str, Any], spec: dict[str, Any]) -> None:
    """Drift is repaired, and a topic without an owner is adopted."""
    there = topic("orders", (0, 1, 2), (1, 2, 0), **{"owner": OWNER, **found})
    plan = plan_topic(topic_resource(**spec), TopicObservation(cluster_state((there,))), NOW)
    (action,) = plan.actions
    assert isinstance(action, PutTopic)
    assert action.body["partitions"] == spec.get("partitions", 2), "the number of partitions never decreases"
    assert shown(plan.status, "Ready")[:2] == ("False", "Updating")


@pytest.mark.parametrize(
    ("found", "spec", "reason"),
    [
        ({"owner": "Topic q/others"}, {}, "OwnershipConflict"),
        ({}, {"partitions": 1}, "CannotDecreasePartitions"),
        ({}, {"replication": 2}, "CannotChangeReplication"),
    ],
)
def test_impossible_change_is_reported_without_a_request(
    found: dict[str, Any], spec: dict[str, Any], reason: str
) -> None:
    there = topic("orders", (0, 1, 2), (1, 2, 0), **{"owner": OWNER, **found})
    plan = plan_topic(topic_resource(**spec), TopicObservation(cluster_state((there,))), NOW)
    assert plan.actions == ()
    assert shown(plan.status, "Accepted")[:2] == ("False", reason)
    assert shown(plan.status, "Ready")[:2] == ("False", reason)
    assert shown(plan.status, "Placed")[0] == "True", "the topic is ready"


def test_second_resource_of_a_topic_reports_the_conflict() -> None:
    there = topic("orders", (0, 1, 2), owner=OWNER)
    plan = plan_topic(
        topic_resource("late", topicName="orders"),
        TopicObservation(cluster_state((there,)), conflict="Topic orders"),
        NOW,
    )
    assert plan.actions == ()
    assert shown(plan.status, "Ready") == (
        "False",
        "NameConflict",
        "The topic 'orders' is managed by Topic orders; delete this resource, which owns no records",
    )
    assert plan.status is not None
    assert "topicId" not in plan.status, "otherwise the resource would delete a topic that it does not own"


def test_rejection_is_shown_until_a_retry_succeeds() -> None:
    for may_retry in (False, True):
        observed = TopicObservation(cluster_state(), rejection="There are 5000 topics", may_resend_rejected=may_retry)
        plan = plan_topic(topic_resource(), observed, NOW)
        assert bool(plan.actions) is may_retry
        assert shown(plan.status, "Ready") == ("False", "Rejected", "There are 5000 topics"), "until the error changes"


def test_new_topic_waits_for_registered_racks() -> None:
    """Placement is decided at creation and never changes."""
    plan = plan_topic(topic_resource(), TopicObservation(cluster_state(), are_racks_registered=False), NOW)
    assert plan.actions == ()
    assert shown(plan.status, "Ready") == ("False", "Waiting", "The racks of brokers are not registered yet")
    there = topic("orders", (0, 1, 2), owner=OWNER)
    plan = plan_topic(
        topic_resource(partitions=2), TopicObservation(cluster_state((there,)), are_racks_registered=False), NOW
    )
    assert plan.actions != (), "an existing topic does not wait"


@pytest.mark.parametrize(
    ("spec", "reason"),
    [({"partitions": 1}, "CannotDecreasePartitions"), ({"replication": 2}, "CannotChangeReplication")],
)
def test_rest_of_a_partly_impossible_spec_is_applied(spec: dict[str, Any], reason: str) -> None:
    """The topic gets its owner, so that it cannot be deleted over HTTP, and its retention."""
    there = topic("orders", (0, 1, 2), (1, 2, 0))
    plan = plan_topic(topic_resource(retention={"time": "1d"}, **spec), TopicObservation(cluster_state((there,))), NOW)
    assert plan.actions == (PutTopic("orders", {"owner": OWNER, "retention_ms": 86_400_000, "partitions": 2}),)
    assert shown(plan.status, "Accepted")[:2] == ("False", reason)


def test_resource_with_an_invalid_spec_can_be_deleted() -> None:
    resource = topic_resource(retention={"time": "soon"}, deletionPolicy="Delete")
    resource["metadata"] |= {"deletionTimestamp": NOW, "finalizers": [FINALIZER]}
    assert plan_topic(resource, TopicObservation(cluster_state()), NOW).actions == (SetFinalizers(()),)


def test_unavailable_managers_make_conditions_unknown_and_keep_the_status() -> None:
    before = {"topicId": "a" * 32, "messages": 5, "conditions": []}
    plan = plan_topic(topic_resource(status=before), TopicObservation(None, managers_error="no manager answers"), NOW)
    assert plan.actions == ()
    assert shown(plan.status, "Ready") == ("Unknown", "ManagersUnavailable", "no manager answers")
    assert plan.status is not None
    assert (plan.status["topicId"], plan.status["messages"]) == ("a" * 32, 5)


def test_leaderless_partition_is_not_ready() -> None:
    there = topic("orders", (0, 1, 2), owner=OWNER)
    plan = plan_topic(topic_resource(), TopicObservation(cluster_state((there,), leaderless=True)), NOW)
    assert shown(plan.status, "Placed") == ("False", "NoLeader", "1 partition has no leader: 0")
    assert shown(plan.status, "Ready")[:2] == ("False", "NoLeader")


@pytest.mark.parametrize("problem", [{"silent": (2,)}, {"lag": {2: 5000}}])
def test_under_replicated_topic_is_ready_and_names_the_replica(problem: dict[str, Any]) -> None:
    """Guarantee 5: with one of three replicas unavailable, records flow."""
    there = topic("orders", (0, 1, 2), owner=OWNER)
    brokers = (broker(0), broker(1), broker(2))
    plan = plan_topic(
        topic_resource(),
        TopicObservation(cluster_state((there,), brokers, **problem), broker_names={brokers[2].id: "b-2"}),
        NOW,
    )
    assert shown(plan.status, "FullyReplicated") == (
        "False",
        "UnderReplicated",
        "1 replica is unavailable or out of sync: 0 on b-2",
    )
    assert shown(plan.status, "Ready")[0] == "True"


def test_condition_keeps_its_transition_time_until_its_status_changes() -> None:
    there = topic("orders", (0, 1, 2), owner=OWNER)
    first = plan_topic(topic_resource(), TopicObservation(cluster_state((there,))), "2026-01-01T00:00:00Z").status
    second = plan_topic(
        topic_resource(status=first), TopicObservation(cluster_state((there,), silent=(2,))), NOW
    ).status
    assert second is not None
    since = {one["type"]: one["lastTransitionTime"] for one in second["conditions"]}
    assert since == {
        "Ready": "2026-01-01T00:00:00Z",
        "Accepted": "2026-01-01T00:00:00Z",
        "Placed": "2026-01-01T00:00:00Z",
        "FullyReplicated": NOW,
    }


# -- deletion ---------------------------------------------------------------------------------------------


def deleted(policy: str, topic_id: str | None, finalizers: tuple[str, ...] = (FINALIZER,)) -> dict[str, Any]:
    status = {} if topic_id is None else {"topicId": topic_id}
    resource = topic_resource(deletionPolicy=policy, status=status)
    resource["metadata"] |= {"deletionTimestamp": NOW, "finalizers": list(finalizers)}
    return resource


def test_only_policy_delete_sets_the_finalizer() -> None:
    there = cluster_state((topic("orders", (0, 1, 2), owner=OWNER),))
    assert plan_topic(topic_resource(deletionPolicy="Delete"), TopicObservation(there), NOW).actions == (
        SetFinalizers((FINALIZER,)),
    )
    changed = topic_resource()
    changed["metadata"]["finalizers"] = ["somebody/else", FINALIZER]
    assert plan_topic(changed, TopicObservation(there), NOW).actions == (SetFinalizers(("somebody/else",)),)


def test_policy_delete_deletes_the_topic() -> None:
    there = topic("orders", (0, 1, 2), owner=OWNER)
    actions = plan_topic(deleted("Delete", there.id), TopicObservation(cluster_state((there,))), NOW).actions
    assert actions[:2] == (DeleteTopic("orders", there.id, OWNER), SetFinalizers(()))


@pytest.mark.parametrize(
    ("topic_id", "owner"), [(None, OWNER), ("f" * 32, OWNER), ("own", None), ("own", "Topic q/others")]
)
def test_topic_with_another_id_or_owner_is_kept(topic_id: str | None, owner: str | None) -> None:
    """Nothing is deleted after a restore, or because a name is used again."""
    there = topic("orders", (0, 1, 2), owner=owner)
    resource = deleted("Delete", there.id if topic_id == "own" else topic_id)
    released, event = plan_topic(resource, TopicObservation(cluster_state((there,))), NOW).actions
    assert released == SetFinalizers(()), "even if the event cannot be emitted"
    assert isinstance(event, EmitEvent)
    assert event.is_warning


@pytest.mark.parametrize(
    ("policy", "observed", "actions"),
    [
        ("Delete", TopicObservation(cluster_state()), (SetFinalizers(()),)),  # the topic does not exist
        ("Delete", TopicObservation(None, is_namespace_terminating=True), (SetFinalizers(()),)),
        ("Delete", TopicObservation(None), ()),  # managers are unavailable
        (
            "Delete",
            TopicObservation(cluster_state((topic("orders", (0, 1, 2), owner=OWNER, state="creating"),))),
            (),
        ),  # it is being created
        ("Retain", TopicObservation(None), (SetFinalizers(()),)),  # managers are not needed
    ],
)
def test_deleted_resource_never_hangs(policy: str, observed: TopicObservation, actions: tuple[Any, ...]) -> None:
    assert plan_topic(deleted(policy, "a" * 32), observed, NOW).actions == actions


def test_topic_of_a_deleted_resource_is_released() -> None:
    there = cluster_state(
        (
            topic("orders", (0, 1, 2), owner=OWNER),
            topic("gone", (0, 1, 2), owner="Topic q/gone"),
            topic("elsewhere", (0, 1, 2), owner="Topic other/gone"),
            topic("free", (0, 1, 2)),
        )
    )
    assert plan_releases(there, "q", frozenset({OWNER})) == (ReleaseTopic("gone", "Topic q/gone"),)


def test_adopted_topic_keeps_omitted_settings() -> None:
    there = topic("orders", (0, 1, 2), batch_bytes_max=4096, compression="zstd", retention_bytes=7, owner=OWNER)
    assert plan_topic(topic_resource(), TopicObservation(cluster_state((there,))), NOW).actions == ()


@pytest.mark.parametrize(
    "said",
    [
        {"annotations": {"kubectl.kubernetes.io/last-applied-configuration": "{}"}},
        {"managedFields": [{"manager": "kubectl", "operation": "Apply", "fieldsV1": {"f:spec": {}}}]},
    ],
)
def test_mirror_applied_by_a_user_is_no_mirror(said: dict[str, Any]) -> None:
    mirror = topic_resource(topicName="orders")
    ours = {"manager": "flotilla-operator", "operation": "Update", "fieldsV1": {"f:spec": {}}}
    mirror["metadata"] |= {"labels": {MIRRORED: "true"}, "managedFields": [ours]}
    assert read_spec(mirror).is_mirror
    mirror["metadata"] |= said
    assert not read_spec(mirror).is_mirror


def test_mirror_changes_nothing_until_a_user_sets_a_field() -> None:
    there = cluster_state((topic("orders", (0, 1, 2), (0, 1, 2), (0, 1, 2)),))
    mirror = topic_resource(topicName="orders")
    mirror["metadata"]["labels"] = {MIRRORED: "true"}
    plan = plan_topic(mirror, TopicObservation(there), NOW)
    assert plan.actions == ()
    assert shown(plan.status, "Ready")[0] == "True"
    mirror["spec"]["partitions"] = 5
    (action,) = plan_topic(mirror, TopicObservation(there), NOW).actions
    assert isinstance(action, PutTopic)
