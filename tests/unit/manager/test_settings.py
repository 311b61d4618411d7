"""Settings of a manager: what is taken from where, and what is refused before anything starts."""

from pathlib import Path

import pytest

from flotilla.serving.settings import SettingsInvalid
from flotilla_manager.settings import load_settings


def test_the_ancestors_variables_are_known() -> None:
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


def test_a_flag_wins_over_its_variable_and_that_over_an_ancestors() -> None:
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
        (["--public-port", "8080"], "public_port must be from 1 to 65535, and another one than port and own_port"),
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
def test_a_refusal_names_the_setting(arguments: list[str], text: str) -> None:
    with pytest.raises(SettingsInvalid, match=text):
        load_settings(arguments, {})


def test_the_databases_url_can_be_in_a_file_and_one_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    path = tmp_path / "url"
    path.write_text("postgresql://u:p@h/d\n")
    assert load_settings(["--database-file", str(path)], {}).database == "postgresql://u:p@h/d"
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(SettingsInvalid, match="url cannot be read"):
        load_settings(["--database-file", str(path)], {})
    with pytest.raises(SettingsInvalid, match="nothing cannot be read"):
        load_settings(["--database-file", str(tmp_path / "nothing")], {})


def test_what_follows_from_the_port_is_filled_in() -> None:
    settings = load_settings(["--port", "0"], {}).at_port(4711)
    assert (settings.url, settings.name) == ("http://127.0.0.1:4711", "127.0.0.1:4711")
    shared = load_settings(["--reuse-port", "true"], {}).at_port(4711)
    assert shared.name is not None
    assert shared.name.startswith("127.0.0.1:4711#"), "several have the same port, and need names of their own"
    assert load_settings(["--host", "::1"], {}).at_port(1).url == "http://[::1]:1"


def test_a_manager_with_a_certificate_is_reached_by_https() -> None:
    flags = ["--tls-cert", "cert.pem", "--tls-key", "key.pem"]
    settings = load_settings(flags, {}).at_port(4711)
    assert (settings.scheme, settings.url, settings.name) == ("https", "https://127.0.0.1:4711", "127.0.0.1:4711")
    assert load_settings([*flags, "--url", "https://m"], {}).at_port(1).url == "https://m"


def test_new_topics_keep_records_for_a_week_unless_told_otherwise() -> None:
    settings = load_settings([], {})
    assert (settings.retention_ms, settings.retention_bytes) == (7 * 24 * 3600 * 1000, None)
    settings = load_settings(["--retention-ms", "unlimited", "--retention-bytes", "10GiB"], {})
    assert (settings.retention_ms, settings.retention_bytes) == (None, 10 << 30)
    with pytest.raises(SettingsInvalid, match=r"--retention-ms: '-1' is not a number"):
        load_settings(["--retention-ms", "-1"], {})
