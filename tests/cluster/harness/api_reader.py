"""Reads resources over one connection. Tests poll, and starting kubectl for each read takes 0.2 s of CPU.

`kubectl proxy` runs once per cluster, with the credentials of the kubeconfig.
"""

import re
import subprocess
import threading
import time
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import httpx

from cluster.harness.cache import CommandFailed

_READS_APART_S = 0.1
_READ_S_MAX = 30.0
_CORE, _APPS, _POLICY, _OURS = "api/v1", "apis/apps/v1", "apis/policy/v1", "apis/flotilla.dev/v1"
_PATHS = {
    "broker": (_OURS, "brokers"),
    "configmap": (_CORE, "configmaps"),
    "deployment": (_APPS, "deployments"),
    "pipeline": (_OURS, "pipelines"),
    "pod": (_CORE, "pods"),
    "poddisruptionbudget": (_POLICY, "poddisruptionbudgets"),
    "pvc": (_CORE, "persistentvolumeclaims"),
    "secret": (_CORE, "secrets"),
    "service": (_CORE, "services"),
    "statefulset": (_APPS, "statefulsets"),
    "topic": (_OURS, "topics"),
}
_SELECTOR = "--selector="


class Request(NamedTuple):
    """A read from the API server."""

    path: str
    selector: str | None = None


def parse(words: Sequence[str], namespace: str) -> Request | None:
    """Parse arguments of `kubectl get`: KIND, KIND NAME, KIND/NAME or KIND --selector=…; None for others."""
    kind, _, name = words[0].partition("/")
    found = _PATHS.get(kind) or _PATHS.get(kind.removesuffix("s"))
    rest = list(words[1:])
    if not name and rest and not rest[0].startswith("-"):
        name = rest.pop(0)
    selector = rest.pop(0).removeprefix(_SELECTOR) if rest and rest[0].startswith(_SELECTOR) and not name else None
    if found is None or rest:
        return None
    group, plural = found
    path = f"/{group}/namespaces/{namespace}/{plural}"
    return Request(f"{path}/{name}" if name else path, selector)


class ApiReader:
    """Reads from one API server, at most ten times a second."""

    def __init__(self, kubectl: str, environment: Mapping[str, str]) -> None:
        self._lock = threading.Lock()
        self._next = 0.0
        command = [kubectl, "proxy", "--port=0", "--keepalive=30s"]
        self._process = subprocess.Popen(
            command, env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
        )
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        address = re.search(r"127\.0\.0\.1:\d+", line)
        assert address is not None, f"kubectl proxy printed: {line}"
        self._client = httpx.Client(base_url=f"http://{address[0]}", timeout=_READ_S_MAX)

    def read(self, request: Request) -> Any:  # noqa: ANN401 - any resource
        """Read a resource, or a list of them; raises CommandFailed."""
        with self._lock:
            time.sleep(max(0.0, self._next - time.monotonic()))
            self._next = time.monotonic() + _READS_APART_S
        params = {} if request.selector is None else {"labelSelector": request.selector}
        try:
            response = self._client.get(request.path, params=params)
        except httpx.HTTPError as error:
            raise CommandFailed(f"GET {request.path}: {error!r}") from error
        if not response.is_success:
            raise CommandFailed(f"GET {request.path} returned {response.status_code}: {response.text}")
        return response.json()

    def close(self) -> None:
        """Stop the proxy."""
        self._client.close()
        self._process.kill()
        self._process.communicate()
