"""Base URLs of servers."""

from urllib.parse import urlsplit


def parse_url(text: str) -> str:
    """Parse the base URL of a server, as in http://host:8080 or https://host. Raises ValueError."""
    try:
        parts = urlsplit(text)
        is_valid = parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.port != 0
    except ValueError:
        is_valid = False
    if not is_valid or parts.path not in {"", "/"} or parts.query or parts.fragment or parts.username is not None:
        raise ValueError(f"{text!r} is not a base URL such as http://host:8080")
    return text.rstrip("/")
