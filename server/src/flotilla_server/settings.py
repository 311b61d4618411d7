"""Settings of a server: a frozen dataclass from flags and environment variables, validated before anything starts.

A server declares its settings as fields with `setting` and `secret`. A field `peer_port` is the flag `--peer-port` and
the variable `FLOTILLA_PEER_PORT`. The flag takes precedence over the variable, and the variable over its aliases. A
secret has no flag, because all users of the machine can read flags: it comes from its variable, or from a file that
another setting names.

`__post_init__` validates with `require`; the error names the setting and the rule.
"""

import argparse
import ipaddress
from collections.abc import Callable, Mapping, Sequence
from dataclasses import Field, field, fields
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlsplit

from flotilla import units
from flotilla.net.urls import parse_url

PREFIX = "FLOTILLA_"
REQUIRED = "required"
PORT_MAX = 65535
TIMEOUT_S_MAX = 3600  # highest value of settings in seconds
CONNECTIONS_MIN = 8  # lowest value of connections_max

T = TypeVar("T")
Parse = Callable[[str], Any]


class SettingsInvalid(ValueError):
    """A setting is invalid. The text names the setting and the rule."""


def setting(  # the default may have any type
    default: Any,  # noqa: ANN401
    text: str,
    parse: Parse = str,
    aliases: Mapping[str, Parse] | None = None,
    fallback: str = "none",
) -> Any:  # noqa: ANN401
    """Declare a setting: default, help text, parser, and aliases with their parsers.

    `fallback` describes the default in the help if it is None or empty. `REQUIRED` means that there is none.
    """
    metadata = {"help": text, "parse": parse, "aliases": aliases or {}, "fallback": fallback}
    return field(default=default, metadata=metadata)


def secret(file: str) -> Any:  # noqa: ANN401 - a field of any type
    """Declare a secret, as bytes; `file` is the setting with the path of its file."""
    return field(default=None, repr=False, metadata={"secret_file": file})


def parse_size(text: str) -> int:
    """Parse a size setting, which may be 0. Raises ValueError."""
    return units.parse_size(text, least=0)


def parse_count(text: str) -> int:
    """Parse a count setting, which may be 0. Raises ValueError."""
    return units.parse_count(text, least=0)


def unless_unlimited(parse: Callable[[str], int]) -> Callable[[str], int | None]:
    """Return a parser of a limit; `unlimited` is None."""
    return lambda text: None if text == "unlimited" else parse(text)


def parse_flag(text: str) -> bool:
    """Parse a boolean."""
    known = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}
    if text.lower() not in known:
        raise ValueError(f"{text!r} is not a boolean: must be true or false")
    return known[text.lower()]


def parse_urls(text: str) -> tuple[str, ...]:
    """Parse comma-separated base URLs."""
    return tuple(parse_url(part.strip()) for part in text.split(",") if part.strip())


def url_host(text: str) -> str:
    """Return the host of a base URL."""
    return urlsplit(parse_url(text)).hostname or ""


def url_port(text: str) -> int:
    """Return the port of a base URL."""
    parts = urlsplit(parse_url(text))
    return parts.port or (443 if parts.scheme == "https" else 80)


def require(holds: bool, name: str, rule: str) -> None:
    """Check a rule about a setting; raises SettingsInvalid."""
    if not holds:
        raise SettingsInvalid(f"{name} must be {rule}")


def require_port(port: int, name: str) -> None:
    """Check a port; raises SettingsInvalid."""
    require(0 <= port <= PORT_MAX, name, f"from 0 to {PORT_MAX}")


def is_loopback(host: str) -> bool:
    """Whether a host is a loopback address."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def load(kind: type[T], arguments: Sequence[str], environment: Mapping[str, str], parser: argparse.ArgumentParser) -> T:
    """Read flags and environment; raises SettingsInvalid. `--help` ends the process."""
    flags = vars(parser.parse_args(arguments))
    given: dict[str, Any] = {}
    for declared in _settings(kind):
        found = _find(declared, flags[declared.name], environment)
        if found is not None:
            where, text, parse = found
            given[declared.name] = _parse(parse, text, where)
    for declared in _fields(kind):
        if "secret_file" in declared.metadata:
            given[declared.name] = _load_secret(declared, environment, given)
    try:
        return kind(**given)
    except ValueError as error:
        raise SettingsInvalid(str(error)) from error


def make_parser(kind: type, *, prog: str, description: str, epilog: str | None = None) -> argparse.ArgumentParser:
    """Create the parser of a server's command line."""
    parser = argparse.ArgumentParser(prog=prog, description=description, epilog=epilog, allow_abbrev=False)
    for declared in _settings(kind):
        names = ", ".join([_variable(declared.name), *declared.metadata["aliases"]])
        parser.add_argument(
            _flag(declared.name),
            metavar=_metavar(declared),
            help=f"{declared.metadata['help']} ({_describe_default(declared)}; {names})".replace("%", "%%"),
        )
    return parser


def _describe_default(declared: Field[Any]) -> str:
    default: Any = declared.default
    fallback = declared.metadata["fallback"]
    if default in {None, (), ""}:
        return REQUIRED if fallback == REQUIRED else f"default: {fallback}"
    if isinstance(default, bool):
        return f"default: {str(default).lower()}"
    if declared.metadata["parse"] is parse_size:
        return f"default: {units.write_size(default)}"
    return f"default: {default}"


def _metavar(declared: Field[Any]) -> str:
    """Return the placeholder of a value: its type or unit, or the last word of the name."""
    by_parser: dict[Parse, str] = {parse_flag: "BOOL", parse_url: "URL", parse_urls: "URLS"}
    by_word = {"bytes": "SIZE", "s": "SECONDS", "ms": "MS", "max": "N", "min": "N"}
    words = declared.name.split("_")
    unit = next((by_word[word] for word in words[1:] if word in by_word), words[-1].upper())
    return by_parser.get(declared.metadata["parse"], unit)


def _fields(kind: Any) -> tuple[Field[Any], ...]:  # noqa: ANN401 - a dataclass
    return fields(kind)


def _settings(kind: type) -> list[Field[Any]]:
    return [declared for declared in _fields(kind) if "help" in declared.metadata]


def _flag(name: str) -> str:
    return "--" + name.replace("_", "-")


def _variable(name: str) -> str:
    return PREFIX + name.upper()


def _find(declared: Field[Any], flag: str | None, environment: Mapping[str, str]) -> tuple[str, str, Parse] | None:
    """Return the source, the text and the parser of a setting, or None."""
    if flag is not None:
        return _flag(declared.name), flag, declared.metadata["parse"]
    readers = {_variable(declared.name): declared.metadata["parse"], **declared.metadata["aliases"]}
    for variable, parse in readers.items():
        if variable in environment:
            return variable, environment[variable], parse
    return None


def _parse(parse: Parse, text: str, where: str) -> Any:  # noqa: ANN401 - any type of setting
    try:
        return parse(text)
    except ValueError as error:
        raise SettingsInvalid(f"{where}: {error}") from error


def _load_secret(declared: Field[Any], environment: Mapping[str, str], given: Mapping[str, Any]) -> bytes | None:
    name = declared.metadata["secret_file"]
    file: Path | None = given.get(name)
    if file is not None:
        try:
            return file.read_bytes().strip()
        except OSError as error:
            raise SettingsInvalid(f"{name} {file} cannot be read: {error.strerror}") from error
    text = environment.get(_variable(declared.name))
    return None if text is None else text.encode()
