"""Contexts: what is in their file, who wins over whom, and what `flotilla contexts` does."""

import json
import os
import stat
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flotilla.command import config, main
from flotilla.command.asking import Server, find_server
from flotilla.command.config import Config, Context
from flotilla.command.errors import InputInvalid
from flotilla.command.flags import Flags

HERE = Path("/folder/config.toml")
PROD, TEST, MINE = "flt_prod", "flt_test", "flt_mine"


# -- the file -----------------------------------------------------------------------------------------------------


def test_a_file_is_read_and_paths_begin_at_its_folder() -> None:
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
        ("current = ", "is no TOML: Invalid value (at end of document)"),
        ("\n[contexts.a]\nurl = http://a", "is no TOML: Invalid value (at line 3, column 7)"),
        ("current = 'a'", "line 1: current names 'a', and there is no such context"),
        ("current = 3", "line 1: current names 3"),
        ("contexts = 3", "line 1: contexts must be tables"),
        ("# x\ncurent = 'a'", "line 2: 'curent' is not known here; these are: current, contexts"),
        ("[contexts.a]\nca = 'x'", "line 1: contexts.a has no url"),
        ("[contexts.a]\nurl = 'a'", "line 2: contexts.a.url: 'a' is not a base URL"),
        ("[contexts.a]\nurl = 5", "line 2: contexts.a.url must be a text"),
        ("[contexts.a]\nurl = 'http://a'\nca = ''", "line 3: contexts.a.ca must be a text that is not empty"),
        ("[contexts.b]\nurl = 'http://b'\n[contexts.a]\nurl = 'http://a'\nuri = 'x'", "line 5: 'uri' is not known"),
        ("[contexts.'a b']\nurl = 'http://a'", ": 'a b' is no name of a context; it has letters, digits"),
        (
            "[contexts.a]\nurl = 'http://a'\nca = '~nobody-has-it/ca'",
            "line 3: contexts.a.ca: '~nobody-has-it/ca' begins",
        ),
        ("[contexts]\na = 'http://a'", "line 2: contexts.a must be a table, as in [contexts.a]"),
        ("contexts.a.url = 'x'", ": contexts.a.url: 'x' is not a base URL"),
    ],
)
def test_a_broken_file_is_refused_with_line_and_reason(text: str, reason: str) -> None:
    with pytest.raises(InputInvalid) as caught:
        config.parse(text, HERE)
    assert str(caught.value).startswith(str(HERE))
    assert reason in str(caught.value)


@pytest.mark.parametrize("key", ["token", "secret"])
def test_a_token_does_not_belong_into_the_file_and_is_not_shown(key: str) -> None:
    with pytest.raises(InputInvalid, match=f"line 3: a {key} does not belong into this file") as caught:
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
def test_what_is_written_is_read_again(known: dict[str, Context], data: st.DataObject) -> None:
    current = data.draw(st.none() | st.sampled_from(sorted(known))) if known else None
    written = Config(known, current)
    assert config.parse(config.write(written), HERE) == written


def test_the_file_is_found_by_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/me")
    assert config.find_path({}) == Path("/home/me/.config/flotilla/config.toml")
    assert config.find_path({"XDG_CONFIG_HOME": "/x"}) == Path("/x/flotilla/config.toml")
    assert config.find_path({"XDG_CONFIG_HOME": "/x", "FLOTILLA_CONFIG": "/y.toml"}) == Path("/y.toml")


def test_who_has_no_home_has_no_contexts_and_asks_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a container, where a number runs programs and nobody knows its name."""
    monkeypatch.delenv("HOME")
    monkeypatch.setattr(os, "getuid", lambda: 2**31 - 2)
    assert find_server(Flags(), {}) == Server("http://127.0.0.1:8080")
    assert config.find_path({"FLOTILLA_CONFIG": "/y.toml"}) == Path("/y.toml")
    with pytest.raises(InputInvalid, match="no home folder to keep contexts in; FLOTILLA_CONFIG"):
        config.save(config.find_path({}), Config())


def test_a_file_that_another_process_is_about_to_put_in_place_stays(tmp_path: Path) -> None:
    path, other = tmp_path / "config.toml", tmp_path / "config.toml.part"
    other.write_text("half of what")
    config.save(path, Config({"a": Context("http://a")}))
    assert (config.load(path).contexts["a"].url, other.read_text()) == ("http://a", "half of what")


def test_the_file_is_the_owners_alone_and_is_replaced_at_once(tmp_path: Path) -> None:
    real, link = tmp_path / "new" / "real.toml", tmp_path / "link.toml"
    link.symlink_to(real)
    for url in ("http://a", "http://b"):
        config.save(link, Config({"a": Context(url)}))
        assert config.load(link).contexts["a"].url == url
    assert link.is_symlink()
    assert stat.S_IMODE(real.stat().st_mode) == 0o600
    assert list(real.parent.iterdir()) == [real]


def test_a_file_that_cannot_be_used_is_named(tmp_path: Path) -> None:
    assert config.load(tmp_path / "missing") == Config()
    with pytest.raises(InputInvalid, match="cannot be read: Is a directory"):
        config.load(tmp_path)
    (tmp_path / "file").write_bytes(b"\xff")
    with pytest.raises(InputInvalid, match="it is no UTF-8 text"):
        config.load(tmp_path / "file")
    with pytest.raises(InputInvalid, match=r"cannot be written: (File exists|Not a directory)"):
        config.save(tmp_path / "file" / "config.toml", Config())


# -- who wins -----------------------------------------------------------------------------------------------------


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


def found(file: Path, flags: dict[str, Any], **variables: str) -> Server:
    return find_server(Flags(**flags), {"FLOTILLA_CONFIG": str(file), **variables})


def test_without_anything_the_current_context_holds(file: Path) -> None:
    assert found(file, {}) == Server("https://prod", PROD, file.parent / "ca", "prod")
    config.save(file, Config())
    assert found(file, {}) == Server("http://127.0.0.1:8080")


def test_variables_win_over_the_current_context_and_flags_over_variables(file: Path) -> None:
    assert found(file, {}, FLOTILLA_CONTEXT="test") == Server("http://test", TEST, None, "test")
    assert found(file, {}, FLOTILLA_TOKEN=MINE).token == MINE
    assert found(file, {}, FLOTILLA_TLS_CA="other").ca == Path("other")
    assert found(file, {"token_file": file.parent / "mine"}, FLOTILLA_TOKEN=TEST).token == MINE
    assert found(file, {"ca": Path("flag")}, FLOTILLA_TLS_CA="other").ca == Path("flag")


def test_a_token_of_a_context_goes_nowhere_else(file: Path) -> None:
    """Where a flag or a variable says where to ask, the current context does not count."""
    assert found(file, {}, FLOTILLA_URL="http://other") == Server("http://other")
    assert found(file, {"url": "http://other"}) == Server("http://other")
    assert found(file, {}, FLOTILLA_URL="http://other", FLOTILLA_CONTEXT="test") == Server("http://other")


def test_a_context_that_is_named_by_the_flag_wins_over_all_variables(file: Path) -> None:
    """So that neither the address nor the token of another system comes in between."""
    variables = {
        "FLOTILLA_URL": "http://other",
        "FLOTILLA_TOKEN": MINE,
        "FLOTILLA_TLS_CA": "other",
        "FLOTILLA_CONTEXT": "prod",
        "FLOTILLA_SECRET": "0123456789abcdef",
    }
    assert found(file, {"context": "test"}, **variables) == Server("http://test", TEST, None, "test")
    given_too = {"context": "test", "url": "http://near", "token_file": file.parent / "mine"}
    assert found(file, given_too, **variables) == Server("http://near", MINE, None, "test")


def test_a_context_that_is_not_there_is_told_with_the_nearest(file: Path) -> None:
    with pytest.raises(InputInvalid, match=r"^there is no context 'prd'; did you mean 'prod'\?"):
        found(file, {"context": "prd"})
    with pytest.raises(InputInvalid, match="no context 'x', which FLOTILLA_CONTEXT names; `flotilla contexts list`"):
        found(file, {}, FLOTILLA_CONTEXT="x")


@pytest.mark.parametrize("flag", ["context", "url"])
def test_a_flag_that_is_empty_is_refused(file: Path, flag: str) -> None:
    """As of `--context "$SYSTEM"` without that variable: nobody means the current one then."""
    with pytest.raises(InputInvalid, match=f"--{flag} is empty"):
        found(file, {flag: ""}, FLOTILLA_URL="http://a")


def test_a_broken_file_is_no_matter_for_who_says_where_to_ask(file: Path) -> None:
    file.write_text("broken")
    assert found(file, {"url": "http://other"}).url == "http://other"
    with pytest.raises(InputInvalid, match="is no TOML"):
        found(file, {})


def test_a_client_of_a_command_does_not_look_at_variables(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A context without a token file is asked without a token, whatever FLOTILLA_TOKEN says."""
    config.save(file, Config({"open": Context("http://127.0.0.1:1")}))
    monkeypatch.setenv("FLOTILLA_TOKEN", MINE)
    server = found(file, {"context": "open"}, FLOTILLA_TOKEN=MINE)
    monkeypatch.setattr("flotilla.command.asking.run", lambda *_, **__: None)
    with server.open() as client:
        assert client._client.engine.config.token is None


# -- the command --------------------------------------------------------------------------------------------------


def test_contexts_are_set_used_shown_and_deleted(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
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
    assert out("use new") == "context 'new' is the current one now\n"
    assert out("show").splitlines()[-1] == "current     yes"
    assert json.loads(out("list --json"))["current"] == "new"
    assert out("delete new") == "context 'new' is deleted\n"
    assert out("delete new --missing-ok") == "context 'new' is deleted\n"
    assert json.loads(out("list --json"))["current"] is None
    out("use prod")
    assert "no context" in out("use --none")
    assert config.load(file).current is None


@pytest.mark.usefixtures("file")
@pytest.mark.parametrize(
    ("line", "text"),
    [
        ("set new", "there is no context 'new' yet: give --url, too"),
        ("set n/w --url http://a", "'n/w' is no name of a context"),
        ("set new --url a", "'a' is not a base URL"),
        ("set prod --ca x --unset ca", "--ca and --unset ca contradict each other"),
        ("set prod --ca a\x1bb", "a path in the file has printable characters only"),
        ("use", "give the name of a context, or --none"),
        ("use prod --none", "give the name of a context, or --none"),
        ("use prd", "there is no context 'prd'; did you mean 'prod'?"),
        ("show prd", "there is no context 'prd'"),
        ("delete prd", "there is no context 'prd'"),
    ],
)
def test_what_cannot_be_meant_changes_nothing(capsys: pytest.CaptureFixture[str], line: str, text: str) -> None:
    before = config.load(config.find_path(os.environ))
    assert main(["contexts", *line.split()]) == 2
    assert text in capsys.readouterr().err
    assert config.load(config.find_path(os.environ)) == before


@pytest.mark.usefixtures("file")
def test_a_token_that_is_given_for_its_file_is_not_shown(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["contexts", "set", "prod", "--token-file", "flt_hush"]) == 2
    told = capsys.readouterr().err
    assert "put it into a file" in told
    assert "hush" not in told


@pytest.mark.usefixtures("file")
def test_who_has_set_a_variable_is_told_that_it_wins(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("FLOTILLA_CONTEXT", "test")
    assert main(["contexts", "show"]) == 0
    told = capsys.readouterr()
    assert "http://test" in told.out
    assert "FLOTILLA_CONTEXT is set" in told.err
    monkeypatch.setenv("FLOTILLA_URL", "http://other")
    assert main(["contexts", "use", "prod"]) == 0
    assert "FLOTILLA_URL is set, and wins" in capsys.readouterr().err


def test_a_file_without_contexts_says_how_to_make_one(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file.unlink()
    assert main(["contexts", "list"]) == 0
    assert "there are no contexts yet; `flotilla contexts set --help`" in capsys.readouterr().err
    assert main(["contexts", "show"]) == 2


@pytest.mark.usefixtures("file")
def test_what_cannot_be_reached_is_told_with_its_context(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["contexts", "set", "away", "--url", "http://127.0.0.1:1"]) == 0
    assert main(["topics", "list", "--context", "away"]) == 1
    told = capsys.readouterr().err
    assert "cannot reach http://127.0.0.1:1, of context 'away': Connection refused. Is it running?" in told
    assert str(tmp_path) not in told
