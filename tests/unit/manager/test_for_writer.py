"""Requests that are forwarded to the writer. All others work without it."""

import pytest

from flotilla_manager.api.control import is_for_writer


@pytest.mark.parametrize(
    ("method", "path", "expected"),
    [
        ("POST", "/v1/groups/g/join", True),
        ("POST", "/v1/groups/g/sync", True),
        ("POST", "/v1/groups/g/heartbeat", True),
        ("POST", "/v1/groups/g/leave", True),
        ("POST", "/v1/groups/g/reset", True),
        ("DELETE", "/v1/groups/g", True),
        ("POST", "/v1/groups/g/commit", False),
        ("POST", "/v1/groups/join/commit", False),
        ("GET", "/v1/groups/g/offsets", False),
        ("GET", "/v1/groups/join", False),
        ("GET", "/v1/groups/g", False),
        ("GET", "/v1/groups", False),
        ("POST", "/v1/topics", True),
        ("PATCH", "/v1/topics/t", True),
        ("GET", "/v1/topics", False),
        ("GET", "/v1/control/state", True),
        ("GET", "/v1/metadata", False),
    ],
)
def test_only_requests_of_the_writer_are_forwarded(method: str, path: str, expected: bool) -> None:
    assert is_for_writer(method, path) is expected
