"""Base URLs of servers: what every part of the system takes for one."""

from urllib.parse import urlsplit


def parse_url(text: str) -> str:
    """Read the base URL of a server, as in http://host:8080 or https://host; raises ValueError."""
    try:
        parts = urlsplit(text)
        right = parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.port != 0
    except ValueError:
        right = False
    if not right or parts.path not in {"", "/"} or parts.query or parts.fragment or parts.username is not None:
        raise ValueError(f"{text!r} is not a base URL; write it as in http://host:8080")
    return text.rstrip("/")
