"""The format does not change by accident: batches are compared with golden bytes."""

import zlib
from pathlib import Path

import pytest

from flotilla.records import Compression, Record, check, decode, encode

GOLDEN = Path(__file__).with_name("golden.txt")

BATCHES = {
    "one value": encode([b"a"]),
    "every option": encode(
        [b"first", b"", b"third"],
        keys=[b"k1", None, b""],
        headers=[(("trace", b"\x01\x02"),), (), (("a", b""), ("é", b"x"))],
        timestamps_ms=[1_700_000_000_000, -5, 0],
        producer_id=bytes(range(16)),
        producer_epoch=7,
        base_sequence=1_000,
    ),
    "keys without nulls": encode([b"v1", b"v2"], keys=[b"key-1", b"key-2"]),
}


def golden() -> dict[str, bytes]:
    """Parse the file: `[name]`, then lines of hex, each with a comment."""
    batches: dict[str, bytes] = {}
    name = ""
    for line in GOLDEN.read_text(encoding="utf-8").splitlines():
        code = line.partition("#")[0].strip()
        if code.startswith("["):
            name = code.strip("[]")
            batches[name] = b""
        else:
            batches[name] = batches.get(name, b"") + bytes.fromhex(code)
    batches.pop("")
    return batches


@pytest.mark.parametrize("name", BATCHES)
def test_encode_writes_the_golden_bytes(name: str) -> None:
    """Formats on disk and on the wire have a version: these are the bytes of version 1."""
    assert BATCHES[name].hex(" ", 8) == golden()[name].hex(" ", 8)


def test_every_golden_batch_is_compared() -> None:
    assert golden().keys() == BATCHES.keys()


def test_golden_batch_with_all_options_is_decoded() -> None:
    assert list(decode(golden()["every option"])) == [
        Record(0, 1_700_000_000_000, b"k1", b"first", (("trace", b"\x01\x02"),), 0),
        Record(1, -5, None, b"", (), 0),
        Record(2, 0, b"", b"third", (("a", b""), ("é", b"x")), 0),
    ]


def test_golden_batch_without_options_is_decoded() -> None:
    assert list(decode(golden()["one value"])) == [Record(0, None, None, b"a", (), 0)]


@pytest.mark.parametrize("name", BATCHES)
def test_checksum_is_zlib_crc_32_without_assigned_fields_and_itself(name: str) -> None:
    batch = golden()[name]
    assert check(batch).crc == zlib.crc32(batch[0:8] + batch[28:])


def test_compressed_batch_has_the_body_of_the_uncompressed_one() -> None:
    """The bytes of zstd depend on its version, so only the bodies of compressed batches have golden bytes."""
    values = [b"the same again"] * 50
    plain, packed = encode(values), encode(values, compression=Compression.ZSTD)
    assert bytes(decode(packed).value_column.data) == bytes(decode(plain).value_column.data)
    assert check(packed).body_bytes == check(plain).body_bytes == len(plain) - 96
    assert packed[5] == 1
    assert packed[96:100] == bytes.fromhex("28b52ffd")
