"""`/status` and `/memory`: show the state of a chat, and what is remembered there."""

from __future__ import annotations

from typing import Final

from gateway.commands.command import CommandContext, counted
from shared.settings import ModelSettings
from shared.store.fleet.presence import list_processes
from shared.store.fleet.spending import Spending
from shared.store.sessions.memory import MemoryStore
from shared.store.sessions.session import Sessions, SessionState
from shared.store.turns.inbox import SHARED_SCOPE
from shared.version import VERSION

SHOWN_CHARS: Final = 4_000
FOUND: Final = 8
FOUND_CHARS: Final = 500


async def answer_status(settings: ModelSettings, sessions: Sessions, context: CommandContext) -> str:
    """Show the state of the chat, its model, memory and spending, and the fleet."""
    state = context.state
    has = await sessions.memory_size(state.scope)
    spent = await Spending(context.client).read(context.message.session)
    processes = await list_processes(context.client)
    workers = sum(one.kind == "worker" and not one.draining for one in processes)
    chosen = settings.presets.get(state.preset)
    model = f"`{chosen.name}`, chosen as `{state.preset}`" if chosen else f"`{settings.name}`"
    history, jobs = counted(has.log_entries, "entry", "entries"), counted(state.subagents, "job")
    usd = f", about ${spent.usd:.4f}" if spent.usd else ""
    rows = [
        f"**Now:** {_doing(state, workers)}",
        *([f"**In the background:** {jobs}; see `/jobs`"] if state.subagents else []),
        f"**Model:** {model}",
        f"**Conversation:** {counted(state.entries, 'entry', 'entries')}",
        f"**Memory:** {counted(has.memory_bytes, 'byte')}; {history} of history",
        f"**Used today:** {counted(spent.tokens, 'token')}{usd}",
        f"**Shoal {VERSION}:** {counted(workers, 'worker')}",
    ]
    return "\n".join(f"- {row}" for row in rows)


def _doing(state: SessionState, workers: int) -> str:
    waiting = len(state.waiting) - 1 - state.joined
    if waiting < 0:
        return "nothing to do"
    if state.running:
        doing = "working on your message"
    elif state.open_question is not None:
        doing = f"waiting for your yes to `{state.open_question.tool}`: `/yes` or `/no`"
    elif state.model_unavailable_since:
        doing = "your message waits for the model, which cannot be reached; I keep trying"
    elif not workers:
        doing = "your message waits; no worker is running to answer it"
    else:
        doing = "your message waits for a free worker"
    if state.attempt > 1:
        doing += f" (attempt {state.attempt})"
    return f"{doing}; {counted(waiting, 'more waits', 'more wait')}" if waiting else doing


async def answer_memory(memory: MemoryStore, sessions: Sessions, context: CommandContext) -> str:
    """Show MEMORY.md, or find entries of HISTORY.md that hold all of some words."""
    word, _, rest = context.argument.partition(" ")
    scope, words = context.state.scope, rest.casefold().split()
    if word.casefold() != "search":
        return await _show_memory(memory, sessions, scope)
    if not words:
        return "What shall I look for? `/memory search WORDS`"
    entries = await memory.read_log(scope)
    found = [one for one in reversed(entries) if all(word in one.casefold() for word in words)]
    if not found:
        return f"Nothing found in {counted(len(entries), 'entry', 'entries')} of `HISTORY.md`."
    parts = [f"{counted(len(found), 'entry', 'entries')} found, the newest first:"]
    parts += [_quoted(entry.strip(), FOUND_CHARS) for entry in found[:FOUND]]
    if len(found) > FOUND:
        parts.append(f"{len(found) - FOUND:,} older ones are not shown; more words find fewer.")
    return "\n\n---\n\n".join(parts)


async def _show_memory(memory: MemoryStore, sessions: Sessions, scope: str) -> str:
    text = (await memory.read_memory(scope)).text.strip()
    entries = (await sessions.memory_size(scope)).log_entries
    heading = "What I remember of this chat"
    if scope == SHARED_SCOPE:
        heading = "What I remember, for everybody who talks to me"
    elif scope.startswith("user:"):
        heading = "What I remember of you, in all your chats"
    parts = [f"{heading}:", _quoted(text, SHOWN_CHARS)] if text else [f"{heading}: nothing yet."]
    if len(text) > SHOWN_CHARS:
        parts.append(f"That is the beginning; all of it has {len(text):,} characters.")
    if entries:
        count = counted(entries, "entry", "entries")
        parts.append(f"`HISTORY.md` has {count}; `/memory search WORDS` looks into them.")
    return "\n\n".join(parts)


def _quoted(text: str, limit: int) -> str:
    """Return a quote of at most `limit` characters, where possible whole lines."""
    if len(text) > limit:
        text = (text[:limit].rpartition("\n")[0] or text[: limit - 1]).rstrip() + " …"
    return "\n".join(f"> {line}".rstrip() for line in text.splitlines())
