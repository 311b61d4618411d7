"""A fake Kubernetes API with the calls that Helm makes while it renders: discovery, and reads of single objects.

It tests lookups of the chart without a cluster: secrets that are kept, and upgrades that are rejected.
"""

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

Object = dict[str, Any]
_PLURALS = {"Secret": "secrets", "Pod": "pods", "StatefulSet": "statefulsets"}
_RESOURCES = {"v1": ("Secret", "Pod"), "apps/v1": ("StatefulSet",)}
_NOT_FOUND = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "NotFound", "code": 404}


@contextmanager
def serve(objects: Sequence[Object]) -> Iterator[str]:
    """Serve objects; yield the URL."""
    answers = {**_discovery(), **{_path(one): one for one in objects}}

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            found = answers.get(self.path.partition("?")[0])
            body = json.dumps(_NOT_FOUND if found is None else found).encode()
            self.send_response(404 if found is None else 200)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - as the base class has it
            del format, args

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}"
        finally:
            server.shutdown()


def _path(one: Object) -> str:
    version = one["apiVersion"]
    root = "/api/v1" if version == "v1" else f"/apis/{version}"
    meta = one["metadata"]
    return f"{root}/namespaces/{meta['namespace']}/{_PLURALS[one['kind']]}/{meta['name']}"


def _discovery() -> dict[str, Object]:
    apps = {"groupVersion": "apps/v1", "version": "v1"}
    group = {"name": "apps", "versions": [apps], "preferredVersion": apps}
    answers: dict[str, Object] = {
        "/version": {"major": "1", "minor": "35", "gitVersion": "v1.35.4"},
        "/api": {"kind": "APIVersions", "versions": ["v1"]},
        "/apis": {"kind": "APIGroupList", "apiVersion": "v1", "groups": [group]},
    }
    for version, kinds in _RESOURCES.items():
        resources = [
            {"name": _PLURALS[kind], "singularName": "", "namespaced": True, "kind": kind, "verbs": ["get"]}
            for kind in kinds
        ]
        path = "/api/v1" if version == "v1" else f"/apis/{version}"
        answers[path] = {"kind": "APIResourceList", "groupVersion": version, "resources": resources}
    return answers
