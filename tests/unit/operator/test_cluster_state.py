"""The state of the cluster: which reports of brokers are fresh."""

import json
from typing import Any

import pytest

from flotilla_operator.cluster_state import decode_state

from .builders import broker_id


def read(**report: Any) -> bytes:  # noqa: ANN401 - any field
    """Encode a state with the report of one active broker."""
    id_ = broker_id(0)
    state = {"version": 1, "cluster_id": "c" * 32, "brokers": [{"id": id_, "host": "b"}], "reports": {id_: report}}
    return json.dumps(state).encode()


@pytest.mark.parametrize(
    ("report", "is_fresh"),
    [
        ({"seconds_ago": 4.9}, True),
        ({"seconds_ago": 5.1}, False),
        ({"seconds_ago": 4.9, "heartbeat_limit_s": 3.0}, True),
        ({"seconds_ago": 5.1, "heartbeat_limit_s": 3.0}, False),
        ({"seconds_ago": 31.0, "heartbeat_limit_s": 30.0}, True),
        ({"seconds_ago": 32.1, "heartbeat_limit_s": 30.0}, False),
    ],
)
def test_report_is_fresh_within_the_heartbeat_limit(report: dict[str, float], *, is_fresh: bool) -> None:
    """Managers of 0.2 omit the limit: three heartbeats of one second."""
    state = decode_state(read(**report))
    assert state.reports[broker_id(0)].is_fresh == is_fresh
    assert state.is_complete == is_fresh
