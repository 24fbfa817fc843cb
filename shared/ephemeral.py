"""Sessions of one request over HTTP: made for it, and gone with its answer."""

from __future__ import annotations

from typing import Final

API: Final = "api"
"""The channel of what is asked over HTTP."""

MARK: Final = "~"
"""What the name of such a session begins with. Nobody can give one such a name."""

KEEP_MS: Final = 86_400_000
"""How long it stays where nobody ends it: as long as its request may be asked again."""


def ephemeral_chat(principal: str, ticket: str) -> str:
    """The chat id of the session of one request; `ticket` is the request's own name."""
    return f"{principal}/{MARK}{ticket}"


def is_ephemeral(session: str) -> bool:
    """Whether a session is of one request."""
    channel, _, chat = session.partition(":")
    return channel == API and chat.partition("/")[2].startswith(MARK)


def account_of(session: str) -> str:
    """On whose account a session uses its budget: its own, or one of its person for all that are of
    one request."""
    return session[: session.index(MARK) + 1] if is_ephemeral(session) else session
