"""Consumer groups: list, describe, see how far they have come, have them go on elsewhere, delete."""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from typing import Any, Literal
from urllib.parse import quote

import msgspec

from flotilla.client.admin.moments import to_ms
from flotilla.client.admin.results import GroupDescription, GroupListing, GroupOffset, GroupReset
from flotilla.client.cluster import Managers, read_as
from flotilla.client.config import require
from flotilla.client.errors import NotFound, TopicMissing

GROUPS = "/v1/groups"
_PAGE = 1000


class AsyncGroups:
    """The consumer groups of a system, as `client.groups`.

    ```python
    print((await client.groups.describe("billing")).lag)
    await client.groups.reset("billing", to="earliest")
    await client.groups.reset("billing", to=datetime(2026, 1, 1, tzinfo=UTC), topics=["orders"], dry_run=True)
    await client.groups.reset("billing", shift=-10)
    ```

    Every method raises Refused (also as NotFound, NotAllowed) or ServerUnreachable.
    """

    def __init__(self, managers: Managers) -> None:
        self._managers = managers

    async def list(self) -> tuple[GroupListing, ...]:
        """List the groups all of whose topics one may consume, in the order of their names."""
        found: tuple[GroupListing, ...] = ()
        after: str | None = ""
        while after is not None:
            page = read_as(_Page, await self._managers.ask("GET", f"{GROUPS}?limit={_PAGE}&after={quote(after)}"))
            found, after = found + page.groups, page.next
        return found

    async def describe(self, name: str) -> GroupDescription:
        """Tell who is in a group, who has what, how far it has come, and what is left to read."""
        with _of_group():
            return read_as(GroupDescription, await self._managers.ask("GET", _path(name)))

    async def offsets(self, name: str, topic: str | None = None) -> tuple[GroupOffset, ...]:
        """Tell what a group has committed, in one topic or in all."""
        query = "" if topic is None else f"?topic={quote(topic, safe='')}"
        with _of_group():
            return read_as(_Offsets, await self._managers.ask("GET", f"{_path(name)}/offsets{query}")).offsets

    async def reset(
        self,
        name: str,
        *,
        to: Literal["earliest", "latest"] | datetime | None = None,
        offset: int | None = None,
        shift: int | None = None,
        topics: Iterable[str] | None = None,
        partitions: Iterable[tuple[str, int]] | None = None,
        force: bool = False,
        dry_run: bool = False,
    ) -> tuple[GroupReset, ...]:
        """Have a group go on elsewhere: `to` an end or a time, at an `offset`, or by `shift` records further.

        It is done in some `topics`, in some `partitions`, or everywhere. What lies outside of a partition is brought
        to its nearest end. A group with members refuses; with `force` they are taken out, join again, and begin
        there. With `dry_run`, nothing is changed. Returns where the group was and where it goes on.
        """
        body: dict[str, Any] = {"to": _target(to, offset, shift), "force": force, "dry_run": dry_run}
        if topics is not None:
            require(not isinstance(topics, str), "topics", "several names, as in ['orders']")
            body["topics"] = [*topics]
        if partitions is not None:
            body["partitions"] = [{"topic": topic, "partition": index} for topic, index in partitions]
        repeatable = shift is None or dry_run  # to shift twice is to shift twice as far
        with _of_group():
            answer = await self._managers.ask("POST", f"{_path(name)}/reset", body, repeatable=repeatable)
        return read_as(_Reset, answer).partitions

    async def delete(self, name: str, *, force: bool = False, missing_ok: bool = False) -> None:
        """Remove a group and what it has committed. One with members refuses, unless `force`."""
        try:
            with _of_group():
                target = f"{_path(name)}?force={str(force).lower()}"
                await self._managers.ask("DELETE", target, repeatable=missing_ok)
        except NotFound:
            if not missing_ok:
                raise


class _Page(msgspec.Struct, frozen=True):
    groups: tuple[GroupListing, ...]
    next: str | None


class _Offsets(msgspec.Struct, frozen=True):
    offsets: tuple[GroupOffset, ...]


class _Reset(msgspec.Struct, frozen=True):
    partitions: tuple[GroupReset, ...]


def _target(
    to: Literal["earliest", "latest"] | datetime | None, offset: int | None, shift: int | None
) -> Mapping[str, int | bool]:
    """Write where a group is to go on; raises ConfigInvalid."""
    require(sum(one is not None for one in (to, offset, shift)) == 1, "one of to, offset and shift", "given")
    if isinstance(to, datetime):
        return {"timestamp_ms": to_ms(to, "to")}
    if to is not None:
        require(to in {"earliest", "latest"}, "to", "'earliest', 'latest' or a datetime")
        return {to: True}
    return {"offset": offset} if offset is not None else {"shift": shift or 0}


@contextmanager
def _of_group() -> Iterator[None]:
    """Say that a group is missing, where it is not a topic that is."""
    try:
        yield
    except TopicMissing as error:
        if error.code != "not_found" or str(error).startswith("there is no topic"):
            raise
        raise NotFound(str(error), error.code, error.details) from error


def _path(name: str) -> str:
    require(bool(name.strip("./")), "name", "the name of a group")  # a path that ends early is about something else
    return f"{GROUPS}/{quote(name, safe='')}"
