"""What a server said becomes an error of one tree."""

import pytest

from flotilla.client.errors import NotAllowed, Refused, TopicMissing, refused
from flotilla.net.verdicts import read


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
def test_a_refusal_has_its_kind_also_where_there_are_no_codes(
    status: int, body: bytes, kind: type[Refused], code: str
) -> None:
    """The calls for people have words and a status alone: who is not let in is told apart all the same."""
    error = refused(read(body), status)
    assert (type(error), error.code, str(error)) == (kind, code, "m")
