"""Objects that the chart looks up in the cluster: existing secrets are kept."""

import base64
from collections.abc import Sequence

from .conftest import Chart, Manifest, Rendered
from .fakeapi import Object, serve


def render(chart: Chart, objects: Sequence[Object], values: Manifest | None = None) -> Rendered:
    with serve(objects) as api:
        return chart.render(values, api=api)


def secret(name: str, **data: str) -> Object:
    encoded = {key: base64.b64encode(value.encode()).decode() for key, value in data.items()}
    return {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name, "namespace": "q"}, "data": encoded}


# -- secrets ------------------------------------------------------------------------------------------------------


def test_secrets_are_generated_once(chart: Chart) -> None:
    first = render(chart, [])
    made = [{**one, "metadata": {**one["metadata"], "namespace": "q"}} for one in first.of_kind("Secret").values()]
    again = render(chart, made)
    for name, one in first.of_kind("Secret").items():
        assert again.get("Secret", name)["data"] == one["data"]


def test_changed_password_is_kept_and_used_in_the_url(chart: Chart) -> None:
    rendered = render(chart, [secret("flotilla-database", password="a b/c@d", url="old")])  # noqa: S106 - of a test
    data = {key: base64.b64decode(value).decode() for key, value in _data(rendered).items()}
    assert data["password"] == "a b/c@d"  # noqa: S105 - of a test
    assert data["url"] == "postgresql://flotilla:a%20b%2Fc%40d@flotilla-postgresql.q.svc:5432/flotilla"


def _data(rendered: Rendered) -> dict[str, str]:
    data: dict[str, str] = rendered.get("Secret", "flotilla-database")["data"]
    return data
