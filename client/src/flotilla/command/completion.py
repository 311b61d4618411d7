"""`flotilla completion`: completion scripts for shells."""

import os

import click
from click.shell_completion import BashComplete, add_completion_class, get_completion_class, split_arg_string

from flotilla.command.errors import InputInvalid
from flotilla.command.options import Command, examples
from flotilla.command.output import print_lines

_EXAMPLES = examples(
    'eval "$(flotilla completion bash)"    # in this shell; add the line to ~/.bashrc for all',
    "flotilla completion bash > ~/.local/share/bash-completion/completions/flotilla",
    'flotilla completion zsh > "${fpath[1]}/_flotilla"',
    "flotilla completion fish > ~/.config/fish/completions/flotilla.fish",
)
_BASH = """\
%(complete_func)s() {
    local IFS=$'\\n' type value
    COMPREPLY=()
    while IFS=, read -r type value; do
        case $type in
            dir) compopt -o dirnames ;;
            file) compopt -o default ;;
            plain) COMPREPLY+=("$value") ;;
        esac
    done < <(env COMP_LINE="${COMP_LINE:0:COMP_POINT}" %(complete_var)s=bash_complete "$1")
}

complete -o nosort -F %(complete_func)s %(prog_name)s 2> /dev/null || complete -F %(complete_func)s %(prog_name)s
"""


class Bash(BashComplete):
    """Click's completion of bash, but with the whole line instead of its words.

    Bash splits words at colons, so the URL in `--url http://a:1` would be several words.
    """

    source_template = _BASH

    def get_completion_args(self) -> tuple[list[str], str]:
        """Split the line into complete words and the incomplete one."""
        line = os.environ["COMP_LINE"]
        words = split_arg_string(line)[1:]
        return (words, "") if line[-1:].isspace() or not words else (words[:-1], words[-1])


add_completion_class(Bash)


@click.command(cls=Command, epilog=_EXAMPLES)
@click.argument("shell", type=click.Choice(("bash", "zsh", "fish")), help="Shell that runs the script.")
def completion(shell: str) -> None:
    """Print a shell completion script.

    It completes commands, options, contexts, and names of topics, groups and brokers. Names of topics, groups and
    brokers come from the server; if it does not answer within 1 s, none are offered.
    """
    from flotilla.command.main import COMPLETE, NAME, flotilla  # noqa: PLC0415 - it imports this module

    kind = get_completion_class(shell)
    if kind is None:
        raise InputInvalid(f"unsupported shell: {shell}")
    print_lines(kind(flotilla, {}, NAME, COMPLETE).source().rstrip())
