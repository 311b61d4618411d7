"""Settings: flags override variables, values are validated, and errors name the setting and the rule."""

import re
from pathlib import Path

import pytest
import trustme

from flotilla_broker.identity import BrokerAddress
from flotilla_broker.log import Durability
from flotilla_broker.settings import Settings, load_settings, make_parser
from flotilla_server.settings import SettingsInvalid, parse_size


def test_defaults_are_valid() -> None:
    settings = load_settings([], {})
    assert settings == Settings()
    assert settings.log_config.durability is Durability.FSYNC
    assert settings.peer_tls is None


def test_flag_overrides_variable_and_variable_overrides_default() -> None:
    environment = {"FLOTILLA_PORT": "1", "FLOTILLA_PEER_PORT": "2", "OTHER": "x"}
    settings = load_settings(["--port", "3"], environment)
    assert (settings.port, settings.peer_port, settings.host) == (3, 2, "127.0.0.1")


@pytest.mark.parametrize(
    ("text", "size"),
    [("0", 0), ("512", 512), ("64KiB", 65536), ("1MiB", 1 << 20), ("2GiB", 2 << 30), ("1TiB", 1 << 40)],
)
def test_sizes_are_parsed(text: str, size: int) -> None:
    assert parse_size(text) == size


@pytest.mark.parametrize("text", ["", "x", "1MB", "-1", "1.5MiB", "MiB", "1 MiB", "1miB", "²"])
def test_invalid_size_is_rejected(text: str) -> None:
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
        ({"FLOTILLA_MANAGERS": "manager:8080"}, "FLOTILLA_MANAGERS: 'manager:8080' is not a base URL"),
        ({"MANAGER_ADDRESS": "http://a/b"}, "MANAGER_ADDRESS: 'http://a/b' is not a base URL"),
        ({"FLOTILLA_ADVERTISE_HOST": "a b"}, "advertise_host must be a host name or an IP address, not 'a b'"),
        ({"FLOTILLA_ADVERTISE_PORT": "0"}, "advertise_port must be from 1 to 65535"),
        ({"FLOTILLA_RACK": "a b"}, "rack must be 1 to 200 characters"),
        ({"FLOTILLA_MANAGER_HEARTBEAT_S": "0"}, "manager_heartbeat_s must be from 0.01 to 10 seconds, not 0"),
        ({"FLOTILLA_MANAGER_HEARTBEAT_S": "60"}, "manager_heartbeat_s must be from 0.01 to 10 seconds, not 60"),
        ({"FLOTILLA_MANAGER_HEARTBEAT_S": "nan"}, "manager_heartbeat_s must be from 0.01 to 10 seconds, not nan"),
    ],
)
def test_invalid_setting_is_named_with_its_rule(environment: dict[str, str], text: str) -> None:
    with pytest.raises(SettingsInvalid, match=re.escape(text)):
        load_settings([], environment)


def test_public_port_requires_a_secret(tmp_path: Path) -> None:
    with pytest.raises(SettingsInvalid, match="FLOTILLA_SECRET"):
        load_settings(["--peer-host", "10.0.0.1"], {})
    file = tmp_path / "secret"
    file.write_text("sixteen bytes or more\n")
    settings = load_settings(["--peer-host", "10.0.0.1", "--secret-file", str(file)], {})
    assert settings.secret == b"sixteen bytes or more"


def test_secret_is_never_shown() -> None:
    settings = load_settings([], {"FLOTILLA_SECRET": "not for anybody's eyes"})
    assert "eyes" not in repr(settings)
    assert "SECRET" in make_parser().format_help()


def test_help_lists_every_setting_and_its_variable() -> None:
    text = make_parser().format_help()
    for name in ("--data", "--fetch-bytes-max", "FLOTILLA_DATA", "FLOTILLA_WAIT_MS_MAX"):
        assert name in text


def test_aliases_of_older_systems_are_accepted() -> None:
    environment = {
        "PORT": "5001",
        "MANAGER_ADDRESS": "http://manager:8000/",
        "CURRENT_ADDRESS": "http://broker-1:5001",
        "FLOTILLA_PEER_PORT": "5002",
    }
    settings = load_settings([], environment)
    assert settings.port == 5001
    assert settings.managers == ("http://manager:8000",)
    assert settings.advertise(5001, 5002) == BrokerAddress("broker-1", 5001, "127.0.0.1", 5002)
    assert load_settings([], {**environment, "FLOTILLA_PORT": "7"}).port == 7
    assert load_settings(["--managers", "http://a:1, http://[::1]:2"], environment).managers == (
        "http://a:1",
        "http://[::1]:2",
    )


def test_address_is_the_bound_one_unless_another_is_advertised() -> None:
    secret = {"FLOTILLA_SECRET": "sixteen bytes or more"}
    assert load_settings([], {}).advertise(1, 2) == BrokerAddress("127.0.0.1", 1, "127.0.0.1", 2)
    flags = ["--host", "0.0.0.0", "--peer-host", "0.0.0.0"]  # noqa: S104 - an example
    given = load_settings([*flags, "--advertise-host", "b", "--advertise-port", "80"], secret)
    assert given.advertise(1, 2) == BrokerAddress("b", 80, "b", 2)
    with pytest.raises(
        SettingsInvalid,
        match=r"advertise_host must be set to a reachable host: 0\.0\.0\.0 is only an address to listen on",
    ):
        load_settings([*flags, "--managers", "http://m:1"], secret)


def test_broker_with_a_certificate_has_an_https_address() -> None:
    settings = load_settings(["--tls-cert", "cert.pem", "--tls-key", "key.pem"], {})
    assert settings.advertise(1, 2).url == "https://127.0.0.1:1"
    with pytest.raises(SettingsInvalid, match="tls_cert and tls_key must be set together"):
        load_settings(["--tls-cert", "cert.pem"], {})


def test_missing_or_invalid_certificate_is_named(tmp_path: Path) -> None:
    """As an error of the setting, not of the data folder."""
    authority, issued = trustme.CA(), trustme.CA().issue_cert("broker")
    files = {name: tmp_path / name for name in ("cert", "key", "ca")}
    authority.cert_pem.write_to_path(files["ca"])
    issued.private_key_pem.write_to_path(files["key"])
    issued.cert_chain_pems[0].write_to_path(files["cert"])
    flags = [text for name, path in files.items() for text in (f"--peer-{name}", str(path))]
    assert load_settings(flags, {}).peer_tls is not None
    for name, path in files.items():
        content = path.read_bytes()
        path.write_bytes(b"nonsense")
        with pytest.raises(SettingsInvalid, match=f"peer_{name} {path}.* (cannot be loaded|are not a valid pair)"):
            load_settings(flags, {})
        path.unlink()
        with pytest.raises(SettingsInvalid, match=f"peer_{name} {path} cannot be (read|loaded): No such file"):
            load_settings(flags, {})
        path.write_bytes(content)
