"""The `flotilla` command as a whole: every command and task is explained, and only what is needed is loaded."""

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from flotilla.command import main
from flotilla.command.main import COMMANDS, NAME, flotilla


def walk(command: click.Command, context: click.Context) -> Iterator[click.Context]:
    """Find all commands and tasks."""
    yield context
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            task = command.get_command(context, name)
            assert task is not None
            yield from walk(task, click.Context(task, info_name=name, parent=context))


ALL = list(walk(flotilla, click.Context(flotilla, info_name=NAME)))


@pytest.mark.parametrize("context", ALL, ids=[context.command_path for context in ALL])
def test_every_command_task_option_and_argument_is_explained(context: click.Context) -> None:
    """Nobody has to guess."""
    command = context.command
    assert command.help, "it has no help"
    assert command.help[0].isupper()
    for parameter in command.params:
        is_handed_over = parameter.type is click.UNPROCESSED
        assert parameter.help or is_handed_over, f"{parameter.name} is not explained"


@pytest.mark.parametrize("path", [context.command_path for context in ALL if context.command.add_help_option])
def test_every_help_is_told(path: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*path.split()[1:], "--help"]) == 0
    told = capsys.readouterr()
    assert told.out.startswith(f"Usage: {path}")
    assert told.err == ""


def test_there_are_as_many_commands_as_are_promised() -> None:
    promised = "up topics produce consume groups brokers tokens bench experiment contexts completion admin"
    assert list(COMMANDS) == promised.split()


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["topic", "list"], "flotilla: There is no command 'topic'. Did you mean 'topics'?"),
        (["frobnicate"], "flotilla: There is no command 'frobnicate'.\n"),
        (["topics", "creat", "x"], "flotilla topics: There is no task 'creat'. Did you mean 'create'?"),
        (["experiment", "5p3c"], "flotilla experiment: There is no task '5p3c'. Did you mean '5P3C'?"),
        (["topics", "list", "--ulr", "x"], "flotilla topics: No such option '--ulr'. Did you mean '--url'?"),
        (["--verbose"], "flotilla: No such option '--verbose'. Did you mean '--version'?"),
        (["topics", "list", "x"], "flotilla topics: Got unexpected extra argument (x)"),
        (["topics", "create"], "flotilla topics: Missing argument 'TOPIC'."),
    ],
)
def test_who_is_not_understood_sees_the_usage_the_hint_and_the_nearest(
    capsys: pytest.CaptureFixture[str], arguments: list[str], text: str
) -> None:
    assert main(arguments) == 2
    told = capsys.readouterr()
    assert told.out == ""
    assert re.match(r"Usage: flotilla .*\nTry 'flotilla.* --help' for help\.\n\n", told.err)
    assert text in told.err


@pytest.mark.parametrize("arguments", [[], ["topics"], ["contexts"]])
def test_without_a_task_all_are_shown(capsys: pytest.CaptureFixture[str], arguments: list[str]) -> None:
    assert main(arguments) == 2
    told = capsys.readouterr()
    assert told.out == ""
    assert re.search(r"^(Commands|Tasks):$", told.err, re.MULTILINE)


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
def test_only_what_is_needed_is_loaded(arguments: str, unloaded: tuple[str, ...]) -> None:
    """A command begins at once; what it does not need costs nothing."""
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
    [("> /dev/full", 1, "flotilla: cannot go on: No space left on device\n"), (">&-", 0, "")],
)
def test_what_cannot_be_printed_is_told_in_a_line(where: str, code: int, said: str) -> None:
    line = f"exec '{sys.executable}' -m flotilla.command --help {where}"
    done = subprocess.run(["bash", "-c", line], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (code, said)


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_what_stands_for_a_closed_stream_is_no_socket(closed: str) -> None:
    """The numbers 0 to 2 are never given to something else, which would be read, written to, or closed by mistake."""
    code = (
        "import os; from flotilla.command import main; main(['--version']); print(os.open('/', 0), file=open(9, 'w'))"
    )
    line = f"exec 9>&1; exec '{sys.executable}' -c \"{code}\" {closed}"
    done = subprocess.run(["bash", "-c", line], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout.split()[-1]) > 2


def test_what_is_said_is_not_printed_where_standard_error_is_closed() -> None:
    """Standard output is for what was asked for."""
    line = f"exec '{sys.executable}' -m flotilla.command produce 2>&-"
    done = subprocess.run(["bash", "-c", line], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout) == (2, "")


def examples(command: click.Command) -> list[str]:
    """Find what is shown, without what is said about it, and without the shell around it."""
    shown = re.findall(r"\bflotilla .*", command.epilog or "") if (command.epilog or "").startswith("\b") else []
    return [re.split(r"  +| [>|] |\)", line)[0] for line in shown]


@pytest.mark.parametrize("example", [line for context in ALL for line in examples(context.command)])
def test_every_example_of_a_help_is_understood(example: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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
