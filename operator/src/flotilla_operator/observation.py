"""Observation: the first step of a reconcile. Reads resources, nodes and the state of the managers.

Resources come from the cache, which watches keep up to date. A full list once a minute corrects it: a broken watch does
not report deletions.
"""

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from flotilla_operator.brokers.spec import BrokerInstallation
from flotilla_operator.cache import Cache
from flotilla_operator.cluster_state import ClusterState
from flotilla_operator.control_client import ControlClient
from flotilla_operator.errors import Rejected, Unavailable
from flotilla_operator.kubernetes_client import KubernetesClient
from flotilla_operator.names import BROKER, NODE, POD, STATEFULSET, TOPIC, belongs_to

logger = logging.getLogger(__name__)

RELIST_S = 60.0
GRACE_S = 30.0  # time for restarted managers to receive heartbeats before their state is shown

ResourceDict = dict[str, Any]


@dataclass(frozen=True)
class Resources:
    """Resources of the namespace."""

    topics: list[ResourceDict]  # of this cluster
    brokers: list[ResourceDict]  # of this cluster
    statefulsets: Mapping[str, Mapping[str, Any]]
    pods: tuple[Mapping[str, Any], ...]  # broker pods
    topic_names: frozenset[str]  # of all Topic resources, those of other clusters included
    broker_names: frozenset[str]  # of all Broker resources, those of other clusters included


@dataclass(frozen=True)
class Observation:
    """Everything that a reconcile plans with."""

    resources: Resources
    state: ClusterState | None  # None while managers are unavailable
    managers_error: str = ""  # why managers are unavailable
    may_write_status: bool = True  # whether the state is complete enough to be shown
    # Checked only if a Topic is being deleted while managers are unavailable; otherwise False.
    is_namespace_terminating: bool = False
    nodes: Mapping[str, ResourceDict] = field(default_factory=dict)

    @property
    def topology_version(self) -> int | None:
        """Version of the topology."""
        return None if self.state is None else self.state.version


class Observer:
    """Observes one cluster of one namespace."""

    def __init__(
        self,
        installation: BrokerInstallation,
        kubernetes: KubernetesClient,
        control: ControlClient,
        cache: Cache,
        clock: Callable[[], float],
    ) -> None:
        self._installation = installation
        self._kubernetes = kubernetes
        self._control = control
        self._cache = cache
        self._clock = clock
        self._listed_at: float | None = None
        self._nodes: dict[str, ResourceDict] = {}
        self._known_nodes: frozenset[str] = frozenset()  # nodes whose labels were read since the last full list
        self._complete_at: float | None = None  # when all brokers last had a fresh report
        self._is_unavailable = False

    @property
    def is_list_due(self) -> bool:
        """Whether the cache needs a full list."""
        return self._listed_at is None or self._clock() - self._listed_at > RELIST_S

    async def list_resources(self) -> None:
        """Replace the cache with full lists. Raises OperatorError."""
        for kind, labels in ((TOPIC, None), (BROKER, None), (STATEFULSET, None), (POD, self._installation.labels)):
            await self._cache.refresh(kind, self._kubernetes.list(kind, labels))
        self._known_nodes = frozenset()
        self._listed_at = self._clock()

    async def observe(self) -> Observation:
        """Observe the current state. Raises OperatorError."""
        await self._list_nodes()
        state, managers_error = await self._get_state()
        self._record_completeness(state)
        resources = self.read_cache()
        return Observation(
            resources=resources,
            state=state,
            managers_error=managers_error,
            may_write_status=self._may_write_status(state),
            is_namespace_terminating=await self._is_namespace_terminating(resources, state),
            nodes=self._nodes,
        )

    def read_cache(self) -> Resources:
        """Read the resources from the cache."""
        return Resources(
            topics=self._of_cluster(TOPIC),
            brokers=self._of_cluster(BROKER),
            statefulsets={one["metadata"]["name"]: one for one in self._cache.all(STATEFULSET)},
            pods=tuple(self._cache.all(POD)),
            topic_names=frozenset(one["metadata"]["name"] for one in self._cache.all(TOPIC)),
            broker_names=frozenset(one["metadata"]["name"] for one in self._cache.all(BROKER)),
        )

    def _of_cluster(self, kind: str) -> list[ResourceDict]:
        return [dict(one) for one in self._cache.all(kind) if belongs_to(one, self._installation.name)]

    async def _list_nodes(self) -> None:
        """List nodes if a Broker has racks: after each full list, and when a pod runs on an unknown node."""
        if not any((one.get("spec") or {}).get("rack") for one in self._of_cluster(BROKER)):
            return
        used = frozenset((one.get("spec") or {}).get("nodeName") or "" for one in self._cache.all(POD)) - {""}
        if not used - self._known_nodes:
            return
        try:
            self._nodes = {one["metadata"]["name"]: one for one in await self._kubernetes.list(NODE)}
        except Unavailable as error:
            logger.warning("nodes not listed error=%r", str(error))
            return
        except Rejected as error:
            logger.info("nodes not listed, racks are read from pod labels error=%r", str(error))
        self._known_nodes |= used

    async def _get_state(self) -> tuple[ClusterState | None, str]:
        try:
            state = await self._control.get_state()
        except Unavailable as error:
            if not self._is_unavailable:
                logger.warning("state of the cluster not read error=%r", str(error))
            self._is_unavailable = True
            return None, str(error)
        if self._is_unavailable:
            logger.info("managers available again")
        self._is_unavailable = False
        return state, ""

    def _record_completeness(self, state: ClusterState | None) -> None:
        if state is not None and state.is_complete:
            self._complete_at = self._clock()

    def _may_write_status(self, state: ClusterState | None) -> bool:
        """Whether to show the state. For some seconds after a restart, managers lack the heartbeats of brokers."""
        if self._complete_at is None or (state is not None and state.is_complete):
            return True
        return self._clock() - self._complete_at > GRACE_S

    async def _is_namespace_terminating(self, resources: Resources, state: ClusterState | None) -> bool:
        """Whether the namespace is being deleted.

        Plans depend on it only if a Topic is being deleted while managers are unavailable, so only then it is read.
        """
        is_topic_deleted = any("deletionTimestamp" in one["metadata"] for one in resources.topics)
        return is_topic_deleted and state is None and await self._kubernetes.is_namespace_terminating()
