"""Parsing of `host:port` addresses, and encoding of text messages. Pure."""

import base64
from collections.abc import Iterable

from flotilla import ConfigInvalid, DataInvalid, RecordInvalid
from flotilla.net.urls import parse_url


def parse_broker(broker: str) -> str:
    """Parse `host:port` or a URL into URLs; separate several with commas. Raises ConfigInvalid."""
    return ",".join(_parse_one(part.strip()) for part in broker.split(","))


def _parse_one(text: str) -> str:
    is_url, has_port = "://" in text, text.rpartition(":")[2].isdecimal()
    try:
        # Without a port it would be a URL with port 80, which is never meant.
        return parse_url(text if is_url else f"http://{text if has_port else ''}")
    except ValueError as error:
        raise ConfigInvalid(
            f"broker: {text!r} is not an address: use host:port or a URL, such as 127.0.0.1:8080 or http://host:8080"
        ) from error


def check_topic(topic: str, topics: Iterable[str]) -> None:
    """Check that a topic was passed to the constructor; raises ConfigInvalid."""
    if topic not in topics:
        raise ConfigInvalid(f"topic {topic!r} was not passed to the constructor; its topics are: {', '.join(topics)}")


def encode_message(message: str) -> bytes:
    """Encode a message; raises RecordInvalid."""
    if not isinstance(message, str):
        raise RecordInvalid(f"message must be str, not {type(message).__name__}")
    try:
        return message.encode()
    except UnicodeEncodeError as error:
        raise RecordInvalid(f"message cannot be encoded as UTF-8: {error}") from error


def decode_message(value: bytes, where: str) -> str:
    """Decode a message; raises DataInvalid."""
    try:
        return value.decode()
    except UnicodeDecodeError as error:
        raise DataInvalid(f"{where} is not UTF-8 text: read it as bytes with flotilla.Client") from error


def decode_base64(text: str, where: str) -> str:
    """Decode a base64 message of the API; raises DataInvalid."""
    return decode_message(base64.b64decode(text), where)
