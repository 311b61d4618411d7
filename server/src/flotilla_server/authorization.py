"""Authorization: identifies the caller of each request, and checks the rule of its path.

A rule states what a path needs. A path without a rule is rejected, so that a forgotten rule opens nothing: 404 with a
valid token, 401 without one. Scopes on topics outside the path are checked by the endpoint, with `require`.

Rules use FastAPI's path templates, and match the decoded path like FastAPI. Fixed paths need one lookup.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum

from flotilla.access import Scope as Permission
from flotilla.protocol.errors import Refusal, unknown_path
from flotilla_server.asgi import Scope
from flotilla_server.callers import ANONYMOUS, INVALID, UNRESTRICTED, Access, Caller, NotAuthenticated

TOPIC = "{name}"
_AUTHORIZATION = b"authorization"
_SEVERAL = b"several"  # never a valid token
_SHOWN_MAX = 200


class Need(Enum):
    """Requirement of a path."""

    OPEN = "nothing"
    TOKEN = "a valid token"  # noqa: S105 - not a secret
    BY_ENDPOINT = "a valid token, and the scopes that the endpoint checks"
    ADMIN = "admin on all topics"
    SYSTEM = "the token of servers"


@dataclass(frozen=True)
class OnTopic:
    """A scope on the topic {name} of the path; None: any scope."""

    scope: Permission | None = None


@dataclass(frozen=True)
class Rule:
    """Requirement of a path for some methods. HEAD is treated as GET."""

    methods: tuple[str, ...]
    path: str
    need: Need | OnTopic

    def __post_init__(self) -> None:
        if isinstance(self.need, OnTopic) and TOPIC not in self.segments:
            raise ValueError(f"rule for {self.path}: a scope on a topic requires {TOPIC} in the path")

    @property
    def segments(self) -> list[str]:
        """Segments of the path."""
        return self.path.split("/")

    @property
    def is_fixed(self) -> bool:
        """Whether the path has no parameters."""
        return "{" not in self.path

    def fits(self, segments: list[str]) -> bool:
        """Whether it matches a path with the same number of segments."""
        return all(
            (found != "" if own.startswith("{") else own == found)
            for own, found in zip(self.segments, segments, strict=True)
        )


OPEN_RULES = tuple(
    Rule(("GET",), path, Need.OPEN)
    for path in ("/healthz", "/readyz", "/metrics", "/openapi.json", "/favicon.ico", "/docs", "/docs/{version}/{file}")
)  # public paths of all servers


class Authorizer:
    """Authorizes requests by rules. Without `access`, every request is allowed."""

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
                    raise ValueError(f"duplicate rule for {method} {rule.path}")
            else:
                self._templates.setdefault((method, rule.path.count("/")), []).append(rule)

    def find(self, method: str, path: str) -> Rule | None:
        """Find the rule of a request: a fixed path first, then the first matching template."""
        method = "GET" if method == "HEAD" else method
        rule = self._fixed.get((method, path))
        if rule is not None:
            return rule
        templates = self._templates.get((method, path.count("/")))
        if templates is None:
            return None
        segments = path.split("/")
        return next((rule for rule in templates if rule.fits(segments)), None)

    def authorize(self, scope: Scope) -> None:
        """Identify the caller, set `scope["caller"]`, and check the rule; raises Refusal."""
        scope["access"] = self.access
        if self.access is None:
            scope["caller"] = UNRESTRICTED
            return
        rule = self.find(scope["method"], scope["path"])
        if rule is not None and rule.need is Need.OPEN:
            scope["caller"] = ANONYMOUS
            return
        caller = scope["caller"] = self._identify(self.access, scope)
        if rule is None:
            path = scope["path"]
            raise unknown_path(path, (other for other in self._methods if self.find(other, path) is not None))
        if rule.need is Need.TOKEN or rule.need is Need.BY_ENDPOINT or caller.is_unrestricted:
            return
        _check(caller, rule, scope["path"])

    async def refresh(self, scope: Scope) -> bool:
        """Look up an unknown token in the source of tokens; return whether to call `authorize` again."""
        is_shown = any(key == _AUTHORIZATION for key, _ in scope["headers"])
        return self.access is not None and is_shown and await self.access.refresh()

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
    """Check the rule for a caller with limited rights."""
    if isinstance(rule.need, OnTopic):
        topic = path.split("/")[rule.segments.index(TOPIC)]
        require_scope(caller, rule.need.scope, topic)
    elif rule.need is Need.ADMIN:
        if not caller.allows_all(Permission.ADMIN):
            raise Refusal("forbidden", "the scope admin on all topics is missing", scope="admin", topic="*")
    else:
        raise Refusal("forbidden", "only servers of this cluster may send this request", scope="system")


def caller_of(scope: Scope) -> Caller:
    """Return the caller of an authorized request."""
    caller: Caller = scope["caller"]
    return caller


def recheck(scope: Scope) -> None:
    """Check again that the caller's token is valid; raises Refusal if it was revoked or has expired.

    For requests that wait or stream: an invalid token must get no more records.
    """
    access: Access | None = scope["access"]
    if access is not None and not access.is_valid(caller_of(scope)):
        raise Refusal("unauthorized", INVALID)


def require(scope: Scope, what: Permission | None, topic: str) -> None:
    """Check that the caller has a scope on a topic (None: any scope); raises Refusal.

    Call it before checking whether the topic exists, so that other callers do not learn that.
    """
    require_scope(caller_of(scope), what, topic)


def require_scope(caller: Caller, what: Permission | None, topic: str) -> None:
    """Check that a caller has a scope on a topic (None: any scope); raises Refusal."""
    if what is None:
        if not caller.sees(topic):
            raise Refusal("forbidden", f"a scope on topic {topic[:_SHOWN_MAX]!r} is missing", topic=topic[:_SHOWN_MAX])
    elif not caller.allows(what, topic):
        raise missing_scope(what, topic)


def missing_scope(what: Permission, topic: str) -> Refusal:
    """Return the error for a missing scope on a topic, with the name from the request."""
    shown = topic[:_SHOWN_MAX]
    return Refusal("forbidden", f"the scope {what} on topic {shown!r} is missing", scope=str(what), topic=shown)
