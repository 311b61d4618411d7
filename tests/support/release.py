"""A Helm release of Flotilla on Kubernetes: how tests install, use and break it."""

import contextlib
import json
import re
import select
import signal
import socket
import subprocess
import threading
from base64 import b64decode
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import httpx

from cluster.harness.cache import CommandFailed
from cluster.harness.cluster import Cluster
from cluster.harness.images import CHART
from flotilla.access import system_token
from support.access import bearer
from support.cluster import free_port, wait_until

_FORWARDING = re.compile(r"Forwarding from 127\.0\.0\.1:(\d+)")
_FORWARD_S = 30
_AGAIN_S = 0.2
_READY_S = 300.0
_DRIVERS = "--selector=app.kubernetes.io/component=spark-driver"
_LOG_LINES = 40
# The server is the child of PID 1; PID 1 itself cannot be signalled from inside its container.
_SIGNAL = """
import os, sys
for pid in filter(str.isdecimal, os.listdir("/proc")):
    try:
        stat = open(f"/proc/{pid}/stat").read().rpartition(")")[2].split()
    except OSError:
        continue
    if stat[1] == "1" and pid != str(os.getpid()):
        os.kill(int(pid), int(sys.argv[1]))
"""


class PodBroker:
    """A broker in a pod, reached through a forwarded port, for checks of replicas."""

    def __init__(self, url: str, secret: bytes) -> None:
        self._client = httpx.Client(base_url=url, timeout=30, headers=bearer(system_token(secret)))
        self.id = str(self.get("/v1/broker")["id"])

    def get(self, path: str) -> dict[str, Any]:
        """Send GET; return JSON."""
        response = self._client.get(path)
        response.raise_for_status()
        found: dict[str, Any] = response.json()
        return found

    def request(self, method: str, path: str, **options: Any) -> httpx.Response:  # noqa: ANN401 - as httpx has it
        """Send any request."""
        return self._client.request(method, path, **options)

    def close(self) -> None:
        """Close the client."""
        self._client.close()


class Release:
    """One release, in its own namespace."""

    def __init__(
        self,
        cluster: Cluster,
        folder: Path,
        values: Mapping[str, Any],
        namespace: str = "flotilla",
        chart: Path = CHART,
    ) -> None:
        self.cluster = cluster
        self.chart = chart
        self.namespace = namespace
        self.name = "flotilla"
        self._values = folder / f"{namespace}.json"
        self._values.write_text(json.dumps(values))

    # -- the chart

    def install(self, *flags: str) -> None:
        """Install it, and wait until it is ready."""
        self._helm("install", "--create-namespace", *flags)

    def upgrade(self, *flags: str) -> None:
        """Upgrade it, and wait until all pods are replaced."""
        self._helm("upgrade", *flags)

    def rollback(self, revision: int) -> None:
        """Roll back to a revision."""
        where = (f"--namespace={self.namespace}", "--wait", "--timeout=8m")
        self.cluster.helm("rollback", self.name, str(revision), *where)

    def _helm(self, what: str, *flags: str) -> None:
        words = [what, self.name, str(self.chart), f"--namespace={self.namespace}", f"--values={self._values}"]
        try:
            self.cluster.helm(*words, "--wait", "--timeout=8m", *flags)
        except CommandFailed as error:
            raise AssertionError(f"{error}\n{self.describe()}") from error

    def uninstall(self) -> None:
        """Uninstall it, and wait until its pods are gone."""
        self.cluster.helm("uninstall", self.name, f"--namespace={self.namespace}", "--wait", "--timeout=5m")
        wait_until("all pods to be gone", lambda: not self.pods(), 120)

    def remove(self) -> None:
        """Uninstall it, and delete its namespace."""
        self.uninstall()
        self.cluster.kubectl("delete", "namespace", self.namespace, seconds=180)

    def describe(self) -> str:
        """Return the state of all resources and the end of all logs, for the message of a failed test."""
        commands: list[tuple[str, ...]] = [("get", "pods,pvc,events", "--output=wide")]
        commands += [("get", kind, "--output=wide") for kind in ("topics", "brokers", "pipelines")]
        commands += [("describe", "pipelines"), ("describe", "pods", _DRIVERS)]
        commands += [("logs", pod, "--all-containers", f"--tail={_LOG_LINES}") for pod in self.pods()]
        return "\n".join(f"== kubectl {' '.join(command)}\n{self._try(*command)}" for command in commands)

    def _try(self, *words: str) -> str:
        """Run kubectl in its namespace; return the error if it fails, e.g. for a kind that an older chart lacks."""
        try:
            return self.kubectl(*words)
        except CommandFailed as error:
            return str(error)

    # -- Kubernetes

    def kubectl(self, *words: str, seconds: float = 120) -> str:
        """Run kubectl in its namespace."""
        return self.cluster.kubectl(f"--namespace={self.namespace}", *words, seconds=seconds)

    def get(self, *words: str) -> Any:  # noqa: ANN401 - any resource
        """Get resources as JSON."""
        return self.cluster.get(*words, namespace=self.namespace)

    def pods(self, component: str | None = None) -> list[str]:
        """Return the names of the pods of a component, or of all."""
        selector = [] if component is None else [f"--selector=app.kubernetes.io/component={component}"]
        return [pod["metadata"]["name"] for pod in self.get("pods", *selector)["items"]]

    def wait_ready(self) -> None:
        """Wait until all pods and Brokers are ready."""
        stateful = "--selector=app.kubernetes.io/component in (broker,postgresql)"

        def is_ready() -> bool:
            pods = self.get("pods", stateful)["items"]
            return all(map(_is_rolled_out, self.get("deployment")["items"])) and all(map(_is_ready, pods))

        try:
            wait_until("all pods to be ready", is_ready, _READY_S)
        except TimeoutError as error:
            raise AssertionError(f"{error}\n{self.describe()}") from error
        for broker in self.get("broker")["items"]:
            self.wait_condition(f"broker/{broker['metadata']['name']}", "Ready")

    def wait_condition(self, resource: str, kind: str, status: str = "True", seconds: float = 300) -> dict[str, Any]:
        """Wait for a condition of the current generation of a resource; return it."""

        def is_met() -> dict[str, Any] | None:
            try:
                found = self.get(resource)
            except CommandFailed:  # it does not exist yet
                return None
            conditions = found.get("status", {}).get("conditions", [])
            here = [one for one in conditions if one["type"] == kind and one["status"] == status]
            is_new = bool(here) and here[0]["observedGeneration"] == found["metadata"]["generation"]
            return here[0] if is_new else None

        try:
            found = wait_until(f"{resource} to be {kind}={status}", is_met, seconds)
        except TimeoutError as error:
            raise AssertionError(f"{error}\n{self.kubectl('describe', resource)}\n{self.describe()}") from error
        assert found is not None
        return found

    def apply(self, *manifests: dict[str, Any]) -> str:
        """Apply resources with `kubectl apply`."""
        text = json.dumps({"apiVersion": "v1", "kind": "List", "items": list(manifests)})
        return self.cluster.kubectl(f"--namespace={self.namespace}", "apply", "--filename=-", text=text)

    def patch(self, resource: str, patch: dict[str, Any]) -> str:
        """Patch a resource with `kubectl patch`."""
        return self.kubectl("patch", resource, "--type=merge", f"--patch={json.dumps(patch)}")

    def restarts(self, pod: str) -> int:
        """Return the restart count of a pod's container."""
        return int(self.get("pod", pod)["status"]["containerStatuses"][0]["restartCount"])

    def uid(self, pod: str) -> str | None:
        """Return the uid of a pod, which differs from that of its successor; None if it does not exist."""
        uids = {one["metadata"]["name"]: str(one["metadata"]["uid"]) for one in self.get("pods")["items"]}
        return uids.get(pod)

    def is_ready(self, pod: str) -> bool:
        """Return whether a pod is ready; False if it does not exist."""
        return any(found["metadata"]["name"] == pod and _is_ready(found) for found in self.get("pods")["items"])

    def exec(self, pod: str, *command: str, seconds: float = 120) -> str:
        """Run a command in a pod."""
        return self.kubectl("exec", pod, "--", *command, seconds=seconds)

    def signal(self, pod: str, number: int) -> None:
        """Send a signal to the server in a pod, not to its PID 1."""
        try:
            self.exec(pod, "python3", "-c", _SIGNAL, str(number))
        except CommandFailed as error:  # the container may end before `exec` returns
            if number != signal.SIGKILL or "exit code 137" not in str(error):
                raise

    def destroy(self, pod: str) -> None:
        """Kill a pod at once."""
        self.kubectl("delete", "pod", pod, "--grace-period=0", "--force", "--wait=false")

    # -- Flotilla

    @property
    def url(self) -> str:
        """Address of the ingress."""
        assert self.cluster.http is not None, (
            "set FLOTILLA_HTTP to the address of the ingress controller, e.g. host:port"
        )
        return f"http://{self.cluster.http}"

    def wait_reachable(self) -> None:
        """Wait until the ingress controller routes to the pods; it learns of them with a delay."""
        wait_until("the ingress to route", lambda: httpx.get(f"{self.url}/readyz", timeout=30).is_success, 60)

    def secret(self) -> bytes:
        """Return the secret of its servers."""
        return b64decode(self.get("secret", "flotilla-secret")["data"]["secret"])

    def token(self, *grants: str) -> str:
        """Create a token, as the chart's notes describe."""
        options = [word for grant in grants or ("admin", "produce", "consume") for word in ("--grant", grant)]
        where = ["--url", "http://127.0.0.1:8080", "--secret-file", "/etc/flotilla/secret/secret"]
        return self.exec(
            f"deployment/{self.name}-writer", "flotilla", "tokens", "create", "test", *options, *where
        ).strip()

    @contextlib.contextmanager
    def forward(self, target: str, port: int) -> Iterator[str]:
        """Forward a port of a pod or a service."""
        command = [self.cluster.kubectl_program, "port-forward"]
        command += [f"--namespace={self.namespace}", target, f":{port}", "--address=127.0.0.1"]
        with subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=self.cluster.environment
        ) as process:
            try:
                assert process.stdout is not None
                readable, _, _ = select.select([process.stdout], [], [], _FORWARD_S)
                line = process.stdout.readline() if readable else "nothing"
                found = _FORWARDING.search(line)
                assert found is not None, f"kubectl port-forward said: {line}"
                yield f"http://127.0.0.1:{found.group(1)}"
            finally:
                process.terminate()

    @contextlib.contextmanager
    def keep_forwarding(self, target: str, port: int) -> Iterator[str]:
        """Forward a port of a service, and reconnect when the pod is replaced."""
        local, stop, process = free_port(), threading.Event(), None
        command = [self.cluster.kubectl_program, "port-forward", f"--namespace={self.namespace}", target]
        command += [f"{local}:{port}", "--address=127.0.0.1"]

        def forward() -> None:
            nonlocal process
            while not stop.wait(_AGAIN_S):
                with subprocess.Popen(
                    command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=self.cluster.environment
                ) as process:
                    process.wait()

        thread = threading.Thread(target=forward)
        thread.start()
        try:
            wait_until("the port to be forwarded", lambda: _is_open(local))
            yield f"http://127.0.0.1:{local}"
        finally:
            stop.set()
            while thread.is_alive():
                if process is not None:
                    process.terminate()
                thread.join(_AGAIN_S)

    @contextlib.contextmanager
    def brokers(self) -> Iterator[list[PodBroker]]:
        """Return all brokers, each through its own forwarded port."""
        secret = self.secret()
        with contextlib.ExitStack() as stack:
            found = []
            for pod in self.pods("broker"):
                broker = PodBroker(stack.enter_context(self.forward(f"pod/{pod}", 8090)), secret)
                stack.callback(broker.close)
                found.append(broker)
            yield found


def _is_ready(pod: Mapping[str, Any]) -> bool:
    return any(one["type"] == "Ready" and one["status"] == "True" for one in pod["status"].get("conditions", []))


def _is_rolled_out(deployment: Mapping[str, Any]) -> bool:
    """Return what `kubectl rollout status` waits for: all replicas are updated and available, and no other exists."""
    status, wanted = deployment["status"], deployment["spec"]["replicas"]
    is_observed = status.get("observedGeneration", 0) >= deployment["metadata"]["generation"]
    counts = {status.get(name, 0) for name in ("replicas", "updatedReplicas", "availableReplicas")}
    return is_observed and counts == {wanted}


def _is_open(port: int) -> bool:
    with socket.socket() as sock:
        return sock.connect_ex(("127.0.0.1", port)) == 0
