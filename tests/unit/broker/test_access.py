"""What a broker knows of tokens: kept over restarts, replaced by what managers say, and never guessed."""

import asyncio
import json
import logging
import stat
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from flotilla.access import AccessTable, NotAuthenticated
from flotilla_broker import access as module
from flotilla_broker.access import FILE, KeptAccess, read_table, write_table
from support.access import SECRET, SYSTEM, hold, table_of

ONE, TWO = hold("produce:orders"), hold("consume:*")


def opened(folder: Path) -> KeptAccess:
    """Start a broker's access, as at a start of the broker."""
    return KeptAccess(folder, SECRET.encode(), lambda: 1)


def told(table: AccessTable) -> bytes:
    """Return a table as it is in an answer to a heartbeat."""
    return json.dumps(table.to_builtins()).encode()


def is_in(access: KeptAccess, headers: dict[str, str]) -> bool:
    """Tell whether somebody is let in."""
    try:
        access.identify(headers["authorization"].encode())
    except NotAuthenticated:
        return False
    return True


def test_who_has_never_heard_of_tokens_knows_servers_alone(tmp_path: Path) -> None:
    access = opened(tmp_path)
    assert access.version == ""
    assert not is_in(access, ONE.headers)
    assert is_in(access, SYSTEM)


def test_a_table_is_used_and_kept_over_a_restart(tmp_path: Path) -> None:
    access = opened(tmp_path)
    asyncio.run(access.hear(told(table_of(ONE))))
    for now in (access, opened(tmp_path)):
        assert now.version == table_of(ONE).version
        assert is_in(now, ONE.headers)
        assert not is_in(now, TWO.headers)
    assert stat.S_IMODE((tmp_path / FILE).stat().st_mode) == 0o600
    assert [file.name for file in tmp_path.iterdir()] == [FILE]


def test_a_table_without_tokens_is_a_table(tmp_path: Path) -> None:
    """All of them were revoked: that is something else than never having heard of any."""
    access = opened(tmp_path)
    asyncio.run(access.hear(told(table_of(ONE))))
    asyncio.run(access.hear(told(AccessTable())))
    for now in (access, opened(tmp_path)):
        assert now.version == AccessTable().version
        assert not is_in(now, ONE.headers)


def test_an_answer_without_a_table_changes_and_writes_nothing(tmp_path: Path) -> None:
    access = opened(tmp_path)
    asyncio.run(access.hear(b""))
    assert access.version == ""
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("data", [b"x", b"{}", b"[]", b"1", b"\xff", b'{"format": 2, "tokens": []}', b"[" * 100_000])
def test_what_is_no_table_leaves_the_one_before_in_use(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, data: bytes
) -> None:
    access = opened(tmp_path)
    asyncio.run(access.hear(told(table_of(ONE))))
    for _ in range(3):
        asyncio.run(access.hear(data))
    assert access.version == opened(tmp_path).version == table_of(ONE).version
    errors = [record.getMessage() for record in caplog.records if record.levelno == logging.ERROR]
    assert len(errors) == 1, "it is said once"
    assert "the one before stays in use" in errors[0]


def test_a_table_that_cannot_be_written_is_in_use_and_written_as_soon_as_it_can_be(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A revocation does not wait for the disk; and no manager has to send the table again."""
    access = opened(tmp_path)
    asyncio.run(access.hear(told(table_of(ONE, TWO))))

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(module, "write_table", full)
        asyncio.run(access.hear(told(table_of(TWO))))
        asyncio.run(access.hear(b""))
    assert not is_in(access, ONE.headers)
    assert is_in(opened(tmp_path), ONE.headers), "the file is the old one, whole"
    assert caplog.text.count("No space left on device") == 1
    asyncio.run(access.hear(b""))
    assert opened(tmp_path).version == table_of(TWO).version


def test_what_a_crash_left_behind_is_replaced(tmp_path: Path) -> None:
    (tmp_path / f"{FILE}.part").write_bytes(b"half")
    write_table(tmp_path / FILE, table_of(ONE))
    assert read_table(tmp_path / FILE) == table_of(ONE)
    assert [file.name for file in tmp_path.iterdir()] == [FILE]


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(at=st.integers(0, 10_000), flip=st.integers(1, 255), cut=st.booleans())
def test_a_damaged_file_counts_as_none(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, at: int, flip: int, cut: bool
) -> None:
    """Whatever happens to a byte, nobody gets in who was not let in before, with no other grants; and it is said."""
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
    assert found in {None, table_of(ONE)}  # a space instead of another is no damage
    assert (found is None) == ("Until a manager tells this broker of tokens, none is valid" in caplog.text)


@pytest.mark.parametrize(
    "content", [b"", b"null", b"[]", b"{}", b'{"version": 1}', b'"x"', b"\x00" * 100, b"[" * 10**5]
)
def test_a_file_that_is_no_table_counts_as_none(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, content: bytes
) -> None:
    (tmp_path / FILE).write_bytes(content)
    access = opened(tmp_path)
    assert access.version == ""
    assert is_in(access, SYSTEM)
    assert FILE in caplog.text


def test_a_file_that_cannot_be_opened_counts_as_none(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / FILE).mkdir()
    assert opened(tmp_path).version == ""
    assert "cannot be used" in caplog.text


def test_nothing_that_is_logged_shows_a_digest(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    access = opened(tmp_path)
    asyncio.run(access.hear(told(table_of(ONE))))
    broken = table_of(ONE).to_builtins()
    broken["tokens"][0]["id"] = ONE.token.digest
    asyncio.run(access.hear(json.dumps(broken).encode()))
    (tmp_path / FILE).write_text(json.dumps({"version": "x", **broken}), encoding="utf-8")
    opened(tmp_path)
    assert "access table" in caplog.text
    assert ONE.token.digest not in caplog.text
