"""The OpenAPI document shows the required scopes, the same that the server enforces."""

from typing import Any

from fastapi import FastAPI

from flotilla.access import Scope
from flotilla_server.access_docs import describe_access
from flotilla_server.access_table import AccessTable
from flotilla_server.authorization import OPEN_RULES, Authorizer, Need, OnTopic, Rule
from flotilla_server.callers import Access

RULES = (
    *OPEN_RULES,
    Rule(("GET",), "/a", Need.ADMIN),
    Rule(("GET",), "/topics/{name}", OnTopic()),
    Rule(("DELETE",), "/topics/{name}", OnTopic(Scope.ADMIN)),
)


def app_of(access: Access | None) -> FastAPI:
    """Return an app with a few operations, and its document."""
    app = FastAPI()
    for method, path in (("GET", "/healthz"), ("GET", "/a"), ("GET", "/topics/{name}"), ("DELETE", "/topics/{name}")):
        app.add_api_route(path, lambda: None, methods=[method], description=f"Does {path}.")
    describe_access(app, Authorizer(access, RULES))
    return app


def test_operations_show_their_scopes_and_open_ones_show_none() -> None:
    app = app_of(Access(None, AccessTable(), lambda: 1))
    for _ in range(2):  # it is requested repeatedly
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
            ("get", "/a"): (token, "Does /a.\n\nRequires scope `admin` on all topics."),
            ("get", "/topics/{name}"): (token, "Does /topics/{name}.\n\nRequires any scope on the topic."),
            ("delete", "/topics/{name}"): (token, "Does /topics/{name}.\n\nRequires scope `admin` on the topic."),
        }
        assert {"401", "403"} <= set(schema["paths"]["/a"]["get"]["responses"])
        assert "401" not in schema["paths"]["/healthz"]["get"]["responses"]


def test_document_without_authentication_shows_no_scopes() -> None:
    schema = app_of(None).openapi()
    assert "securitySchemes" not in schema.get("components", {})
    assert "Requires" not in str(schema)
