"""The private names of pysyncobj that core.py depends on: listed, present, and with the meaning that core.py relies on.

A failure names the attribute and what to do. Every entry of the list needs a check of its meaning here.
"""

import ast
import inspect
import logging
import random
import re
import tomllib
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NoReturn
from unittest import mock

import pysyncobj.syncobj
import pytest
from pysyncobj.node import Node
from pysyncobj.transport import Transport
from pysyncobj.version import VERSION

from flotilla_broker.raft import Entry, Role
from flotilla_broker.raft import core as core_module
from flotilla_broker.raft.core import Core
from flotilla_broker.raft.messages import Vote, VoteRequest
from flotilla_broker.raft.pysyncobj_internals import INTERNALS, SUPPORTED_VERSION, Internal, Use
from support.raftnet import RAFT

ROOT = Path(__file__).resolve().parents[3]
CORE = Path(core_module.__file__)
BY_NAME = {internal.name: internal for internal in INTERNALS}
NOW = 1000.0
LATER = NOW + 100
WHAT_TO_DO = (
    "What to do: read syncobj.py of the installed version, adapt core.py and the entry in pysyncobj_internals.py, "
    "make these tests pass, and run `make sim SEEDS=1000`. Until then keep the supported version installed."
)


def explain(name: str, problem: str) -> str:
    """Make the message of a failure: the attribute, what core.py uses it for, the problem, the next step."""
    purpose = BY_NAME[name].purpose if name in BY_NAME else "not listed"
    return f"pysyncobj {VERSION}, `{name}` (core.py: {purpose}): {problem}. {WHAT_TO_DO}"


# -- the version ------------------------------------------------------------------------------------------


def test_installed_pysyncobj_is_the_version_of_the_list() -> None:
    assert VERSION == SUPPORTED_VERSION, (
        f"pysyncobj {VERSION} is installed; pysyncobj_internals.py is for {SUPPORTED_VERSION}. {WHAT_TO_DO}"
    )


@pytest.mark.parametrize("name", ["requirements.lock", "requirements-server.lock"])
def test_locked_pysyncobj_is_the_version_of_the_list(name: str) -> None:
    pins = re.findall(r"^pysyncobj==(\S+)", (ROOT / name).read_text(encoding="utf-8"), flags=re.MULTILINE)
    assert pins == [SUPPORTED_VERSION], (
        f"{name} pins pysyncobj {pins}; pysyncobj_internals.py is for {SUPPORTED_VERSION}. {WHAT_TO_DO}"
    )


def test_broker_requires_exactly_the_version_of_the_list() -> None:
    project = tomllib.loads((ROOT / "broker/pyproject.toml").read_text(encoding="utf-8"))["project"]
    pins = [each for each in project["dependencies"] if each.startswith("pysyncobj")]
    assert pins == [f"pysyncobj=={SUPPORTED_VERSION}"], f"broker/pyproject.toml requires {pins}. {WHAT_TO_DO}"


# -- every name exists ------------------------------------------------------------------------------------


class SilentTransport(Transport):  # type: ignore[misc]  # pysyncobj has no types
    """A transport that sends nothing."""

    def __init__(self) -> None:
        super().__init__(None, None, None)

    def send(self, node: Node, message: object) -> bool:  # noqa: ARG002 - pysyncobj's own shape
        return True


def plain() -> Any:  # noqa: ANN401 - pysyncobj has no types
    """A SyncObj as the package defines it, without sockets and threads."""
    conf = pysyncobj.syncobj.SyncObjConf(autoTick=False, appendEntriesUseBatch=True)
    return pysyncobj.syncobj.SyncObj(Node(0), [Node(1)], conf, transport=SilentTransport(), nodeClass=Node)


def find_missing(subject: object, module: object) -> Iterator[str]:
    """Find listed names that pysyncobj does not have, and methods that are none any more."""
    for internal in INTERNALS:
        owner = module if internal.of_module else subject
        if not hasattr(owner, internal.name):
            yield explain(internal.name, "the installed version has no such attribute")
        elif internal.uses & {Use.CALL, Use.OVERRIDE} and not callable(getattr(owner, internal.name)):
            yield explain(internal.name, "it is no method any more")


def test_pysyncobj_has_every_listed_name() -> None:
    missing = list(find_missing(plain(), pysyncobj.syncobj))
    assert not missing, "\n".join(missing)


def test_missing_name_is_reported_with_its_purpose_and_the_next_step() -> None:
    subject, module = plain(), SimpleNamespace()
    del subject._SyncObj__raftMatchIndex
    subject._onTick = 5
    gone, no_method, no_clock = find_missing(subject, module)
    assert gone.startswith(
        f"pysyncobj {VERSION}, `_SyncObj__raftMatchIndex` (core.py: Core.count_match): "
        "the installed version has no such attribute. What to do: read syncobj.py"
    )
    assert "`_onTick` (core.py: Core.tick): it is no method any more" in no_method
    assert "`monotonicTime`" in no_clock


# -- the list is complete ---------------------------------------------------------------------------------


def find_uses(source: str, taken: set[str]) -> dict[str, set[Use]]:
    """Find the private names of pysyncobj that a module uses, and how.

    Private are: every name with the prefix of `SyncObj`, as an attribute, a method or a string; every other name with
    an underscore that pysyncobj has too (`taken`), so that a name of ours which collides with one is found as well;
    and every attribute of the module that is assigned.
    """
    uses: dict[str, set[Use]] = defaultdict(set)
    tree = ast.parse(source)
    parents = {child: node for node in ast.walk(tree) for child in ast.iter_child_nodes(node)}
    for node in ast.walk(tree):
        parent = parents.get(node)
        if isinstance(node, ast.Attribute):
            of_module = isinstance(node.value, ast.Name) and node.value.id == "syncobj"
            if _is_private(name := _unmangle(node.attr), taken) or (of_module and isinstance(node.ctx, ast.Store)):
                uses[name].add(_use_of(node, parent))
        elif isinstance(node, ast.FunctionDef) and _is_private(name := _unmangle(node.name), taken):
            if isinstance(parent, ast.ClassDef):
                uses[name].add(Use.OVERRIDE)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            for name in re.findall(r"_SyncObj__\w+", node.value):
                uses[name].add(Use.READ)
    return dict(uses)


def _unmangle(name: str) -> str:
    """Return the name as Python stores it: in a class that is called `_SyncObj`, two underscores get its prefix."""
    return f"_SyncObj{name}" if name.startswith("__") and not name.endswith("__") else name


def _is_private(name: str, taken: set[str]) -> bool:
    return name.startswith("_SyncObj__") or (name.startswith("_") and not name.endswith("__") and name in taken)


def _use_of(node: ast.Attribute, parent: ast.AST | None) -> Use:
    if isinstance(parent, ast.Call) and parent.func is node:
        return Use.CALL
    if isinstance(parent, ast.Subscript) and not isinstance(parent.ctx, ast.Load):
        return Use.WRITE
    return Use.READ if isinstance(node.ctx, ast.Load) else Use.WRITE


def names_of_pysyncobj() -> set[str]:
    """Every name that an object or class of pysyncobj has from which core.py derives, and its module."""
    return {*dir(plain()), *dir(SilentTransport()), *dir(Node(0)), *dir(pysyncobj.syncobj)}


def test_core_uses_no_private_name_that_is_not_listed() -> None:
    used = find_uses(CORE.read_text(encoding="utf-8"), names_of_pysyncobj())
    unlisted = sorted(set(used) - set(BY_NAME))
    assert not unlisted, (
        f"core.py uses private names of pysyncobj that pysyncobj_internals.py does not list: {', '.join(unlisted)}. "
        "What to do: list each with its meaning and add a check of that meaning to this file; if it is a name of our "
        "own that pysyncobj happens to have too, rename ours."
    )


@pytest.mark.parametrize("internal", INTERNALS, ids=lambda internal: internal.name)
def test_core_uses_a_listed_name_as_the_list_says(internal: Internal) -> None:
    used = find_uses(CORE.read_text(encoding="utf-8"), names_of_pysyncobj()).get(internal.name, set())
    listed, found = (sorted(use.value for use in uses) for uses in (internal.uses, used))
    assert found == listed, (
        f"pysyncobj_internals.py lists `{internal.name}` for {listed}, core.py uses it for {found}. "
        "What to do: correct the entry, or remove it if core.py no longer uses the name."
    )


def test_names_are_listed_once() -> None:
    assert len(BY_NAME) == len(INTERNALS)


def test_no_other_module_uses_private_names_of_pysyncobj() -> None:
    allowed = {CORE, CORE.with_name("pysyncobj_internals.py")}
    found = [
        str(path.relative_to(ROOT))
        for path in ROOT.glob("*/src/**/*.py")
        if path not in allowed and "_SyncObj__" in path.read_text(encoding="utf-8")
    ]
    assert not found, f"private names of pysyncobj belong in core.py alone; found in {found}"


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("self._sync._SyncObj__secret", {"_SyncObj__secret": {Use.READ}}),
        ("self._SyncObj__secret = 1", {"_SyncObj__secret": {Use.WRITE}}),
        ("self._SyncObj__secret += 1", {"_SyncObj__secret": {Use.WRITE}}),
        ("self._SyncObj__secret[0] = 1", {"_SyncObj__secret": {Use.WRITE}}),
        ("del self._SyncObj__secret[0]", {"_SyncObj__secret": {Use.WRITE}}),
        ("self._SyncObj__secret()", {"_SyncObj__secret": {Use.CALL}}),
        ("self.__secret", {"_SyncObj__secret": {Use.READ}}),
        ("getattr(self, '_SyncObj__secret')", {"_SyncObj__secret": {Use.READ}}),
        ("class A:\n    def _SyncObj__secret(self): pass", {"_SyncObj__secret": {Use.OVERRIDE}}),
        ("class A:\n    def __secret(self): pass", {"_SyncObj__secret": {Use.OVERRIDE}}),
        ("class A:\n    def _isLeader(self): pass", {"_isLeader": {Use.OVERRIDE}}),
        ("self._getTerm()", {"_getTerm": {Use.CALL}}),
        ("syncobj._RAFT_STATE.LEADER", {"_RAFT_STATE": {Use.READ}}),
        ("syncobj.random = None", {"random": {Use.WRITE}}),
        ("syncobj.SyncObjConf(); self._ours; self.__init__(); self.may_campaign = True", {}),
    ],
)
def test_use_of_a_private_name_is_found(line: str, found: dict[str, set[Use]]) -> None:
    assert find_uses(line, names_of_pysyncobj()) == found


# -- every name has the meaning that core.py relies on --------------------------------------------------------


@dataclass
class TermLog:
    """A log that is a list of terms: the entry at index 1 is the first."""

    terms: list[int] = field(default_factory=list)
    term: int = 0
    vote: str = ""
    noops: list[int] = field(default_factory=list)
    anchor_index: int = 0

    @property
    def last_index(self) -> int:
        return len(self.terms)

    def term_of(self, index: int) -> int:
        return self.terms[index - 1] if index else 0

    def append(self, entry: Entry) -> None:
        assert entry.index == self.last_index + 1
        self.terms.append(entry.term)

    def append_noop(self, index: int, term: int) -> None:
        assert index == self.last_index + 1
        self.terms.append(term)
        self.noops.append(index)

    def truncate(self, index: int) -> None:
        del self.terms[index - 1 :]

    def save_term(self, term: int, vote: str) -> None:
        self.term, self.vote = term, vote


class Member:
    """The second of three members: `bob`, with `ann` and `cat`."""

    def __init__(self, *terms: int, commit_index: int = 0) -> None:
        self.log = TermLog(list(terms))
        self.sent: list[tuple[str, VoteRequest | Vote]] = []
        self.core = Core(
            self.log,
            me="bob",
            members=["ann", "bob", "cat"],
            config=RAFT,
            random_float=lambda: 0.5,
            commit_index=commit_index,
            now=NOW,
            emit=lambda peer, message: self.sent.append((peer, message)),
        )
        self.sync = self.core._sync

    @property
    def role(self) -> int:
        """The role, in the numbers of pysyncobj."""
        return int(self.core.role)

    def lead(self, now: float = NOW) -> "Member":
        """Win an election with the vote of `ann`."""
        self.core.campaign(now)
        self.core.count_vote(now, "ann", self.core.term)
        assert self.role == Role.LEADER
        self.sent.clear()
        return self

    def record(self, name: str, answer: object = None) -> list[tuple[Any, ...]]:
        """Replace a method of this member; return the list of its calls' arguments."""
        calls: list[tuple[Any, ...]] = []

        def recorded(*args: Any) -> object:  # noqa: ANN401
            calls.append(args)
            return answer

        setattr(self.sync, name, recorded)
        return calls


Check = Callable[[], None]
CHECKS: dict[str, Check] = {}
TIMEOUT_S = (RAFT.election_s_min + RAFT.election_s_max) / 2  # with a random float of 0.5
ANN, BOB, CAT = (Node(number) for number in range(3))


def meaning_of(name: str) -> Callable[[Check], Check]:
    """Register the check of what a private name means."""

    def register(check: Check) -> Check:
        assert name not in CHECKS
        CHECKS[name] = check
        return check

    return register


def entry(index: int, term: int) -> Entry:
    return Entry(index, term, 0, 0, memoryview(b"\1"))


def trees() -> dict[str, ast.FunctionDef]:
    """The methods of pysyncobj's SyncObj, as they are written."""
    tree = ast.parse(inspect.getsource(pysyncobj.syncobj))
    (found,) = (node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == "SyncObj")
    return {node.name: node for node in found.body if isinstance(node, ast.FunctionDef)}


def callers_of(text: str) -> set[str]:
    """The methods of SyncObj in which an expression occurs."""
    return {name for name, tree in trees().items() if any(_is_written(node, text) for node in ast.walk(tree))}


def _is_written(node: ast.AST, text: str) -> bool:
    return isinstance(node, ast.Call | ast.Attribute) and ast.unparse(node).startswith(text)


def attributes_of(text: str) -> set[str]:
    """The attributes of an expression that methods of SyncObj use."""
    nodes = [node for tree in trees().values() for node in ast.walk(tree) if isinstance(node, ast.Attribute)]
    return {node.attr for node in nodes if ast.unparse(node.value) == text}


@meaning_of("_SyncObj__raftState")
def _() -> None:
    member = Member()
    assert member.sync._SyncObj__raftState == 0, "a member starts as a follower"
    member.core.campaign(NOW)
    assert member.sync._SyncObj__raftState == 1, "a candidate asks for votes"
    member.core.count_vote(NOW, "ann", 1)
    assert member.sync._SyncObj__raftState == 2, "two of three votes make a leader"
    member.core.follow(NOW, "ann", 2, 0)
    assert member.sync._SyncObj__raftState == 0, "a leader of a higher term is followed"


@meaning_of("_SyncObj__raftCurrentTerm")
def _() -> None:
    member = Member()
    member.core.follow(NOW, "ann", 7, 0)
    assert member.sync._SyncObj__raftCurrentTerm == 7, "the term of a leader is adopted"
    member.sync._SyncObj__raftCurrentTerm = 9
    member.core.follow(NOW, "cat", 8, 0)
    assert member.core.leader == "ann", "a leader of an earlier term is ignored"
    member.core.campaign(NOW)
    assert {message for _, message in member.sent} == {VoteRequest(10, 0, 0)}, "an election starts the next term"
    assert member.log.term == 10


@meaning_of("_SyncObj__votedForNodeId")
def _() -> None:
    for voted, answers in ((ANN.id, []), (CAT.id, []), (None, [("ann", Vote(5))])):
        member = Member()
        member.sync._SyncObj__raftCurrentTerm = 5
        member.sync._SyncObj__votedForNodeId = voted
        member.core.request_vote(NOW, "ann", VoteRequest(5, 9, 5))
        assert member.sent == answers, "one vote per term, saved as a node's id; None is a vote that is free"
    assert (member.sync._SyncObj__votedForNodeId, member.log.vote) == (ANN.id, "ann"), "a vote is saved when given"
    member.core.raise_term(NOW, "cat", 6)
    assert member.sync._SyncObj__votedForNodeId is None, "a new term frees the vote"


@meaning_of("_SyncObj__raftLeader")
def _() -> None:
    member = Member()
    assert member.sync._SyncObj__raftLeader is None
    member.core.follow(NOW, "cat", 1, 0)
    assert member.sync._SyncObj__raftLeader == CAT, "the sender of append_entries leads"
    member.core.raise_term(NOW, "ann", 2)
    assert member.sync._SyncObj__raftLeader is None, "a new term has no known leader"
    member.lead()
    assert member.sync._SyncObj__raftLeader == BOB
    member.core.tick(LATER)
    assert member.sync._SyncObj__raftLeader is None, "a leader without a majority steps down"


@meaning_of("_SyncObj__raftElectionDeadline")
def _() -> None:
    member = Member()
    member.sync.may_campaign = True
    member.sync._SyncObj__raftElectionDeadline = NOW + 10
    member.core.tick(NOW + 10)
    assert member.role == Role.FOLLOWER, "not before the deadline has passed"
    member.core.tick(NOW + 10.1)
    assert member.role == Role.CANDIDATE, "an election starts once the deadline has passed"
    assert member.sync._SyncObj__raftElectionDeadline == NOW + 10.1 + TIMEOUT_S, "an election moves the deadline"
    member.core.follow(NOW + 11, "ann", 1, 0)
    assert member.sync._SyncObj__raftElectionDeadline == NOW + 11 + TIMEOUT_S, "a leader's message moves it"
    member.core.request_vote(NOW + 12, "cat", VoteRequest(2, 0, 0))
    assert member.sync._SyncObj__raftElectionDeadline == NOW + 12 + TIMEOUT_S, "a vote that is given moves it"
    member.core.raise_term(NOW + 13, "cat", 3)
    assert member.sync._SyncObj__raftElectionDeadline == NOW + 12 + TIMEOUT_S, "a term alone does not"


@meaning_of("_SyncObj__raftLog")
def _() -> None:
    """The journal's methods are part of it: pysyncobj calls no method here that `_Journal` lacks."""
    member = Member(1, 1, 3)
    member.core.campaign(NOW)
    assert member.sent[0][1] == VoteRequest(4, 3, 3), "the end of the log is that of the journal"
    assert (member.log.term, member.log.vote) == (4, "bob"), "term and vote are saved in the journal"
    member.core.append(NOW, "ann", 5, (1, 1), [entry(2, 4), entry(3, 5)])
    assert member.log.terms == [1, 4, 5], "what follows prevLogIdx is replaced, in the journal"
    other = TermLog([2])
    member.sync._SyncObj__raftLog = core_module._Journal(other, ["ann", "bob", "cat"])
    member.core.append(NOW, "ann", 5, (1, 2), [entry(2, 5)])
    assert other.terms == [2, 5], "a journal that is assigned takes the place of the one before"
    elsewhere = {
        "getRaftCommitIndex": {"__init__"},  # our constructor replaces the journal and the commit index
        "deleteEntriesTo": {"__deleteEntriesTo"},  # log compaction
        "clear": {"__loadDumpFile"},  # snapshots
        "_destroy": {"_doDestroy"},
    }
    lacking = {name for name in attributes_of("self.__raftLog") if not hasattr(core_module._Journal, name)}
    assert lacking == set(elsewhere), "methods of the journal that core.py does not have"
    for name, callers in elsewhere.items():
        assert callers_of(f"self.__raftLog.{name}") == callers, f"{name} is called elsewhere too"
    assert callers_of("self.__deleteEntriesTo(") == {"__tryLogCompaction"}, "which core.py overrides"


@meaning_of("_SyncObj__raftCommitIndex")
def _() -> None:
    member = Member(1, 1, 1, 1)
    member.sync._SyncObj__raftCommitIndex = 2
    member.core.follow(NOW, "ann", 1, 1)
    assert member.sync._SyncObj__raftCommitIndex == 2, "it never moves back"
    member.core.follow(NOW, "ann", 1, 3)
    assert member.sync._SyncObj__raftCommitIndex == 3, "a follower learns it from the leader"
    member.core.follow(NOW, "ann", 1, 99)
    assert member.sync._SyncObj__raftCommitIndex == 4, "it never exceeds the log"
    member = Member(1, 1, 1).lead()
    member.sync._SyncObj__raftCommitIndex = 3
    member.core.tick(NOW)
    assert member.sync._SyncObj__raftCommitIndex == 3, "a leader counts from it on: no other member has the no-op"


@meaning_of("_SyncObj__raftLastApplied")
def _() -> None:
    for applied, expected in ((1, 0), (2, 1)):
        member = Member(1, 1, 1)
        member.sync._SyncObj__raftLastApplied = applied
        logger = logging.getLogger("pysyncobj.syncobj")
        with mock.patch.object(logger, "critical") as critical:
            member.core.append(NOW, "ann", 2, (1, 1), [entry(2, 2)])
        assert critical.call_count == expected, "truncating an applied entry is a critical error, another is none"
        assert member.log.terms == [1, 2]
    member = Member(1, 1, 1, commit_index=2)
    with mock.patch.object(member.sync, "_SyncObj__doApplyCommand", create=True) as apply:
        stock_apply = pysyncobj.syncobj.SyncObj._SyncObj__applyLogEntries
        stock_apply(member.sync)
        assert apply.call_count == 0, "nothing is applied up to the last applied index"
        member.sync._SyncObj__raftLastApplied = 0
        stock_apply(member.sync)
        assert apply.call_count == 2, "entries between it and the commit index are applied"


@meaning_of("_SyncObj__noopIDx")
def _() -> None:
    member = Member(1, 1)
    assert member.sync._SyncObj__noopIDx is None, "there was no leadership yet"
    member.core.campaign(NOW)
    assert member.sync._SyncObj__noopIDx is None, "a candidate appends nothing"
    member.core.count_vote(NOW, "ann", member.core.term)
    assert member.sync._SyncObj__noopIDx == 3 == member.log.last_index
    assert member.log.noops == [3], "the no-op is appended when the election is won"
    assert member.log.terms == [1, 1, 2]


@meaning_of("_SyncObj__raftMatchIndex")
def _() -> None:
    member = Member(1, 1)
    member.sync._SyncObj__raftMatchIndex[ANN] = 99
    member.lead()
    assert member.sync._SyncObj__raftMatchIndex == {ANN: 0, CAT: 0}, "a new leader knows nothing of its followers"
    member.sync._SyncObj__raftMatchIndex[CAT] = 2
    member.core.tick(NOW)
    assert member.core.commit_index == 0, "entries of earlier terms are not committed by counting (Raft, 5.4.2)"
    member.sync._SyncObj__raftMatchIndex[CAT] = 3
    assert member.core.commit_index == 0, "not before the next tick"
    member.core.tick(NOW)
    assert member.core.commit_index == 3, "an entry of the current term commits those before it"


@meaning_of("_SyncObj__lastResponseTime")
def _() -> None:
    member = Member().lead()
    assert member.sync._SyncObj__lastResponseTime == {ANN: NOW, CAT: NOW}, "a new leader starts with its election"
    member.sync._SyncObj__lastResponseTime[ANN] = LATER
    member.core.tick(LATER)
    assert member.role == Role.LEADER, "two of three, the leader among them, are a majority"
    member.core.tick(LATER + RAFT.election_s_max - 0.01)
    assert member.role == Role.LEADER, "a response counts for the longest election time"
    member.core.tick(LATER + RAFT.election_s_max)
    assert member.role == Role.FOLLOWER, "a leader without a majority steps down"


@meaning_of("_onTick")
def _() -> None:
    member = Member()
    member.sync._SyncObj__raftElectionDeadline = NOW - 1
    member.sync.may_campaign = True
    with mock.patch.object(pysyncobj.syncobj.time, "sleep", side_effect=AssertionError("a tick sleeps")):
        member.sync._onTick(0.0)
    assert member.role == Role.CANDIDATE, "a tick starts an election"
    assert [peer for peer, _ in member.sent] == ["ann", "cat"], "the candidate asks every other member once"
    member.sent.clear()
    member.core.count_vote(NOW, "cat", 1)
    member.sync._onTick(0.0)
    assert member.role == Role.LEADER
    assert member.sent == [], "a leader's tick sends nothing itself"


@meaning_of("_SyncObj__onMessageReceived")
def _() -> None:
    """The fields of messages are part of it."""
    member = Member(1, 1, 1)
    receive = member.sync._SyncObj__onMessageReceived
    receive(ANN, {"type": "append_entries", "term": 2, "commit_index": 1})
    assert (member.core.leader, member.core.term, member.core.commit_index) == ("ann", 2, 1)
    assert member.log.terms == [1, 1, 1], "without prevLogIdx the log stays as it is"
    new = [(entry(3, 2), 3, 2), (entry(4, 2), 4, 2)]
    added = {"entries": new, "prevLogIdx": 2, "prevLogTerm": 1}
    receive(ANN, {"type": "append_entries", "term": 2, "commit_index": 0, **added})
    assert member.log.terms == [1, 1, 2, 2], "entries replace what follows prevLogIdx"
    receive(CAT, {"type": "append_entries", "term": 1, "commit_index": 4})
    assert (member.core.leader, member.core.commit_index) == ("ann", 1), "an earlier term is ignored"
    receive(CAT, {"type": "request_vote", "term": 3, "last_log_index": 4, "last_log_term": 2})
    assert member.sent == [("cat", Vote(3))], "a log as good as this one gets the vote"
    receive(CAT, {"type": "request_vote", "term": 4, "last_log_index": 3, "last_log_term": 2})
    receive(CAT, {"type": "request_vote", "term": 5, "last_log_index": 9, "last_log_term": 1})
    receive(CAT, {"type": "request_vote", "term": 6, "last_log_index": -1, "last_log_term": -1})
    assert member.sent == [("cat", Vote(3))], "a shorter or older log gets none"
    assert (member.core.term, member.log.term, member.log.vote) == (6, 6, ""), "its term is adopted"
    member.core.campaign(NOW)
    receive(ANN, {"type": "response_vote", "term": 6})
    assert member.role == Role.CANDIDATE, "a vote of an earlier term does not count"
    receive(ANN, {"type": "response_vote", "term": 7})
    assert member.role == Role.LEADER


@meaning_of("_SyncObj__generateRaftTimeout")
def _() -> None:
    member = Member()
    calls = member.record("_SyncObj__generateRaftTimeout", 42.0)
    member.core.follow(NOW, "ann", 1, 0)
    assert member.core.election_at == NOW + 42.0, "a leader's message draws a new timeout, in seconds"
    member.core.request_vote(NOW + 1, "cat", VoteRequest(2, 0, 0))
    assert member.core.election_at == NOW + 43.0, "so does a vote that is given"
    member.core.campaign(NOW + 2)
    assert member.core.election_at == NOW + 44.0, "so does an election"
    assert calls == [(), (), ()], "without arguments"
    assert callers_of("random.") == {"__generateRaftTimeout"}, "randomness is used nowhere else"


@meaning_of("_SyncObj__connectedToAnyone")
def _() -> None:
    member = Member()
    calls = member.record("_SyncObj__connectedToAnyone", answer=False)
    member.core.follow(NOW, "ann", 1, 0)
    member.core.request_vote(NOW, "cat", VoteRequest(2, 0, 0))
    member.core.tick(NOW)
    assert calls == [], "it is not asked before the election deadline has passed"
    member.core.tick(LATER)
    assert calls == [()]
    assert (member.role, member.core.term) == (Role.FOLLOWER, 2), "no election without it"
    member.record("_SyncObj__connectedToAnyone", answer=True)
    member.core.tick(LATER)
    assert (member.role, member.core.term) == (Role.CANDIDATE, 3)
    assert callers_of("self.__connectedToAnyone(") == {"_onTick"}, "it decides about nothing else"


@meaning_of("_SyncObj__sendAppendEntries")
def _() -> None:
    member = Member()
    calls = member.record("_SyncObj__sendAppendEntries")
    with mock.patch.object(core_module._VoteTransport, "send", autospec=True, return_value=True) as send:
        member.core.campaign(NOW)
        assert calls == [], "a candidate sends no entries"
        member.core.count_vote(NOW, "ann", 1)
        assert calls == [()], "a new leader sends entries"
        member.core.tick(NOW + 0.1)
        assert calls == [(), ()], "and with each tick"
        member.core.follow(NOW, "ann", 2, 0)
        member.core.append(NOW, "ann", 2, (0, 0), [entry(1, 2)])
        member.core.request_vote(NOW, "cat", VoteRequest(3, 9, 9))
    kinds = {call.args[2]["type"] for call in send.call_args_list}
    assert kinds == {"request_vote", "next_node_idx", "response_vote"}, "nothing else sends entries"


@meaning_of("_SyncObj__applyLogEntries")
def _() -> None:
    member = Member(1)
    calls = member.record("_SyncObj__applyLogEntries", answer=False)
    with mock.patch.object(member.sync, "_SyncObj__doApplyCommand", create=True) as apply:
        member.core.follow(NOW, "ann", 1, 1)
        assert calls == [], "entries are not applied when a message arrives"
        member.core.tick(NOW)
        assert calls == [()], "but once per tick, without arguments"
        assert apply.call_count == 0, "and nowhere else"
    assert callers_of("self.__doApplyCommand(") == {"__applyLogEntries"}


@meaning_of("_checkCommandsToApply")
def _() -> None:
    member = Member().lead()
    calls = member.record("_checkCommandsToApply")
    member.sync._applyCommand(b"command", None)
    member.core.tick(NOW)
    assert calls == [()], "it is called once per tick, without arguments"
    assert member.log.terms == [1], "a queued command is appended nowhere else"
    assert member.sent == [], "nor forwarded"
    assert callers_of("self.__commandsQueue.get") == {"_checkCommandsToApply"}


@meaning_of("_SyncObj__tryLogCompaction")
def _() -> None:
    member = Member()
    calls = member.record("_SyncObj__tryLogCompaction")
    member.core.tick(NOW)
    assert calls == [()], "it is called once per tick, without arguments"
    assert callers_of("self.__serializer.serialize(") == {"__tryLogCompaction"}, "no other method writes snapshots"
    assert callers_of("self.__tryLogCompaction(") == {"_onTick"}


@meaning_of("_poller")
def _() -> None:
    member = Member()
    poller = mock.Mock()
    member.sync._poller = poller
    member.core.tick(NOW)
    assert poller.mock_calls == [mock.call.poll(0.0)], "a tick polls once, with the time to wait that it was given"


@meaning_of("monotonicTime")
def _() -> None:
    member = Member()
    with mock.patch.object(pysyncobj.syncobj, "monotonicTime", return_value=5000.0):
        member.sync._SyncObj__onMessageReceived(ANN, {"type": "append_entries", "term": 1, "commit_index": 0})
    assert member.core.election_at == 5000.0 + TIMEOUT_S, "times are seconds of this clock"
    assert attributes_of("time") == {"sleep"}, "no method reads another clock"


def verify(internal: Internal) -> None:
    """Run the check of a name; fail with a message that says what to do."""
    check = CHECKS.get(internal.name)
    assert check is not None, f"add a check of what `{internal.name}` means to this file: {internal.meaning}"
    try:
        check()
    except Exception as error:  # noqa: BLE001 - a name that is gone or has another type raises anything
        problem = f"it no longer means '{internal.meaning}': {type(error).__name__}: {error}"
        pytest.fail(explain(internal.name, problem))


@pytest.mark.parametrize("internal", INTERNALS, ids=lambda internal: internal.name)
def test_private_name_means_what_core_relies_on(internal: Internal) -> None:
    verify(internal)


def test_every_check_belongs_to_a_listed_name() -> None:
    assert set(CHECKS) == set(BY_NAME)


def test_changed_meaning_is_reported_with_the_attribute_and_the_next_step(monkeypatch: pytest.MonkeyPatch) -> None:
    def boom(*_: object) -> NoReturn:
        raise KeyError("node")

    monkeypatch.setattr(pysyncobj.syncobj.SyncObj, "_onTick", boom)
    with pytest.raises(pytest.fail.Exception) as failure:
        verify(BY_NAME["_SyncObj__raftMatchIndex"])
    message = str(failure.value)
    assert "`_SyncObj__raftMatchIndex` (core.py: Core.count_match)" in message
    assert "it no longer means 'match index by follower" in message
    assert "KeyError: 'node'. What to do: read syncobj.py" in message


def test_stock_clock_and_chance_are_replaced() -> None:
    """A run of the simulation depends on its seed alone."""
    core_module._Clock.now = 77.0
    assert pysyncobj.syncobj.monotonicTime() == 77.0
    with mock.patch.object(random, "random", side_effect=AssertionError("random source of pysyncobj is used")):
        Member().lead()
