"""`flotilla contexts`: named connections for `--context`."""

import os
from dataclasses import replace
from pathlib import Path

import click

from flotilla.command import completers, config
from flotilla.command.config import Config, Context
from flotilla.command.errors import InputInvalid
from flotilla.command.options import FILE, Group, ParsedType, examples, json_option
from flotilla.command.output import format_table, print_json, print_lines, print_message

_NAME = ParsedType("name", config.check_name)
_URL = ParsedType("url", config.check_url)
_SETTINGS = ("ca", "token-file")
_HEADING = ("current", "name", "url", "ca", "token-file")
_HELP = """\
Manage named connections: URL, CA bundle and token file of a cluster.

Contexts are stored in the file FLOTILLA_CONFIG, by default flotilla/config.toml in XDG_CONFIG_HOME or ~/.config.
The file never contains a token, only the path of a token file.

A command takes each of URL, CA bundle and token from the first of these that sets it:

\b
  1. --url; --ca; --token-file or --secret-file
  2. the context of --context; environment variables are then ignored
  3. FLOTILLA_URL; FLOTILLA_TLS_CA; FLOTILLA_TOKEN or FLOTILLA_SECRET
  4. the context of FLOTILLA_CONTEXT, or else the current context;
     ignored if --url or FLOTILLA_URL is set
  5. http://127.0.0.1:8080; the system CAs; no token
"""


@click.group(
    cls=Group,
    help=_HELP,
    epilog=examples(
        "flotilla contexts set prod --url https://flotilla.example --token-file ~/.flotilla-token",
        "flotilla topics list --context prod",
        "flotilla contexts use prod    # use it by default, without --context",
    ),
)
def contexts() -> None:
    """Manage named connections."""


@contexts.command("list")
@json_option
def list_(as_json: bool) -> None:
    """List contexts."""
    found = config.load(_path())
    if as_json:
        print_json({"current": found.current, "contexts": [_to_json(*one) for one in found.contexts.items()]})
    elif found.contexts:
        rows = [
            ("*" if name == found.current else "", name, one.url, one.ca, one.token_file)
            for name, one in found.contexts.items()
        ]
        print_lines(*format_table([_HEADING, *rows]))
    else:
        print_message("no contexts; create one with `flotilla contexts set NAME --url URL`")


@contexts.command(
    "set",
    epilog=examples(
        "flotilla contexts set here --url http://127.0.0.1:8080",
        "flotilla contexts set prod --url https://a.example,https://b.example --ca ca.pem --token-file token",
        "flotilla contexts set prod --unset ca",
    ),
)
@click.argument("name", type=_NAME, metavar="NAME", shell_complete=completers.contexts, help="Name of the context.")
@click.option("--url", type=_URL, metavar="URL", help="Base URL of a manager; separate several with commas.")
@click.option("--ca", type=FILE, metavar="FILE", help="CA bundle to verify server certificates.")
@click.option("--token-file", type=FILE, metavar="FILE", help="File with a token.")
@click.option("--unset", multiple=True, type=click.Choice(_SETTINGS), help="Remove a setting; may be repeated.")
@json_option
def set_(
    name: str, url: str | None, ca: Path | None, token_file: Path | None, unset: tuple[str, ...], as_json: bool
) -> None:
    """Create or change a context.

    Settings that are not given keep their value.
    """
    found = config.load(_path())
    before = found.contexts.get(name)
    if before is None and url is None:
        raise InputInvalid(f"context '{name}' does not exist: creating it requires --url")
    for option, value in (("ca", ca), ("token-file", token_file)):
        if value is not None and option in unset:
            raise InputInvalid(f"--{option} and --unset {option} are mutually exclusive")
    old = before or Context("")
    context = Context(
        url or old.url,
        None if "ca" in unset else _keep(ca) or old.ca,
        None if "token-file" in unset else _keep(token_file) or old.token_file,
    )
    _save(found.with_context(name, context))
    _show(found, name, context, as_json)
    if found.current != name:
        print_message(f"run `flotilla contexts use {name}` to make it the current context")


@contexts.command()
@click.argument(
    "name",
    type=_NAME,
    metavar="[NAME]",
    required=False,
    shell_complete=completers.contexts,
    help="Name of the context, unless --none is given.",
)
@click.option("--none", is_flag=True, help="Unset the current context.")
def use(name: str | None, none: bool) -> None:
    """Set the current context, which is used without --context."""
    if (name is None) is not none:
        raise InputInvalid("expected the name of a context, or --none")
    found = config.load(_path())
    if name is not None:
        found.find(name)
    _save(replace(found, current=name))
    print_lines("current context unset" if name is None else f"switched to context '{name}'")
    _warn()


@contexts.command()
@click.argument(
    "name",
    type=_NAME,
    metavar="[NAME]",
    required=False,
    shell_complete=completers.contexts,
    help="Name of the context.",
)
@json_option
def show(name: str | None, as_json: bool) -> None:
    """Show a context, by default the current one."""
    found = config.load(_path())
    named_by = None
    if name is None:
        _warn()
        name = os.environ.get("FLOTILLA_CONTEXT") or found.current
        named_by = "FLOTILLA_CONTEXT"
    if name is None:
        raise InputInvalid("no current context: choose one with `flotilla contexts use NAME`")
    _show(found, name, found.find(name, named_by), as_json)


@contexts.command()
@click.argument("name", type=_NAME, metavar="NAME", shell_complete=completers.contexts, help="Name of the context.")
@click.option("--missing-ok", is_flag=True, help="Succeed if the context does not exist.")
def delete(name: str, missing_ok: bool) -> None:
    """Delete a context. Its token file is kept."""
    found = config.load(_path())
    if missing_ok and name not in found.contexts:
        print_lines(f"context '{name}' does not exist")
        return
    found.find(name)
    _save(found.without(name))
    print_lines(f"context '{name}' deleted")


def _path() -> Path | None:
    return config.find_path(os.environ)


def _save(changed: Config) -> None:
    config.save(_path(), changed)


def _keep(path: Path | None) -> Path | None:
    """Make a path absolute. A token given by mistake is rejected without showing it."""
    if path is not None and path.name.startswith("flt_") and not path.exists():
        raise InputInvalid("--token-file expects the path of a file, not a token: save the token to a file first")
    if path is not None and not str(path).isprintable():
        raise InputInvalid(f"path {str(path)!r} has characters that are not printable")
    try:
        return None if path is None else config.expand(path).absolute()
    except ValueError as error:
        raise InputInvalid(f"{error}: use an absolute path") from error


def _show(found: Config, name: str, context: Context, as_json: bool) -> None:
    if as_json:
        print_json(_to_json(name, context))
        return
    rows = [
        ("name", name),
        ("url", context.url),
        ("ca", context.ca),
        ("token-file", context.token_file),
        ("current", "yes" if found.current == name else "no"),
    ]
    print_lines(*format_table(rows))


def _warn() -> None:
    if os.environ.get("FLOTILLA_URL"):
        print_message("FLOTILLA_URL is set and overrides the current context")
    elif os.environ.get("FLOTILLA_CONTEXT"):
        print_message("FLOTILLA_CONTEXT is set and overrides the current context")


def _to_json(name: str, context: Context) -> dict[str, str | None]:
    files = {"ca": context.ca, "token_file": context.token_file}
    return {"name": name, "url": context.url, **{key: None if at is None else str(at) for key, at in files.items()}}
