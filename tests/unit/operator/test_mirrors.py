"""Topics that were made over HTTP show up as resources."""

from flotilla_operator.names import MIRRORED
from flotilla_operator.steps import Create, Remove
from flotilla_operator.topics.mirrors import is_resource_name, plan_mirrors, slug

from .worlds import topic, topic_resource, world


def test_topics_that_nobody_owns_and_no_resource_tells_of_get_one() -> None:
    there = world(
        (
            topic("orders", (0, 1, 2)),
            topic("known", (0, 1, 2)),
            topic("owned", (0, 1, 2), owner="Topic q/owned"),
            topic("half", (0, 1, 2), state="creating"),
        )
    )
    (step,) = plan_mirrors(there, [topic_resource("known")], "q", "flotilla")
    assert isinstance(step, Create)
    assert step.manifest["metadata"] == {"name": "orders", "namespace": "q", "labels": {MIRRORED: "true"}}
    assert step.manifest["spec"] == {"topicName": "orders", "cluster": "flotilla", "deletionPolicy": "Retain"}


def test_mirrors_of_topics_that_are_gone_go_and_nothing_else_does() -> None:
    mirror = topic_resource("gone", topicName="gone")
    mirror["metadata"]["labels"] = {MIRRORED: "true"}
    claimed = topic_resource("claimed", topicName="claimed", partitions=3)
    claimed["metadata"]["labels"] = {MIRRORED: "true"}
    (step,) = plan_mirrors(world(), [mirror, claimed, topic_resource("wanted")], "q", "flotilla")
    assert step == Remove("flotilla.dev/v1", "Topic", "gone", "uid-gone")


def test_a_mirror_gives_way_to_a_resource_of_the_topics_own() -> None:
    mirror = topic_resource("orders", topicName="orders")
    mirror["metadata"]["labels"] = {MIRRORED: "true"}
    there = world((topic("orders", (0, 1, 2), owner="Topic q/mine"),))
    (step,) = plan_mirrors(there, [mirror, topic_resource("mine", topicName="orders")], "q", "flotilla")
    assert step == Remove("flotilla.dev/v1", "Topic", "orders", "uid-orders")


def test_names_that_kubernetes_does_not_take_become_others_that_are_unlike() -> None:
    assert is_resource_name("orders.eu-1")
    assert not any(is_resource_name(name) for name in ("Orders", "a_b", "a..b", "a.-b", "-a", "a-", "a."))
    names = {slug(name) for name in ("Orders", "orders", "ORDERS", "or_ders", "___", "a" * 200)}
    assert len(names) == 6
    assert all(is_resource_name(name) and len(name) <= 253 for name in names)


def test_a_name_that_another_resource_has_is_not_taken() -> None:
    """A resource `orders` may be for another topic."""
    there = world((topic("orders", (0, 1, 2)),))
    (step,) = plan_mirrors(there, [topic_resource("orders", topicName="others")], "q", "flotilla")
    assert isinstance(step, Create)
    assert step.manifest["metadata"]["name"] == slug("orders")
