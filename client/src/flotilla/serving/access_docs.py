"""What OpenAPI says about who may call what: taken from the rules of the gate, so that it cannot say anything else.

With it, `/docs` asks for a token and sends it along. Where callers are not checked, nothing is said.
"""

from typing import Any

from fastapi import FastAPI

from flotilla.serving.gate import Gate, Need, OnTopic, Rule

_TOKEN = "token"  # noqa: S105 - the name of the scheme
_SCHEME = {"type": "http", "scheme": "bearer", "description": "A token, as `flotilla tokens create` shows it once"}
_REFUSED = {"401": "A token is missing, or not valid", "403": "The token lacks a scope; `details` name it"}
_NEEDS = {
    Need.TOKEN: "any valid token",
    Need.ELSEWHERE: "a token with the scope on each topic that it is about",
    Need.ADMIN: "the scope admin on all topics",
    Need.SYSTEM: "to be a server of the cluster",
}


def describe_access(app: FastAPI, gate: Gate) -> None:
    """Add to each call what it needs. To be called last: what others add afterwards is not seen."""
    if gate.access is None:
        return
    make = app.openapi

    def openapi() -> dict[str, Any]:
        schema = make()
        schema.setdefault("components", {})["securitySchemes"] = {_TOKEN: _SCHEME}
        for path, operations in schema["paths"].items():
            for method, operation in operations.items():
                rule = gate.find(method.upper(), path)
                if rule is not None and rule.need is not Need.OPEN:
                    operations[method] = _describe(operation, rule)
        return schema

    app.openapi = openapi  # type: ignore[method-assign]


def _describe(operation: dict[str, Any], rule: Rule) -> dict[str, Any]:
    """Write it down, once: FastAPI keeps what it made. What was given may be shared by several apps."""
    if "security" in operation:
        return operation
    return {
        **operation,
        "security": [{_TOKEN: []}],
        "description": f"{operation.get('description', '')}\n\nNeeds: {needs(rule)}.".strip(),
        "responses": {**{status: {"description": text} for status, text in _REFUSED.items()}, **operation["responses"]},
    }


def needs(rule: Rule) -> str:
    """Say in words what a rule needs."""
    if isinstance(rule.need, OnTopic):
        return f"{'any scope' if rule.need.scope is None else f'the scope {rule.need.scope}'} on the topic"
    return _NEEDS[rule.need]
