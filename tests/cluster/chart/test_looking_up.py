"""What the chart finds in the cluster decides: secrets stay, and upgrades that cost the quorum are refused."""

import base64
from collections.abc import Sequence

import pytest

from .conftest import Chart, Manifest, Refused, Rendered
from .fakeapi import Object, serving

BROKER = "flotilla-broker"


def render(chart: Chart, objects: Sequence[Object], values: Manifest | None = None) -> Rendered:
    with serving(objects) as api:
        return chart.render(values, api=api)


def secret(name: str, **data: str) -> Object:
    encoded = {key: base64.b64encode(value.encode()).decode() for key, value in data.items()}
    return {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name, "namespace": "q"}, "data": encoded}


def brokers(installed: Rendered, ready: Sequence[bool | None]) -> list[Object]:
    """Have brokers as they were installed; None is one whose pod is gone."""
    found = dict(installed.get("StatefulSet", BROKER))
    found["metadata"] = {**found["metadata"], "namespace": "q"}
    found["spec"] = {**found["spec"], "replicas": len(ready)}
    pods = [_pod(ordinal, is_ready) for ordinal, is_ready in enumerate(ready) if is_ready is not None]
    return [found, *pods]


def _pod(ordinal: int, is_ready: bool) -> Object:
    conditions = [{"type": "PodScheduled", "status": "True"}, {"type": "Ready", "status": str(is_ready)}]
    metadata = {"name": f"{BROKER}-{ordinal}", "namespace": "q"}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "status": {"conditions": conditions}}


# -- secrets ------------------------------------------------------------------------------------------------------


def test_secrets_are_made_once(chart: Chart) -> None:
    first = render(chart, [])
    made = [{**one, "metadata": {**one["metadata"], "namespace": "q"}} for one in first.of_kind("Secret").values()]
    again = render(chart, made)
    for name, one in first.of_kind("Secret").items():
        assert again.get("Secret", name)["data"] == one["data"]


def test_a_password_that_somebody_changed_stays_and_is_in_the_url(chart: Chart) -> None:
    rendered = render(chart, [secret("flotilla-database", password="a b/c@d", url="old")])  # noqa: S106 - of a test
    data = {key: base64.b64decode(value).decode() for key, value in _data(rendered).items()}
    assert data["password"] == "a b/c@d"  # noqa: S105 - of a test
    assert data["url"] == "postgresql://flotilla:a%20b%2Fc%40d@flotilla-postgresql.q.svc:5432/flotilla"


def _data(rendered: Rendered) -> dict[str, str]:
    data: dict[str, str] = rendered.get("Secret", "flotilla-database")["data"]
    return data


# -- upgrades -----------------------------------------------------------------------------------------------------

NEW_IMAGE: Manifest = {"image": {"tag": "2"}}


@pytest.mark.parametrize(
    "ready",
    [
        [True, True, True],
        [True, True, False],  # is replaced first: perhaps the image was bad
        [True, False, False],
        [False, False, False],  # there is no quorum to lose
        [None, None, None],
    ],
)
def test_brokers_are_replaced_if_all_are_ready_or_the_first_to_go_are_not(
    chart: Chart, defaults: Rendered, ready: list[bool | None]
) -> None:
    rendered = render(chart, brokers(defaults, ready), NEW_IMAGE)
    assert rendered.pod(BROKER)["containers"][0]["image"] == "flotilla:2"


@pytest.mark.parametrize("ready", [[False, True, True], [True, False, True], [None, True, True]])
def test_an_upgrade_that_stops_a_broker_while_another_is_not_ready_is_refused(
    chart: Chart, defaults: Rendered, ready: list[bool | None]
) -> None:
    """Guarantee 5: with three replicas, any one may be away. Two may not."""
    away = next(ordinal for ordinal, is_ready in enumerate(ready) if not is_ready)
    with pytest.raises(Refused, match=f"{BROKER}-{away} is not ready") as refused:
        render(chart, brokers(defaults, ready), NEW_IMAGE)
    assert f"kubectl delete pod {BROKER}-{away}" in str(refused.value)


@pytest.mark.parametrize(
    "values",
    [
        {"readers": {"replicas": 5}},
        {**NEW_IMAGE, "brokers": {"updateStrategy": "OnDelete"}},
        {"ingress": {"host": "queue.example.com"}},
    ],
)
def test_an_upgrade_that_replaces_no_broker_is_never_in_the_way(
    chart: Chart, defaults: Rendered, values: Manifest
) -> None:
    render(chart, brokers(defaults, [False, True, True]), values)


def test_fewer_brokers_need_a_word(chart: Chart, defaults: Rendered) -> None:
    there = brokers(defaults, [True, True, True])
    with pytest.raises(Refused, match=r"brokers.replicas is 2, and there are 3 brokers"):
        render(chart, there, {"brokers": {"replicas": 2}})
    render(chart, there, {"brokers": {"replicas": 2, "scaleDown": True}})
    render(chart, there, {"brokers": {"replicas": 5}})
