"""Consumer groups: list, describe, read committed offsets, reset, delete."""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from typing import Any, Literal
from urllib.parse import quote

import msgspec

from flotilla.client.admin.results import GroupDescription, GroupListing, GroupOffset, GroupReset
from flotilla.client.cluster import ManagerClient, read_as
from flotilla.client.config import require, to_ms
from flotilla.client.errors import NotFound, TopicMissing
from flotilla.limits import GROUPS_PAGE_MAX

GROUPS = "/v1/groups"


class AsyncGroups:
    """Manages consumer groups: `client.groups`.

    ```python
    print((await client.groups.describe("billing")).lag)
    await client.groups.reset("billing", to="earliest")
    await client.groups.reset("billing", to=datetime(2026, 1, 1, tzinfo=UTC), topics=["orders"], dry_run=True)
    await client.groups.reset("billing", shift=-10)
    ```

    Every method raises Refused (also as NotFound, NotAllowed) or ServerUnreachable.
    """

    def __init__(self, managers: ManagerClient) -> None:
        self._managers = managers

    async def list(self) -> tuple[GroupListing, ...]:
        """List the groups whose topics the caller may consume, by name."""
        found: tuple[GroupListing, ...] = ()
        after: str | None = ""
        while after is not None:
            page = read_as(
                _Page, await self._managers.call("GET", f"{GROUPS}?limit={GROUPS_PAGE_MAX}&after={quote(after)}")
            )
            found, after = found + page.groups, page.next
        return found

    async def describe(self, name: str) -> GroupDescription:
        """Return members, owners of partitions, committed offsets and lag of a group."""
        with _of_group():
            return read_as(GroupDescription, await self._managers.call("GET", _path(name)))

    async def offsets(self, name: str, topic: str | None = None) -> tuple[GroupOffset, ...]:
        """Return the committed offsets of a group, in one topic or in all."""
        query = "" if topic is None else f"?topic={quote(topic, safe='')}"
        with _of_group():
            return read_as(_Offsets, await self._managers.call("GET", f"{_path(name)}/offsets{query}")).offsets

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
        """Move committed offsets `to` earliest, latest or a time, to an `offset`, or by `shift` records.

        Limited to `topics` or `partitions`, if given. An offset out of range is set to the first or the next offset. A
        group with members is rejected; with `force`, they are removed, join again, and start there. With `dry_run`,
        nothing is changed. Returns the committed offsets before and after.
        """
        body: dict[str, Any] = {"to": _target(to, offset, shift), "force": force, "dry_run": dry_run}
        if topics is not None:
            require(not isinstance(topics, str), "topics", "a list of names, as in ['orders']", topics)
            body["topics"] = [*topics]
        if partitions is not None:
            body["partitions"] = [{"topic": topic, "partition": index} for topic, index in partitions]
        repeatable = shift is None or dry_run  # a repeated shift would move the offsets twice
        with _of_group():
            response = await self._managers.call("POST", f"{_path(name)}/reset", body, repeatable=repeatable)
        return read_as(_Reset, response).partitions

    async def delete(self, name: str, *, force: bool = False, missing_ok: bool = False) -> None:
        """Delete a group and its committed offsets. A group with members is rejected, unless `force`."""
        try:
            with _of_group():
                target = f"{_path(name)}?force={str(force).lower()}"
                await self._managers.call("DELETE", target, repeatable=missing_ok)
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
    """Build the target of a reset. Raises ConfigInvalid."""
    require(sum(one is not None for one in (to, offset, shift)) == 1, "exactly one of to, offset and shift", "given")
    if isinstance(to, datetime):
        return {"timestamp_ms": to_ms(to, "to")}
    if to is not None:
        require(to in {"earliest", "latest"}, "to", "'earliest', 'latest' or a datetime", to)
        return {to: True}
    return {"offset": offset} if offset is not None else {"shift": shift or 0}


@contextmanager
def _of_group() -> Iterator[None]:
    """Raise NotFound unless a topic is missing. Managers of 0.2 do not send the resource: NotFound as well."""
    try:
        yield
    except TopicMissing as error:
        if error.code != "not_found" or error.details.get("resource") == "topic":
            raise
        raise NotFound(str(error), error.code, error.details) from error


def _path(name: str) -> str:
    require(bool(name.strip("./")), "name", "the name of a group", name)  # else the path means another resource
    return f"{GROUPS}/{quote(name, safe='')}"
