"""Options of a client: sources and validation."""

from pathlib import Path
from typing import Any, get_type_hints

import pytest

from flotilla.client.config import (
    ClientConfig,
    ConsumerConfig,
    ConsumerOptions,
    ProducerConfig,
    ProducerOptions,
    Route,
    load_client,
)
from flotilla.client.errors import ConfigInvalid
from flotilla.records import BATCH_BYTES_MAX
from support import certificates

TOKEN = "flt_00112233445566ff_x"  # noqa: S105 - an example


def test_default_url_is_the_local_manager() -> None:
    config = load_client(None, environment={})
    assert config == ClientConfig(urls=("http://127.0.0.1:8080",))
    assert (config.route, config.token, config.ca, config.headers) == (Route.AUTO, None, None, ())
    assert config.make_tls() is None


def test_arguments_override_environment_variables() -> None:
    environment = {"FLOTILLA_URL": "https://a", "FLOTILLA_TOKEN": "flt_variable", "FLOTILLA_TLS_CA": "a.pem"}
    found = load_client(None, environment=environment)
    assert (found.urls, found.token, found.ca) == (("https://a",), "flt_variable", Path("a.pem"))
    given = load_client("http://b:1", token=TOKEN, ca="b.pem", route="gateway", request_s=2, environment=environment)
    assert (given.urls, given.token, given.ca) == (("http://b:1",), TOKEN, Path("b.pem"))
    assert (given.route, given.request_s) == (Route.GATEWAY, 2)


def test_empty_environment_variables_count_as_unset() -> None:
    empty = {"FLOTILLA_URL": "", "FLOTILLA_TOKEN": "", "FLOTILLA_TLS_CA": ""}
    assert load_client(None, environment=empty) == load_client(None, environment={})


def test_url_may_list_several_managers() -> None:
    assert load_client("http://a:1, https://b/,", environment={}).urls == ("http://a:1", "https://b")


def test_token_is_a_request_header_and_hidden_in_repr() -> None:
    config = load_client(None, token=TOKEN, environment={})
    assert config.headers == (("authorization", f"Bearer {TOKEN}"),)
    assert TOKEN not in repr(config)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"url": "a:1"}, "url: 'a:1' is not a base URL"),
        ({"url": "http://a,ftp://b"}, "url: 'ftp://b' is not a base URL"),
        ({"url": " , "}, "url must be given"),
        ({"url": None, "route": "west"}, "route must be auto or direct or gateway, not 'west'"),
        ({"url": None, "token": "a\r\nevil: 1"}, "token must be printable ASCII"),
        ({"url": None, "token": "ä"}, "token must be printable ASCII"),
        ({"url": None, "request_s": 0}, "request_s must be more than 0 and at most 86400 seconds"),
        ({"url": None, "request_s": 1e9}, "request_s must be more than 0"),
    ],
)
def test_invalid_client_option_raises_with_name_and_rule(options: dict[str, Any], text: str) -> None:
    with pytest.raises(ConfigInvalid, match=text) as caught:
        load_client(**options, environment={})
    assert isinstance(caught.value, ValueError)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"linger_s": -1}, "linger_s must be from 0 to 60"),
        ({"linger_s": float("nan")}, "linger_s"),
        ({"batch_bytes": 0}, "batch_bytes must be from 1"),
        ({"batch_bytes": BATCH_BYTES_MAX + 1}, "batch_bytes"),
        ({"buffer_bytes": 1}, "buffer_bytes must be at least batch_bytes"),
        ({"delivery_s": 0}, "delivery_s must be more than 0"),
    ],
)
def test_invalid_producer_option_raises_with_name_and_rule(options: dict[str, Any], text: str) -> None:
    with pytest.raises(ConfigInvalid, match=text):
        ProducerConfig(**options)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"fetch_bytes": 0}, "fetch_bytes must be at least 1"),
        ({"prefetch_bytes": 0}, "prefetch_bytes must be at least 1"),
        ({"wait_s": 31}, "wait_s must be from 0 to 30"),
    ],
)
def test_invalid_consumer_option_raises_with_name_and_rule(options: dict[str, Any], text: str) -> None:
    with pytest.raises(ConfigInvalid, match=text):
        ConsumerConfig(**options)


def test_ca_bundle_is_loaded_or_named_in_the_error(tmp_path: Path) -> None:
    files = certificates.write(tmp_path / "own", certificates.make_authority())
    assert load_client(None, ca=files.ca, environment={}).make_tls() is not None
    (tmp_path / "ca").write_text("no certificate")
    for name in ("ca", "missing"):
        with pytest.raises(ConfigInvalid, match=f"ca: cannot read certificates from .*{name}"):
            load_client(None, ca=tmp_path / name, environment={}).make_tls()


@pytest.mark.parametrize(("options", "config"), [(ProducerOptions, ProducerConfig), (ConsumerOptions, ConsumerConfig)])
def test_typed_options_match_the_config(options: type, config: type) -> None:
    """A type checker finds a mistake such as `client.producer(linger=5)`."""
    assert get_type_hints(options) == get_type_hints(config)
