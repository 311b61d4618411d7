"""How far a group has come: reads and writes its commits, by way of any manager."""

from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any
from urllib.parse import quote

from flotilla.client.cluster import Managers
from flotilla.client.errors import Refused
from flotilla.client.positions import Place, Share

_COMMIT_MAX = 10_000  # offsets in one request, as servers allow


class Offsets:
    """The commits of one group."""

    def __init__(self, managers: Managers, group: str) -> None:
        self._managers = managers
        self._target = f"/v1/groups/{quote(group, safe='')}"

    async def call(self, what: str, body: object, seconds: float) -> Any:  # noqa: ANN401 - any JSON
        """Make a call about the group. Raises Refused, ServerUnreachable."""
        return await self._managers.ask("POST", f"{self._target}/{what}", body, seconds=seconds)

    async def load(self, seconds: float) -> dict[Place, int]:
        """Find out where the group is; a group that is not there is nowhere. Raises Refused, ServerUnreachable."""
        try:
            found = await self._managers.ask("GET", f"{self._target}/offsets", seconds=seconds)
        except Refused as error:
            if error.code == "not_found":
                return {}
            raise
        return {Place(one["topic"], one["partition"]): one["offset"] for one in found["offsets"]}

    async def commit(self, offsets: Mapping[Share, int], member: tuple[str, int] | None, seconds: float) -> None:
        """Commit, as a member or as a program without one. Raises Refused, ServerUnreachable."""
        for rows in _rows(offsets):
            body: dict[str, Any] = {"offsets": rows}
            if member is not None:
                body |= {"member_id": member[0], "generation": member[1]}
            await self.call("commit", body, seconds)


def _rows(offsets: Mapping[Share, int]) -> Iterator[list[dict[str, Any]]]:
    rows = ({**name(share), "offset": offset} for share, offset in offsets.items())
    while some := list(islice(rows, _COMMIT_MAX)):
        yield some


def name(share: Share) -> dict[str, Any]:
    """Name a partition as servers do."""
    return {"topic": share.topic, "partition": share.partition, "topic_id": share.topic_id}
