"""`shoal completion`: what makes bash, zsh and fish complete what is typed; and the ids and names
from Redis that they offer, in addition to commands and options.

It must be instant, and a terminal is not the place to complain: a Redis that is slow or away
offers nothing.
"""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final

import click
from click.shell_completion import BashComplete, CompletionItem, get_completion_class

from console.output import F, examples
from shared.errors import ShoalError
from shared.process.resp import RespConnection, RespError
from shared.store import keys

LIMIT_S: Final = 1.0
MOST: Final = 50
SCANS: Final = 20
SCAN_COUNT: Final = 1000

# A name that a shell would take for more than a word is not offered: whoever chose it might wait
# for just that.
_HARMLESS: Final = re.compile(r"[\w.,:/@%+=-]+", re.ASCII)
_GLOB: Final = re.compile(r"([\[\]*?\\])")

Find = Callable[[RespConnection, str], Iterable[tuple[str, str]]]
"""Finds values that may continue what is typed, and a few words about each."""

Complete = Callable[[click.Context, click.Parameter, str], list[CompletionItem]]


def _completed_from(find: Find) -> Complete:
    """Return the function that click calls for what is typed."""
    return lambda context, parameter, incomplete: _offered(find, incomplete)


def _offered(find: Find, incomplete: str) -> list[CompletionItem]:
    from shared.settings import redis_url
    from shared.settings.trust import load_trusted

    # Whatever hangs (a name server, a server that was stopped), and whoever waits for a thread at
    # the end of a process.
    signal.signal(signal.SIGALRM, lambda *_: os._exit(0))
    signal.setitimer(signal.ITIMER_REAL, LIMIT_S)
    found: dict[str, CompletionItem] = {}
    try:
        connection = RespConnection(redis_url(load_trusted()), timeout_s=LIMIT_S)
        for value, about in find(connection, incomplete):
            if value.startswith(incomplete) and _HARMLESS.fullmatch(value) and len(found) < MOST:
                found.setdefault(value, CompletionItem(value, help=about or None))
        connection.close()
    except (ShoalError, RespError, OSError):
        return []
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
    return list(found.values())


@_completed_from
def letters(redis: RespConnection, incomplete: str) -> Iterator[tuple[str, str]]:
    """References of the newest dead letters."""
    from shared.store.client.scripts import load

    script = load("letters/page")
    words = script.words({"command": "XREVRANGE", "first": "+", "last": "-", "most": str(2 * MOST)}, keys.Whose())
    rows = redis.command("EVAL", script.source, *map(str, words))
    for row in rows if isinstance(rows, list) else []:
        id, _, _, reason = _texts(row)[:4]
        why, _, reference = reason.rpartition(" ")
        yield (reference, why) if why else (id, reason)


@_completed_from
def sessions(redis: RespConnection, incomplete: str) -> Iterator[tuple[str, str]]:
    """Names of sessions: in a big store those found in SCANS times SCAN_COUNT keys."""
    prefix = keys.session("")
    pattern = prefix + _GLOB.sub(r"\\\1", incomplete) + "*"
    cursor = "0"
    names = set[str]()
    for _ in range(SCANS):
        answer = redis.command("SCAN", cursor, "MATCH", pattern, "COUNT", str(SCAN_COUNT))
        assert isinstance(answer, list)
        [cursor] = _texts([answer[0]])
        names.update(name.removeprefix(prefix) for name in _texts(answer[1]))
        if cursor == "0" or len(names) >= MOST:
            break
    yield from ((name, "") for name in sorted(names))


def session_option(*names: str, help: str, default: str | None = None) -> Callable[[F], F]:
    """Return an option that takes the name of a session."""
    return click.option(*names, default=default, metavar="NAME", shell_complete=sessions, help=help)


@_completed_from
def jobs(redis: RespConnection, incomplete: str) -> Iterator[tuple[str, str]]:
    """Ids of subagents that run or wait."""
    for id in _texts(redis.command("ZRANGE", keys.SUBAGENTS, "0", "999")):
        yield id, ""


@_completed_from
def schedules(redis: RespConnection, incomplete: str) -> Iterator[tuple[str, str]]:
    """Ids of schedules, the next ones first."""
    for member in _texts(redis.command("ZRANGE", keys.SCHEDULES, "0", "999")):
        id, _, session = member.partition(":")
        yield id, session


def _texts(answer: Any) -> list[str]:
    """The texts of a list; what is none is ''."""
    parts = answer if isinstance(answer, list) else []
    return [part.decode(errors="replace") if isinstance(part, bytes) else "" for part in parts]


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
    click.echo(made(root, {}, "shoal", "_SHOAL_COMPLETE").source(), nl=False)
