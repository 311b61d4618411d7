"""`flotilla contexts`: systems that have a name, in a file, so that `--context prod` says where one is and who asks."""

import os
from dataclasses import replace
from pathlib import Path

import click

from flotilla.command import completing, config
from flotilla.command.config import Config, Context
from flotilla.command.errors import InputInvalid
from flotilla.command.options import FILE, Group, Parsed, answers_json, examples
from flotilla.command.speaking import say, say_json, table, tell

_NAME = Parsed("name", config.check_name)
_URL = Parsed("url", config.check_url)
_SETTINGS = ("ca", "token-file")
_HEADING = ("current", "name", "url", "ca", "token-file")


@click.group(
    cls=Group,
    epilog=examples(
        "flotilla contexts set prod --url https://flotilla.example --token-file ~/.flotilla-token",
        "flotilla topics list --context prod",
        "flotilla contexts use prod    from now on, without --context",
    ),
)
def contexts() -> None:
    """Keep systems under names: where one is, whom to trust, and the file with a token.

    They are in a file of your own, which FLOTILLA_CONFIG names; by default it is flotilla/config.toml in
    XDG_CONFIG_HOME, or in ~/.config. It never holds a token, only the path of a file that does.

    A context that --context names decides alone. Without, FLOTILLA_URL decides; without that, the context that
    FLOTILLA_CONTEXT names, or the current one, and FLOTILLA_TOKEN and FLOTILLA_TLS_CA win over what is in it.
    """


@contexts.command("list")
@answers_json
def list_(as_json: bool) -> None:
    """Show all contexts."""
    found = config.load(_path())
    if as_json:
        say_json({"current": found.current, "contexts": [_for_json(*one) for one in found.contexts.items()]})
    elif found.contexts:
        rows = [
            ("*" if name == found.current else "", name, one.url, one.ca, one.token_file)
            for name, one in found.contexts.items()
        ]
        say(*table([_HEADING, *rows]))
    else:
        tell("there are no contexts yet; `flotilla contexts set --help` says how to make one")


@contexts.command(
    "set",
    epilog=examples(
        "flotilla contexts set here --url http://127.0.0.1:8080",
        "flotilla contexts set prod --url https://a.example,https://b.example --ca ca.pem --token-file token",
        "flotilla contexts set prod --unset ca",
    ),
)
@click.argument("name", type=_NAME, metavar="NAME", shell_complete=completing.contexts, help="the context's name")
@click.option("--url", type=_URL, metavar="URL", help="where a manager is, or several with commas")
@click.option("--ca", type=FILE, metavar="FILE", help="who signs its certificate")
@click.option("--token-file", type=FILE, metavar="FILE", help="a file with a token")
@click.option("--unset", multiple=True, type=click.Choice(_SETTINGS), help="take a setting away; several are fine")
@answers_json
def set_(
    name: str, url: str | None, ca: Path | None, token_file: Path | None, unset: tuple[str, ...], as_json: bool
) -> None:
    """Make a context, or change one: what is not named stays."""
    found = config.load(_path())
    before = found.contexts.get(name)
    if before is None and url is None:
        raise InputInvalid(f"there is no context '{name}' yet: give --url, too")
    for option, value in (("ca", ca), ("token-file", token_file)):
        if value is not None and option in unset:
            raise InputInvalid(f"--{option} and --unset {option} contradict each other; give one of them")
    old = before or Context("")
    context = Context(
        url or old.url,
        None if "ca" in unset else _keep(ca) or old.ca,
        None if "token-file" in unset else _keep(token_file) or old.token_file,
    )
    _save(found.with_context(name, context))
    _show(found, name, context, as_json)
    if found.current != name:
        tell(f"`flotilla contexts use {name}` makes it the current one")


@contexts.command()
@click.argument(
    "name", type=_NAME, metavar="[NAME]", required=False, shell_complete=completing.contexts, help="the context's name"
)
@click.option("--none", is_flag=True, help="have no context be the current one")
def use(name: str | None, none: bool) -> None:
    """Have a context be the current one, which holds where nothing else is said."""
    if (name is None) is not none:
        raise InputInvalid("give the name of a context, or --none")
    found = config.load(_path())
    if name is not None:
        found.find(name)
    _save(replace(found, current=name))
    say("no context is the current one now" if name is None else f"context '{name}' is the current one now")
    _warn()


@contexts.command()
@click.argument(
    "name", type=_NAME, metavar="[NAME]", required=False, shell_complete=completing.contexts, help="the context's name"
)
@answers_json
def show(name: str | None, as_json: bool) -> None:
    """Show a context: the one that is named, or the current one."""
    found = config.load(_path())
    named_by = None
    if name is None:
        _warn()
        name = os.environ.get("FLOTILLA_CONTEXT") or found.current
        named_by = "FLOTILLA_CONTEXT"
    if name is None:
        raise InputInvalid("no context is the current one; `flotilla contexts use NAME` chooses one")
    _show(found, name, found.find(name, named_by), as_json)


@contexts.command()
@click.argument("name", type=_NAME, metavar="NAME", shell_complete=completing.contexts, help="the context's name")
@click.option("--missing-ok", is_flag=True, help="be content if there is none")
def delete(name: str, missing_ok: bool) -> None:
    """Delete a context. Its token file stays."""
    found = config.load(_path())
    if not missing_ok:
        found.find(name)
    _save(found.without(name))
    say(f"context '{name}' is deleted")


def _path() -> Path | None:
    return config.find_path(os.environ)


def _save(changed: Config) -> None:
    config.save(_path(), changed)


def _keep(path: Path | None) -> Path | None:
    """Make a path that holds in any folder; one that is a token by mistake is refused, and not shown."""
    if path is not None and path.name.startswith("flt_") and not path.exists():
        raise InputInvalid("what is given for --token-file is a token; put it into a file, and give the file's path")
    if path is not None and not str(path).isprintable():
        raise InputInvalid(f"{str(path)!r} cannot be kept: a path in the file has printable characters only")
    try:
        return None if path is None else config.expand(path).absolute()
    except ValueError as error:
        raise InputInvalid(f"{error}; write the whole path") from error


def _show(found: Config, name: str, context: Context, as_json: bool) -> None:
    if as_json:
        say_json(_for_json(name, context))
        return
    rows = [
        ("name", name),
        ("url", context.url),
        ("ca", context.ca),
        ("token-file", context.token_file),
        ("current", "yes" if found.current == name else "no"),
    ]
    say(*table(rows))


def _warn() -> None:
    if os.environ.get("FLOTILLA_URL"):
        tell("FLOTILLA_URL is set, and wins over the current context")
    elif os.environ.get("FLOTILLA_CONTEXT"):
        tell("FLOTILLA_CONTEXT is set, and wins over what the file says")


def _for_json(name: str, context: Context) -> dict[str, str | None]:
    files = {"ca": context.ca, "token_file": context.token_file}
    return {"name": name, "url": context.url, **{key: None if at is None else str(at) for key, at in files.items()}}
