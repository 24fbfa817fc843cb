"""The chats that an agent may write to: its own, and those of the same person."""

from __future__ import annotations

import re
from collections.abc import Sequence
from fnmatch import fnmatchcase
from typing import Final

import msgspec

from shared.errors import BadInput, ToolFailed
from shared.ids import session_id, split_session
from shared.settings.sections.webhooks import HOOK


class ChatTarget(msgspec.Struct, frozen=True):
    """A chat that may be written to. `listed_for` is the person whose list of chats has it (`""`:
    no list). `granted` means that it belongs to another person and an operator allows it."""

    session: str
    listed_for: str = ""
    granted: bool = False


class NotYourChat(ToolFailed):
    """The chat belongs to another person."""


_WEB: Final = re.compile(r"([^/]+)/[A-Za-z0-9_-]{1,64}")


class ChatPolicy:
    """Decides about targets. `also` are patterns of sessions that every chat may write to."""

    def __init__(self, also: Sequence[str] = ()) -> None:
        self._also = tuple(also)

    def resolve(self, session: str, chat: str | None) -> ChatTarget:
        """Return the chat that `chat` means: a name, a chat id or a session. Raises NotYourChat for
        a chat of another person, even if there is none: a refusal reveals nothing."""
        if chat is None or not chat.strip() or chat.strip() in (session, split_session(session)[1]):
            return ChatTarget(session)
        channel, chat_id = split_session(session)
        owner = _owner(channel, chat_id)
        wanted = self._wanted_session(channel, owner, chat.strip())
        if wanted == session:
            return ChatTarget(session)
        to_channel, to_id = split_session(wanted)
        to_owner = _owner(to_channel, to_id)
        same = bool(owner) and (channel, owner) == (to_channel, to_owner)
        granted = any(fnmatchcase(wanted, pattern) for pattern in self._also)
        # A line of an endpoint is a webhook as it is sent, so no pattern reaches one.
        if to_channel == HOOK or not (same or granted):
            raise NotYourChat(
                f"{chat!r} is not your chat: only this chat and others of the same person can be "
                "written to. Leave `chat` out to write here"
            )
        return ChatTarget(wanted, to_owner, granted=not same)

    def _wanted_session(self, channel: str, owner: str, chat: str) -> str:
        try:
            if ":" in chat:
                return session_id(*split_session(chat))
            if owner and "/" not in chat:
                return session_id(channel, f"{owner}/{chat}")
            return session_id(channel, chat)
        except BadInput as exc:
            raise ToolFailed(f"{chat[:60]!r} is not a chat: {exc}") from None


def _owner(channel: str, chat_id: str) -> str:
    """Return the person in a chat id; `""` in channels where a chat reaches only itself."""
    found = _WEB.fullmatch(chat_id) if channel == "web" else None
    return found[1] if found else ""
