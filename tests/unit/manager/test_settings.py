"""Settings of a manager: sources, precedence, defaults and validation."""

from pathlib import Path

import pytest

from flotilla_manager.settings import load_settings
from flotilla_server.settings import SettingsInvalid


def test_alias_variables_are_accepted() -> None:
    settings = load_settings(
        [],
        {
            "PORT": "5001",
            "READ_ONLY": "false",
            "CURRENT_ADDRESS": "http://here:5001",
            "MANAGER_ADDRESS": "http://writer:5000",
        },
    )
    assert (settings.port, settings.role) == (5001, "writer")
    assert (settings.url, settings.writer) == ("http://here:5001", "http://writer:5000")
    assert load_settings([], {"READ_ONLY": "true"}).role == "reader"


def test_flag_takes_precedence_over_variable_and_alias() -> None:
    environment = {"PORT": "1", "FLOTILLA_PORT": "2"}
    assert load_settings([], environment).port == 2
    assert load_settings(["--port", "3"], environment).port == 3


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["--role", "king"], "role"),
        (["--port", "70000"], "port"),
        (["--port", "x"], "port"),
        (["--public-port", "70000"], "public_port"),
        (["--public-port", "8080"], "public_port must be from 1 to 65535, and different from port and own_port"),
        (["--brokers-min", "-1"], "brokers_min"),
        (["--message-bytes-max", "0"], "message_bytes_max"),
        (["--body-bytes-max", "1"], "body_bytes_max"),
        (["--request-s-max", "nan"], "request_s_max"),
        (["--client-silence-s", "0"], "client_silence_s"),
        (["--connections-max", "1"], "connections_max"),
        (["--log-level", "loud"], "log_level"),
        (["--url", "ftp://x"], "url"),
    ],
)
def test_error_names_the_invalid_setting(arguments: list[str], text: str) -> None:
    with pytest.raises(SettingsInvalid, match=text):
        load_settings(arguments, {})


def test_database_url_is_read_from_a_file_and_an_unreadable_file_is_named(tmp_path: Path) -> None:
    path = tmp_path / "url"
    path.write_text("postgresql://u:p@h/d\n")
    assert load_settings(["--database-file", str(path)], {}).database == "postgresql://u:p@h/d"
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(SettingsInvalid, match="url cannot be read"):
        load_settings(["--database-file", str(path)], {})
    with pytest.raises(SettingsInvalid, match="nothing cannot be read"):
        load_settings(["--database-file", str(tmp_path / "nothing")], {})


def test_url_and_name_default_to_the_bound_port() -> None:
    settings = load_settings(["--port", "0"], {}).at_port(4711)
    assert (settings.url, settings.name) == ("http://127.0.0.1:4711", "127.0.0.1:4711")
    shared = load_settings(["--reuse-port", "true"], {}).at_port(4711)
    assert shared.name is not None
    assert shared.name.startswith("127.0.0.1:4711#"), "managers that share a port need different names"
    assert load_settings(["--host", "::1"], {}).at_port(1).url == "http://[::1]:1"


def test_manager_with_a_certificate_has_an_https_url() -> None:
    flags = ["--tls-cert", "cert.pem", "--tls-key", "key.pem"]
    settings = load_settings(flags, {}).at_port(4711)
    assert (settings.scheme, settings.url, settings.name) == ("https", "https://127.0.0.1:4711", "127.0.0.1:4711")
    assert load_settings([*flags, "--url", "https://m"], {}).at_port(1).url == "https://m"


def test_default_retention_of_new_topics_is_a_week() -> None:
    settings = load_settings([], {})
    assert (settings.retention_ms, settings.retention_bytes) == (7 * 24 * 3600 * 1000, None)
    settings = load_settings(["--retention-ms", "unlimited", "--retention-bytes", "10GiB"], {})
    assert (settings.retention_ms, settings.retention_bytes) == (None, 10 << 30)
    with pytest.raises(SettingsInvalid, match=r"--retention-ms: '-1' is not an integer of at least 0"):
        load_settings(["--retention-ms", "-1"], {})
