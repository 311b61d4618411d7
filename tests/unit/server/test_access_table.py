"""The access table: versions, and validation of untrusted data."""

import contextlib
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flotilla.access import Grant, Scope, Token
from flotilla_server.access_table import TABLE_BYTES_MAX, TOKENS_MAX, AccessTable, TableInvalid

TOKEN = Token(
    id="00000000000000aa", name="one", digest="ab" * 32, grants=(Grant(Scope.PRODUCE, "orders.*"), Grant(Scope.ADMIN)),
    bytes_per_s=1000, created_ms=1, expires_ms=2,
)  # fmt: skip
OTHER = Token(id="00000000000000bb", name="ü", digest="cd" * 32, grants=(Grant(Scope.CONSUME),), created_ms=1)

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=10), inner, max_size=4),
    max_leaves=10,
)


def test_table_round_trips_through_json() -> None:
    table = AccessTable((TOKEN, OTHER))
    again = AccessTable.from_builtins(json.loads(table.to_json()))
    assert again == table
    assert again.version == table.version


def test_version_does_not_depend_on_the_order_of_tokens() -> None:
    """Brokers and managers with the same tokens have the same version, also across releases."""
    assert AccessTable((TOKEN, OTHER)).version == AccessTable((OTHER, TOKEN)).version == "21a170c9ffa7cbc7"
    assert AccessTable().version != AccessTable((TOKEN,)).version != AccessTable((OTHER,)).version


@pytest.mark.parametrize(("field", "value"), [
    ("id", "00000000000000ab"), ("name", "two"), ("digest", "ac" * 32), ("grants", ["admin:*"]), ("bytes_per_s", None),
    ("requests_per_s", 1), ("in_flight_bytes", 1), ("created_ms", 2), ("expires_ms", 3),
])  # fmt: skip
def test_every_field_changes_the_version(field: str, value: object) -> None:
    changed = AccessTable((TOKEN,)).to_builtins()
    changed["tokens"][0][field] = value
    assert AccessTable.from_builtins(changed).version != AccessTable((TOKEN,)).version


def test_unchanged_tokens_are_reused() -> None:
    """The full table is sent whenever one of 10,000 tokens changes: unchanged tokens must be cheap."""
    before = AccessTable((TOKEN, OTHER))
    changed = before.to_builtins()
    changed["tokens"][1]["grants"] = ["produce:*"]
    after = AccessTable.from_builtins(changed, before)
    assert after.tokens[0] is TOKEN
    assert after.tokens[1].grants == (Grant(Scope.PRODUCE),)
    assert after == AccessTable.from_builtins(changed)
    for value in (7, None, "xx", {"id": TOKEN.id}):
        with pytest.raises(ValueError, match=r"id of a token"):
            AccessTable.from_builtins({**changed, "tokens": [{**changed["tokens"][0], "id": value}]}, before)


@given(json_values)
def test_arbitrary_value_is_not_a_table(value: object) -> None:
    with pytest.raises(TableInvalid):
        AccessTable.from_builtins(value)


@given(field=st.sampled_from(sorted(AccessTable((TOKEN,)).to_builtins()["tokens"][0])), value=json_values)
def test_arbitrary_field_is_valid_or_rejected(field: str, value: object) -> None:
    """For any value of a field, the table is rejected or has values of the right types."""
    data = AccessTable((TOKEN,)).to_builtins()
    data["tokens"][0][field] = value
    with contextlib.suppress(ValueError):
        table = AccessTable.from_builtins(data)
        assert table.to_builtins() == data
        assert type(table.to_builtins()["tokens"][0][field]) is type(value)


def _without(**changes: object) -> dict[str, Any]:
    return {**AccessTable((TOKEN,)).to_builtins(), **changes}


@pytest.mark.parametrize("data", [
    None, [], {}, "tokens", {"tokens": []}, {"format": 1}, _without(format=2), _without(format=True),
    _without(format="1"), _without(more=1), _without(tokens={}), _without(tokens=None), _without(tokens=[None]),
    _without(tokens=[{}]), _without(tokens=[{**_without()["tokens"][0], "only_from": "10.0.0.1"}]),
    _without(tokens=_without()["tokens"] * 2), _without(tokens=[0] * (TOKENS_MAX + 1)),
])  # fmt: skip
def test_table_with_unknown_content_is_rejected_as_a_whole(data: object) -> None:
    """An unknown field could be a restriction; a token that occurs twice could have different grants."""
    with pytest.raises(TableInvalid):
        AccessTable.from_builtins(data)


def test_largest_table_is_within_the_size_limit() -> None:
    """Otherwise brokers could not read the response to a heartbeat."""
    grants = tuple(Grant(Scope.CONSUME, "x" * 11) for _ in range(99))
    largest = Token(
        id="f" * 16, name="\N{GRINNING FACE}" * 100, digest="f" * 64, grants=(*grants, Grant(Scope.CONSUME, "x" * 11)),
        bytes_per_s=(1 << 63) - 1, requests_per_s=(1 << 63) - 1, in_flight_bytes=(1 << 63) - 1,
        created_ms=(1 << 63) - 1, expires_ms=(1 << 63) - 1,
    )  # fmt: skip
    size = len(json.dumps(AccessTable((largest,)).to_builtins(), ensure_ascii=False).encode())
    assert size * TOKENS_MAX <= TABLE_BYTES_MAX


def test_error_message_has_no_digest() -> None:
    data = _without(tokens=_without()["tokens"] * 2)
    with pytest.raises(TableInvalid) as caught:
        AccessTable.from_builtins(data)
    assert TOKEN.digest not in str(caught.value)
    assert TOKEN.digest not in repr(AccessTable((TOKEN,)))
