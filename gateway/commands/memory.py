"""`/memory`."""

from __future__ import annotations

from typing import Final

from gateway.commands.command import CommandAnswer, CommandContext, counted
from shared.store.sessions.memory import MemoryStore
from shared.store.sessions.session import Sessions
from shared.store.turns.inbox import SHARED_SCOPE

SHOWN_CHARS: Final = 4_000
FOUND: Final = 8
FOUND_CHARS: Final = 500
SEARCH: Final = "search"


class MemoryCommand:
    """Shows MEMORY.md, or finds entries of HISTORY.md that hold all of some words."""

    name = "memory"
    about = "show what I remember; `/memory search WORDS`"

    def __init__(self, memory: MemoryStore, sessions: Sessions) -> None:
        self._memory = memory
        self._sessions = sessions

    async def answer(self, context: CommandContext) -> CommandAnswer:
        word, _, rest = context.argument.partition(" ")
        if word.casefold() != SEARCH:
            return CommandAnswer(await self._show(context.state.scope))
        if not rest.split():
            return CommandAnswer("What shall I look for? `/memory search WORDS`")
        return CommandAnswer(await self._search(context.state.scope, rest.casefold().split()))

    async def _show(self, scope: str) -> str:
        text = (await self._memory.read_memory(scope)).text.strip()
        entries = (await self._sessions.memory_size(scope)).log_entries
        parts = [f"{_heading(scope)}:" if text else f"{_heading(scope)}: nothing yet."]
        if text:
            parts.append(_quoted(_cut(text, SHOWN_CHARS)))
        if len(text) > SHOWN_CHARS:
            parts.append(f"That is the beginning; all of it has {len(text):,} characters.")
        if entries:
            count = counted(entries, "entry", "entries")
            parts.append(f"`HISTORY.md` has {count}; `/memory search WORDS` looks into them.")
        return "\n\n".join(parts)

    async def _search(self, scope: str, words: list[str]) -> str:
        entries = await self._memory.read_log(scope)
        found = [entry for entry in reversed(entries) if all(word in entry.casefold() for word in words)]
        if not found:
            return f"Nothing found in {counted(len(entries), 'entry', 'entries')} of `HISTORY.md`."
        parts = [f"{counted(len(found), 'entry', 'entries')} found, the newest first:"]
        parts += [_quoted(_cut(entry.strip(), FOUND_CHARS)) for entry in found[:FOUND]]
        if len(found) > FOUND:
            parts.append(f"{len(found) - FOUND:,} older ones are not shown; more words find fewer.")
        return "\n\n---\n\n".join(parts)


def _heading(scope: str) -> str:
    if scope == SHARED_SCOPE:
        return "What I remember, for everybody who talks to me"
    return "What I remember of you, in all your chats" if scope.startswith("user:") else "What I remember of this chat"


def _cut(text: str, limit: int) -> str:
    """At most `limit` characters, where possible whole lines."""
    if len(text) <= limit:
        return text
    return (text[:limit].rpartition("\n")[0] or text[: limit - 1]).rstrip() + " …"


def _quoted(text: str) -> str:
    return "\n".join(f"> {line}".rstrip() for line in text.splitlines())
