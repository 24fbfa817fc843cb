"""Map Discord's errors (docs.discord.com/developers/topics/opcodes-and-status-codes). Pure."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import Any, Final

from gateway.platform.protocol import ChannelBroken, ChatClosed, MaybeSent, NotAccepted, PostRefused, Throttled

_CLOSED: Final = {10003, 50001, 50007, 50013, 50278, 160005}
"""Unknown channel, no access, cannot message this user, no permission, no common server, locked
thread."""

_NO_PERMISSION: Final = 50013
_NO_HISTORY: Final = 160002
_BLOCKED: Final = 40333
_LATE: Final = (504, 520, 521, 522, 524)
"""Statuses of a proxy that got no response: the server behind it may have done the request."""

_TOO_MANY_S: Final = 60.0


class MayNotReply(PostRefused):
    """The bot may not read the message history, so it cannot quote a message; without the quote the
    post may succeed."""


def map_error(name: str, status: int, headers: Mapping[str, str], reply: Any, *, with_file: bool) -> Exception:
    """Map an error of the channel `name`. `reply` is its JSON, None if it has none: then something
    in front of Discord answered."""
    code = reply.get("code", 0) if isinstance(reply, dict) else None
    why = f"{status}, code {code}" if code else str(status)
    match status:
        case 401:
            key = f"channels.{name}.token"
            return ChannelBroken(f"Discord does not know this bot: write the token of its page Bot into {key}")
        case 429:
            whole_bot = code is None or reply.get("global") is True or "X-RateLimit-Global" in headers
            return Throttled(_retry_after_s(headers, reply), whole_bot=whole_bot)
        case _ if status in _LATE:
            return MaybeSent(why)
        case _ if status >= 500 or code is None or code == _BLOCKED:
            return NotAccepted(why)
        case _ if code == _NO_PERMISSION and with_file:
            return PostRefused(f"{why}: perhaps it may not attach files there")
        case 400 | 403 | 404 if code in _CLOSED:
            return ChatClosed(f"{why}: the bot cannot write there")
        case _ if code == _NO_HISTORY:
            return MayNotReply(why)
        case _:
            return PostRefused(why)


def _retry_after_s(headers: Mapping[str, str], reply: Any) -> float:
    for value in (reply.get("retry_after") if isinstance(reply, dict) else None, headers.get("Retry-After")):
        if value is not None:
            with contextlib.suppress(TypeError, ValueError):
                return max(0.0, float(value))
    return _TOO_MANY_S
