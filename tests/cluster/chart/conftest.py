"""Fixtures of the chart tests: Helm, and the manifests that it renders."""

import os
import shutil
import subprocess
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from cluster.harness import programs
from cluster.harness.images import CHART
from flotilla_operator.brokers.children import make_children
from flotilla_operator.brokers.spec import read_broker_set
from flotilla_operator.settings import load_settings

_RENDER_S = 60
_KUBERNETES = "1.35.4"  # without a cluster, Helm does not know the version to render for

Manifest = dict[str, Any]


def find_helm() -> str | None:
    """Find Helm: FLOTILLA_HELM, or on the PATH, or built with Go."""
    found = os.environ.get("FLOTILLA_HELM") or shutil.which("helm")
    return found if found or shutil.which("go") is None else str(programs.helm())


class RenderError(Exception):
    """Helm did not render the chart; the text is its output."""


@dataclass(frozen=True)
class Rendered:
    """The manifests that the chart rendered."""

    manifests: Sequence[Manifest]

    def of_kind(self, kind: str) -> dict[str, Manifest]:
        """Return the manifests of a kind by name."""
        return {one["metadata"]["name"]: one for one in self.manifests if one["kind"] == kind}

    def get(self, kind: str, name: str) -> Manifest:
        """Return one manifest."""
        return self.of_kind(kind)[name]

    @property
    def names(self) -> set[tuple[str, str]]:
        """Kinds and names of all manifests."""
        return {(one["kind"], one["metadata"]["name"]) for one in self.manifests}

    def pods(self) -> Iterator[tuple[str, Manifest]]:
        """Yield the pod spec of each workload with the name of the workload."""
        for one in self.manifests:
            if one["kind"] == "Pod":
                yield one["metadata"]["name"], one["spec"]
            elif one["kind"] in {"Deployment", "StatefulSet", "Job"}:
                yield one["metadata"]["name"], one["spec"]["template"]["spec"]

    def pod(self, name: str) -> Manifest:
        """Return the pod spec of a workload."""
        return dict(self.pods())[name]

    def env(self, name: str) -> dict[str, Any]:
        """Return the environment of a workload's container; a reference as its `valueFrom`."""
        (container,) = self.pod(name)["containers"]
        names = [one["name"] for one in container["env"]]
        assert len(names) == len(set(names)), f"{name} has a variable twice"
        maps = [one["configMapRef"]["name"] for one in container.get("envFrom", ())]
        settings = {key: value for one in maps for key, value in self.get("ConfigMap", one)["data"].items()}
        assert not settings.keys() & set(names), f"{name} has a variable from two places"
        return {**settings, **{one["name"]: one.get("value", one.get("valueFrom")) for one in container["env"]}}


class Chart:
    """A chart to render."""

    def __init__(self, helm: str, folder: Path) -> None:
        self._helm = helm
        self.folder = folder

    def render(
        self,
        values: Manifest | None = None,
        *,
        release: str = "flotilla",
        namespace: str = "q",
        api: str | None = None,
        upgrades: bool = False,
    ) -> Rendered:
        """Render it for the cluster with the API server at `api`, or for none; raises RenderError."""
        command = [self._helm, "template", release, str(self.folder), "--namespace", namespace, "--values", "-"]
        command += ["--kube-version", _KUBERNETES]
        if upgrades:
            command += ["--is-upgrade"]
        if api is not None:
            command += ["--dry-run=server", "--kube-apiserver", api]
        given = yaml.safe_dump(values or {})
        done = subprocess.run(
            command,
            input=given,
            capture_output=True,
            text=True,
            timeout=_RENDER_S,
            check=False,
            env={**os.environ, "KUBECONFIG": os.devnull, "KUBECACHEDIR": os.devnull},  # ignore the user's own cluster
        )
        if done.returncode:
            raise RenderError(done.stderr)
        return Rendered(with_brokers([one for one in yaml.safe_load_all(done.stdout) if one], namespace))


def with_brokers(manifests: list[Manifest], namespace: str) -> list[Manifest]:
    """Add the objects that the operator creates for the Broker in a chart, with the operator settings of the chart."""
    (operator,) = [
        one for one in manifests if one["kind"] == "Deployment" and one["metadata"]["name"].endswith("-operator")
    ]
    (container,) = operator["spec"]["template"]["spec"]["containers"]
    given = {one["name"]: one["value"] for one in container["env"] if "value" in one}
    del given["FLOTILLA_SECRET_FILE"]  # a file of the pod
    given.pop("FLOTILLA_TLS_CA", None)
    cluster = load_settings([], {**given, "FLOTILLA_NAMESPACE": namespace}).brokers
    children = []
    for one in manifests:
        if one["kind"] == "Broker":
            wanted = read_broker_set({**one, "metadata": {**one["metadata"], "uid": "uid"}}, cluster)
            children += make_children(wanted, wanted.replicas, [wanted.owner])
    return [*manifests, *children]


@pytest.fixture(scope="session")
def helm(shown: Callable[[], AbstractContextManager[None]]) -> str:
    with shown():
        found = find_helm()
    if found is None:
        pytest.skip("Helm not found: add it to the PATH, or set FLOTILLA_HELM")
    return found


@pytest.fixture(scope="session")
def chart(helm: str) -> Chart:
    return Chart(helm, CHART)


@pytest.fixture(scope="session")
def defaults(chart: Chart) -> Rendered:
    return chart.render()


@pytest.fixture
def notes(helm: str, tmp_path: Path) -> Chart:
    """A chart that renders its notes as a ConfigMap: Helm prints notes only with a cluster."""
    folder = tmp_path / "flotilla"
    shutil.copytree(CHART, folder)
    (folder / "templates" / "NOTES.txt").rename(folder / "files" / "NOTES.txt")
    wrapped = 'dict "apiVersion" "v1" "kind" "ConfigMap" "metadata" (dict "name" "notes") "data" (dict "notes" $notes)'
    template = f'{{{{ $notes := tpl (.Files.Get "files/NOTES.txt") . }}}}{{{{ {wrapped} | toJson }}}}'
    (folder / "templates" / "notes.yaml").write_text(template, encoding="utf-8")
    return Chart(helm, folder)
