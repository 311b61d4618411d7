"""The partitioner: maps keys to partitions. Pure; the mapping must never change.

`crc32(key) % partitions`, with the CRC-32 of zlib and gzip, which every language has, so that other clients can agree.
Records of one key stay in one partition, in order, as long as the number of partitions is the same. When a topic grows,
most keys map to other partitions; existing records stay where they are.
"""

from isal.isal_zlib import crc32


def partition_of(key: bytes, partitions: int) -> int:
    """Return the partition of a key.

    >>> [partition_of(key, 4) for key in (b"", b"a", b"table 7")]
    [0, 3, 1]
    """
    return crc32(key) % partitions
