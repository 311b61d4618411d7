"""The gate: every request passes it before anything else looks at it.

It finds out who calls and whether they may ask for this path at all; what a request is about, beyond a topic in the
path, its endpoint checks by `require`. The rules say for each path what it needs. A path without a rule is not there,
and who shows no valid token is not told even that: what somebody forgets to decide about is closed.

Rules name paths as FastAPI does, and match the decoded path as it does. Fixed paths are found in one step.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum

from flotilla.access import ANYBODY, NOBODY, Access, Caller, NotAuthenticated
from flotilla.access import Scope as Permission
from flotilla.access.callers import INVALID
from flotilla.serving.asgi import Scope
from flotilla.serving.errors import Refusal, not_there

TOPIC = "{name}"
_AUTHORIZATION = b"authorization"
_SEVERAL = b"several"  # is no token, whatever they are
_SHOWN_MAX = 200


class Need(Enum):
    """What a caller needs for a path."""

    OPEN = "nothing"
    TOKEN = "a valid token"  # noqa: S105 - says what is needed, and is none
    ELSEWHERE = "a valid token, and what the endpoint asks for"
    ADMIN = "admin on all topics"
    SYSTEM = "to be a server"


@dataclass(frozen=True)
class OnTopic:
    """A scope on the topic that the path names as {name}; without a scope, any will do."""

    scope: Permission | None = None


@dataclass(frozen=True)
class Rule:
    """What a path needs, by methods: ("GET",). HEAD is as GET."""

    methods: tuple[str, ...]
    path: str
    need: Need | OnTopic

    def __post_init__(self) -> None:
        if isinstance(self.need, OnTopic) and TOPIC not in self.segments:
            raise ValueError(f"the rule of {self.path} is about a topic, and the path has no {TOPIC}")

    @property
    def segments(self) -> list[str]:
        """The path, piece by piece."""
        return self.path.split("/")

    @property
    def is_fixed(self) -> bool:
        """Whether it is about one path."""
        return "{" not in self.path

    def fits(self, segments: list[str]) -> bool:
        """Tell whether it is about a path with as many segments."""
        return all(
            (found != "" if own.startswith("{") else own == found)
            for own, found in zip(self.segments, segments, strict=True)
        )


OPEN_RULES = tuple(
    Rule(("GET",), path, Need.OPEN)
    for path in ("/healthz", "/readyz", "/metrics", "/openapi.json", "/favicon.ico", "/docs", "/docs/{version}/{file}")
)  # what every server has, and shows to all


class Gate:
    """Lets callers in by rules. Without `access`, callers are not checked: everybody may do everything."""

    def __init__(self, access: Access | None, rules: Iterable[Rule]) -> None:
        self.access = access
        self._fixed: dict[tuple[str, str], Rule] = {}
        self._templates: dict[tuple[str, int], list[Rule]] = {}
        self._methods: set[str] = set()
        for rule in rules:
            self._add(rule)

    def _add(self, rule: Rule) -> None:
        for method in rule.methods:
            self._methods.add(method)
            if rule.is_fixed:
                if self._fixed.setdefault((method, rule.path), rule) is not rule:
                    raise ValueError(f"there are two rules for {method} {rule.path}")
            else:
                self._templates.setdefault((method, rule.path.count("/")), []).append(rule)

    def find(self, method: str, path: str) -> Rule | None:
        """Find the rule for a request: a fixed path comes before templates, and of those the first that fits."""
        method = "GET" if method == "HEAD" else method
        rule = self._fixed.get((method, path))
        if rule is not None:
            return rule
        templates = self._templates.get((method, path.count("/")))
        if templates is None:
            return None
        segments = path.split("/")
        return next((rule for rule in templates if rule.fits(segments)), None)

    def enter(self, scope: Scope) -> None:
        """Find out who calls, and put them into `scope["caller"]`; raises Refusal if they may not do this."""
        scope["access"] = self.access
        if self.access is None:
            scope["caller"] = ANYBODY
            return
        rule = self.find(scope["method"], scope["path"])
        if rule is not None and rule.need is Need.OPEN:
            scope["caller"] = NOBODY
            return
        caller = scope["caller"] = self._identify(self.access, scope)
        if rule is None:
            path = scope["path"]
            raise not_there(path, (other for other in self._methods if self.find(other, path) is not None))
        if rule.need is Need.TOKEN or rule.need is Need.ELSEWHERE or caller.may_all:
            return
        _check(caller, rule, scope["path"])

    async def look_again(self, scope: Scope) -> bool:
        """Have a token that is not known looked for where new ones come from; return whether `enter` is to be tried."""
        is_shown = any(key == _AUTHORIZATION for key, _ in scope["headers"])
        return self.access is not None and is_shown and await self.access.look_again()

    def _identify(self, access: Access, scope: Scope) -> Caller:
        shown: bytes | None = None
        for key, value in scope["headers"]:
            if key == _AUTHORIZATION:
                shown = bytes(value) if shown is None else _SEVERAL + b" " + _SEVERAL
        try:
            return access.identify(shown)
        except NotAuthenticated as error:
            raise Refusal("unauthorized", str(error)) from None


def _check(caller: Caller, rule: Rule, path: str) -> None:
    """Check what a rule needs of somebody who may not do everything."""
    if isinstance(rule.need, OnTopic):
        topic = path.split("/")[rule.segments.index(TOPIC)]
        require_of(caller, rule.need.scope, topic)
    elif rule.need is Need.ADMIN:
        if not caller.allows_all(Permission.ADMIN):
            raise Refusal("forbidden", "the scope admin on all topics is missing", scope="admin", topic="*")
    else:
        raise Refusal("forbidden", "only the servers of this cluster may do this", scope="system")


def caller_of(scope: Scope) -> Caller:
    """Return who makes a request; who came past no gate is nobody, and that is a mistake of ours."""
    caller: Caller = scope["caller"]
    return caller


def recheck(scope: Scope) -> None:
    """Refuse to go on with a request whose caller was let in, and whose token has been revoked or has expired since.

    For whatever waits or goes on for long: a token that ended must not bring its holder any more records.
    """
    access: Access | None = scope["access"]
    if access is not None and not access.knows(caller_of(scope)):
        raise Refusal("unauthorized", INVALID)


def require(scope: Scope, what: Permission | None, topic: str) -> None:
    """Refuse a request if its caller lacks a scope on a topic; None is any scope.

    To be asked before anybody looks whether the topic exists: who may not use it does not learn that.
    """
    require_of(caller_of(scope), what, topic)


def require_of(caller: Caller, what: Permission | None, topic: str) -> None:
    """Refuse a caller who lacks a scope on a topic; None is any scope."""
    if what is None:
        if not caller.sees(topic):
            raise Refusal("forbidden", f"a scope on topic {topic[:_SHOWN_MAX]!r} is missing", topic=topic[:_SHOWN_MAX])
    elif not caller.allows(what, topic):
        raise lacks(what, topic)


def lacks(what: Permission, topic: str) -> Refusal:
    """Say that a scope is missing on a topic, as the caller has named it."""
    shown = topic[:_SHOWN_MAX]
    return Refusal("forbidden", f"the scope {what} on topic {shown!r} is missing", scope=str(what), topic=shown)
