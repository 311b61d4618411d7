"""Mirrors of topics that were created over HTTP."""

from flotilla_operator.names import MIRRORED
from flotilla_operator.plans import Create, Delete
from flotilla_operator.topics.mirrors import is_resource_name, plan_mirrors, slug

from .builders import cluster_state, topic, topic_resource


def test_topic_without_owner_and_resource_gets_a_mirror() -> None:
    there = cluster_state(
        (
            topic("orders", (0, 1, 2)),
            topic("known", (0, 1, 2)),
            topic("owned", (0, 1, 2), owner="Topic q/owned"),
            topic("half", (0, 1, 2), state="creating"),
        )
    )
    (action,) = plan_mirrors(there, [topic_resource("known")], "q", "flotilla")
    assert isinstance(action, Create)
    assert action.manifest["metadata"] == {"name": "orders", "namespace": "q", "labels": {MIRRORED: "true"}}
    assert action.manifest["spec"] == {"topicName": "orders", "cluster": "flotilla", "deletionPolicy": "Retain"}


def test_mirror_of_a_deleted_topic_is_deleted() -> None:
    mirror = topic_resource("gone", topicName="gone")
    mirror["metadata"]["labels"] = {MIRRORED: "true"}
    claimed = topic_resource("claimed", topicName="claimed", partitions=3)
    claimed["metadata"]["labels"] = {MIRRORED: "true"}
    (action,) = plan_mirrors(cluster_state(), [mirror, claimed, topic_resource("wanted")], "q", "flotilla")
    assert action == Delete("Topic", "gone", "uid-gone")


def test_mirror_is_deleted_when_a_resource_owns_the_topic() -> None:
    mirror = topic_resource("orders", topicName="orders")
    mirror["metadata"]["labels"] = {MIRRORED: "true"}
    there = cluster_state((topic("orders", (0, 1, 2), owner="Topic q/mine"),))
    (action,) = plan_mirrors(there, [mirror, topic_resource("mine", topicName="orders")], "q", "flotilla")
    assert action == Delete("Topic", "orders", "uid-orders")


def test_invalid_object_names_become_unique_slugs() -> None:
    assert is_resource_name("orders.eu-1")
    assert not any(is_resource_name(name) for name in ("Orders", "a_b", "a..b", "a.-b", "-a", "a-", "a."))
    names = {slug(name) for name in ("Orders", "orders", "ORDERS", "or_ders", "___", "a" * 200)}
    assert len(names) == 6
    assert all(is_resource_name(name) and len(name) <= 253 for name in names)


def test_mirror_avoids_the_name_of_another_resource() -> None:
    """A resource `orders` may be for another topic."""
    there = cluster_state((topic("orders", (0, 1, 2)),))
    (action,) = plan_mirrors(there, [topic_resource("orders", topicName="others")], "q", "flotilla")
    assert isinstance(action, Create)
    assert action.manifest["metadata"]["name"] == slug("orders")
