"""Rotation and tail of logs."""

from pathlib import Path

from flotilla.up import logs


def test_large_log_is_rotated_while_the_writer_continues(tmp_path: Path) -> None:
    path = tmp_path / "x.log"
    with path.open("ab", buffering=0) as writer:
        for turn in range(5):
            writer.write(b"%d" % turn * 101)
            assert logs.rotate(path, 100)
            assert not logs.rotate(path, 100)
        writer.write(b"after")
    assert path.read_bytes() == b"after"
    assert (tmp_path / "x.log.1").read_bytes() == b"4" * 101
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["x.log", "x.log.1"]


def test_missing_log_is_empty(tmp_path: Path) -> None:
    assert not logs.rotate(tmp_path / "x.log")
    assert logs.tail(tmp_path / "x.log") == []
    assert logs.size_of(tmp_path / "x.log") == 0


def test_tail_shows_only_the_current_run(tmp_path: Path) -> None:
    path = tmp_path / "x.log"
    path.write_text("old\n")
    start = logs.size_of(path)
    with path.open("a") as file:
        file.write("".join(f"line {n}\n\n" for n in range(20)))
    assert logs.tail(path, start, lines=3) == ["line 17", "line 18", "line 19"]
    assert logs.tail(path, start, lines=99)[0] == "line 0"


def test_tail_of_truncated_log_starts_at_its_beginning(tmp_path: Path) -> None:
    path = tmp_path / "x.log"
    path.write_bytes(b"new\nbad \xff\n")
    assert logs.tail(path, start=10_000) == ["new", "bad �"]


def test_tail_limits_bytes_and_line_length(tmp_path: Path) -> None:
    path = tmp_path / "x.log"
    path.write_text("y" * 1_000_000 + "\n" + "z" * 1000 + "\n")
    assert logs.tail(path) == ["z" * 400]
