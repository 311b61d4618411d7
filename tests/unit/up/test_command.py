"""The commands `flotilla up` and `flotilla admin`: options and missing servers."""

import sys

import pytest

from flotilla.command import main
from flotilla.command.admin import exec_module
from flotilla.command.up import up
from flotilla.up.errors import ServersMissing
from flotilla.up.plan import Programs
from flotilla.up.run import check_installed


def test_version_and_help_are_printed(capsys: pytest.CaptureFixture[str]) -> None:
    for arguments, text in [
        (["--version"], "flotilla 0."),
        (["--help"], "Start a Flotilla cluster on this machine"),
        (["up", "--help"], "flotilla up --port 9000"),
        (["admin", "--help"], "rebuild-metadata"),
    ]:
        assert main(arguments) == 0
        assert text in capsys.readouterr().out


def test_up_help_lists_every_option(capsys: pytest.CaptureFixture[str]) -> None:
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
def test_usage_error_exits_with_2(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(arguments) == 2
    assert "Usage: flotilla" in capsys.readouterr().err


def test_invalid_up_option_exits_with_2(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["up", "--brokers", "0"]) == 2
    assert capsys.readouterr().err == "flotilla up: --brokers must be from 1 to 16\n"


def test_auth_comes_from_option_or_variable(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without the option, the variable applies."""
    monkeypatch.delenv("FLOTILLA_AUTH", raising=False)
    assert up.make_context("up", []).params["auth"] == "auto"
    monkeypatch.setenv("FLOTILLA_AUTH", "on")
    assert up.make_context("up", []).params["auth"] == "on"
    assert up.make_context("up", ["--auth", "off"]).params["auth"] == "off"
    monkeypatch.setenv("FLOTILLA_AUTH", "perhaps")
    assert main(["up"]) == 2
    assert "'--auth' (env var: 'FLOTILLA_AUTH'): 'perhaps' is not one of 'on', 'off', 'auto'" in capsys.readouterr().err


def test_up_rejects_certificates(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("FLOTILLA_TLS_CERT", "cert.pem")
    monkeypatch.setenv("FLOTILLA_TLS_KEY", "")
    assert main(["up"], Programs("no_such_package", "no_such_package")) == 2
    said = capsys.readouterr().err
    assert said.startswith("flotilla up: FLOTILLA_TLS_CERT cannot be used: `flotilla up` serves plain HTTP")


def test_up_without_servers_prints_what_to_install(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["up"], Programs("flotilla_broker", "no_such_package")) == 1
    text = (
        "flotilla up: servers are not installed (missing: no_such_package): run `make setup` in a clone of Flotilla\n"
    )
    assert capsys.readouterr().err == text


def test_all_missing_packages_are_named() -> None:
    with pytest.raises(ServersMissing, match="missing: flotilla_broker and flotilla_manager"):
        check_installed(Programs(), find=lambda _: None)


def test_rebuild_metadata_passes_arguments_unchanged() -> None:
    executed: list[list[str]] = []

    def execute(program: str, command: list[str]) -> None:
        assert program == command[0] == sys.executable
        executed.append(command[1:])

    exec_module("flotilla_manager.rebuild_command", ["--help", "-x", "a b"], find=lambda _: True, execute=execute)
    assert executed == [["-P", "-m", "flotilla_manager.rebuild_command", "--help", "-x", "a b"]]


def test_rebuild_metadata_without_servers_prints_what_to_install() -> None:
    def find(name: str) -> object:
        assert name == "flotilla_manager"
        return None

    def never(program: str, _: list[str]) -> None:
        pytest.fail(f"{program} was executed")

    with pytest.raises(ServersMissing, match="run `make setup` in a clone"):
        exec_module("flotilla_manager.rebuild_command", [], find=find, execute=never)
