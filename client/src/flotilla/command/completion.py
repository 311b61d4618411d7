"""`flotilla completion`: what a shell has to know to complete commands, options, and names that servers know."""

import os

import click
from click.shell_completion import BashComplete, add_completion_class, get_completion_class, split_arg_string

from flotilla.command.errors import InputInvalid
from flotilla.command.options import Command, examples
from flotilla.command.speaking import say

_EXAMPLES = examples(
    'eval "$(flotilla completion bash)"    in this shell; in ~/.bashrc, in each',
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
    """Bash as click knows it, but told the line instead of its words.

    Bash breaks words at colons, too: the URL in `--url http://a:1` would be five of them.
    """

    source_template = _BASH

    def get_completion_args(self) -> tuple[list[str], str]:
        """Take the line so far apart: what is complete, and what is not."""
        line = os.environ["COMP_LINE"]
        words = split_arg_string(line)[1:]
        return (words, "") if line[-1:].isspace() or not words else (words[:-1], words[-1])


add_completion_class(Bash)


@click.command(cls=Command, epilog=_EXAMPLES)
@click.argument("shell", type=click.Choice(("bash", "zsh", "fish")), help="the shell that it is for")
def completion(shell: str) -> None:
    """Print a script that has a shell complete commands, options, contexts, and names of topics, groups and brokers.

    Names of topics, groups and brokers come from the servers that the line names, or that are asked without. Where
    nobody answers within a second, there are none.
    """
    from flotilla.command.main import COMPLETE, NAME, flotilla  # noqa: PLC0415 - it is what loads this module

    kind = get_completion_class(shell)
    if kind is None:
        raise InputInvalid(f"nothing is known about {shell}")
    say(kind(flotilla, {}, NAME, COMPLETE).source().rstrip())
