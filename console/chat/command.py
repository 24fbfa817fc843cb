"""`shoal chat`: talk to Shoal from a terminal, or ask it one thing from a script."""

from __future__ import annotations

import re
import sys
from typing import Final

import click

from console.examples import examples

STOPPED: Final = 130
ONE_MESSAGE_PATIENCE_S: Final = 60.0
"""A script does not wait for ever for a gateway that is gone."""

_CHAT: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")


@click.command(
    epilog=examples(
        "shoal chat", 'shoal chat -m "What time is it?"', "git diff | shoal chat --json", "shoal chat --chat work"
    )
)
@click.option("-m", "--message", metavar="TEXT", help="Send this, print the answer, and end.")
@click.option("--chat", "name", default="terminal", show_default=True, help="Which conversation.")
@click.option("--url", help="Where the gateway is, e.g. ws://127.0.0.1:8080, or the line that `make up` prints.")
@click.option("--token", help="Who you are; by default web.token of the settings, or the one that `make up` made.")
@click.option("--history", type=click.IntRange(0, 50), default=6, show_default=True, help="Old lines shown at start.")
@click.option("--json", "as_json", is_flag=True, help="Print the answer to one message as a JSON object.")
def chat(message: str | None, name: str, url: str | None, token: str | None, history: int, as_json: bool) -> None:
    """Talk to Shoal through its web gateway.

    Ctrl-C stops the running answer; at the empty prompt it leaves, as Ctrl-D and /quit do. /help
    lists what else may be said with a slash. With -m, or with text on standard input, one message
    is sent and its answer printed; the exit code is 0 for an answer, 1 for an apology or an error,
    130 after Ctrl-C.
    """
    if not _CHAT.fullmatch(name):
        raise click.BadParameter("1 to 64 letters, digits, dashes and underscores", param_hint="--chat")
    if message is None and not sys.stdin.isatty():
        message = sys.stdin.buffer.read().decode(errors="replace").rstrip("\r\n")
    if message is not None and not message.strip():
        raise click.UsageError("There is no text to send.")
    if message is None and as_json:
        raise click.UsageError("--json goes with one message: -m, or text on standard input.")

    from console.chat import conversation  # here: `shoal --help` does without all of it
    from console.chat.target import find_target
    from shared.settings import load

    target = find_target(load(), url, token)
    if message is None:
        conversation.converse(target, name, history=history)
    else:
        sys.exit(conversation.ask_once(target, name, message, as_json=as_json, patience_s=ONE_MESSAGE_PATIENCE_S))
