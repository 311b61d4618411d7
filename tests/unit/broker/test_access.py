"""The token table of a broker: kept over restarts, replaced by managers, and empty if it is damaged."""

import asyncio
import json
import logging
import stat
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from flotilla_broker import access as module
from flotilla_broker.access import FILE, StoredAccess, read_table, write_table
from flotilla_server.access_table import AccessTable
from flotilla_server.callers import NotAuthenticated
from support.access import SECRET, SYSTEM, hold, table_of

ONE, TWO = hold("produce:orders"), hold("consume:*")


def opened(folder: Path) -> StoredAccess:
    """Load the table, as at a start of the broker."""
    return StoredAccess(folder, SECRET.encode(), lambda: 1)


def response_table(table: AccessTable) -> bytes:
    """Return a table as in the response to a heartbeat."""
    return json.dumps(table.to_builtins()).encode()


def is_accepted(access: StoredAccess, headers: dict[str, str]) -> bool:
    """Return whether a token is accepted."""
    try:
        access.identify(headers["authorization"].encode())
    except NotAuthenticated:
        return False
    return True


def test_broker_without_a_table_accepts_only_servers(tmp_path: Path) -> None:
    access = opened(tmp_path)
    assert access.version == ""
    assert not is_accepted(access, ONE.headers)
    assert is_accepted(access, SYSTEM)


def test_table_is_used_and_survives_a_restart(tmp_path: Path) -> None:
    access = opened(tmp_path)
    asyncio.run(access.update(response_table(table_of(ONE))))
    for now in (access, opened(tmp_path)):
        assert now.version == table_of(ONE).version
        assert is_accepted(now, ONE.headers)
        assert not is_accepted(now, TWO.headers)
    assert stat.S_IMODE((tmp_path / FILE).stat().st_mode) == 0o600
    assert [file.name for file in tmp_path.iterdir()] == [FILE]


def test_empty_table_is_a_table(tmp_path: Path) -> None:
    """All tokens were revoked; that differs from never having got a table."""
    access = opened(tmp_path)
    asyncio.run(access.update(response_table(table_of(ONE))))
    asyncio.run(access.update(response_table(AccessTable())))
    for now in (access, opened(tmp_path)):
        assert now.version == AccessTable().version
        assert not is_accepted(now, ONE.headers)


def test_response_without_a_table_changes_and_writes_nothing(tmp_path: Path) -> None:
    access = opened(tmp_path)
    asyncio.run(access.update(b""))
    assert access.version == ""
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("data", [b"x", b"{}", b"[]", b"1", b"\xff", b'{"format": 2, "tokens": []}', b"[" * 100_000])
def test_invalid_table_leaves_the_previous_one_in_use(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, data: bytes
) -> None:
    access = opened(tmp_path)
    asyncio.run(access.update(response_table(table_of(ONE))))
    for _ in range(3):
        asyncio.run(access.update(data))
    assert access.version == opened(tmp_path).version == table_of(ONE).version
    errors = [record.getMessage() for record in caplog.records if record.levelno == logging.ERROR]
    assert len(errors) == 1, "the message is logged once"
    assert "keeping the previous one" in errors[0]


def test_table_that_cannot_be_written_is_used_and_written_later(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A revocation does not wait for the disk, and no manager has to send the table again."""
    access = opened(tmp_path)
    asyncio.run(access.update(response_table(table_of(ONE, TWO))))

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(module, "write_table", full)
        asyncio.run(access.update(response_table(table_of(TWO))))
        asyncio.run(access.update(b""))
    assert not is_accepted(access, ONE.headers)
    assert is_accepted(opened(tmp_path), ONE.headers), "the old file is intact"
    assert caplog.text.count("No space left on device") == 1
    asyncio.run(access.update(b""))
    assert opened(tmp_path).version == table_of(TWO).version


def test_temporary_file_of_a_crash_is_replaced(tmp_path: Path) -> None:
    (tmp_path / f"{FILE}.part").write_bytes(b"half")
    write_table(tmp_path / FILE, table_of(ONE))
    assert read_table(tmp_path / FILE) == table_of(ONE)
    assert [file.name for file in tmp_path.iterdir()] == [FILE]


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(at=st.integers(0, 10_000), flip=st.integers(1, 255), cut=st.booleans())
def test_damaged_file_is_ignored(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, at: int, flip: int, cut: bool
) -> None:
    """Whatever byte is damaged, no token is accepted that was not before, or with more grants; it is logged."""
    caplog.clear()
    file = tmp_path / FILE
    write_table(file, table_of(ONE))
    content = bytearray(file.read_bytes())
    at %= len(content)
    if cut:
        del content[at:]
    else:
        content[at] ^= flip
    file.write_bytes(content)
    found = read_table(file)
    assert found in {None, table_of(ONE)}  # one whitespace character instead of another is no damage
    assert (found is None) == ("rejecting all tokens" in caplog.text)


@pytest.mark.parametrize(
    "content", [b"", b"null", b"[]", b"{}", b'{"version": 1}', b'"x"', b"\x00" * 100, b"[" * 10**5]
)
def test_file_without_a_table_is_ignored(tmp_path: Path, caplog: pytest.LogCaptureFixture, content: bytes) -> None:
    (tmp_path / FILE).write_bytes(content)
    access = opened(tmp_path)
    assert access.version == ""
    assert is_accepted(access, SYSTEM)
    assert FILE in caplog.text


def test_unreadable_file_is_ignored(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / FILE).mkdir()
    assert opened(tmp_path).version == ""
    assert "invalid access table, rejecting all tokens" in caplog.text


def test_logs_contain_no_digest(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    access = opened(tmp_path)
    asyncio.run(access.update(response_table(table_of(ONE))))
    broken = table_of(ONE).to_builtins()
    broken["tokens"][0]["id"] = ONE.token.digest
    asyncio.run(access.update(json.dumps(broken).encode()))
    (tmp_path / FILE).write_text(json.dumps({"version": "x", **broken}), encoding="utf-8")
    opened(tmp_path)
    assert "access table" in caplog.text
    assert ONE.token.digest not in caplog.text
