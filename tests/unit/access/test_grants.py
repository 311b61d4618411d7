"""Grants: patterns of topics, and the cost of matching."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flotilla.access import Grant, GrantInvalid, Scope

# A pattern, topics that it matches, and topics that it does not.
MATCHES = [
    ("*", ["a", "orders", "orders.eu", "x" * 200, "id:00ff", ""], []),
    ("orders", ["orders"], ["order", "orders2", "Orders", "x-orders", "orders.eu", "", "orders\n"]),
    ("orders.*", ["orders.eu", "orders.", "orders.eu.west"], ["orders", "ordersXeu", "my.orders.eu"]),
    ("*.orders", ["eu.orders", "a.b.orders"], ["orders", "eu.orders2", ".orders"]),
    ("a*b", ["ab", "axb", "abb", "aabb"], ["a", "b", "ba", "abc"]),
    ("a*a", ["aa", "aba", "aaa"], ["a"]),
    ("ab*ba", ["abba", "abxba"], ["aba", "ab", "ba"]),
    ("a*b*c", ["abc", "axbxc", "abbcc", "abcbc"], ["acb", "ac", "ab", "abcd"]),
    ("*b*", ["b", "abc", "bb"], ["a", "ac"]),
    ("a.b", ["a.b"], ["axb"]),
    ("a-b_c", ["a-b_c"], ["a-b-c"]),
    ("*0", ["t0", "0"], ["id:00", "../0", "a/0", " 0", "ä0", "a\n0"]),
    ("[a]*".replace("[a]", "a"), ["a", "a1"], ["b"]),
]


@pytest.mark.parametrize(("pattern", "topic", "expected"), [
    (pattern, topic, expected)
    for pattern, yes, no in MATCHES
    for topics, expected in ((yes, True), (no, False))
    for topic in topics
])  # fmt: skip
def test_only_the_star_is_special_in_a_pattern(pattern: str, topic: str, expected: bool) -> None:
    assert Grant(Scope.PRODUCE, pattern).matches(topic) is expected


@pytest.mark.parametrize(("text", "grant", "canonical"), [
    ("produce:orders.*", Grant(Scope.PRODUCE, "orders.*"), "produce:orders.*"),
    ("consume:*", Grant(Scope.CONSUME), "consume:*"),
    ("admin", Grant(Scope.ADMIN, "*"), "admin:*"),
    ("consume", Grant(Scope.CONSUME, "*"), "consume:*"),
])  # fmt: skip
def test_grant_is_parsed_and_formatted(text: str, grant: Grant, canonical: str) -> None:
    assert Grant.parse(text) == grant
    assert str(grant) == canonical
    assert Grant.parse(canonical) == grant


@pytest.mark.parametrize("text", [
    "", ":", "produce:", "write:orders", "Produce:a", "produce :a", " produce:a", "produce:a b", "produce:a,b",
    "produce:a:b", "produce:ä", "produce:٣", "produce:a\n", "produce:id:00", "produce:" + "a" * 201, "produce:**",
    "produce:a**b", "produce:[a]", "produce:a?", "produce:../x", "produce:a\x00",
])  # fmt: skip
def test_invalid_grant_error_has_the_rule(text: str) -> None:
    with pytest.raises(GrantInvalid, match=r"a grant is produce, consume or admin|two stars") as caught:
        Grant.parse(text)
    assert len(str(caught.value)) < 400


@given(pattern=st.text("ab*", min_size=1, max_size=12), topic=st.text("ab", min_size=1, max_size=12))
def test_matching_agrees_with_exhaustive_search(pattern: str, topic: str) -> None:
    """The first position of each part is sufficient."""

    def tries(pattern: str, topic: str) -> bool:
        if not pattern:
            return not topic
        if pattern[0] == "*":
            return any(tries(pattern[1:], topic[at:]) for at in range(len(topic) + 1))
        return topic[:1] == pattern[0] and tries(pattern[1:], topic[1:])

    while "**" in pattern:
        pattern = pattern.replace("**", "*")
    assert Grant(Scope.CONSUME, pattern).matches(topic) is tries(pattern, topic)


@pytest.mark.parametrize("pattern", ["*a" * 99 + "*b", "a*" * 100, "*" + "a*" * 99, "*ab" * 66, "*" + "a" * 198 + "*"])
def test_pattern_with_many_stars_matches_in_bounded_time(pattern: str) -> None:
    """A token cannot slow down servers: with backtracking, this would take years."""
    grant = Grant(Scope.PRODUCE, pattern)
    began = time.process_time()
    for length in range(100, 200):  # another topic each time: what was decided once is remembered
        grant.matches("a" * length)
        grant.matches(("ab" * 100)[:length])
    assert time.process_time() - began < 1.0
