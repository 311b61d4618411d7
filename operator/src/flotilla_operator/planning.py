"""Planning: the second step of a reconcile. Builds the plans of all Brokers and Topics from an observation."""

from typing import Any

from flotilla_operator.backoff import RetryTracker
from flotilla_operator.brokers.members import name_brokers
from flotilla_operator.brokers.plan import Observed as BrokersObserved
from flotilla_operator.brokers.plan import plan_broker_set
from flotilla_operator.brokers.scaling import plan_orphans
from flotilla_operator.brokers.spec import BrokerDefaults, read_broker_set
from flotilla_operator.cluster_state import ClusterState
from flotilla_operator.names import BROKER, TOPIC
from flotilla_operator.observation import Observation, Resources
from flotilla_operator.plans import Action, PutBroker, ResourcePlan, resource_key
from flotilla_operator.topics.mirrors import plan_mirrors
from flotilla_operator.topics.plan import Observed as TopicObserved
from flotilla_operator.topics.plan import plan_releases, plan_topic
from flotilla_operator.topics.spec import is_mirror, name_of, owner_of

Resource = dict[str, Any]


def plan_all_brokers(
    cluster: BrokerDefaults, observation: Observation, retries: RetryTracker, now: str
) -> list[ResourcePlan]:
    """Plan for all Broker resources of the cluster."""
    resources = observation.resources
    live = [one for one in resources.brokers if "deletionTimestamp" not in one["metadata"]]
    owners = tuple(read_broker_set(one, cluster).owner for one in live)
    plans = []
    for one in resources.brokers:
        key = resource_key(BROKER, one)
        observed = BrokersObserved(
            cluster=cluster,
            statefulset=resources.statefulsets.get(one["metadata"]["name"]),
            pods=resources.pods,
            nodes=observation.nodes,
            owners=owners,
            state=observation.state,
            managers_error=observation.managers_error,
            rejection=retries.rejection(key),
            waiting_for=retries.repeated_error(key),
        )
        plans.append(ResourcePlan(BROKER, one, plan_broker_set(one, observed, now)))
    return plans


def registers_racks(plans: list[ResourcePlan]) -> bool:
    """Whether plans register racks: until that is done, managers do not know all of them."""
    actions = [action for one in plans for action in one.plan.actions]
    return any(isinstance(action, PutBroker) and "rack" in action.body for action in actions)


def plan_all_topics(
    cluster: BrokerDefaults, observation: Observation, retries: RetryTracker, now: str, *, are_racks_registered: bool
) -> list[ResourcePlan]:
    """Plan for all Topic resources of the cluster."""
    resources = observation.resources
    managing_by_topic = find_managing_resources(resources.topics)
    broker_names = name_brokers(observation.state)
    broker_count = sum(read_broker_set(one, cluster).replicas for one in resources.brokers)
    plans = []
    for one in resources.topics:
        key, managing = resource_key(TOPIC, one), managing_by_topic[name_of(one)]
        observed = TopicObserved(
            state=observation.state,
            managers_error=observation.managers_error,
            is_namespace_terminating=observation.is_namespace_terminating,
            conflict=None if managing is one else f"Topic {managing['metadata']['name']}",
            rejection=retries.rejection(key),
            may_resend_rejected=retries.may_resend_rejected(key, observation.version),
            are_racks_registered=are_racks_registered,
            waiting_for=retries.error(key),
            broker_names=broker_names,
            broker_count=broker_count,
        )
        plans.append(ResourcePlan(TOPIC, one, plan_topic(one, observed, now)))
    return plans


def plan_without_resource(cluster: BrokerDefaults, resources: Resources, state: ClusterState) -> tuple[Action, ...]:
    """Plan the actions that belong to no resource: mirrors, and what deleted resources leave behind."""
    topics, namespace = resources.topics, cluster.namespace
    owners = frozenset(owner_of(one["metadata"]["namespace"], one["metadata"]["name"]) for one in topics)
    pods = frozenset(one["metadata"]["name"] for one in resources.pods)
    return (
        *plan_releases(state, namespace, owners),
        *plan_mirrors(state, topics, namespace, cluster.name, resources.topic_names),
        *plan_orphans(state, namespace, resources.broker_names, pods),
    )


def find_managing_resources(topics: list[Resource]) -> dict[str, Resource]:
    """Find the resource that manages each topic: the oldest one, and a mirror only if there is no other."""
    found: dict[str, Resource] = {}
    for one in sorted(topics, key=_precedence):
        found.setdefault(name_of(one), one)
    return found


def _precedence(resource: Resource) -> tuple[bool, str, str]:
    metadata = resource["metadata"]
    return is_mirror(resource), metadata.get("creationTimestamp", ""), metadata["name"]
