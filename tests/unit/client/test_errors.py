"""Error responses of servers become exceptions of the client."""

import pytest

from flotilla.client.errors import NotAllowed, NotFound, Refused, TopicExists, TopicMissing, refused
from flotilla.net.codes import RESOURCES
from flotilla.net.verdicts import ErrorResponse, add_code, read


@pytest.mark.parametrize(
    ("status", "body", "kind", "code"),
    [
        (400, b'{"code": "not_found", "message": "m"}', TopicMissing, "not_found"),
        (403, b'{"code": "forbidden", "message": "m"}', NotAllowed, "forbidden"),
        (401, b'{"status": "failure", "message": "m"}', NotAllowed, "unauthorized"),
        (403, b'{"status": "failure", "message": "m"}', NotAllowed, "forbidden"),
        (400, b'{"status": "failure", "message": "m"}', Refused, "unknown"),
    ],
)
def test_error_response_maps_to_its_exception_also_without_a_code(
    status: int, body: bytes, kind: type[Refused], code: str
) -> None:
    """The simple API has only messages and a status: 401 and 403 have codes all the same."""
    error = refused(read(body), status)
    assert (type(error), error.code, str(error)) == (kind, code, "m")


@pytest.mark.parametrize("resource", [*RESOURCES, None, "mood", ["topic"]])
def test_kind_of_not_found_follows_the_resource(resource: object) -> None:
    """Servers of 0.2 name none. A name with a slash makes another path: its topic is missing as before."""
    error = refused(ErrorResponse("not_found", "m", {} if resource is None else {"resource": resource}), 404)
    assert type(error) is (NotFound if resource in ("broker", "group", "replica", "token") else TopicMissing)


@pytest.mark.parametrize(
    ("headers", "kind", "code", "details"),
    [
        ({b"flotilla-error-code": b"exists"}, TopicExists, "exists", {}),
        ({b"flotilla-error-code": b"no_records"}, Refused, "no_records", {}),
        (
            {b"flotilla-error-code": b"not_found", b"flotilla-error-resource": b"topic"},
            TopicMissing,
            "not_found",
            {"resource": "topic"},
        ),
        ({b"flotilla-error-code": b"not_found", b"flotilla-error-resource": b"\xff"}, TopicMissing, "not_found", {}),
        ({b"flotilla-error-code": b"of a later version"}, Refused, "unknown", {}),
        ({b"flotilla-error-code": b"\xff"}, Refused, "unknown", {}),
        ({}, Refused, "unknown", {}),
    ],
)
def test_refusal_of_the_simple_api_has_the_code_of_its_headers(
    headers: dict[bytes, bytes], kind: type[Refused], code: str, details: dict[str, str]
) -> None:
    error = refused(add_code(read(b'{"status": "failure", "message": "m"}'), headers), 400)
    assert (type(error), error.code, error.details, str(error)) == (kind, code, details, "m")


def test_code_of_the_body_wins_over_that_of_a_header() -> None:
    said = read(b'{"code": "conflict", "message": "m"}')
    assert add_code(said, {b"flotilla-error-code": b"exists"}) == said
