"""Consumer groups in the database: storage, fencing of writers and members, and concurrent transactions."""

import threading
import time
from collections.abc import Callable
from dataclasses import replace

import pytest

from flotilla.groups.membership import StaleGeneration, UnknownMember
from flotilla.groups.offsets import Commit
from flotilla.groups.state import Group, Holding, Member, PartitionId, Strategy
from flotilla_manager.metadata import Store, TopicMissing, groups, open_store
from flotilla_manager.metadata.errors import (
    Fenced,
    GroupChanged,
    GroupHasMembers,
    GroupMissing,
    NotOwner,
    TooManyGroups,
)
from flotilla_manager.model import TopicState
from support.metadata import a_topic, an_id, at_once, ready_topic, sql

ONE, TWO = PartitionId(an_id(1), 0), PartitionId(an_id(1), 1)
NEW = Group(name="g")
_ROUNDS = 40


@pytest.fixture
def epoch(store: Store) -> int:
    epoch = store.take_over("http://writer")
    ready_topic(store, epoch, a_topic(1, partitions=2))
    ready_topic(store, epoch, a_topic(2, "other"))
    return epoch


def a_member(id_: str = "a", **values: int) -> Member:
    return replace(Member(id=id_, topics=("orders", "other"), timeout_ms=10_000, joined=1, synced=1), **values)  # type: ignore[arg-type]


def owned(by: str | None, since: int = 1, target: str | None = None) -> Holding:
    return Holding(owner=by, since=since, target=target or by)


def a_group(name: str = "g", **values: object) -> Group:
    group = Group(
        name=name,
        strategy=Strategy.STICKY,
        generation=1,
        members={"a": a_member()},
        holdings={ONE: owned("a"), TWO: owned("a")},
    )
    return replace(group, **values)  # type: ignore[arg-type]


def at(place: PartitionId, offset: int, note: str | None = None) -> Commit:
    return Commit(tp=place, offset=offset, note=note)


def offsets_of(store: Store, name: str = "g") -> dict[PartitionId, int]:
    return {one.tp: one.offset for one in store.committed_offsets(name) or ()}


def test_saved_group_is_loaded_unchanged(store: Store, epoch: int) -> None:
    group = a_group()
    store.save_group(epoch, NEW, group)
    assert store.load_group("g") == store.load_group_as_writer(epoch, "g") == group
    assert store.load_group("missing") is None
    later = replace(
        group,
        generation=2,
        strategy=Strategy.RANGE,
        members={"b": a_member("b", joined=2, synced=2)},
        holdings={TWO: owned(None, 2, "b"), PartitionId(an_id(2), 1): owned("b", 2)},
    )
    store.save_group(epoch, group, later)
    assert store.load_group("g") == later


def test_save_group_writes_only_changed_rows(store: Store, epoch: int) -> None:
    """A change of one member of a large group writes one row."""
    group = a_group(members={"a": a_member(), "b": a_member("b")})
    store.save_group(epoch, NEW, group)
    sql(store, "UPDATE members SET timeout_ms = 77 WHERE id = 'b'")
    store.save_group(epoch, group, replace(group, members={**group.members, "a": a_member(synced=2)}))
    found = store.load_group("g")
    assert found is not None
    assert (found.members["a"].synced, found.members["b"].timeout_ms) == (2, 77)


def test_replaced_writer_cannot_change_groups(store: Store, epoch: int) -> None:
    """Guarantee 6: every transaction checks the epoch."""
    store.save_group(epoch, NEW, a_group())
    store.take_over("http://other")
    with pytest.raises(Fenced):
        store.save_group(epoch, a_group(), a_group(members={}, holdings={}, generation=2))
    with pytest.raises(Fenced):
        store.delete_group(epoch, "g", force=True)
    for read in (lambda: store.load_group_as_writer(epoch, "g"), lambda: store.load_groups_with_members(epoch, "", 10)):
        with pytest.raises(Fenced):
            read()
    assert store.load_group("g") == a_group()


def test_save_group_rejects_an_outdated_generation(store: Store, epoch: int) -> None:
    """A write of unknown outcome may be committed; the next write must not overwrite it."""
    store.save_group(epoch, NEW, a_group())
    store.save_group(epoch, a_group(), a_group(generation=2))
    with pytest.raises(GroupChanged, match="has generation 2; expected 1"):
        store.save_group(epoch, a_group(), a_group(members={}, holdings={}, generation=3))
    assert store.load_group("g") == a_group(generation=2)


def test_groups_with_members_are_loaded_in_pages(store: Store, epoch: int) -> None:
    for name in ("a", "b", "c", "d"):
        store.save_group(epoch, Group(name=name), a_group(name))
    store.save_group(epoch, a_group("b"), a_group("b", members={}, holdings={}, generation=2))
    first = store.load_groups_with_members(epoch, "", 2)
    assert first == [a_group("a"), a_group("c")]
    assert store.load_groups_with_members(epoch, "c", 2) == [a_group("d")]


def test_groups_are_listed_with_their_committed_topics(store: Store, epoch: int) -> None:
    store.save_group(epoch, Group(name="a"), a_group("a"))
    store.commit_offsets("b", [at(ONE, 1), at(TWO, 2), at(PartitionId(an_id(2), 0), 3)], None)
    listed = store.list_groups("", 10)
    assert [(one.group.name, one.committed) for one in listed] == [("a", ()), ("b", (an_id(1), an_id(2)))]
    assert listed[0].group == a_group("a")
    assert [one.group.name for one in store.list_groups("a", 10)] == ["b"]
    assert [one.group.name for one in store.list_groups("", 1)] == ["a"]


def test_member_commits_offsets_of_partitions_that_it_owns(store: Store, epoch: int) -> None:
    store.save_group(epoch, NEW, a_group())
    store.commit_offsets("g", [at(ONE, 5, "half-way"), at(TWO, 7)], ("a", 1))
    store.commit_offsets("g", [at(ONE, 3)], ("a", 1))
    found = store.committed_offsets("g")
    assert found is not None
    assert [(one.tp, one.offset, one.note) for one in found] == [(ONE, 3, None), (TWO, 7, None)]
    assert all(one.committed_ms > 1_600_000_000_000 for one in found)
    assert store.committed_offsets("g", an_id(2)) == []
    assert store.committed_offsets("missing") is None


@pytest.mark.parametrize(
    ("member", "error"),
    [
        (("stranger", 2), UnknownMember),
        (("a", 1), StaleGeneration),
        (("a", 9), StaleGeneration),
        (("a", 2), NotOwner),
        (("b", 3), NotOwner),
    ],
)
def test_commit_of_a_fenced_member_changes_nothing(
    store: Store, epoch: int, member: tuple[str, int], error: type[Exception]
) -> None:
    """If a member is unknown, of an old generation, or not the owner of one partition, no offset is committed."""
    members = {"a": a_member(joined=2), "b": a_member("b", joined=3)}
    holdings = {ONE: owned("a", 3), TWO: owned("a", 2)}
    store.save_group(epoch, NEW, a_group(generation=4, members=members, holdings=holdings))
    with pytest.raises(error) as caught:
        store.commit_offsets("g", [at(TWO, 8), at(ONE, 8)], member)
    if isinstance(caught.value, NotOwner):
        assert ONE in caught.value.partitions
        assert (caught.value.member_id, caught.value.generation) == member
    assert store.committed_offsets("g") == []


def test_commit_without_a_member_creates_the_group(store: Store, epoch: int) -> None:
    store.commit_offsets("g", [at(ONE, 5)], None)
    assert store.load_group("g") == Group(name="g")
    group = a_group()
    store.save_group(epoch, Group(name="g"), group)
    assert offsets_of(store) == {ONE: 5}
    with pytest.raises(GroupHasMembers, match="1 member"):
        store.commit_offsets("g", [at(ONE, 6)], None)
    with pytest.raises(UnknownMember):
        store.commit_offsets("missing", [at(ONE, 6)], ("a", 1))
    assert store.load_group("missing") is None


def test_reset_removes_members_and_sets_offsets_in_one_transaction(store: Store, epoch: int) -> None:
    """Otherwise their next commit would overwrite the reset."""
    store.save_group(epoch, NEW, a_group())
    store.commit_offsets("g", [at(ONE, 5)], ("a", 1))
    store.save_group(epoch, a_group(), a_group(members={}, holdings={}, generation=2), [at(ONE, 0), at(TWO, 1)])
    assert offsets_of(store) == {ONE: 0, TWO: 1}
    with pytest.raises(UnknownMember):
        store.commit_offsets("g", [at(ONE, 6)], ("a", 1))


def test_group_with_members_is_deleted_only_with_force(store: Store, epoch: int) -> None:
    store.save_group(epoch, NEW, a_group())
    store.commit_offsets("g", [at(ONE, 5)], ("a", 1))
    with pytest.raises(GroupHasMembers):
        store.delete_group(epoch, "g")
    assert offsets_of(store) == {ONE: 5}
    store.delete_group(epoch, "g", force=True)
    assert store.load_group("g") is None
    assert [sql(store, f"SELECT * FROM {table}") for table in ("members", "holdings", "commits")] == [[], [], []]  # noqa: S608 - no user input
    with pytest.raises(GroupMissing):
        store.delete_group(epoch, "g")


def test_new_groups_start_at_the_highest_generation_of_deleted_groups(store: Store, epoch: int) -> None:
    """Generations never decrease, so requests of members of a deleted group are invalid in a new one of that name."""
    store.save_group(epoch, NEW, a_group(generation=7))
    store.save_group(epoch, Group(name="other"), a_group("other"))
    store.delete_group(epoch, "g", force=True)
    store.delete_group(epoch, "other", force=True)
    assert store.load_group_as_writer(epoch, "g") == Group(name="g", generation=7)
    assert store.load_group("g") is None
    store.commit_offsets("g", [at(ONE, 1)], None)
    assert store.load_group("g") == Group(name="g", generation=7)
    store.save_group(epoch, Group(name="third", generation=7), a_group("third", generation=8))
    with pytest.raises(GroupChanged):
        store.save_group(epoch, Group(name="fourth"), a_group("fourth"))


def test_number_of_groups_is_limited(store: Store, epoch: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(groups, "GROUPS_MAX", 2)
    store.save_group(epoch, Group(name="a"), a_group("a"))
    store.commit_offsets("b", [at(ONE, 1)], None)
    with pytest.raises(TooManyGroups, match="the limit is 2"):
        store.save_group(epoch, Group(name="c"), a_group("c"))
    with pytest.raises(TooManyGroups):
        store.commit_offsets("c", [at(ONE, 1)], None)
    store.commit_offsets("b", [at(ONE, 2)], None)


def test_deleting_a_topic_deletes_its_holdings_and_commits(store: Store, epoch: int) -> None:
    other = PartitionId(an_id(2), 0)
    group = a_group(holdings={ONE: owned("a"), other: owned("a")})
    store.save_group(epoch, NEW, group)
    store.commit_offsets("g", [at(ONE, 5), at(other, 6)], ("a", 1))
    store.set_topic_state(epoch, an_id(1), TopicState.DELETING)
    assert offsets_of(store) == {other: 6}
    assert store.load_group("g") == replace(group, holdings={other: owned("a")})
    with pytest.raises(TopicMissing, match="deleting"):
        store.commit_offsets("g", [at(other, 7), at(ONE, 7)], ("a", 1))
    with pytest.raises(TopicMissing):
        store.save_group(epoch, group, a_group(holdings={ONE: owned("a", 2)}))
    assert offsets_of(store) == {other: 6}


# -- concurrency --------------------------------------------------------------------------------------------


def both(url: str, one: Callable[[Store], object], other: Callable[[Store], object]) -> list[Exception | None]:
    """Run two functions concurrently, each with its own store; return their exceptions."""
    start = threading.Barrier(2)

    def work(which: int) -> Exception | None:
        store = open_store(url)
        try:
            store.version()  # connects
            start.wait(10)
            (one, other)[which](store)
        except Exception as error:  # noqa: BLE001 - returned to the test
            return error
        else:
            return None
        finally:
            store.close()

    return at_once(work, 2)


def test_commit_concurrent_with_revocation_is_seen_by_the_new_owner_or_rejected(
    url: str, store: Store, epoch: int
) -> None:
    """The new owner starts at the last accepted commit."""
    group = a_group(members={"a": a_member(), "b": a_member("b")}, holdings={ONE: owned("a")})
    store.save_group(epoch, NEW, group)
    for number in range(_ROUNDS):
        owner, next_owner = ("a", "b") if number % 2 == 0 else ("b", "a")
        taken = replace(
            group, generation=group.generation + 1, holdings={ONE: owned(next_owner, since=group.generation + 1)}
        )
        seen: list[dict[PartitionId, int]] = []

        def revoke(other: Store, before: Group = group, after: Group = taken) -> None:
            other.save_group(epoch, before, after)
            seen.append(offsets_of(other))  # noqa: B023 - called within this round

        def commit(other: Store, owner: str = owner, generation: int = group.generation, offset: int = number) -> None:
            other.commit_offsets("g", [at(ONE, offset + 1)], (owner, generation))

        refused, failed = both(url, commit, revoke)
        assert failed is None
        assert refused is None or isinstance(refused, NotOwner), refused
        assert offsets_of(store) == seen[0], "no commit after the new owner has read the offsets"
        assert (seen[0].get(ONE) == number + 1) == (refused is None)
        group = taken


def test_commit_concurrent_with_topic_deletion_leaves_no_row(url: str, store: Store, epoch: int) -> None:
    for number in range(10, 10 + _ROUNDS // 2):
        topic = ready_topic(store, epoch, a_topic(number, f"t{number}"))
        place = PartitionId(topic.id, 0)
        refused, failed = both(
            url,
            lambda other, place=place: other.commit_offsets("g", [at(place, 1)], None),  # type: ignore[misc]
            lambda other, topic=topic: other.set_topic_state(epoch, topic.id, TopicState.DELETING),  # type: ignore[misc]
        )
        assert failed is None
        assert refused is None or isinstance(refused, TopicMissing), refused
        assert offsets_of(store).get(place) is None


def test_commit_without_a_member_and_first_join_are_serialized(url: str, store: Store, epoch: int) -> None:
    for number in range(_ROUNDS // 2):
        name = f"g{number}"
        refused, failed = both(
            url,
            lambda other, name=name: other.commit_offsets(name, [at(ONE, 1)], None),  # type: ignore[misc]
            lambda other, name=name: other.save_group(epoch, Group(name=name), a_group(name)),  # type: ignore[misc]
        )
        assert failed is None
        assert refused is None or isinstance(refused, GroupHasMembers), refused
        assert store.load_group(name) == a_group(name)
        assert offsets_of(store, name) == ({ONE: 1} if refused is None else {})


def test_concurrent_commits_of_members_do_not_deadlock(url: str, store: Store, epoch: int) -> None:
    """They hold shared locks of the group, and no commit is lost."""
    places = [PartitionId(an_id(1), 0), PartitionId(an_id(1), 1), PartitionId(an_id(2), 0), PartitionId(an_id(2), 1)]
    members = {f"m{at}": a_member(f"m{at}") for at in range(4)}
    holdings = {place: owned(f"m{number}") for number, place in enumerate(places)}
    store.save_group(epoch, NEW, a_group(members=members, holdings=holdings))

    def work(number: int) -> None:
        own_store = open_store(url)
        for offset in range(1, _ROUNDS + 1):
            own_store.commit_offsets("g", [at(places[number], offset)], (f"m{number}", 1))
        own_store.close()

    at_once(work, 4)
    assert offsets_of(store) == dict.fromkeys(places, _ROUNDS)


def test_steady_commits_do_not_starve_the_writer(url: str, store: Store, epoch: int) -> None:
    """Shared locks do not overtake a waiting exclusive lock. Otherwise a busy group could not rebalance."""
    busy = 8
    places = [PartitionId(an_id(1), number) for number in range(busy)]
    members = {f"m{number}": a_member(f"m{number}") for number in range(busy)}
    group = a_group(members=members, holdings={place: owned(f"m{place.partition}") for place in places})
    store.save_group(epoch, NEW, group)
    stop = threading.Event()

    def change(own_store: Store) -> float:
        """Change the group five times; return the longest time in seconds."""
        waited_s, current = 0.0, group
        for _ in range(5):
            changed = replace(current, generation=current.generation + 1)
            began = time.monotonic()
            own_store.save_group(epoch, current, changed)
            current, waited_s = changed, max(waited_s, time.monotonic() - began)
        return waited_s

    def work(number: int) -> float:
        own_store, waited_s = open_store(url), 0.0
        try:
            if number == busy:
                waited_s = change(own_store)
            else:
                while not stop.is_set():
                    own_store.commit_offsets("g", [at(places[number], 1)], (f"m{number}", 1))
        finally:
            stop.set()
            own_store.close()
        return waited_s

    assert max(at_once(work, busy + 1)) < 3
