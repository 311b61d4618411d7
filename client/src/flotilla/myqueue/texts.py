"""What is text here and is not elsewhere: addresses as in `host:port`, and messages. Pure."""

import base64
from collections.abc import Iterable

from flotilla.client.errors import ConfigInvalid, DataInvalid, RecordInvalid
from flotilla.net.urls import parse_url


def parse_broker(broker: str) -> str:
    """Read where a system is, as `host:port` or as a URL; several with commas between them. Raises ConfigInvalid."""
    return ",".join(_parse_one(part.strip()) for part in broker.split(","))


def _parse_one(text: str) -> str:
    is_url, has_port = "://" in text, text.rpartition(":")[2].isdecimal()
    try:
        # Without a port it would be a URL with port 80, which nobody means who leaves the port out.
        return parse_url(text if is_url else f"http://{text if has_port else ''}")
    except ValueError as error:
        raise ConfigInvalid(
            f"broker: {text!r} is no address; write it as in 127.0.0.1:8080 or http://host:8080"
        ) from error


def check_topic(topic: str, topics: Iterable[str]) -> None:
    """Check that a topic is one of those that were named in the beginning; raises ConfigInvalid."""
    if topic not in topics:
        raise ConfigInvalid(f"topic {topic!r} is none of those that this one was made for: {', '.join(topics)}")


def encode_message(message: str) -> bytes:
    """Turn a message into bytes; raises RecordInvalid."""
    if not isinstance(message, str):
        raise RecordInvalid(f"a message is text (str), and not {type(message).__name__}")
    try:
        return message.encode()
    except UnicodeEncodeError as error:
        raise RecordInvalid(f"the message cannot be written as UTF-8: {error}") from error


def decode_message(value: bytes, where: str) -> str:
    """Turn bytes into a message; raises DataInvalid."""
    try:
        return value.decode()
    except UnicodeDecodeError as error:
        raise DataInvalid(f"{where} is no text, as messages are here: flotilla.Client reads bytes") from error


def decode_base64(text: str, where: str) -> str:
    """Turn what the API tells of bytes into a message; raises DataInvalid."""
    return decode_message(base64.b64decode(text), where)
