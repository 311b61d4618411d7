"""The data folder: locking, and recovery from damaged files."""

import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from flotilla.up.errors import FolderUnusable
from flotilla.up.folder import acquire


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_data_folder_is_private(tmp_path: Path) -> None:
    folder = acquire(tmp_path / "a" / "b")
    assert folder.path == tmp_path / "a" / "b"
    assert folder.logs.is_dir()
    assert mode_of(folder.path) == 0o700
    assert (folder.path / ".gitignore").read_text() == "*\n"
    folder.close()


def test_existing_folder_gets_no_gitignore(tmp_path: Path) -> None:
    acquire(tmp_path).close()
    assert not (tmp_path / ".gitignore").exists()


def test_data_folder_in_use_names_the_process(tmp_path: Path) -> None:
    first = acquire(tmp_path)
    with pytest.raises(FolderUnusable) as caught:
        acquire(tmp_path)
    assert f"{tmp_path} is in use by process {os.getpid()}." in str(caught.value)
    assert "--data-dir" in str(caught.value)
    first.close()
    acquire(tmp_path).close()


def test_data_folder_is_locked_until_the_last_child_ends(tmp_path: Path) -> None:
    """Two brokers in one folder would damage it: a child that outlives its parent keeps the lock."""
    folder = acquire(tmp_path)
    command = [sys.executable, "-c", "input()"]
    child = subprocess.Popen(command, stdin=subprocess.PIPE, pass_fds=[folder.lock_fd])
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    os.pwrite(folder.lock_fd, f"{gone.pid}\n".ljust(20).encode(), 0)  # as if the parent was another process, now gone
    folder.close()
    times = iter(range(1000))
    with pytest.raises(FolderUnusable, match=f"children of process {gone.pid}, which has ended"):
        acquire(tmp_path, clock=lambda: float(next(times)), pause=lambda _: None)
    child.communicate()

    second = acquire(tmp_path)
    second.close()


def test_acquire_waits_for_children_of_a_killed_system(tmp_path: Path) -> None:
    folder = acquire(tmp_path)
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE, pass_fds=[folder.lock_fd])
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    os.pwrite(folder.lock_fd, f"{gone.pid}\n".ljust(20).encode(), 0)
    folder.close()

    def pause(_: float) -> None:
        child.communicate()

    acquire(tmp_path, pause=pause).close()


def test_unwritable_data_folder_is_named(tmp_path: Path) -> None:
    with pytest.raises(FolderUnusable, match=r"/proc/nowhere cannot be written: .*--data-dir"):
        acquire(Path("/proc/nowhere"))
    (tmp_path / "file").write_text("")
    with pytest.raises(FolderUnusable, match="a file of that name exists"):
        acquire(tmp_path / "file" / "below")


def test_brokers_can_be_added_but_not_removed(tmp_path: Path) -> None:
    folder = acquire(tmp_path)
    folder.check_brokers(1)
    for name in ("broker-1", "broker-3", "broker-x", "brokers"):
        (tmp_path / name).mkdir()
    folder.check_brokers(3)
    folder.check_brokers(5)
    with pytest.raises(FolderUnusable, match=r"holds 3 brokers, but --brokers is 2.*Use --brokers 3 or more"):
        folder.check_brokers(2)
    folder.close()


def test_ports_are_saved_and_damaged_file_is_ignored(tmp_path: Path) -> None:
    folder = acquire(tmp_path)
    assert folder.load_ports() == {}
    folder.save_ports({"writer": 20_000})
    assert folder.load_ports() == {"writer": 20_000}
    for damage in ("", "{", "[]", '{"writer": null}', '{"writer": "x"}', "\x00"):
        (tmp_path / "ports.json").write_text(damage)
        assert folder.load_ports() == {}
    folder.close()


def test_secret_is_created_once_and_private(tmp_path: Path) -> None:
    folder = acquire(tmp_path)
    secret = folder.load_secret()
    assert len(secret) == 64
    (tmp_path / "secret").chmod(0o644)
    assert folder.load_secret() == secret
    assert mode_of(tmp_path / "secret") == 0o600
    (tmp_path / "secret").write_text("torn")
    assert folder.load_secret() not in {secret, "torn"}
    folder.close()
