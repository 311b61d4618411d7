"""Verdicts on responses of brokers: only a refusal that is definitely from a broker is a definite failure."""

import json

import pytest

from flotilla.net.verdicts import Step
from flotilla.protocol.errors import STATUS_OF
from flotilla_manager.routing.verdicts import leader_in, next_step, refusal_in

LATER = {
    "quota_exceeded",
    "busy",
    "closed",
    "disk_full",
    "no_leader",
    "too_many_connections",
    "not_settled",
    "broken",
    "unavailable",
}
CREDENTIAL_ERRORS = {"unauthorized", "forbidden"}
ELSEWHERE = {"unknown_partition", "not_found", "sealed"}
DOUBT = {"internal", "unknown_outcome"}


def body_of(code: object, details: object = None) -> bytes:
    return json.dumps({"code": code, "message": "why", "details": details}).encode()


@pytest.mark.parametrize("code", sorted(STATUS_OF))
def test_every_documented_code_has_a_verdict(code: str) -> None:
    """An append fails on any refusal except 500 and 504, after which it is unknown."""
    expected = Step.REFUSED
    if code in LATER or code in CREDENTIAL_ERRORS:
        expected = Step.LATER
    elif code in ELSEWHERE:
        expected = Step.ELSEWHERE
    elif code in DOUBT:
        expected = Step.DOUBT
    elif code == "not_leader":
        expected = Step.MOVE
    assert next_step(STATUS_OF[code], body_of(code)) is expected


@pytest.mark.parametrize("code", sorted(CREDENTIAL_ERRORS))
def test_authentication_failure_of_the_manager_is_not_passed_to_the_client(code: str) -> None:
    """A mismatch of the servers' secrets must not make a client with a valid token stop."""
    refusal = refusal_in(body_of(code))
    assert (refusal.code, refusal.is_retryable) == ("unavailable", True)
    assert "must have the same secret" in str(refusal)


@pytest.mark.parametrize("status", [500, 502, 503, 504, 599, 302, 204, 101])
@pytest.mark.parametrize("body", [b"", b"<html>", b"[]", b'{"code": 5}', b'{"code": []}', b'{"code": "strange"}'])
def test_error_that_is_not_from_a_broker_is_unknown(status: int, body: bytes) -> None:
    """A proxy that responds with 503 may have forwarded the request."""
    assert next_step(status, body) is Step.DOUBT


@pytest.mark.parametrize("status", [400, 404, 429])
def test_refusal_of_a_server_outside_the_cluster_is_a_definite_failure(status: int) -> None:
    """The address may belong to another cluster now, so the partition is elsewhere."""
    assert next_step(status, b"<html>") is Step.ELSEWHERE


def test_success_status_is_success() -> None:
    assert next_step(200, b"") is Step.DONE


@pytest.mark.parametrize(
    ("details", "leader"),
    [({"leader": {"id": "b", "url": None}}, "b"), ({"leader": None}, None), ({"leader": {"id": 5}}, None), ({}, None)],
)
def test_leader_hint_is_read_from_the_response(details: dict[str, object], leader: str | None) -> None:
    assert leader_in(body_of("not_leader", details)) == leader


def test_refusal_is_passed_on_with_all_details() -> None:
    details = {"first_offset": 7, "code": "x", "message": "y", "self": "z"}
    found = refusal_in(body_of("offset_out_of_range", details))
    assert (found.code, str(found), found.details) == ("offset_out_of_range", "why", details)


@pytest.mark.parametrize("body", [b"", b"{", b"5", b'{"code": "strange", "message": "m"}', b'{"code": "busy"}'])
def test_invalid_refusal_is_unavailable(body: bytes) -> None:
    assert refusal_in(body).code == "unavailable"
