"""Declaration of settings: sources of values, names, and errors."""

from dataclasses import dataclass, make_dataclass
from pathlib import Path
from typing import Any

import pytest

from flotilla.net.urls import parse_url
from flotilla_server.settings import (
    REQUIRED,
    SettingsInvalid,
    is_loopback,
    load,
    make_parser,
    parse_flag,
    parse_size,
    parse_urls,
    require,
    secret,
    setting,
    url_host,
    url_port,
)


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Example settings."""

    port: int = setting(80, "a port, 100% of the time", int, {"PORT": int})
    role: str = setting("writer", "a role", str, {"READ_ONLY": lambda text: "reader" if parse_flag(text) else "writer"})
    urls: tuple[str, ...] = setting((), "some URLs", parse_urls)
    token_file: Path | None = setting(None, "a file", Path)  # noqa: RUF009 - as servers declare them
    token: bytes | None = secret("token_file")

    def __post_init__(self) -> None:
        require(self.port > 0, "port", "above 0")


GIVEN = {"FLOTILLA_TOKEN": "from a variable"}
PARSER = make_parser(Settings, prog="example", description="An example.")


def read(*arguments: str, **environment: str) -> Settings:
    return load(Settings, arguments, environment, PARSER)


def test_flag_overrides_variable_and_variable_overrides_aliases() -> None:
    assert read().port == 80
    assert read(PORT="1").port == 1
    assert read(PORT="1", FLOTILLA_PORT="2").port == 2
    assert read("--port", "3", PORT="1", FLOTILLA_PORT="2").port == 3


def test_alias_may_have_its_own_parser() -> None:
    assert read(READ_ONLY="true").role == "reader"
    assert read(READ_ONLY="0").role == "writer"
    with pytest.raises(SettingsInvalid, match="READ_ONLY: 'perhaps' is not a boolean: must be true or false"):
        read(READ_ONLY="perhaps")


def test_error_names_the_source_of_the_value() -> None:
    with pytest.raises(SettingsInvalid, match=r"^--port: "):
        read("--port", "x")
    with pytest.raises(SettingsInvalid, match=r"^PORT: "):
        read(PORT="x")
    with pytest.raises(SettingsInvalid, match="port must be above 0"):
        read("--port", "0")


def test_secret_is_read_from_variable_or_file_and_never_shown(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("from a file\n")
    assert read(**GIVEN).token == b"from a variable"
    assert read("--token-file", str(file), **GIVEN).token == b"from a file"
    assert "variable" not in repr(read(**GIVEN))
    with pytest.raises(SettingsInvalid, match=r"token_file .*nothing cannot be read: No such file"):
        read(FLOTILLA_TOKEN_FILE=str(tmp_path / "nothing"))
    with pytest.raises(SystemExit):
        read("--token", "x")


@pytest.mark.parametrize(
    ("declared", "shown"),
    [
        (setting(64 << 20, "a size", parse_size), "--x-bytes SIZE a size (default: 64MiB; FLOTILLA_X_BYTES)"),
        (setting(True, "a switch", parse_flag), "--x-bytes BOOL a switch (default: true; FLOTILLA_X_BYTES)"),
        (setting(None, "a URL", parse_url), "--x-bytes URL a URL (default: none; FLOTILLA_X_BYTES)"),
        (setting(None, "a file", Path, fallback="system CAs"), "a file (default: system CAs; FLOTILLA_X_BYTES)"),
        (setting("", "a name", fallback=REQUIRED), "a name (required; FLOTILLA_X_BYTES)"),
    ],
)
def test_help_shows_unit_and_default(declared: Any, shown: str) -> None:  # noqa: ANN401 - a field of any type
    kind = make_dataclass("Example", [("x_bytes", Any, declared)])
    text = make_parser(kind, prog="example", description="An example.").format_help()
    assert shown in " ".join(text.split())


def test_help_lists_every_name() -> None:
    text = PARSER.format_help()
    for part in ("--port", "100% of the time", "default: 80; FLOTILLA_PORT, PORT", "default: none; FLOTILLA_URLS"):
        assert part in " ".join(text.split())


@pytest.mark.parametrize(
    ("text", "host", "port"),
    [
        ("http://a:1", "a", 1),
        ("http://a.b.c/", "a.b.c", 80),
        ("http://[::1]:8080", "::1", 8080),
        ("https://a:1", "a", 1),
        ("https://a", "a", 443),
    ],
)
def test_base_urls_are_parsed(text: str, host: str, port: int) -> None:
    assert parse_url(text) == text.rstrip("/")
    assert (url_host(text), url_port(text)) == (host, port)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "a",
        "a:1",
        "ftp://a:1",
        "http://",
        "http://:1",
        "http://a:x",
        "http://a:70000",
        "http://a:0",
        "http://a/b",
        "http://a?b",
        "http://a#b",
        "http://u:p@a",
        "http://[::1",
    ],
)
def test_invalid_base_url_is_rejected(text: str) -> None:
    with pytest.raises(ValueError, match="is not a base URL"):
        parse_url(text)


def test_urls_are_separated_by_commas() -> None:
    assert parse_urls("") == ()
    assert parse_urls("http://a:1, http://b:2/,") == ("http://a:1", "http://b:2")
    assert parse_size("2KiB") == 2048


def test_loopback_hosts_are_recognized() -> None:
    assert [is_loopback(host) for host in ("127.0.0.1", "::1", "localhost", "0.0.0.0", "host")] == [  # noqa: S104
        True,
        True,
        True,
        False,
        False,
    ]
