"""`shoal completion`: what makes bash, zsh and fish complete what is typed."""

from __future__ import annotations

from typing import Final

import click
from click.shell_completion import BashComplete, get_completion_class

from console.examples import examples

PROGRAM: Final = "shoal"
VARIABLE: Final = "_SHOAL_COMPLETE"


class ColonBash(BashComplete):
    """Bash completion for words with colons. Bash cuts words at `:` and `=`, and names of sessions
    have a colon: the script joins them, and removes the part that bash has already cut off."""

    source_template = """\
%(complete_func)s() {
    local IFS=$'\\n' words=() word i rest=${COMP_LINE:0:COMP_POINT} trimmed last breaks= cut= response completion type
    local value
    for ((i = 0; i <= COMP_CWORD; i++)); do
        word=${COMP_WORDS[i]}
        trimmed=${rest#"${rest%%%%[![:space:]]*}"}
        if [[ $i -gt 0 && $trimmed == "$rest" ]]; then
            words[${#words[@]} - 1]+=$word
        else
            words+=("$word")
        fi
        rest=${trimmed#"$word"}
    done
    last=${words[${#words[@]} - 1]}
    [[ $COMP_WORDBREAKS == *:* ]] && breaks+=":"
    [[ $COMP_WORDBREAKS == *=* ]] && breaks+="="
    if [[ -n $breaks && $last == *[$breaks]* ]]; then
        cut=${last%%"${last##*[$breaks]}"}
        [[ $cut == --*=* ]] && cut=${cut#*=}
    fi
    response=$(env COMP_WORDS="${words[*]}" COMP_CWORD=$((${#words[@]} - 1)) %(complete_var)s=bash_complete "$1" \\
        2>/dev/null)
    for completion in $response; do
        IFS=',' read -r type value <<< "$completion"
        case $type in
            dir) COMPREPLY=(); compopt -o dirnames ;;
            file) COMPREPLY=(); compopt -o default ;;
            plain) COMPREPLY+=("${value#"$cut"}") ;;
        esac
    done
}

complete -o nosort -F %(complete_func)s %(prog_name)s
"""


@click.command(epilog=examples('eval "$(shoal completion bash)"', "shoal completion fish | source"))
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> None:
    """Print what makes a shell complete commands, options, and the ids and names that are there
    now.

    Run what it prints in the file that your shell reads when it starts: ~/.bashrc, ~/.zshrc or
    ~/.config/fish/config.fish.
    """
    made = ColonBash if shell == "bash" else get_completion_class(shell)
    assert made is not None
    root = click.get_current_context().find_root().command
    click.echo(made(root, {}, PROGRAM, VARIABLE).source(), nl=False)
