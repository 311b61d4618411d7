"""Requests to create, change and delete topics, with the defaults of this manager."""

from collections.abc import Mapping
from typing import Any

from flotilla_manager.model import Topic
from flotilla_manager.writer.election import WriterElection
from flotilla_manager.writer.topics import OPTIONAL_SETTINGS, Topics, TopicSpec


class TopicService:
    """Changes topics. Options are fields of TopicSpec. Raises Refusal if this manager is not the writer."""

    def __init__(self, election: WriterElection, topics: Topics, retention: Mapping[str, int | None]) -> None:
        """`retention` has the default `retention_ms` and `retention_bytes` of new topics."""
        self._election = election
        self._topics = topics
        self._retention = retention

    async def create(self, name: str, **options: Any) -> Topic:  # noqa: ANN401 - fields of TopicSpec
        """Create a topic."""
        return await self._topics.create(self._election.require_epoch(), self._spec(name, options))

    async def put(self, name: str, **options: Any) -> Topic:  # noqa: ANN401 - fields of TopicSpec
        """Create a topic, or change it to match the options. Replication applies to new topics only. Idempotent."""
        omitted = OPTIONAL_SETTINGS - options.keys()
        return await self._topics.put(self._election.require_epoch(), self._spec(name, options), omitted)

    async def patch(self, name: str, **changes: Any) -> Topic:  # noqa: ANN401 - fields of TopicSpec
        """Change only the given settings of a topic."""
        return await self._topics.patch(self._election.require_epoch(), name, **changes)

    async def delete(self, name: str, owner: str | None = None, topic_id: str | None = None) -> None:
        """Delete a topic; with an id, only the topic with this id."""
        await self._topics.delete(self._election.require_epoch(), name, owner, topic_id)

    async def release(self, name: str, owner: str) -> None:
        """Remove the owner of a topic."""
        await self._topics.release(self._election.require_epoch(), name, owner)

    def _spec(self, name: str, options: Mapping[str, Any]) -> TopicSpec:
        return TopicSpec(name=name, **{**self._retention, **options})
