"""`/status`, `/where` and `/memory`: show the state of a chat, and what is remembered there."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, datetime
from typing import Final

from gateway.commands.command import CommandAnswer, CommandContext, counted
from shared.errors import ReplyError
from shared.messages.model_waits import why_waiting
from shared.messages.outbound import percent_full
from shared.messages.sources import join_sources, merge_sources
from shared.messages.transcript import AssistantEntry, decode_transcript
from shared.settings import ModelSettings
from shared.settings.sections.tool_use import WorkspaceSettings
from shared.store import keys
from shared.store.access.audit import Audit, actor_of
from shared.store.delivery.deliveries import READ_CHANNELS
from shared.store.fleet.presence import Presence, list_processes, tools_left_out
from shared.store.fleet.provider_limits import RouteReading, read_routes
from shared.store.fleet.spending import Spending
from shared.store.sessions.memory import EarlierText, MemoryStore, about_scope, soul_scope
from shared.store.sessions.session import Sessions, SessionState
from shared.store.turns.inbox import SHARED_SCOPE
from shared.version import VERSION

SHOWN_CHARS: Final = 4_000
FOUND: Final = 8
FOUND_CHARS: Final = 500
LISTED_CHARS: Final = 80
ANSWER_WITHIN: Final = 20
"""Newest entries of a conversation among which its newest answer is looked for."""


async def answer_status(settings: ModelSettings, sessions: Sessions, context: CommandContext) -> str:
    """Show the state of the chat, its model, memory and spending, and the fleet."""
    state = context.state
    has = await sessions.memory_size(state.scope)
    spent = await Spending(context.client).read(context.message.session)
    processes = await list_processes(context.client)
    workers = sum(one.kind == "worker" and not one.draining for one in processes)
    chosen = settings.presets.get(state.preset)
    model = f"`{chosen.name}`, chosen as `{state.preset}`" if chosen else f"`{settings.name}`"
    trouble = await _model_trouble(context, processes, settings)
    left_out = tools_left_out(processes)
    history = counted(has.log_entries, "entry", "entries")
    jobs = counted(state.subagents, "job")
    usd = f", about ${spent.usd:.4f}" if spent.usd else ""
    files = merge_sources(state.file_sources, state.folder_sources)
    mark = join_sources(merge_sources(state.sources, files, state.memory_sources))
    rows = [
        f"**Now:** {_doing(state, workers, trouble)}",
        *([f"**In the background:** {jobs}; see `/jobs`"] if state.subagents else []),
        f"**Model:** {model}{f'; {trouble}' if trouble else ''}",
        *([f"**Folder:** `{state.folder}`; see `/folder`"] if state.folder else []),
        f"**Conversation:** {counted(state.entries, 'entry', 'entries')}{await _context_of(context)}",
        f"**Memory:** {counted(has.memory_bytes, 'byte')}; {history} of history",
        *([f"**Read of others:** {mark}; I ask before I act on it, until `/trust`"] if mark else []),
        *([f"**Standing yeses:** {len(state.standing)}; see `/always`"] if state.standing else []),
        *([f"**Tools left out:** {left_out}"] if left_out else []),
        f"**Used today:** {counted(spent.tokens, 'token')}{usd}",
        f"**Shoal {VERSION}:** {counted(workers, 'worker')}",
    ]
    return "\n".join(f"- {row}" for row in rows)


async def _context_of(context: CommandContext) -> str:
    """Say how full the model's window was at the newest answer of the conversation; "" if nobody
    knows."""
    key = keys.history(context.message.session)
    newest = await context.client.command("LRANGE", key, -ANSWER_WITHIN, -1)
    entries = [entry for record in newest if (entry := decode_transcript.or_none(record))]
    answers = [one for one in entries if isinstance(one, AssistantEntry) and one.window]
    if not answers:
        return ""
    tokens = answers[-1].context
    window = answers[-1].window
    return f"; {percent_full(tokens, window)} % of the model's context ({tokens:,} of {window:,} tokens)"


async def _model_trouble(context: CommandContext, processes: Sequence[Presence], settings: ModelSettings) -> str:
    """Return why nobody asks the model of the chat now, and until when; "" if it is asked."""
    chosen = settings.presets.get(context.state.preset)
    name = chosen.name if chosen else settings.name
    routes = {one.provider_routes[name] for one in processes if name in one.provider_routes}
    closed: list[RouteReading] = []
    with suppress(ReplyError):  # an older list of Redis' users does not let a gateway read it
        closed = [one for one in await read_routes(context.client, sorted(routes)) if one.state == "closed"]
    return why_waiting(closed[0].why, closed[0].wait_s) if closed else ""


async def answer_where(settings: ModelSettings, context: CommandContext) -> str:
    """Say where the messages of a chat are that it has no answer to, and whether the last answer
    has arrived."""
    state = context.state
    session = context.message.session
    if state.waiting:
        processes = await list_processes(context.client)
        trouble = await _model_trouble(context, processes, settings)
        doing = _doing(state, sum(one.kind == "worker" and not one.draining for one in processes), trouble)
        return f"{doing[0].upper()}{doing[1:]}."
    if context.message.channel in READ_CHANNELS:
        return "Everything that you wrote is answered."
    # Lines of a platform's chat leave the log when they have been delivered.
    left = await context.client.command("XLEN", keys.outbox(session))
    if not left:
        return "Everything that you wrote is answered, and the answers are delivered."
    lines = counted(left, "message")
    return f"Everything that you wrote is answered; {lines} of mine could not be delivered yet. I keep trying."


def _doing(state: SessionState, workers: int, trouble: str) -> str:
    """Say what becomes of the chat's message; `trouble` is why nobody asks its model."""
    waiting = len(state.waiting) - 1 - state.joined
    if waiting < 0:
        return "nothing to do"
    if state.running:
        doing = "working on your message"
        if state.attempt > 1:
            doing += ", asking the model again" if state.model_unavailable_since else ", continuing on another worker"
    elif state.open_question is not None:
        after = f", after reading {read}" if (read := join_sources(state.open_question.sources)) else ""
        doing = f"waiting for your yes to `{state.open_question.tool}`{after}: `/yes` or `/no`"
    elif state.model_unavailable_since:
        doing = "your message waits for the model, which cannot be reached; I keep trying"
        if trouble:
            doing = f"your message waits: {trouble}"
    elif not workers:
        doing = "your message waits; no worker is running to answer it"
    else:
        doing = "your message waits for a free worker"
    return f"{doing}; {counted(waiting, 'more waits', 'more wait')}" if waiting else doing


async def answer_folder(settings: WorkspaceSettings, context: CommandContext) -> CommandAnswer | str:
    """Show the folder that the chat works on, or choose one of `workspace.folders` for it."""
    message = context.message
    current = context.state.folder
    wanted = context.argument.strip("`'\" ").casefold()
    modes = {one: "read and write" if one in settings.folders_write else "only read" for one in settings.folders}
    listed = [f"`{one}` ({mode})" for one, mode in modes.items()] if context.from_admin else []
    there = f" These are there: {', '.join(listed)}." if listed else ""
    if not wanted:
        works = f"folder `{current}` ({modes[current]})" if current in modes else "workspace of this chat"
        return f"I work in the {works}; `/folder NAME` chooses another, `/folder default` ends that.{there}"
    if context.state.open_question:  # what was asked about must not run somewhere else
        return "Please answer my question first, with `/yes` or `/no`."
    if wanted == "default":
        if context.from_stranger:
            return "Only people whom my operator has named can say that here."
        return CommandAnswer("From your next message on I work in the workspace of this chat.", change="folder")
    if not context.from_admin:
        actor = actor_of(message.channel, message.sender_id)
        await Audit(context.client).record("folder", "no_admin", actor=actor, session=message.session)
        return "Only an admin, in a chat with me alone, or the owner on the page can give me a folder."
    if wanted not in modes:
        return f"There is no such folder.{there}"
    text = f"From your next message on I work in the folder `{wanted}` ({modes[wanted]})."
    return CommandAnswer(text, change="folder", preset=wanted)


async def answer_memory(memory: MemoryStore, sessions: Sessions, context: CommandContext) -> CommandAnswer | str:
    """Show MEMORY.md; find entries of HISTORY.md that hold all of some words; list the earlier
    texts of a file, or give it one of them back."""
    word, _, rest = context.argument.partition(" ")
    scope = context.state.scope
    words = rest.casefold().split()
    if word.casefold() in ("history", "restore"):
        return await _earlier(memory, context, words, restore=word.casefold() == "restore")
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


async def _earlier(
    memory: MemoryStore, context: CommandContext, words: list[str], *, restore: bool
) -> CommandAnswer | str:
    message = context.message
    scope = context.state.scope
    scopes = {
        "MEMORY.md": scope,
        "SOUL.md": soul_scope(message.session),
        "USER.md": about_scope(message.channel, message.sender_id),
    }
    named = {file.casefold(): file for file in scopes} | {file.partition(".")[0].casefold(): file for file in scopes}
    file = named.get(words[0], "") if words else ""
    code = " ".join(words[1:] if file else words)
    file = file or "MEMORY.md"
    texts = await memory.earlier_texts(scopes[file])
    command = f"/memory {{}}{'' if file == 'MEMORY.md' else f' {file}'}"
    if not restore:
        if not texts:
            return f"`{file}` has no earlier text yet."
        rows = [f"- `{one.code}` of {_when(one)}: {_first_words(one.text)}" for one in texts]
        return "\n".join(
            [f"Earlier texts of `{file}`:", "", *rows, "", f"`{command.format('restore')} CODE` gives one back."]
        )
    if context.from_stranger or (file == "MEMORY.md" and scope == SHARED_SCOPE):
        return "I cannot do that here: that text belongs to others, too. Nothing was changed."
    chosen = next((one for one in texts if one.code == code), None)
    if chosen is None:
        return f"There is no such text. `{command.format('history')}` lists the codes."
    text = f"`{file}` has that text again. The one before it stays in `{command.format('history')}`."
    return CommandAnswer(text, change="restore", earlier=(scopes[file], chosen.version))


def _when(text: EarlierText) -> str:
    return f"{datetime.fromtimestamp(int(text.version) / 1e6, UTC):%Y-%m-%d %H:%M} UTC"


def _first_words(text: str) -> str:
    line = " ".join(text.split())
    return f"{line[:LISTED_CHARS].rstrip()} …" if len(line) > LISTED_CHARS else line


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
