"""The data folder: one at a time, and what is kept in it survives damage."""

import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from flotilla.up.errors import FolderUnusable
from flotilla.up.folder import take


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_a_folder_is_made_for_the_owner_alone(tmp_path: Path) -> None:
    folder = take(tmp_path / "a" / "b")
    assert folder.path == tmp_path / "a" / "b"
    assert folder.logs.is_dir()
    assert mode_of(folder.path) == 0o700
    assert (folder.path / ".gitignore").read_text() == "*\n"
    folder.close()


def test_nothing_is_hidden_from_git_in_a_folder_that_was_there(tmp_path: Path) -> None:
    take(tmp_path).close()
    assert not (tmp_path / ".gitignore").exists()


def test_a_folder_in_use_is_refused_with_the_process_that_has_it(tmp_path: Path) -> None:
    first = take(tmp_path)
    with pytest.raises(FolderUnusable) as caught:
        take(tmp_path)
    assert f"{tmp_path} is in use by process {os.getpid()}." in str(caught.value)
    assert "--data-dir" in str(caught.value)
    first.close()
    take(tmp_path).close()


def test_a_folder_is_in_use_until_the_last_child_is_gone(tmp_path: Path) -> None:
    """Two brokers in one folder would be the end of it: a child that outlives its parent keeps the lock."""
    folder = take(tmp_path)
    command = [sys.executable, "-c", "input()"]
    child = subprocess.Popen(command, stdin=subprocess.PIPE, pass_fds=[folder.lock_fd])
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    os.pwrite(folder.lock_fd, f"{gone.pid}\n".ljust(20).encode(), 0)  # as if the parent was another process, now gone
    folder.close()
    times = iter(range(1000))
    with pytest.raises(FolderUnusable, match=f"process {gone.pid}, which is gone, has left behind"):
        take(tmp_path, clock=lambda: float(next(times)), pause=lambda _: None)
    child.communicate()

    second = take(tmp_path)
    second.close()


def test_children_of_one_that_was_killed_are_waited_for(tmp_path: Path) -> None:
    folder = take(tmp_path)
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE, pass_fds=[folder.lock_fd])
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    os.pwrite(folder.lock_fd, f"{gone.pid}\n".ljust(20).encode(), 0)
    folder.close()

    def pause(_: float) -> None:
        child.communicate()

    take(tmp_path, pause=pause).close()


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    with pytest.raises(FolderUnusable, match=r"/proc/nowhere cannot be written: .*--data-dir"):
        take(Path("/proc/nowhere"))
    (tmp_path / "file").write_text("")
    with pytest.raises(FolderUnusable, match="there is a file in its place"):
        take(tmp_path / "file" / "below")


def test_more_brokers_may_be_added_and_none_left_out(tmp_path: Path) -> None:
    folder = take(tmp_path)
    folder.check_brokers(1)
    for name in ("broker-1", "broker-3", "broker-x", "brokers"):
        (tmp_path / name).mkdir()
    folder.check_brokers(3)
    folder.check_brokers(5)
    with pytest.raises(FolderUnusable, match=r"holds 3 brokers, and --brokers says 2.*Use --brokers 3 or more"):
        folder.check_brokers(2)
    folder.close()


def test_ports_are_kept_and_damaged_ones_forgotten(tmp_path: Path) -> None:
    folder = take(tmp_path)
    assert folder.load_ports() == {}
    folder.save_ports({"writer": 20_000})
    assert folder.load_ports() == {"writer": 20_000}
    for damage in ("", "{", "[]", '{"writer": null}', '{"writer": "x"}', "\x00"):
        (tmp_path / "ports.json").write_text(damage)
        assert folder.load_ports() == {}
    folder.close()


def test_the_secret_is_made_once_and_is_for_the_owner_alone(tmp_path: Path) -> None:
    folder = take(tmp_path)
    secret = folder.load_secret()
    assert len(secret) == 64
    (tmp_path / "secret").chmod(0o644)
    assert folder.load_secret() == secret
    assert mode_of(tmp_path / "secret") == 0o600
    (tmp_path / "secret").write_text("torn")
    assert folder.load_secret() not in {secret, "torn"}
    folder.close()
