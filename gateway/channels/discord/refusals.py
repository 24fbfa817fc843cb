"""What Discord's errors mean here (docs.discord.com/developers/topics/opcodes-and-status-codes).
Pure."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import Any, Final

from gateway.platform.protocol import ChannelBroken, ChatClosed, MaybeSent, NotAccepted, PostRefused, Throttled

_CLOSED: Final = {10003, 50001, 50007, 50013, 50278, 160005}
"""Unknown channel, no access, not to this person, no permission, no server in common, a locked
thread."""

_NO_PERMISSION: Final = 50013
_NO_HISTORY: Final = 160002
_BLOCKED: Final = 40333
_LATE: Final = (504, 520, 521, 522, 524)
"""A proxy got no answer: what stands behind it may have done what was asked."""

_TOO_MANY_S: Final = 60.0


class MayNotQuote(PostRefused):
    """The bot may not read what was said there before, so it cannot answer to it; without that the
    post may pass."""


def refusal(name: str, status: int, headers: Mapping[str, str], told: Any, *, with_file: bool) -> Exception:
    """An error of the channel `name`. `told` is its JSON; None for what has none: an answer of
    whatever stands before Discord."""
    code = told.get("code", 0) if isinstance(told, dict) else None
    why = f"{status}, code {code}" if code else str(status)
    match status:
        case 401:
            key = f"channels.{name}.token"
            return ChannelBroken(f"Discord does not know this bot: write the token of its page Bot into {key}")
        case 429:
            whole_bot = code is None or told.get("global") is True or "X-RateLimit-Global" in headers
            return Throttled(_retry_after_s(headers, told), whole_bot=whole_bot)
        case _ if status in _LATE:
            return MaybeSent(why)
        case _ if status >= 500 or code is None or code == _BLOCKED:
            return NotAccepted(why)
        case _ if code == _NO_PERMISSION and with_file:
            return PostRefused(f"{why}: perhaps it may not attach files there")
        case 400 | 403 | 404 if code in _CLOSED:
            return ChatClosed(f"{why}: the bot cannot write there")
        case _ if code == _NO_HISTORY:
            return MayNotQuote(why)
        case _:
            return PostRefused(why)


def _retry_after_s(headers: Mapping[str, str], told: Any) -> float:
    for value in (told.get("retry_after") if isinstance(told, dict) else None, headers.get("Retry-After")):
        if value is not None:
            with contextlib.suppress(TypeError, ValueError):
                return max(0.0, float(value))
    return _TOO_MANY_S
