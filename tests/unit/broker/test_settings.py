"""Settings: flags win over variables, everything is checked, and an error names the setting and the rule."""

import re
from pathlib import Path

import pytest

from flotilla_broker.log import Durability
from flotilla_broker.settings import Settings, SettingsInvalid, load_settings, make_parser, parse_size


def test_defaults_just_work() -> None:
    settings = load_settings([], {})
    assert settings == Settings()
    assert settings.log_config.durability is Durability.FSYNC
    assert settings.peer_tls is None


def test_a_flag_wins_over_a_variable_and_a_variable_over_the_default() -> None:
    environment = {"FLOTILLA_PORT": "1", "FLOTILLA_PEER_PORT": "2", "OTHER": "x"}
    settings = load_settings(["--port", "3"], environment)
    assert (settings.port, settings.peer_port, settings.host) == (3, 2, "127.0.0.1")


@pytest.mark.parametrize(
    ("text", "size"),
    [("0", 0), ("512", 512), ("64KiB", 65536), ("1MiB", 1 << 20), ("2GiB", 2 << 30), ("1TiB", 1 << 40)],
)
def test_sizes_are_read(text: str, size: int) -> None:
    assert parse_size(text) == size


@pytest.mark.parametrize("text", ["", "x", "1MB", "-1", "1.5MiB", "MiB", "1 MiB", "1miB", "²"])
def test_what_is_no_size_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not a size"):
        parse_size(text)


@pytest.mark.parametrize(
    ("environment", "text"),
    [
        ({"FLOTILLA_PORT": "http"}, "FLOTILLA_PORT: "),
        ({"FLOTILLA_PORT": "-1"}, "port must be from 0"),
        ({"FLOTILLA_BODY_BYTES_MAX": "1KiB"}, "body_bytes_max must be at least"),
        ({"FLOTILLA_IN_FLIGHT_BYTES_MAX": "9MiB"}, "in_flight_bytes_max must be at least body_bytes_max"),
        ({"FLOTILLA_CONNECTIONS_MAX": "1"}, "connections_max must be at least 8"),
        ({"FLOTILLA_APPEND_S_MAX": "0"}, "append_s_max must be from 0.01 to 3600 seconds"),
        ({"FLOTILLA_ELECTION_S_MAX": "inf"}, "election_s_max must be from 0.01 to 3600 seconds"),
        ({"FLOTILLA_HEARTBEAT_S": "nan"}, "heartbeat_s must be from 0.01 to 3600 seconds"),
        ({"FLOTILLA_READY_LAG_MAX": "-1"}, "ready_lag_max must be at least 0"),
        ({"FLOTILLA_LOG_LEVEL": "loud"}, "log_level must be debug, info, warning or error"),
        ({"FLOTILLA_SECRET": "short"}, "secret must be at least 16 bytes long"),
        ({"FLOTILLA_SEGMENT_BYTES": "1MiB"}, "segment_bytes must be from"),
        ({"FLOTILLA_LOG_BYTES_MAX": "1MiB"}, "log_bytes_max must be at least"),
        ({"FLOTILLA_ELECTION_S_MAX": "1"}, "election_s_max=1.0 must be above election_s_min"),
        ({"FLOTILLA_SECRET_FILE": "/nowhere/at/all"}, "secret_file /nowhere/at/all cannot be read"),
    ],
)
def test_a_wrong_setting_is_named_with_its_rule(environment: dict[str, str], text: str) -> None:
    with pytest.raises(SettingsInvalid, match=re.escape(text)):
        load_settings([], environment)


def test_a_port_that_others_reach_needs_a_secret(tmp_path: Path) -> None:
    with pytest.raises(SettingsInvalid, match="FLOTILLA_SECRET"):
        load_settings(["--peer-host", "10.0.0.1"], {})
    file = tmp_path / "secret"
    file.write_text("sixteen bytes or more\n")
    settings = load_settings(["--peer-host", "10.0.0.1", "--secret-file", str(file)], {})
    assert settings.secret == b"sixteen bytes or more"


def test_the_secret_is_never_shown() -> None:
    settings = load_settings([], {"FLOTILLA_SECRET": "not for anybody's eyes"})
    assert "eyes" not in repr(settings)
    assert "SECRET" in make_parser().format_help()


def test_help_tells_of_every_setting_and_its_variable() -> None:
    text = make_parser().format_help()
    for name in ("--data", "--fetch-bytes-max", "FLOTILLA_DATA", "FLOTILLA_WAIT_MS_MAX"):
        assert name in text
