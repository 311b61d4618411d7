"""Keys choose partitions by a hash that never changes: records of a key must be where they are looked for."""

import doctest
import zlib

from hypothesis import given
from hypothesis import strategies as st

from flotilla.client import partitioning
from flotilla.client.partitioning import partition_of

GOLDEN = {
    b"": (0, 0, 0, 0),
    b"a": (1, 0, 3, 4),
    b"table 7": (1, 0, 1, 3),
    b"user-42": (1, 1, 3, 1),
    bytes(range(256)): (1, 1, 3, 5),
}


def test_keys_belong_where_they_always_did() -> None:
    """If this fails, records of one key would be in two partitions, and out of order: change the code back."""
    found = {key: tuple(partition_of(key, count) for count in (2, 3, 4, 7)) for key in GOLDEN}
    assert found == GOLDEN


@given(st.binary(), st.integers(1, 1000))
def test_other_languages_can_compute_it(key: bytes, partitions: int) -> None:
    assert partition_of(key, partitions) == zlib.crc32(key) % partitions


def test_the_example_is_right() -> None:
    assert doctest.testmod(partitioning).failed == 0
