"""The client of the API of Kubernetes: its requests, and the errors that it makes of responses."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer
from kubernetes.aio.client import ApiClient, Configuration

from flotilla_operator.errors import Conflict, NotFound, Rejected, TooManyRequests, Unavailable
from flotilla_operator.kubernetes_client import KubernetesClient, make_error
from flotilla_operator.names import POD, TOPIC
from flotilla_operator.plans import Create, Delete, EmitEvent, Evict

Result = TypeVar("Result")
Call = Callable[[KubernetesClient], Awaitable[Result]]


class ApiServer:
    """A server that answers every request in the same way, and remembers the requests."""

    def __init__(self, status: int = 200, body: Any = None) -> None:  # noqa: ANN401 - any JSON
        self._status, self._body = status, body if body is not None else {"items": []}
        self.requests: list[tuple[str, str, str | None, Any]] = []

    def run(self, call: Call[Result]) -> Result:
        return asyncio.run(asyncio.wait_for(self._run(call), 30))

    async def _run(self, call: Call[Result]) -> Result:
        app = web.Application()
        app.router.add_route("*", "/{path:.*}", self._answer)
        async with TestServer(app) as server:
            configuration = Configuration()
            configuration.host = str(server.make_url("")).rstrip("/")
            kubernetes = KubernetesClient("q", ApiClient(configuration))
            try:
                return await call(kubernetes)
            finally:
                await kubernetes.close()

    async def _answer(self, request: web.Request) -> web.Response:
        body = await request.json() if request.can_read_body else None
        self.requests.append((request.method, request.path_qs, request.headers.get("Content-Type"), body))
        return web.json_response(self._body, status=self._status)


def test_list_selects_by_labels() -> None:
    server = ApiServer(body={"items": [{"metadata": {"name": "a"}}]})
    assert server.run(lambda one: one.list(POD, {"app": "x", "tier": "y"})) == [{"metadata": {"name": "a"}}]
    assert server.requests[0][1] == "/api/v1/namespaces/q/pods?labelSelector=app%3Dx,tier%3Dy"


def test_nodes_are_listed_without_a_namespace() -> None:
    server = ApiServer()
    server.run(lambda one: one.list("Node"))
    assert server.requests[0][1] == "/api/v1/nodes"


def test_apply_takes_over_fields_as_the_operator() -> None:
    server, manifest = ApiServer(), {"kind": "Service", "metadata": {"name": "s"}}
    server.run(lambda one: one.apply(manifest))
    path = "/api/v1/namespaces/q/services/s?fieldManager=flotilla-operator&force=true"
    assert server.requests == [("PATCH", path, "application/apply-patch+yaml", manifest)]


def test_status_is_applied_to_the_subresource_only_over_the_version_that_was_read() -> None:
    server = ApiServer()
    server.run(lambda one: one.set_status("Pipeline", "p", {"phase": "Running"}, "7"))
    ((method, path, _, body),) = server.requests
    assert (method, path.partition("?")[0]) == ("PATCH", "/apis/flotilla.dev/v1/namespaces/q/pipelines/p/status")
    assert body["metadata"] == {"name": "p", "resourceVersion": "7"}


@pytest.mark.parametrize(("status", "is_deleted"), [(200, True), (404, False), (409, False)])
def test_delete_returns_false_if_the_object_is_gone_or_was_replaced(status: int, is_deleted: bool) -> None:
    server = ApiServer(status)
    assert server.run(lambda one: one.delete(Delete(POD, "p", "uid-1"))) == is_deleted
    assert server.requests[0][3]["preconditions"] == {"uid": "uid-1"}


def test_create_returns_false_if_the_object_exists() -> None:
    action = Create({"kind": TOPIC, "metadata": {"name": "t"}})
    assert ApiServer().run(lambda one: one.create(action))
    assert not ApiServer(409).run(lambda one: one.create(action))


@pytest.mark.parametrize(("orphan", "policy"), [(False, "Background"), (True, "Orphan")])
def test_delete_is_bound_to_the_uid(orphan: bool, policy: str) -> None:
    server = ApiServer()
    server.run(lambda one: one.delete(Delete("StatefulSet", "s", "uid-1", orphan=orphan)))
    body = server.requests[0][3]
    assert (body["preconditions"], body["propagationPolicy"]) == ({"uid": "uid-1"}, policy)


@pytest.mark.parametrize("status", [404, 409])
def test_delete_of_an_object_that_was_replaced_or_deleted_succeeds(status: int) -> None:
    ApiServer(status).run(lambda one: one.delete(Delete(POD, "p", "uid-1")))


@pytest.mark.parametrize(("status", "is_evicted"), [(201, True), (404, False), (409, False), (429, False)])
def test_eviction_respects_the_disruption_budget(status: int, *, is_evicted: bool) -> None:
    server = ApiServer(status)
    assert server.run(lambda one: one.evict(Evict("p", "uid-1", "reason"))) == is_evicted
    assert server.requests[0][1] == "/api/v1/namespaces/q/pods/p/eviction"
    assert server.requests[0][3]["deleteOptions"] == {"preconditions": {"uid": "uid-1"}}


def test_repeated_event_increases_its_count() -> None:
    server = ApiServer(body={"count": 4, "firstTimestamp": "2026-01-01T00:00:00Z"})
    resource = {"metadata": {"name": "t", "uid": "uid-1"}}
    server.run(lambda one: one.emit_event(TOPIC, resource, EmitEvent("Ready", "text"), "2026-01-02T00:00:00Z"))
    event = server.requests[1][3]
    assert (event["count"], event["firstTimestamp"], event["type"]) == (5, "2026-01-01T00:00:00Z", "Normal")


@pytest.mark.parametrize(
    ("status", "text", "kind"),
    [
        (404, "x", NotFound),
        (409, "x", Conflict),
        (429, "x", TooManyRequests),
        (403, "x", Rejected),
        (422, "x", Rejected),
        (500, "etcd has no leader", Unavailable),
        (500, "failed to create typed patch object: x", Rejected),
        (503, "x", Unavailable),
        (0, "x", Unavailable),
    ],
)
def test_status_decides_whether_a_request_is_retried(status: int, text: str, kind: type[Exception]) -> None:
    assert type(make_error(status, text)) is kind


def test_error_has_the_message_of_the_api_server() -> None:
    with pytest.raises(Rejected, match=r"^pods is forbidden$"):
        ApiServer(403, {"kind": "Status", "message": "pods is forbidden"}).run(lambda one: one.list(POD))


def test_server_without_an_answer_is_unavailable() -> None:
    async def call() -> None:
        configuration = Configuration()
        configuration.host = "http://127.0.0.1:1"
        kubernetes = KubernetesClient("q", ApiClient(configuration))
        try:
            await kubernetes.list(POD)
        finally:
            await kubernetes.close()

    with pytest.raises(Unavailable, match="The Kubernetes API is unavailable"):
        asyncio.run(call())
