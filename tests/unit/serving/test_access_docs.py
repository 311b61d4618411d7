"""The docs say what each call needs, and they say what the gate asks for."""

from typing import Any

from fastapi import FastAPI

from flotilla.access import Access, AccessTable, Scope
from flotilla.serving.access_docs import describe_access
from flotilla.serving.gate import OPEN_RULES, Gate, Need, OnTopic, Rule

RULES = (
    *OPEN_RULES,
    Rule(("GET",), "/a", Need.ADMIN),
    Rule(("GET",), "/topics/{name}", OnTopic()),
    Rule(("DELETE",), "/topics/{name}", OnTopic(Scope.ADMIN)),
)


def app_of(access: Access | None) -> FastAPI:
    """An app with a few calls, and what it says about them."""
    app = FastAPI()
    for method, path in (("GET", "/healthz"), ("GET", "/a"), ("GET", "/topics/{name}"), ("DELETE", "/topics/{name}")):
        app.add_api_route(path, lambda: None, methods=[method], description=f"Does {path}.")
    describe_access(app, Gate(access, RULES))
    return app


def test_each_call_says_what_it_needs_and_what_is_open_says_nothing() -> None:
    app = app_of(Access(None, AccessTable(), lambda: 1))
    for _ in range(2):  # it is asked for again and again
        schema = app.openapi()
        assert schema["components"]["securitySchemes"]["token"]["scheme"] == "bearer"
        found = {
            (method, path): (operation.get("security"), operation["description"])
            for path, operations in schema["paths"].items()
            for method, operation in operations.items()
        }
        token: list[dict[str, Any]] = [{"token": []}]
        assert found == {
            ("get", "/healthz"): (None, "Does /healthz."),
            ("get", "/a"): (token, "Does /a.\n\nNeeds: the scope admin on all topics."),
            ("get", "/topics/{name}"): (token, "Does /topics/{name}.\n\nNeeds: any scope on the topic."),
            ("delete", "/topics/{name}"): (token, "Does /topics/{name}.\n\nNeeds: the scope admin on the topic."),
        }
        assert {"401", "403"} <= set(schema["paths"]["/a"]["get"]["responses"])
        assert "401" not in schema["paths"]["/healthz"]["get"]["responses"]


def test_where_callers_are_not_checked_nothing_is_said() -> None:
    schema = app_of(None).openapi()
    assert "securitySchemes" not in schema.get("components", {})
    assert "Needs" not in str(schema)
