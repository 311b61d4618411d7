"""Contexts: the file, precedence, and the commands."""

import json
import os
import stat
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flotilla.command import config, main
from flotilla.command.config import Config, Context
from flotilla.command.connection import ConnectionTarget, resolve_server
from flotilla.command.errors import InputInvalid
from flotilla.command.flags import ConnectionFlags

HERE = Path("/folder/config.toml")
PROD, TEST, MINE = "flt_prod", "flt_test", "flt_mine"


# -- the file ---------------------------------------------------------------------------------------------------------


def test_relative_paths_start_at_the_folder_of_the_file() -> None:
    text = """
        current = "prod"
        [contexts.prod]
        url = "https://a.example, http://b:1/"
        ca = "ca.pem"
        token_file = "/etc/token"
        [contexts.test_2]
        url = "http://c"
    """
    found = config.parse(text, HERE)
    prod = Context("https://a.example,http://b:1", Path("/folder/ca.pem"), Path("/etc/token"))
    assert found == Config({"prod": prod, "test_2": Context("http://c")}, "prod")
    assert config.parse("", HERE) == Config()


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("current = ", "invalid TOML: Invalid value (at end of document)"),
        ("\n[contexts.a]\nurl = http://a", "invalid TOML: Invalid value (at line 3, column 7)"),
        ("current = 'a'", "line 1: current is 'a', but there is no [contexts.a]: add it, or remove this line"),
        ("current = 3", "line 1: current is 3, but there is no [contexts.3]"),
        ("contexts = 3", "line 1: contexts must be tables"),
        ("# x\ncurent = 'a'", "line 2: unknown key 'curent'; expected: current, contexts"),
        ("[contexts.a]\nca = 'x'", "line 1: contexts.a has no key 'url'"),
        ("[contexts.a]\nurl = 'a'", "line 2: contexts.a.url: 'a' is not a base URL"),
        ("[contexts.a]\nurl = 5", "line 2: contexts.a.url must be a non-empty string"),
        ("[contexts.a]\nurl = 'http://a'\nca = ''", "line 3: contexts.a.ca must be a non-empty string"),
        ("[contexts.b]\nurl = 'http://b'\n[contexts.a]\nurl = 'http://a'\nuri = 'x'", "line 5: unknown key 'uri'"),
        ("[contexts.'a b']\nurl = 'http://a'", ": 'a b' is not a valid context name: use letters, digits"),
        (
            "[contexts.a]\nurl = 'http://a'\nca = '~missing-user/ca'",
            "line 3: contexts.a.ca: home directory of '~missing-user/ca' not found",
        ),
        ("[contexts]\na = 'http://a'", "line 2: contexts.a must be a table, such as [contexts.a]"),
        ("contexts.a.url = 'x'", ": contexts.a.url: 'x' is not a base URL"),
    ],
)
def test_invalid_contexts_file_is_rejected_with_line_and_reason(text: str, reason: str) -> None:
    with pytest.raises(InputInvalid) as caught:
        config.parse(text, HERE)
    assert str(caught.value).startswith(str(HERE))
    assert reason in str(caught.value)


@pytest.mark.parametrize("key", ["token", "secret"])
def test_contexts_file_rejects_tokens_without_showing_them(key: str) -> None:
    with pytest.raises(InputInvalid, match=f"line 3: a {key} must not be in this file") as caught:
        config.parse(f"[contexts.a]\nurl = 'http://a'\n{key} = 'flt_hush'", HERE)
    assert "hush" not in str(caught.value)


def printable(text: str) -> bool:
    return text.isprintable() and "/" not in text and not text.startswith("~")


paths = st.text(min_size=1).filter(printable).map(lambda name: Path("/somewhere") / name)
contexts = st.builds(
    Context, st.sampled_from(["http://a", "https://b:1,http://c"]), st.none() | paths, st.none() | paths
)
names = st.from_regex(r"[A-Za-z0-9_-]{1,64}", fullmatch=True)


@given(st.dictionaries(names, contexts), st.data())
def test_contexts_file_round_trips(known: dict[str, Context], data: st.DataObject) -> None:
    current = data.draw(st.none() | st.sampled_from(sorted(known))) if known else None
    written = Config(known, current)
    assert config.parse(config.write(written), HERE) == written


def test_contexts_file_path_follows_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/me")
    assert config.find_path({}) == Path("/home/me/.config/flotilla/config.toml")
    assert config.find_path({"XDG_CONFIG_HOME": "/x"}) == Path("/x/flotilla/config.toml")
    assert config.find_path({"XDG_CONFIG_HOME": "/x", "FLOTILLA_CONFIG": "/y.toml"}) == Path("/y.toml")


def test_commands_work_without_home_directory(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a container whose user id has no passwd entry."""
    monkeypatch.delenv("HOME")
    monkeypatch.setattr(os, "getuid", lambda: 2**31 - 2)
    assert resolve_server(ConnectionFlags(), {}) == ConnectionTarget("http://127.0.0.1:8080")
    assert config.find_path({"FLOTILLA_CONFIG": "/y.toml"}) == Path("/y.toml")
    with pytest.raises(InputInvalid, match="no home directory to store contexts in: set FLOTILLA_CONFIG"):
        config.save(config.find_path({}), Config())


def test_save_keeps_the_temporary_file_of_another_process(tmp_path: Path) -> None:
    path, other = tmp_path / "config.toml", tmp_path / "config.toml.part"
    other.write_text("half of what")
    config.save(path, Config({"a": Context("http://a")}))
    assert (config.load(path).contexts["a"].url, other.read_text()) == ("http://a", "half of what")


def test_contexts_file_is_private_and_replaced_atomically(tmp_path: Path) -> None:
    real, link = tmp_path / "new" / "real.toml", tmp_path / "link.toml"
    link.symlink_to(real)
    for url in ("http://a", "http://b"):
        config.save(link, Config({"a": Context(url)}))
        assert config.load(link).contexts["a"].url == url
    assert link.is_symlink()
    assert stat.S_IMODE(real.stat().st_mode) == 0o600
    assert list(real.parent.iterdir()) == [real]


def test_unusable_contexts_file_is_named(tmp_path: Path) -> None:
    assert config.load(tmp_path / "missing") == Config()
    with pytest.raises(InputInvalid, match="cannot be read: Is a directory"):
        config.load(tmp_path)
    (tmp_path / "file").write_bytes(b"\xff")
    with pytest.raises(InputInvalid, match="not valid UTF-8"):
        config.load(tmp_path / "file")
    with pytest.raises(InputInvalid, match=r"cannot be written: (File exists|Not a directory)"):
        config.save(tmp_path / "file" / "config.toml", Config())


# -- precedence -------------------------------------------------------------------------------------------------------


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in [name for name in os.environ if name.startswith("FLOTILLA_")]:
        monkeypatch.delenv(name)
    for name, token in (("prod", PROD), ("test", TEST), ("mine", MINE)):
        (tmp_path / name).write_text(token)
    path = tmp_path / "config.toml"
    prod = Context("https://prod", tmp_path / "ca", tmp_path / "prod")
    config.save(path, Config({"prod": prod, "test": Context("http://test", None, tmp_path / "test")}, "prod"))
    monkeypatch.setenv("FLOTILLA_CONFIG", str(path))
    return path


def found(file: Path, flags: dict[str, Any], **variables: str) -> ConnectionTarget:
    return resolve_server(ConnectionFlags(**flags), {"FLOTILLA_CONFIG": str(file), **variables})


def test_current_context_is_the_default(file: Path) -> None:
    assert found(file, {}) == ConnectionTarget("https://prod", PROD, file.parent / "ca", "prod")
    config.save(file, Config())
    assert found(file, {}) == ConnectionTarget("http://127.0.0.1:8080")


def test_options_override_variables_and_variables_override_the_current_context(file: Path) -> None:
    assert found(file, {}, FLOTILLA_CONTEXT="test") == ConnectionTarget("http://test", TEST, None, "test")
    assert found(file, {}, FLOTILLA_TOKEN=MINE).token == MINE
    assert found(file, {}, FLOTILLA_TLS_CA="other").ca == Path("other")
    assert found(file, {"token_file": file.parent / "mine"}, FLOTILLA_TOKEN=TEST).token == MINE
    assert found(file, {"ca": Path("flag")}, FLOTILLA_TLS_CA="other").ca == Path("flag")


def test_token_of_a_context_is_not_sent_to_another_url(file: Path) -> None:
    """If an option or a variable sets the URL, the current context is ignored."""
    assert found(file, {}, FLOTILLA_URL="http://other") == ConnectionTarget("http://other")
    assert found(file, {"url": "http://other"}) == ConnectionTarget("http://other")
    assert found(file, {}, FLOTILLA_URL="http://other", FLOTILLA_CONTEXT="test") == ConnectionTarget("http://other")


def test_context_option_ignores_variables(file: Path) -> None:
    """Neither URL nor token of another system is mixed in."""
    variables = {
        "FLOTILLA_URL": "http://other",
        "FLOTILLA_TOKEN": MINE,
        "FLOTILLA_TLS_CA": "other",
        "FLOTILLA_CONTEXT": "prod",
        "FLOTILLA_SECRET": "0123456789abcdef",
    }
    assert found(file, {"context": "test"}, **variables) == ConnectionTarget("http://test", TEST, None, "test")
    given_too = {"context": "test", "url": "http://near", "token_file": file.parent / "mine"}
    assert found(file, given_too, **variables) == ConnectionTarget("http://near", MINE, None, "test")


def test_missing_context_suggests_the_closest_name(file: Path) -> None:
    with pytest.raises(InputInvalid, match=r"^context 'prd' does not exist; did you mean 'prod'\?"):
        found(file, {"context": "prd"})
    with pytest.raises(
        InputInvalid, match="context 'x' \\(set by FLOTILLA_CONTEXT\\) does not exist; see `flotilla contexts list`"
    ):
        found(file, {}, FLOTILLA_CONTEXT="x")


@pytest.mark.parametrize("flag", ["context", "url"])
def test_empty_option_is_rejected(file: Path, flag: str) -> None:
    """`--context "$SYSTEM"` with an unset variable must not mean the current context."""
    with pytest.raises(InputInvalid, match=f"--{flag} must not be empty"):
        found(file, {flag: ""}, FLOTILLA_URL="http://a")


def test_url_option_ignores_an_invalid_contexts_file(file: Path) -> None:
    file.write_text("broken")
    assert found(file, {"url": "http://other"}).url == "http://other"
    with pytest.raises(InputInvalid, match="invalid TOML"):
        found(file, {})


def test_client_of_a_command_ignores_variables(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Requests to a context without token file carry no token, even with FLOTILLA_TOKEN set."""
    config.save(file, Config({"open": Context("http://127.0.0.1:1")}))
    monkeypatch.setenv("FLOTILLA_TOKEN", MINE)
    server = found(file, {"context": "open"}, FLOTILLA_TOKEN=MINE)
    monkeypatch.setattr("flotilla.command.connection.run", lambda *_, **__: None)
    with server.open() as client:
        assert client._client._engine.config.token is None


# -- the command ------------------------------------------------------------------------------------------------------


def test_contexts_can_be_set_used_shown_and_deleted(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def out(line: str) -> str:
        assert main(["contexts", *line.split()]) == 0, capsys.readouterr().err
        return capsys.readouterr().out

    assert "current  name  url           ca" in out("list")
    assert json.loads(out("set new --url http://new:1/ --json"))["url"] == "http://new:1"
    assert "token-file  /t" in out("set new --token-file /t --ca /c")
    assert json.loads(out("set new --unset ca --json")) == {
        "name": "new",
        "url": "http://new:1",
        "ca": None,
        "token_file": "/t",
    }
    assert out("use new") == "switched to context 'new'\n"
    assert out("show").splitlines()[-1] == "current     yes"
    assert json.loads(out("list --json"))["current"] == "new"
    assert out("delete new") == "context 'new' deleted\n"
    assert out("delete new --missing-ok") == "context 'new' does not exist\n"
    assert json.loads(out("list --json"))["current"] is None
    out("use prod")
    assert out("use --none") == "current context unset\n"
    assert config.load(file).current is None


@pytest.mark.usefixtures("file")
@pytest.mark.parametrize(
    ("line", "text"),
    [
        ("set new", "context 'new' does not exist: creating it requires --url"),
        ("set n/w --url http://a", "'n/w' is not a valid context name"),
        ("set new --url a", "'a' is not a base URL"),
        ("set prod --ca x --unset ca", "--ca and --unset ca are mutually exclusive"),
        ("set prod --ca a\x1bb", "has characters that are not printable"),
        ("use", "expected the name of a context, or --none"),
        ("use prod --none", "expected the name of a context, or --none"),
        ("use prd", "context 'prd' does not exist; did you mean 'prod'?"),
        ("show prd", "context 'prd' does not exist"),
        ("delete prd", "context 'prd' does not exist"),
    ],
)
def test_invalid_context_arguments_change_nothing(capsys: pytest.CaptureFixture[str], line: str, text: str) -> None:
    before = config.load(config.find_path(os.environ))
    assert main(["contexts", *line.split()]) == 2
    assert text in capsys.readouterr().err
    assert config.load(config.find_path(os.environ)) == before


@pytest.mark.usefixtures("file")
def test_token_passed_as_token_file_is_not_shown(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["contexts", "set", "prod", "--token-file", "flt_hush"]) == 2
    captured = capsys.readouterr().err
    assert "save the token to a file first" in captured
    assert "hush" not in captured


@pytest.mark.usefixtures("file")
def test_contexts_warn_about_overriding_variables(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("FLOTILLA_CONTEXT", "test")
    assert main(["contexts", "show"]) == 0
    captured = capsys.readouterr()
    assert "http://test" in captured.out
    assert "FLOTILLA_CONTEXT is set" in captured.err
    monkeypatch.setenv("FLOTILLA_URL", "http://other")
    assert main(["contexts", "use", "prod"]) == 0
    assert "FLOTILLA_URL is set and overrides" in capsys.readouterr().err


def test_empty_context_list_prints_a_hint(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file.unlink()
    assert main(["contexts", "list"]) == 0
    assert "no contexts; create one with `flotilla contexts set" in capsys.readouterr().err
    assert main(["contexts", "show"]) == 2


@pytest.mark.usefixtures("file")
def test_unreachable_error_names_the_context(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["contexts", "set", "away", "--url", "http://127.0.0.1:1"]) == 0
    assert main(["topics", "list", "--context", "away"]) == 1
    captured = capsys.readouterr().err
    assert "cannot reach http://127.0.0.1:1 (context 'away'): Connection refused. Is it running?" in captured
    assert str(tmp_path) not in captured
