"""Hypothesis strategies for records."""

from dataclasses import dataclass

from hypothesis import strategies as st

from flotilla.records import Compression, Headers, decode, encode

NAMES = st.text(st.characters(codec="utf-8"), min_size=1, max_size=8)
HEADERS = st.lists(st.tuples(NAMES, st.binary(max_size=12)), max_size=3).map(tuple)
INT64 = st.integers(-(2**63), 2**63 - 1)


@dataclass(frozen=True)
class Records:
    """Data arguments of `encode`."""

    values: list[bytes]
    keys: list[bytes | None] | None
    headers: list[Headers] | None
    timestamps_ms: list[int] | None

    @classmethod
    def from_batch(cls, batch: bytes | bytearray) -> "Records":
        """Decode all records of `batch`."""
        opened = decode(batch)
        return cls(opened.values, opened.keys, opened.headers, opened.timestamps_ms)

    def encode(self, compression: Compression = Compression.NONE) -> bytearray:
        """Encode one batch with these records."""
        return encode(
            self.values,
            keys=self.keys,
            headers=self.headers,
            timestamps_ms=self.timestamps_ms,
            compression=compression,
        )


@st.composite
def records(draw: st.DrawFn, count_max: int = 40) -> Records:
    """Draw records with any combination of optional columns."""
    values = draw(st.lists(st.binary(max_size=40), min_size=1, max_size=count_max))
    count = len(values)
    return Records(
        values,
        draw(st.none() | st.lists(st.none() | st.binary(max_size=12), min_size=count, max_size=count)),
        draw(st.none() | st.lists(HEADERS, min_size=count, max_size=count)),
        draw(st.none() | st.lists(INT64, min_size=count, max_size=count)),
    )
