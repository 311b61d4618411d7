"""What is done about Topic resources, and what they show."""

from typing import Any

import pytest

from flotilla_operator.names import FINALIZER, MIRRORED
from flotilla_operator.steps import DeleteTopic, PutTopic, ReleaseTopic, SetFinalizers, Tell
from flotilla_operator.topics.plan import Observed, plan_releases, plan_topic
from flotilla_operator.topics.wish import read_wish

from .worlds import NOW, broker, topic, topic_resource, world

OWNER = "Topic q/orders"


def shown(status: dict[str, Any] | None, kind: str) -> tuple[str, str, str]:
    assert status is not None
    (one,) = [one for one in status["conditions"] if one["type"] == kind]
    return one["status"], one["reason"], one["message"]


def test_a_new_topic_is_made_as_its_resource_says() -> None:
    resource = topic_resource(
        partitions=4,
        replication=3,
        retention={"time": "2d", "size": "10GiB"},
        config={"batchBytesMax": 65536, "compression": "zstd"},
    )
    plan = plan_topic(resource, Observed(world()), NOW)
    body = {
        "owner": OWNER,
        "partitions": 4,
        "replication": 3,
        "retention_ms": 172_800_000,
        "retention_bytes": 10 << 30,
        "batch_bytes_max": 65536,
        "compression": "zstd",
    }
    assert plan.steps == (PutTopic("orders", body),)
    assert shown(plan.status, "Ready") == ("False", "BeingMade", "managers are asked to make it")


def test_what_is_not_said_is_left_to_managers() -> None:
    plan = plan_topic(topic_resource(), Observed(world()), NOW)
    assert plan.steps == (PutTopic("orders", {"owner": OWNER}),)


@pytest.mark.parametrize(
    ("spec", "brokers", "reason"),
    [
        ({}, 3, "Waiting"),  # the third is on its way
        ({"replication": 3}, 3, "Waiting"),
        ({"replication": 5}, 3, "TooFewBrokers"),
    ],
)
def test_a_topic_is_not_made_while_too_few_brokers_are_known(spec: dict[str, Any], brokers: int, reason: str) -> None:
    """Managers would place it on those that there are, and that stays so."""
    there = world(brokers=(broker(0), broker(1), broker(2, wanted=False), broker(3, 1, active=False)))
    plan = plan_topic(topic_resource(**spec), Observed(there, brokers=brokers), NOW)
    assert plan.steps == ()
    needed = spec.get("replication", 3)
    text = f"each partition is to be on {needed} brokers; 2 brokers registered so far"
    assert shown(plan.status, "Ready") == ("False", reason, text)


@pytest.mark.parametrize(("spec", "brokers"), [({}, 2), ({}, 0), ({"replication": 2}, 3)])
def test_a_topic_is_made_when_all_brokers_that_it_needs_are_known(spec: dict[str, Any], brokers: int) -> None:
    """A cluster of two has no third to wait for."""
    there = world(brokers=(broker(0), broker(1)))
    assert plan_topic(topic_resource(**spec), Observed(there, brokers=brokers), NOW).steps != ()


def test_forever_and_unlimited_are_said_as_such() -> None:
    resource = topic_resource(retention={"time": "forever", "size": "unlimited"})
    wish = read_wish(resource)
    assert dict(wish.retention) == {"retention_ms": None, "retention_bytes": None}


def test_a_topic_that_is_as_it_should_be_needs_nothing_and_is_ready() -> None:
    found = topic("orders", (0, 1, 2), (1, 2, 0), owner=OWNER)
    called = {one.id: one.host.partition(".")[0] for one in world().brokers}
    plan = plan_topic(topic_resource(partitions=2), Observed(world((found,)), called=called), NOW)
    assert plan.steps == ()
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
def test_what_differs_is_put_right(found: dict[str, Any], spec: dict[str, Any]) -> None:
    """Drift is repaired, and a topic that nobody owns is adopted."""
    there = topic("orders", (0, 1, 2), (1, 2, 0), **{"owner": OWNER, **found})
    plan = plan_topic(topic_resource(**spec), Observed(world((there,))), NOW)
    (step,) = plan.steps
    assert isinstance(step, PutTopic)
    assert step.body["partitions"] == spec.get("partitions", 2), "never fewer than there are"
    assert shown(plan.status, "Ready")[:2] == ("False", "BeingChanged")


@pytest.mark.parametrize(
    ("found", "spec", "reason"),
    [
        ({"owner": "Topic q/others"}, {}, "OwnedByAnother"),
        ({}, {"partitions": 1}, "PartitionsOnlyGrow"),
        ({}, {"replication": 2}, "ReplicationFixed"),
    ],
)
def test_what_cannot_be_becomes_a_condition_and_no_request(
    found: dict[str, Any], spec: dict[str, Any], reason: str
) -> None:
    there = topic("orders", (0, 1, 2), (1, 2, 0), **{"owner": OWNER, **found})
    plan = plan_topic(topic_resource(**spec), Observed(world((there,))), NOW)
    assert plan.steps == ()
    assert shown(plan.status, "Accepted")[:2] == ("False", reason)
    assert shown(plan.status, "Ready")[:2] == ("False", reason)
    assert shown(plan.status, "Placed")[0] == "True", "the topic itself is well"


def test_the_second_resource_for_a_topic_does_nothing_and_names_the_first() -> None:
    there = topic("orders", (0, 1, 2), owner=OWNER)
    plan = plan_topic(topic_resource("late", topicName="orders"), Observed(world((there,)), rival="Topic orders"), NOW)
    assert plan.steps == ()
    assert shown(plan.status, "Ready") == (
        "False",
        "NameTaken",
        "Topic orders is older, and is for the topic 'orders', too",
    )
    assert plan.status is not None
    assert "topicId" not in plan.status, "or it would delete what is not its own"


def test_what_managers_refuse_is_shown_and_asked_again_when_it_is_time() -> None:
    for may_ask in (False, True):
        observed = Observed(world(), refusal="There are 5000 topics", may_ask=may_ask)
        plan = plan_topic(topic_resource(), observed, NOW)
        assert bool(plan.steps) is may_ask
        assert shown(plan.status, "Ready") == ("False", "Refused", "There are 5000 topics"), (
            "until the answer is another"
        )


def test_a_new_topic_waits_until_managers_know_the_racks_of_brokers() -> None:
    """Where its partitions are stays as it was made."""
    plan = plan_topic(topic_resource(), Observed(world(), has_racks=False), NOW)
    assert plan.steps == ()
    assert shown(plan.status, "Ready") == ("False", "Waiting", "managers are being told the racks of brokers")
    there = topic("orders", (0, 1, 2), owner=OWNER)
    plan = plan_topic(topic_resource(partitions=2), Observed(world((there,)), has_racks=False), NOW)
    assert plan.steps != (), "what is there is not held up"


@pytest.mark.parametrize(
    ("spec", "reason"), [({"partitions": 1}, "PartitionsOnlyGrow"), ({"replication": 2}, "ReplicationFixed")]
)
def test_of_a_spec_that_cannot_be_in_part_the_rest_counts(spec: dict[str, Any], reason: str) -> None:
    """The topic is owned all the same, so that nobody deletes it over HTTP, and records stay as long as it says."""
    there = topic("orders", (0, 1, 2), (1, 2, 0))
    plan = plan_topic(topic_resource(retention={"time": "1d"}, **spec), Observed(world((there,))), NOW)
    assert plan.steps == (PutTopic("orders", {"owner": OWNER, "retention_ms": 86_400_000, "partitions": 2}),)
    assert shown(plan.status, "Accepted")[:2] == ("False", reason)


def test_a_resource_whose_spec_means_nothing_can_be_deleted() -> None:
    resource = topic_resource(retention={"time": "soon"}, deletionPolicy="Delete")
    resource["metadata"] |= {"deletionTimestamp": NOW, "finalizers": [FINALIZER]}
    assert plan_topic(resource, Observed(world()), NOW).steps == (SetFinalizers(()),)


def test_while_managers_are_away_nothing_is_known_and_the_rest_of_the_status_stays() -> None:
    before = {"topicId": "a" * 32, "messages": 5, "conditions": []}
    plan = plan_topic(topic_resource(status=before), Observed(None, away="no manager answers"), NOW)
    assert plan.steps == ()
    assert shown(plan.status, "Ready") == ("Unknown", "ManagersAway", "no manager answers")
    assert plan.status is not None
    assert (plan.status["topicId"], plan.status["messages"]) == ("a" * 32, 5)


def test_a_partition_without_a_leader_is_not_ready() -> None:
    there = topic("orders", (0, 1, 2), owner=OWNER)
    plan = plan_topic(topic_resource(), Observed(world((there,), leaderless=True)), NOW)
    assert shown(plan.status, "Placed") == ("False", "NoLeader", "1 partition without a leader: 0")
    assert shown(plan.status, "Ready")[:2] == ("False", "NoLeader")


@pytest.mark.parametrize("trouble", [{"silent": (2,)}, {"lag": {2: 5000}}])
def test_a_replica_that_is_away_or_behind_is_named_and_the_topic_is_ready(trouble: dict[str, Any]) -> None:
    """Guarantee 5: with one of three away, records flow."""
    there = topic("orders", (0, 1, 2), owner=OWNER)
    brokers = (broker(0), broker(1), broker(2))
    plan = plan_topic(
        topic_resource(), Observed(world((there,), brokers, **trouble), called={brokers[2].id: "b-2"}), NOW
    )
    assert shown(plan.status, "FullyReplicated") == (
        "False",
        "ReplicasMissing",
        "1 replica missing or far behind: 0 on b-2",
    )
    assert shown(plan.status, "Ready")[0] == "True"


def test_a_condition_keeps_its_time_until_it_changes() -> None:
    there = topic("orders", (0, 1, 2), owner=OWNER)
    first = plan_topic(topic_resource(), Observed(world((there,))), "2026-01-01T00:00:00Z").status
    second = plan_topic(topic_resource(status=first), Observed(world((there,), silent=(2,))), NOW).status
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


def test_only_a_resource_whose_records_go_with_it_has_a_finalizer() -> None:
    there = world((topic("orders", (0, 1, 2), owner=OWNER),))
    assert plan_topic(topic_resource(deletionPolicy="Delete"), Observed(there), NOW).steps == (
        SetFinalizers((FINALIZER,)),
    )
    changed = topic_resource()
    changed["metadata"]["finalizers"] = ["somebody/else", FINALIZER]
    assert plan_topic(changed, Observed(there), NOW).steps == (SetFinalizers(("somebody/else",)),)


def test_records_go_with_a_resource_that_says_so() -> None:
    there = topic("orders", (0, 1, 2), owner=OWNER)
    steps = plan_topic(deleted("Delete", there.id), Observed(world((there,))), NOW).steps
    assert steps[:2] == (DeleteTopic("orders", there.id, OWNER), SetFinalizers(()))


@pytest.mark.parametrize(
    ("topic_id", "owner"), [(None, OWNER), ("f" * 32, OWNER), ("own", None), ("own", "Topic q/others")]
)
def test_a_topic_that_is_not_certainly_its_own_stays(topic_id: str | None, owner: str | None) -> None:
    """Nothing is deleted after a restore, or because a name was used again."""
    there = topic("orders", (0, 1, 2), owner=owner)
    resource = deleted("Delete", there.id if topic_id == "own" else topic_id)
    released, told = plan_topic(resource, Observed(world((there,))), NOW).steps
    assert released == SetFinalizers(()), "whether or not it can be told"
    assert isinstance(told, Tell)
    assert told.warning


@pytest.mark.parametrize(
    ("policy", "observed", "steps"),
    [
        ("Delete", Observed(world()), (SetFinalizers(()),)),  # the topic is gone
        ("Delete", Observed(None, is_gone=True), (SetFinalizers(()),)),  # everything is
        ("Delete", Observed(None), ()),  # managers will be back
        (
            "Delete",
            Observed(world((topic("orders", (0, 1, 2), owner=OWNER, state="creating"),))),
            (),
        ),  # it is being made
        ("Retain", Observed(None), (SetFinalizers(()),)),  # nobody has to be asked
    ],
)
def test_a_resource_that_is_deleted_never_hangs(policy: str, observed: Observed, steps: tuple[Any, ...]) -> None:
    assert plan_topic(deleted(policy, "a" * 32), observed, NOW).steps == steps


def test_a_topic_whose_resource_is_gone_belongs_to_nobody() -> None:
    there = world(
        (
            topic("orders", (0, 1, 2), owner=OWNER),
            topic("gone", (0, 1, 2), owner="Topic q/gone"),
            topic("elsewhere", (0, 1, 2), owner="Topic other/gone"),
            topic("free", (0, 1, 2)),
        )
    )
    assert plan_releases(there, "q", frozenset({OWNER})) == (ReleaseTopic("gone", "Topic q/gone"),)


def test_what_is_not_said_of_a_topic_that_is_taken_over_stays() -> None:
    there = topic("orders", (0, 1, 2), batch_bytes_max=4096, compression="zstd", retention_bytes=7, owner=OWNER)
    assert plan_topic(topic_resource(), Observed(world((there,))), NOW).steps == ()


@pytest.mark.parametrize(
    "said",
    [
        {"annotations": {"kubectl.kubernetes.io/last-applied-configuration": "{}"}},
        {"managedFields": [{"manager": "kubectl", "operation": "Apply", "fieldsV1": {"f:spec": {}}}]},
    ],
)
def test_a_mirror_that_somebody_has_applied_is_theirs_whatever_it_says(said: dict[str, Any]) -> None:
    mirror = topic_resource(topicName="orders")
    ours = {"manager": "flotilla-operator", "operation": "Update", "fieldsV1": {"f:spec": {}}}
    mirror["metadata"] |= {"labels": {MIRRORED: "true"}, "managedFields": [ours]}
    assert read_wish(mirror).is_mirror
    mirror["metadata"] |= said
    assert not read_wish(mirror).is_mirror


def test_a_mirror_wants_nothing_until_somebody_says_more_in_it() -> None:
    there = world((topic("orders", (0, 1, 2), (0, 1, 2), (0, 1, 2)),))
    mirror = topic_resource(topicName="orders")
    mirror["metadata"]["labels"] = {MIRRORED: "true"}
    plan = plan_topic(mirror, Observed(there), NOW)
    assert plan.steps == ()
    assert shown(plan.status, "Ready")[0] == "True"
    mirror["spec"]["partitions"] = 5
    (step,) = plan_topic(mirror, Observed(there), NOW).steps
    assert isinstance(step, PutTopic)
