"""Lines: cut out of blocks however those fall, and split into keys and values."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flotilla.command.lines import Cutter, LineRefused, Rows, split_keys


def cut_all(blocks: list[bytes]) -> list[bytes]:
    cutter = Cutter()
    return [line for block in blocks for line in cutter.cut(block)] + cutter.end()


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        (b"", []),
        (b"\n", [b""]),
        (b"a", [b"a"]),
        (b"a\n", [b"a"]),
        (b"a\n\nb", [b"a", b"", b"b"]),
        (b"a\r\n\xff\x00\n", [b"a\r", b"\xff\x00"]),
    ],
)
def test_a_line_is_what_stands_before_a_newline_and_empty_ones_count(text: bytes, lines: list[bytes]) -> None:
    assert cut_all([text]) == lines


@given(st.lists(st.binary(max_size=5) | st.just(b"\n") | st.just(b"a\nb")))
def test_it_does_not_matter_how_blocks_fall(blocks: list[bytes]) -> None:
    """Invariant: the lines of all blocks, with newlines between them, are what was read."""
    text = b"".join(blocks)
    lines = cut_all(blocks)
    assert lines == cut_all([text])
    assert b"\n".join(lines) == text.removesuffix(b"\n")


def test_a_line_without_an_end_is_given_up_before_it_fills_the_memory() -> None:
    cutter = Cutter(line_bytes_max=10)
    assert cutter.cut(b"before\n12345") == [b"before"]
    assert cutter.cut(b"67890") == []
    with pytest.raises(LineRefused, match="longer than 10 bytes") as refused:
        cutter.cut(b"1")
    assert refused.value.at == 0


def test_a_key_stands_before_the_first_separator() -> None:
    rows = split_keys([b"7: tea: green", b": nobody's", b"8: "], b": ")
    assert (list(rows.keys or ()), list(rows.values)) == ([b"7", b"", b"8"], [b"tea: green", b"nobody's", b""])
    assert split_keys([], b":") == Rows((), ())


def test_a_line_without_a_separator_is_refused_with_its_place_or_has_no_key() -> None:
    lines = [b"7:tea", b"coffee", b"", b"8:cake"]
    with pytest.raises(LineRefused, match="no ':' behind a key") as refused:
        split_keys(lines, b":")
    assert refused.value.at == 1
    rows = split_keys(lines, b":", is_optional=True)
    assert rows == Rows([b"tea", b"coffee", b"", b"cake"], [b"7", None, None, b"8"])
