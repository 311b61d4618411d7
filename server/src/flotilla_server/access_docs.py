"""OpenAPI descriptions of access, generated from the authorization rules.

With them, `/docs` asks for a token and sends it. Without authentication nothing is added.
"""

from typing import Any

from fastapi import FastAPI

from flotilla_server.authorization import Authorizer, Need, OnTopic, Rule

_TOKEN = "token"  # noqa: S105 - the name of the scheme
_SCHEME = {"type": "http", "scheme": "bearer", "description": "Token, as printed by `flotilla tokens create`"}
_REFUSED = {"401": "The token is missing or invalid", "403": "The token lacks the scope in `details`"}
_NEEDS = {
    Need.TOKEN: "a valid token",
    Need.BY_ENDPOINT: "a token with the scope on each topic of the request",
    Need.ADMIN: "scope `admin` on all topics",
    Need.SYSTEM: "the token that servers derive from their secret",
}


def describe_access(app: FastAPI, authorizer: Authorizer) -> None:
    """Add the requirement of each call. Call it last: later additions to the schema are not covered."""
    if authorizer.access is None:
        return
    make = app.openapi

    def openapi() -> dict[str, Any]:
        schema = make()
        schema.setdefault("components", {})["securitySchemes"] = {_TOKEN: _SCHEME}
        for path, operations in schema["paths"].items():
            for method, operation in operations.items():
                rule = authorizer.find(method.upper(), path)
                if rule is not None and rule.need is not Need.OPEN:
                    operations[method] = _describe(operation, rule)
        return schema

    app.openapi = openapi  # type: ignore[method-assign]


def _describe(operation: dict[str, Any], rule: Rule) -> dict[str, Any]:
    """Return the operation with its requirement. Idempotent, and does not change its argument, which apps may share."""
    if "security" in operation:
        return operation
    return {
        **operation,
        "security": [{_TOKEN: []}],
        "description": f"{operation.get('description', '')}\n\nRequires {needs(rule)}.".strip(),
        "responses": {**{status: {"description": text} for status, text in _REFUSED.items()}, **operation["responses"]},
    }


def needs(rule: Rule) -> str:
    """Describe the requirement of a rule."""
    if isinstance(rule.need, OnTopic):
        return f"{'any scope' if rule.need.scope is None else f'scope `{rule.need.scope}`'} on the topic"
    return _NEEDS[rule.need]
