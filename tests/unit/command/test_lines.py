"""Splitting of blocks into lines, and of lines into keys and values."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flotilla.command.lines import LineInvalid, LineSplitter, Rows, split_keys


def split_all(blocks: list[bytes]) -> list[bytes]:
    splitter = LineSplitter()
    return [line for block in blocks for line in splitter.feed(block)] + splitter.flush()


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
def test_lines_end_at_newlines_and_may_be_empty(text: bytes, lines: list[bytes]) -> None:
    assert split_all([text]) == lines


@given(st.lists(st.binary(max_size=5) | st.just(b"\n") | st.just(b"a\nb")))
def test_lines_do_not_depend_on_block_boundaries(blocks: list[bytes]) -> None:
    """Invariant: the lines of all blocks, joined with newlines, are the input."""
    text = b"".join(blocks)
    lines = split_all(blocks)
    assert lines == split_all([text])
    assert b"\n".join(lines) == text.removesuffix(b"\n")


def test_endless_line_is_rejected_at_the_limit() -> None:
    splitter = LineSplitter(line_bytes_max=10)
    assert splitter.feed(b"before\n12345") == [b"before"]
    assert splitter.feed(b"67890") == []
    with pytest.raises(LineInvalid, match="longer than 10 bytes") as refused:
        splitter.feed(b"1")
    assert refused.value.at == 0


def test_key_ends_at_the_first_separator() -> None:
    rows = split_keys([b"7: tea: green", b": nobody's", b"8: "], b": ")
    assert (list(rows.keys or ()), list(rows.values)) == ([b"7", b"", b"8"], [b"tea: green", b"nobody's", b""])
    assert split_keys([], b":") == Rows((), ())


def test_line_without_separator_is_rejected_unless_keys_are_optional() -> None:
    lines = [b"7:tea", b"coffee", b"", b"8:cake"]
    with pytest.raises(LineInvalid, match="no separator ':' after the key") as refused:
        split_keys(lines, b":")
    assert refused.value.at == 1
    rows = split_keys(lines, b":", is_optional=True)
    assert rows == Rows([b"tea", b"coffee", b"", b"cake"], [b"7", None, None, b"8"])
