"""What answers of brokers mean: only a refusal that a broker surely gave says that nothing was done."""

import json

import pytest

from flotilla.net.verdicts import Step
from flotilla.serving.errors import STATUS_OF
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
STRANGERS = {"unauthorized", "forbidden"}
ELSEWHERE = {"unknown_partition", "not_found", "sealed"}
DOUBT = {"internal", "unknown_outcome"}


def body_of(code: object, details: object = None) -> bytes:
    return json.dumps({"code": code, "message": "why", "details": details}).encode()


@pytest.mark.parametrize("code", sorted(STATUS_OF))
def test_every_code_of_the_table_has_its_step(code: str) -> None:
    """An append is failed on any refusal but 500 and 504, which leave it unknown."""
    expected = Step.REFUSED
    if code in LATER or code in STRANGERS:
        expected = Step.LATER
    elif code in ELSEWHERE:
        expected = Step.ELSEWHERE
    elif code in DOUBT:
        expected = Step.DOUBT
    elif code == "not_leader":
        expected = Step.MOVE
    assert next_step(STATUS_OF[code], body_of(code)) is expected


@pytest.mark.parametrize("code", sorted(STRANGERS))
def test_a_broker_that_does_not_know_the_manager_is_no_fault_of_the_client(code: str) -> None:
    """A client with a valid token is not told to give it up because servers do not share one secret."""
    refusal = refusal_in(body_of(code))
    assert (refusal.code, refusal.is_retryable) == ("unavailable", True)
    assert "share one secret" in str(refusal)


@pytest.mark.parametrize("status", [500, 502, 503, 504, 599, 302, 204, 101])
@pytest.mark.parametrize("body", [b"", b"<html>", b"[]", b'{"code": 5}', b'{"code": []}', b'{"code": "strange"}'])
def test_an_answer_that_is_not_a_brokers_own_refusal_leaves_doubt(status: int, body: bytes) -> None:
    """A proxy that says 503 may have passed the request on before."""
    assert next_step(status, body) is Step.DOUBT


@pytest.mark.parametrize("status", [400, 404, 429])
def test_whoever_is_no_broker_of_ours_and_refuses_has_done_nothing(status: int) -> None:
    """An address may belong to somebody else by now: the partition is somewhere else."""
    assert next_step(status, b"<html>") is Step.ELSEWHERE


def test_a_success_is_a_success() -> None:
    assert next_step(200, b"") is Step.DONE


@pytest.mark.parametrize(
    ("details", "leader"),
    [({"leader": {"id": "b", "url": None}}, "b"), ({"leader": None}, None), ({"leader": {"id": 5}}, None), ({}, None)],
)
def test_the_leader_is_found_in_an_answer_if_it_is_there(details: dict[str, object], leader: str | None) -> None:
    assert leader_in(body_of("not_leader", details)) == leader


def test_a_refusal_is_passed_on_with_its_details_whatever_they_are_called() -> None:
    details = {"first_offset": 7, "code": "x", "message": "y", "self": "z"}
    found = refusal_in(body_of("offset_out_of_range", details))
    assert (found.code, str(found), found.details) == ("offset_out_of_range", "why", details)


@pytest.mark.parametrize("body", [b"", b"{", b"5", b'{"code": "strange", "message": "m"}', b'{"code": "busy"}'])
def test_what_cannot_be_understood_is_unavailable(body: bytes) -> None:
    assert refusal_in(body).code == "unavailable"
