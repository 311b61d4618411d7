"""Requests about one consumer group to any manager: membership calls and committed offsets."""

from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any
from urllib.parse import quote

from flotilla.client.cluster import ManagerClient
from flotilla.client.errors import Refused
from flotilla.client.positions import TopicIdPartition, TopicPartition
from flotilla.limits import COMMIT_OFFSETS_MAX


class GroupClient:
    """Sends requests about one consumer group."""

    def __init__(self, managers: ManagerClient, group: str) -> None:
        self._managers = managers
        self._target = f"/v1/groups/{quote(group, safe='')}"

    async def call(self, action: str, body: object, timeout_s: float) -> Any:  # noqa: ANN401 - any JSON
        """Send a request such as `join` or `commit`. Raises Refused, ServerUnreachable."""
        return await self._managers.call("POST", f"{self._target}/{action}", body, timeout_s=timeout_s)

    async def load_offsets(self, timeout_s: float) -> dict[TopicPartition, int]:
        """Return the committed offsets; none if the group does not exist. Raises Refused, ServerUnreachable."""
        try:
            found = await self._managers.call("GET", f"{self._target}/offsets", timeout_s=timeout_s)
        except Refused as error:
            if error.code == "not_found":
                return {}
            raise
        return {TopicPartition(one["topic"], one["partition"]): one["offset"] for one in found["offsets"]}

    async def commit(
        self, offsets: Mapping[TopicIdPartition, int], member: tuple[str, int] | None, timeout_s: float
    ) -> None:
        """Commit offsets, with member id and generation unless the group has no assignment. Raises as `call` does."""
        for rows in _rows(offsets):
            body: dict[str, Any] = {"offsets": rows}
            if member is not None:
                body |= {"member_id": member[0], "generation": member[1]}
            await self.call("commit", body, timeout_s)


def _rows(offsets: Mapping[TopicIdPartition, int]) -> Iterator[list[dict[str, Any]]]:
    rows = ({**to_json(tp), "offset": offset} for tp, offset in offsets.items())
    while some := list(islice(rows, COMMIT_OFFSETS_MAX)):
        yield some


def to_json(tp: TopicIdPartition) -> dict[str, Any]:
    """Return the JSON form of a partition in requests."""
    return {"topic": tp.topic, "partition": tp.partition, "topic_id": tp.topic_id}
