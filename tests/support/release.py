"""Flotilla on a Kubernetes, installed by its chart: how tests install it, use it, and do their worst to it."""

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
from flotilla.access import system_text
from support.access import bearer
from support.cluster import free_port, wait_until

_FORWARDING = re.compile(r"Forwarding from 127\.0\.0\.1:(\d+)")
_FORWARD_S = 30
_AGAIN_S = 0.2
_READY = "--timeout=300s"
# Whoever is the child of PID 1 is the server; PID 1 itself is out of reach of signals from inside its container.
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
    """A broker in a pod, reached through a forwarded port: what checks of replicas need."""

    def __init__(self, url: str, secret: bytes) -> None:
        self._client = httpx.Client(base_url=url, timeout=30, headers=bearer(system_text(secret)))
        self.id = str(self.get("/v1/broker")["id"])

    def get(self, path: str) -> dict[str, Any]:
        """Ask for JSON."""
        response = self._client.get(path)
        response.raise_for_status()
        found: dict[str, Any] = response.json()
        return found

    def request(self, method: str, path: str, **options: Any) -> httpx.Response:  # noqa: ANN401 - as httpx has it
        """Make any request."""
        return self._client.request(method, path, **options)

    def close(self) -> None:
        """Hang up."""
        self._client.close()


class Release:
    """One installation, in a namespace of its own."""

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
        """Change it, and wait until that has taken effect everywhere."""
        self._helm("upgrade", *flags)

    def rollback(self, revision: int) -> None:
        """Go back to how it was."""
        where = (f"--namespace={self.namespace}", "--wait", "--timeout=8m")
        self.cluster.helm("rollback", self.name, str(revision), *where)

    def _helm(self, what: str, *flags: str) -> None:
        words = [what, self.name, str(self.chart), f"--namespace={self.namespace}", f"--values={self._values}"]
        try:
            self.cluster.helm(*words, "--wait", "--timeout=8m", *flags)
        except CommandFailed as error:
            raise AssertionError(f"{error}\n{self.describe()}") from error

    def uninstall(self) -> None:
        """Take it away, and wait until its pods are gone."""
        self.cluster.helm("uninstall", self.name, f"--namespace={self.namespace}", "--wait", "--timeout=5m")
        wait_until("all pods to be gone", lambda: not self.pods(), 120)

    def remove(self) -> None:
        """Take it away with everything that it keeps, and its namespace."""
        self.uninstall()
        self.cluster.kubectl("delete", "namespace", self.namespace, seconds=180)

    def describe(self) -> str:
        """Tell how it is, for whoever has to find out why it is not well."""
        found = self.kubectl("get", "pods,pvc,events", "--output=wide")
        with contextlib.suppress(CommandFailed):  # an older chart has no such resources
            found += self.kubectl("get", "topics,brokers", "--output=wide")
        for pod in self.pods():
            with contextlib.suppress(CommandFailed):
                found += f"\n== {pod}\n" + self.kubectl("logs", pod, "--tail=20", "--all-containers")
        return found

    # -- Kubernetes

    def kubectl(self, *words: str, seconds: float = 120) -> str:
        """Run kubectl in its namespace."""
        return self.cluster.kubectl(f"--namespace={self.namespace}", *words, seconds=seconds)

    def get(self, *words: str) -> Any:  # noqa: ANN401 - whatever kubectl shows
        """Get resources as data."""
        return json.loads(self.kubectl("get", *words, "--output=json"))

    def pods(self, component: str | None = None) -> list[str]:
        """Name the pods of a component, or all."""
        selector = [] if component is None else [f"--selector=app.kubernetes.io/component={component}"]
        return [pod["metadata"]["name"] for pod in self.get("pods", *selector)["items"]]

    def wait_ready(self) -> None:
        """Wait until everything is as it should be."""
        for found in self.get("deployment")["items"]:
            self.kubectl("rollout", "status", f"deployment/{found['metadata']['name']}", _READY, seconds=320)
        pods = self.get("pods", "--selector=app.kubernetes.io/component in (broker,postgresql)")["items"]
        for pod in pods:
            self.kubectl("wait", "--for=condition=Ready", f"pod/{pod['metadata']['name']}", _READY, seconds=320)
        for broker in self.get("broker")["items"]:
            self.wait_condition(f"broker/{broker['metadata']['name']}", "Ready")

    def wait_condition(self, resource: str, kind: str, status: str = "True", seconds: float = 300) -> dict[str, Any]:
        """Wait until a condition is so, of the resource as it was changed last; return it."""

        def is_so() -> dict[str, Any] | None:
            try:
                found = self.get(resource)
            except CommandFailed:  # it is not there yet
                return None
            told = found.get("status", {}).get("conditions", [])
            here = [one for one in told if one["type"] == kind and one["status"] == status]
            is_new = bool(here) and here[0]["observedGeneration"] == found["metadata"]["generation"]
            return here[0] if is_new else None

        try:
            found = wait_until(f"{resource} to be {kind}={status}", is_so, seconds)
        except TimeoutError as error:
            raise AssertionError(f"{error}\n{self.kubectl('describe', resource)}\n{self.describe()}") from error
        assert found is not None
        return found

    def apply(self, *manifests: dict[str, Any]) -> str:
        """Apply resources, as `kubectl apply` does."""
        text = json.dumps({"apiVersion": "v1", "kind": "List", "items": list(manifests)})
        return self.cluster.kubectl(f"--namespace={self.namespace}", "apply", "--filename=-", text=text)

    def patch(self, resource: str, patch: dict[str, Any]) -> str:
        """Change a resource, as `kubectl patch` does."""
        return self.kubectl("patch", resource, "--type=merge", f"--patch={json.dumps(patch)}")

    def restarts(self, pod: str) -> int:
        """Count how often the container of a pod was started again."""
        return int(self.get("pod", pod)["status"]["containerStatuses"][0]["restartCount"])

    def uid(self, pod: str) -> str | None:
        """Tell one pod of a name from the next; None if there is none now."""
        uids = {one["metadata"]["name"]: str(one["metadata"]["uid"]) for one in self.get("pods")["items"]}
        return uids.get(pod)

    def is_ready(self, pod: str) -> bool:
        """Tell whether a pod is ready; one that is gone is not."""
        found = self.kubectl("get", "pod", pod, "--ignore-not-found", "--output=json")
        conditions = json.loads(found)["status"].get("conditions", []) if found else []
        return any(one["type"] == "Ready" and one["status"] == "True" for one in conditions)

    def exec(self, pod: str, *command: str, seconds: float = 120) -> str:
        """Run a command in a pod."""
        return self.kubectl("exec", pod, "--", *command, seconds=seconds)

    def signal(self, pod: str, number: int) -> None:
        """Send a signal to the server in a pod, not to its PID 1."""
        try:
            self.exec(pod, "python3", "-c", _SIGNAL, str(number))
        except CommandFailed as error:  # with the server, its container may end, and all in it, before who has sent it
            if number != signal.SIGKILL or "exit code 137" not in str(error):
                raise

    def destroy(self, pod: str) -> None:
        """Have a pod killed at once."""
        self.kubectl("delete", "pod", pod, "--grace-period=0", "--force", "--wait=false")

    # -- Flotilla

    @property
    def url(self) -> str:
        """Where it is reached from outside."""
        assert self.cluster.http is not None, "say where the ingress controller is: FLOTILLA_HTTP=host:port"
        return f"http://{self.cluster.http}"

    def wait_reachable(self) -> None:
        """Wait until the ingress controller knows the way: it hears of changed pods a little later than others."""
        wait_until("the ingress to know the way", lambda: httpx.get(f"{self.url}/readyz", timeout=30).is_success, 60)

    def secret(self) -> bytes:
        """What its servers know each other by."""
        return b64decode(self.get("secret", "flotilla-secret")["data"]["secret"])

    def token(self, *grants: str) -> str:
        """Make a token, as NOTES say."""
        options = [word for grant in grants or ("admin", "produce", "consume") for word in ("--grant", grant)]
        where = ["--url", "http://127.0.0.1:8080", "--secret-file", "/etc/flotilla/secret/secret"]
        return self.exec(
            f"deployment/{self.name}-writer", "flotilla", "tokens", "create", "test", *options, *where
        ).strip()

    @contextlib.contextmanager
    def forward(self, target: str, port: int) -> Iterator[str]:
        """Reach a port of a pod or a service from here."""
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
        """Reach a port of a service from here, also after the pod that was reached is gone."""
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
        """Reach every broker by itself."""
        secret = self.secret()
        with contextlib.ExitStack() as stack:
            found = []
            for pod in self.pods("broker"):
                broker = PodBroker(stack.enter_context(self.forward(f"pod/{pod}", 8090)), secret)
                stack.callback(broker.close)
                found.append(broker)
            yield found


def _is_open(port: int) -> bool:
    with socket.socket() as sock:
        return sock.connect_ex(("127.0.0.1", port)) == 0
