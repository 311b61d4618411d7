"""All operations of the OpenAPI document with generated input: never a 5xx."""

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis.errors import Unsatisfiable
from schemathesis import GenerationMode
from schemathesis.core.result import Ok

from support.fleet import Fleet

for kind in ("batch", "appends"):
    schemathesis.serializer.alias(f"application/vnd.flotilla.{kind}", "application/octet-stream")

EXAMPLES = 25
PARTITIONS = 4  # what it draws may be anything; a thousand partitions at a time would only be slow
HARMFUL = {"/admin/broker/deactivate", "/admin/broker/remove"}  # they could find the only broker


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    with Fleet(Path(tmp_path_factory.mktemp("fleet")), brokers=1, readers=1) as fleet:
        fleet.create("orders")
        yield fleet


@pytest.mark.parametrize("mode", [GenerationMode.POSITIVE, GenerationMode.NEGATIVE])
def test_no_input_makes_a_server_fail(fleet: Fleet, mode: GenerationMode) -> None:
    """Guarantee 7: invalid input gets a clear error, and changes nothing."""
    schema = schemathesis.openapi.from_url(f"{fleet.url}/openapi.json")
    tried = 0
    for found in schema.get_all_operations():
        assert isinstance(found, Ok), found
        operation = found.ok()

        @settings(
            max_examples=EXAMPLES,
            deadline=None,
            database=None,
            derandomize=True,
            phases=[Phase.generate],
            suppress_health_check=list(HealthCheck),
        )
        @given(case=operation.as_strategy(generation_mode=mode))
        def run(case: Any) -> None:  # noqa: ANN401 - schemathesis' own
            nonlocal tried
            body = case.body
            for name in ("number_of_partitions", "partitions"):
                if isinstance(body, dict) and isinstance(body.get(name), int):
                    body[name] = min(body[name], PARTITIONS)
            response = case.call(timeout=60)
            tried += 1
            assert response.status_code < 500, f"{case.as_curl_command()}: {response.status_code} {response.text}"

        if operation.path not in HARMFUL:
            with contextlib.suppress(Unsatisfiable):  # a call without parameters: there is nothing to get wrong
                run()
    assert tried > 100
    assert httpx.get(f"{fleet.url}/readyz").status_code == 200
    assert fleet.get("/brokers")["brokers"][0]["status"] == "active"
