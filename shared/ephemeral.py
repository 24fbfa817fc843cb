"""Ephemeral sessions: created for one request over HTTP, and deleted with its answer."""

from __future__ import annotations

from typing import Final

API: Final = "api"
"""Channel of requests over HTTP."""

MARK: Final = "~"
"""First character of the name of an ephemeral session; people cannot choose such a name."""

KEEP_MS: Final = 86_400_000
"""Life of an ephemeral session that nobody ends: as long as its request may be repeated."""


def ephemeral_chat(principal: str, ticket: str) -> str:
    """Return the chat id of an ephemeral session; `ticket` is the request's own name."""
    return f"{principal}/{MARK}{ticket}"


def is_ephemeral(session: str) -> bool:
    """Tell whether a session is ephemeral."""
    channel, _, chat = session.partition(":")
    return channel == API and chat.partition("/")[2].startswith(MARK)


def account_of(session: str) -> str:
    """Return the account that a session's budget belongs to: its own, or one of its person for
    all ephemeral sessions."""
    return session[: session.index(MARK) + 1] if is_ephemeral(session) else session
