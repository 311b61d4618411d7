"""The partitioner: a hash that never changes, so that the records of a key stay in one partition."""

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


def test_partition_of_known_keys_never_changes() -> None:
    """If this fails, records of one key would be in two partitions, and out of order: revert the change of the code."""
    found = {key: tuple(partition_of(key, count) for count in (2, 3, 4, 7)) for key in GOLDEN}
    assert found == GOLDEN


@given(st.binary(), st.integers(1, 1000))
def test_partition_is_the_zlib_crc32_modulo_partitions(key: bytes, partitions: int) -> None:
    assert partition_of(key, partitions) == zlib.crc32(key) % partitions


def test_docstring_example_is_correct() -> None:
    assert doctest.testmod(partitioning).failed == 0
