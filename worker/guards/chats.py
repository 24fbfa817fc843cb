"""Which chats an agent may write to: its own, and those of the same person. The one place that
decides it."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from fnmatch import fnmatchcase
from typing import Final

import msgspec

from shared.errors import BadInput, ToolFailed
from shared.ids import session_id, split_session


class Target(msgspec.Struct, frozen=True):
    """A chat that may be written to. `listed_for` is the person who has it in a list of chats; `""` for none.
    `granted`: it is somebody else's, and an operator allows it."""

    session: str
    listed_for: str = ""
    granted: bool = False


class NotYourChat(ToolFailed):
    """The chat is somebody else's."""


class _Place(msgspec.Struct, frozen=True):
    """Where a chat of a channel belongs: whose it is, and the name that this person knows it by."""

    person: str
    chat: str


_WEB: Final = re.compile(r"([^/]+)/([A-Za-z0-9_-]{1,64})")


def _web(chat_id: str) -> _Place | None:
    found = _WEB.fullmatch(chat_id)
    return _Place(found[1], found[2]) if found else None


_PLACES: Final[dict[str, Callable[[str], _Place | None]]] = {"web": _web}
"""How a chat id of a channel names its person. In a channel that is not here a chat reaches itself
alone."""


class ChatPolicy:
    """`also` are patterns of sessions that every chat may write to, beside its person's: an
    operator's grant."""

    def __init__(self, also: Sequence[str] = ()) -> None:
        self._also = tuple(also)

    def target(self, session: str, chat: str | None) -> Target:
        """The chat that `chat` means for an agent in `session`: a chat's name, its chat id, or a
        whole session.

        Raises NotYourChat for a chat of somebody else. Whether it exists is not looked at: who may
        not write to it does not learn that either.
        """
        if chat is None or not chat.strip() or chat.strip() in (session, split_session(session)[1]):
            return Target(session)
        channel, chat_id = split_session(session)
        place = _place(channel, chat_id)
        wanted = self._named(channel, place, chat.strip())
        if wanted == session:
            return Target(session)
        to_channel, to_id = split_session(wanted)
        to = _place(to_channel, to_id)
        same = place is not None and to is not None and (channel, place.person) == (to_channel, to.person)
        if not same and not any(fnmatchcase(wanted, pattern) for pattern in self._also):
            raise NotYourChat(
                f"{chat!r} is not your chat: only this chat and others of the same person can be written to. Leave "
                "`chat` out to write here"
            )
        return Target(wanted, "" if to is None else to.person, granted=not same)

    def _named(self, channel: str, place: _Place | None, chat: str) -> str:
        try:
            if ":" in chat:
                return session_id(*split_session(chat))
            if place is not None and "/" not in chat:
                return session_id(channel, f"{place.person}/{chat}")
            return session_id(channel, chat)
        except BadInput as exc:
            raise ToolFailed(f"{chat[:60]!r} is no chat: {exc}") from None


def _place(channel: str, chat_id: str) -> _Place | None:
    find = _PLACES.get(channel)
    return find(chat_id) if find else None
