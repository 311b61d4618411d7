"""Planning: the second step of a reconcile. Builds the plans of all Brokers and Topics.

The plans are functions of the observation, the time and the recorded failures (`RetryTracker`).
"""

from typing import Any

from flotilla_operator.backoff import RetryTracker
from flotilla_operator.brokers.instances import name_brokers
from flotilla_operator.brokers.plan import BrokerSetObservation, plan_broker_set
from flotilla_operator.brokers.scaling import plan_orphans
from flotilla_operator.brokers.spec import BrokerInstallation, read_broker_set
from flotilla_operator.cluster_state import ClusterState
from flotilla_operator.names import BROKER, TOPIC
from flotilla_operator.observation import Observation, Resources
from flotilla_operator.plans import Action, PutBroker, ResourcePlan, resource_key
from flotilla_operator.topics.mirrors import plan_mirrors
from flotilla_operator.topics.plan import TopicObservation, plan_releases, plan_topic
from flotilla_operator.topics.spec import is_mirror, name_of, owner_of

ResourceDict = dict[str, Any]


def plan_all_brokers(
    installation: BrokerInstallation, observation: Observation, retries: RetryTracker, now: str
) -> list[ResourcePlan]:
    """Plan for all Broker resources of the cluster."""
    resources = observation.resources
    live = [one for one in resources.brokers if "deletionTimestamp" not in one["metadata"]]
    owners = tuple(read_broker_set(one, installation).owner for one in live)
    plans = []
    for resource in resources.brokers:
        key = resource_key(BROKER, resource)
        observed = BrokerSetObservation(
            installation=installation,
            statefulset=resources.statefulsets.get(resource["metadata"]["name"]),
            pods=resources.pods,
            nodes=observation.nodes,
            owners=owners,
            state=observation.state,
            managers_error=observation.managers_error,
            rejection=retries.rejection(key),
            repeated_error=retries.repeated_error(key),
        )
        plans.append(ResourcePlan(BROKER, resource, plan_broker_set(resource, observed, now)))
    return plans


def are_racks_registered(broker_plans: list[ResourcePlan]) -> bool:
    """Whether managers know the racks of all brokers, so that no plan registers one."""
    actions = [action for resource_plan in broker_plans for action in resource_plan.plan.actions]
    return not any(isinstance(action, PutBroker) and "rack" in action.body for action in actions)


def plan_all_topics(
    installation: BrokerInstallation,
    observation: Observation,
    retries: RetryTracker,
    now: str,
    *,
    are_racks_registered: bool,
) -> list[ResourcePlan]:
    """Plan for all Topic resources of the cluster."""
    resources = observation.resources
    managing_by_topic = find_managing_resources(resources.topics)
    broker_names = name_brokers(observation.state)
    broker_count = sum(read_broker_set(one, installation).replicas for one in resources.brokers)
    plans = []
    for resource in resources.topics:
        key, managing = resource_key(TOPIC, resource), managing_by_topic[name_of(resource)]
        observed = TopicObservation(
            state=observation.state,
            managers_error=observation.managers_error,
            is_namespace_terminating=observation.is_namespace_terminating,
            conflict=None if managing is resource else f"Topic {managing['metadata']['name']}",
            rejection=retries.rejection(key),
            may_resend_rejected=retries.may_resend_rejected(key, observation.topology_version),
            are_racks_registered=are_racks_registered,
            last_error=retries.last_error(key),
            broker_names=broker_names,
            broker_count=broker_count,
        )
        plans.append(ResourcePlan(TOPIC, resource, plan_topic(resource, observed, now)))
    return plans


def plan_cluster_actions(
    installation: BrokerInstallation, resources: Resources, state: ClusterState
) -> tuple[Action, ...]:
    """Plan the actions that belong to no resource: mirrors, and the cleanup after deleted resources."""
    topics, namespace = resources.topics, installation.namespace
    owners = frozenset(owner_of(one["metadata"]["namespace"], one["metadata"]["name"]) for one in topics)
    pods = frozenset(one["metadata"]["name"] for one in resources.pods)
    return (
        *plan_releases(state, namespace, owners),
        *plan_mirrors(state, topics, namespace, installation.name, resources.topic_names),
        *plan_orphans(state, namespace, resources.broker_names, pods),
    )


def find_managing_resources(topics: list[ResourceDict]) -> dict[str, ResourceDict]:
    """Find the resource that manages each topic: the oldest one, and a mirror only if there is no other."""
    found: dict[str, ResourceDict] = {}
    for one in sorted(topics, key=_precedence):
        found.setdefault(name_of(one), one)
    return found


def _precedence(resource: ResourceDict) -> tuple[bool, str, str]:
    metadata = resource["metadata"]
    return is_mirror(resource), metadata.get("creationTimestamp", ""), metadata["name"]
