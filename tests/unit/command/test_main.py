"""The `flotilla` command as a whole: help of every command, and lazy imports."""

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from flotilla.command import main
from flotilla.command.main import COMMANDS, NAME, flotilla


def walk(command: click.Command, context: click.Context) -> Iterator[click.Context]:
    """Find all commands."""
    yield context
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            task = command.get_command(context, name)
            assert task is not None
            yield from walk(task, click.Context(task, info_name=name, parent=context))


ALL = list(walk(flotilla, click.Context(flotilla, info_name=NAME)))


@pytest.mark.parametrize("context", ALL, ids=[context.command_path for context in ALL])
def test_every_command_option_and_argument_has_help(context: click.Context) -> None:
    command = context.command
    assert command.help, "it has no help"
    assert command.help[0].isupper()
    assert command.get_short_help_str(200).endswith("."), "its first sentence does not end with a full stop"
    for parameter in command.params:
        is_unprocessed = parameter.type is click.UNPROCESSED
        assert parameter.help or is_unprocessed, f"{parameter.name} is not explained"
        text = (parameter.help or "X.").split("  [")[0]  # without the default
        assert text[0].isupper(), f"{text!r} does not start with a capital"
        assert text.endswith("."), f"{text!r} does not end with a full stop"


@pytest.mark.parametrize("path", [context.command_path for context in ALL if context.command.add_help_option])
def test_every_command_prints_help(path: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*path.split()[1:], "--help"]) == 0
    captured = capsys.readouterr()
    assert captured.out.startswith(f"Usage: {path}")
    assert captured.err == ""


@pytest.mark.parametrize("context", ALL, ids=[context.command_path for context in ALL])
def test_help_breaks_no_word_at_a_hyphen_and_names_the_value_of_a_range(context: click.Context) -> None:
    if context.command.add_help_option:
        for width in range(50, 120, 10):
            words = f"{context.command_path} --help".split()[1:]
            text = CliRunner().invoke(flotilla, words, terminal_width=width).output
            assert not re.search(r"[A-Za-z]-\n", text)
            assert "\u2011" not in text
            assert "x>=" not in text


def test_all_commands_exist() -> None:
    promised = "up topics produce consume groups brokers tokens bench experiment contexts completion admin"
    assert list(COMMANDS) == promised.split()


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["topic", "list"], "flotilla: No such command 'topic'. Did you mean 'topics'?"),
        (["frobnicate"], "flotilla: No such command 'frobnicate'.\n"),
        (["topics", "creat", "x"], "flotilla topics: No such command 'creat'. Did you mean 'create'?"),
        (["experiment", "5p3c"], "flotilla experiment: No such command '5p3c'. Did you mean '5P3C'?"),
        (["topics", "list", "--ulr", "x"], "flotilla topics: No such option '--ulr'. Did you mean '--url'?"),
        (["--verbose"], "flotilla: No such option '--verbose'. Did you mean '--version'?"),
        (["topics", "list", "x"], "flotilla topics: Got unexpected extra argument (x)"),
        (["topics", "create"], "flotilla topics: Missing argument 'TOPIC'."),
    ],
)
def test_usage_error_shows_usage_hint_and_suggestion(
    capsys: pytest.CaptureFixture[str], arguments: list[str], text: str
) -> None:
    assert main(arguments) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert re.match(r"Usage: flotilla .*\nTry 'flotilla.* --help' for help\.\n\n", captured.err)
    assert text in captured.err


@pytest.mark.parametrize("arguments", [[], ["topics"], ["contexts"]])
def test_group_without_command_lists_its_commands(capsys: pytest.CaptureFixture[str], arguments: list[str]) -> None:
    assert main(arguments) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert re.search(r"^Commands:$", captured.err, re.MULTILINE)


@pytest.mark.parametrize(
    ("arguments", "unloaded"),
    [
        ("--version", ("flotilla.client", "asyncio", "rich", "msgspec", "flotilla.up.run")),
        ("--help", ("flotilla.client", "asyncio", "rich", "msgspec", "flotilla.up.run")),
        ("contexts list", ("flotilla.client", "rich")),
        ("completion bash", ("flotilla.client", "asyncio", "rich")),
        ("topics --help", ("flotilla.client.producer", "rich", "flotilla.up.run", "flotilla.command.groups")),
        ("up --help", ("flotilla.client", "rich")),
    ],
)
def test_commands_import_only_what_they_need(arguments: str, unloaded: tuple[str, ...]) -> None:
    """Commands start fast: unneeded modules are not imported."""
    code = "import sys; from flotilla.command import main; code = main(); print(*sys.modules, file=sys.stderr)"
    done = subprocess.run(
        [sys.executable, "-c", f"{code}; sys.exit(code)", *arguments.split()],
        env={**os.environ, "FLOTILLA_CONFIG": os.devnull},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert not set(unloaded) & set(done.stderr.split())


@pytest.mark.parametrize(
    ("where", "code", "said"),
    [("> /dev/full", 1, "flotilla: I/O error: No space left on device\n"), (">&-", 0, "")],
)
def test_failed_output_is_reported_in_one_line(where: str, code: int, said: str) -> None:
    line = f"exec '{sys.executable}' -m flotilla.command --help {where}"
    done = subprocess.run(["bash", "-c", line], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (code, said)


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_closed_standard_streams_are_not_reused(closed: str) -> None:
    """Descriptors 0 to 2 are never reused for sockets or files."""
    code = (
        "import os; from flotilla.command import main; main(['--version']); print(os.open('/', 0), file=open(9, 'w'))"
    )
    line = f"exec 9>&1; exec '{sys.executable}' -c \"{code}\" {closed}"
    done = subprocess.run(["bash", "-c", line], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout.split()[-1]) > 2


def test_errors_do_not_go_to_standard_output() -> None:
    """Standard output is for results only."""
    line = f"exec '{sys.executable}' -m flotilla.command produce 2>&-"
    done = subprocess.run(["bash", "-c", line], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout) == (2, "")


def examples(command: click.Command) -> list[str]:
    """Find the examples of a help text, without comments and pipes."""
    shown = re.findall(r"\bflotilla .*", command.epilog or "") if (command.epilog or "").startswith("\b") else []
    return [re.split(r"  +| [>|] |\)", line)[0] for line in shown]


@pytest.mark.parametrize("example", [line for context in ALL for line in examples(context.command)])
def test_every_help_example_parses(example: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "orders.txt").touch()
    monkeypatch.chdir(tmp_path)
    command: click.Command = flotilla
    context = click.Context(flotilla, info_name=NAME)
    words = shlex.split(example)[1:]
    while isinstance(command, click.Group) and words:
        name, found, words = command.resolve_command(context, words)
        assert found is not None
        command = found
        context = click.Context(command, info_name=name, parent=context)
    command.make_context(command.name, words, parent=context.parent).close()
