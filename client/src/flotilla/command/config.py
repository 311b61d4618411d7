"""The file with contexts: named connections for `--context`.

    current = "prod"

    [contexts.prod]
    url = "https://flotilla.example"
    ca = "prod-ca.pem"
    token_file = "~/.flotilla-token"

The file never contains a token, only the path of a token file. Relative paths start at the folder of the file. It is
edited by hand or by `flotilla contexts`, which drops comments. An unknown key is an error with its line number, because
a misspelt key could send a command to the wrong system.
"""

import json
import os
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from pathlib import Path
from types import MappingProxyType
from typing import Any, Self

from flotilla.command.errors import InputInvalid
from flotilla.net.urls import parse_url

_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}", re.ASCII)
_NAME_RULE = "use letters, digits, - and _, at most 64 characters"
_KEYS = ("url", "ca", "token_file")
_TOKENS = {"token", "secret"}
_NOTE = "# Contexts of the `flotilla` command; see `flotilla contexts --help`. Comments are not kept.\n"


@dataclass(frozen=True)
class Context:
    """A named connection: URL, CA bundle and token file."""

    url: str
    ca: Path | None = None
    token_file: Path | None = None


@dataclass(frozen=True)
class Config:
    """The content of the file."""

    contexts: Mapping[str, Context] = field(default_factory=lambda: MappingProxyType({}))
    current: str | None = None

    def find(self, name: str, named_by: str | None = None) -> Context:
        """Find a context; raises InputInvalid. `named_by` is the variable that names it, for the error."""
        if name not in self.contexts:
            close = get_close_matches(name, self.contexts, n=1)
            known = f"did you mean '{close[0]}'?" if close else "see `flotilla contexts list`"
            why = "" if named_by is None else f" (set by {named_by})"
            raise InputInvalid(f"context '{name}'{why} does not exist; {known}")
        return self.contexts[name]

    def with_context(self, name: str, context: Context) -> Self:
        """Add or replace a context."""
        return replace(self, contexts={**self.contexts, name: context})

    def without(self, name: str) -> Self:
        """Remove a context."""
        kept = {known: context for known, context in self.contexts.items() if known != name}
        return replace(self, contexts=kept, current=None if self.current == name else self.current)


def find_path(environment: Mapping[str, str]) -> Path | None:
    """Return the path of the file; None if there is no home directory, for example in a container."""
    if environment.get("FLOTILLA_CONFIG"):
        return Path(environment["FLOTILLA_CONFIG"])
    home = environment.get("XDG_CONFIG_HOME") or "~/.config"
    try:
        return expand(Path(home)) / "flotilla" / "config.toml"
    except ValueError:
        return None


def expand(path: Path) -> Path:
    """Expand `~` and `~name`; raises ValueError if the home directory is not found."""
    try:
        return path.expanduser()
    except RuntimeError as error:
        raise ValueError(f"home directory of {str(path)!r} not found") from error


def load(path: Path | None) -> Config:
    """Read the file; a missing file has no contexts. Raises InputInvalid."""
    if path is None:
        return Config()
    try:
        text = path.read_bytes().decode()
    except (FileNotFoundError, NotADirectoryError):
        return Config()
    except OSError as error:
        raise InputInvalid(f"contexts file {path} cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise InputInvalid(f"contexts file {path} cannot be read: not valid UTF-8") from error
    return parse(text, path)


def save(path: Path | None, config: Config) -> None:
    """Replace the file atomically, with mode 0600; raises InputInvalid if it cannot be written."""
    if path is None:
        raise InputInvalid("no home directory to store contexts in: set FLOTILLA_CONFIG to the path of a file")
    path = path.resolve()  # a symbolic link stays a link
    part = path.with_name(f"{path.name}.{os.getpid()}.part")  # per process: another one may save at the same time
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        part.unlink(missing_ok=True)
        with os.fdopen(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as file:
            file.write(write(config))
            file.flush()
            os.fsync(file.fileno())
        part.replace(path)
    except OSError as error:
        raise InputInvalid(f"contexts file {path} cannot be written: {error.strerror}") from error


# -- parsing and formatting, pure ---------------------------------------------------------------------------------


def parse(text: str, path: Path) -> Config:
    """Parse the content of the file; raises InputInvalid with the line and the reason."""
    try:
        found = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise InputInvalid(f"{path}: invalid TOML: {error}") from error
    return _Reader(text, path).read(found)


def write(config: Config) -> str:
    """Format the content of the file."""
    lines = [_NOTE]
    if config.current is not None:
        lines.append(f"current = {_quote(config.current)}\n")
    for name, context in config.contexts.items():
        lines.append(f"[contexts.{name}]")
        values = [(key, getattr(context, key)) for key in _KEYS]
        lines += [f"{key} = {_quote(str(value))}" for key, value in values if value is not None]
        lines.append("")
    return "\n".join(lines)


def check_name(name: str) -> str:
    """Check a context's name; raises ValueError."""
    if not _NAME.fullmatch(name):
        raise ValueError(f"{name!r} is not a valid context name: {_NAME_RULE}")
    return name


def check_url(text: str) -> str:
    """Check a URL, or several with commas between them; raises ValueError."""
    return ",".join(parse_url(part.strip()) for part in text.split(","))


def _quote(text: str) -> str:
    """Quote a string for TOML: as in JSON, except for DEL."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


class _Reader:
    """Validates the parsed file, and finds the lines of errors."""

    def __init__(self, text: str, path: Path) -> None:
        self._lines = text.splitlines()
        self._path = path

    def read(self, found: Mapping[str, Any]) -> Config:
        self._check_keys(found, ("current", "contexts"), "")
        contexts = found.get("contexts", {})
        if not isinstance(contexts, dict):
            raise self._wrong("", "contexts", "contexts must be tables, such as [contexts.prod]")
        config = Config({name: self._context(name, values) for name, values in contexts.items()})
        current = found.get("current")
        if current is None:
            return config
        if not isinstance(current, str) or current not in config.contexts:
            raise self._wrong(
                "",
                "current",
                f"current is {current!r}, but there is no [contexts.{current}]: add it, or remove this line",
            )
        return replace(config, current=current)

    def _context(self, name: str, values: object) -> Context:
        section = f"contexts.{name}"
        if not _NAME.fullmatch(name):
            raise self._wrong("contexts", name, f"{name!r} is not a valid context name: {_NAME_RULE}")
        if not isinstance(values, dict):
            raise self._wrong("contexts", name, f"{section} must be a table, such as [{section}]")
        self._check_keys(values, _KEYS, section)
        for key, value in values.items():
            if not isinstance(value, str) or not value or not value.isprintable():
                raise self._wrong(section, key, f"{section}.{key} must be a non-empty string of printable characters")
        if "url" not in values:
            raise self._wrong("", section, f"{section} has no key 'url'")
        try:
            url = check_url(values["url"])
        except ValueError as error:
            raise self._wrong(section, "url", f"{section}.url: {error}") from error
        return Context(url, self._file(section, "ca", values), self._file(section, "token_file", values))

    def _file(self, section: str, key: str, values: Mapping[str, str]) -> Path | None:
        if key not in values:
            return None
        try:
            return self._path.parent / expand(Path(values[key]))
        except ValueError as error:
            raise self._wrong(section, key, f"{section}.{key}: {error}") from error

    def _check_keys(self, found: Mapping[str, Any], known: tuple[str, ...], section: str) -> None:
        for key in found:
            if key in _TOKENS:
                reason = f"a {key} must not be in this file: store it in a file of its own, and set token_file"
                raise self._wrong(section, key, reason)
            if key not in known:
                raise self._wrong(section, key, f"unknown key {key!r}; expected: {', '.join(known)}")

    def _wrong(self, section: str, key: str, reason: str) -> InputInvalid:
        line = find_line(self._lines, section, key)
        return InputInvalid(f"{self._path}{'' if line is None else f', line {line}'}: {reason}")


def find_line(lines: list[str], section: str, key: str) -> int | None:
    """Find the line of a key or of a section heading; None if it is written in another form."""
    now = ""
    for number, line in enumerate(lines, 1):
        text = line.strip()
        if heading := re.fullmatch(r"\[\s*([^\[\]]+?)\s*\]\s*(#.*)?", text):
            now = heading[1]
            if now == ".".join(filter(None, (section, key))):
                return number
        elif now == section and re.match(rf"[\"']?{re.escape(key)}[\"']?\s*[=.]", text):
            return number
    return None
