"""Map errors of Feishu's API (open.feishu.cn/document, the list of each call, "Generic error
codes"). Pure.

Only the number counts: most have HTTP status 400. Texts of a reply are read but never passed on:
they may quote the message.
"""

from __future__ import annotations

import re
from typing import Final

from gateway.platform.protocol import (
    ChannelBroken,
    ChatClosed,
    MarkupRefused,
    MaybeSent,
    NotAccepted,
    NotDelivered,
    PostRefused,
    Throttled,
)

AGAIN_S: Final = 1.0
BOT_AGAIN_S: Final = 5.0
"""Waits used when Feishu does not say how long."""

NONE: Final = -1
"""The reply had no number."""

TOKEN_GONE: Final = frozenset({99991661, 99991663, 99991664, 99991665, 99991668, 99991671, 99991677})
NO_TOPIC: Final = frozenset({230071, 230072})
"""Codes of a reply: no topic can be started there."""

GONE: Final = frozenset({230011, 230019, 230110, 230111})
"""The message, or its topic, no longer exists."""

_APP: Final = frozenset({10003, 10005, 10012, 10013, 10014, 10015})
_ONE_CHAT_THROTTLED: Final = frozenset({230020, 11020, 11021})
_ALL_THROTTLED: Final = frozenset({99991400, 11232, 11233, 11247})
_BROKEN: Final = {
    99991401: "Feishu takes calls of this app from other addresses alone: see its IP whitelist",
    230006: "the app has no bot: add one under Features, and publish a version",
    230036: "the company's key for Feishu is deleted: its administrator must mend that",
}
_KNOWN: Final[dict[int, tuple[type[NotDelivered], str]]] = {
    230002: (ChatClosed, "the bot is not in the group"),
    230013: (ChatClosed, "the person may not use the app"),
    230018: (ChatClosed, "the group lets the bot say nothing"),
    230027: (ChatClosed, "the bot may not write here"),
    230029: (ChatClosed, "the person has left"),
    230034: (ChatClosed, "there is no such chat"),
    230035: (ChatClosed, "the bot may not write here"),
    230038: (ChatClosed, "a chat of two with another company"),
    230045: (ChatClosed, "there is no such chat"),
    230053: (ChatClosed, "the person wants no messages of the bot"),
    230075: (ChatClosed, "a secret chat"),
    232009: (ChatClosed, "the group is dissolved"),
    230017: (PostRefused, "the file is not the bot's"),
    230022: (PostRefused, "the text was called sensitive"),
    230025: (PostRefused, "it is too long"),
    230028: (PostRefused, "it did not pass the company's audit"),
    230031: (PostRefused, "the message is older than 14 days"),
    230055: (PostRefused, "the file was uploaded as another type"),
    230049: (MaybeSent, "it is being sent"),
    **dict.fromkeys((1, 230101, 1000040343), (NotAccepted, "Feishu is out of order")),
    **dict.fromkeys(TOKEN_GONE, (NotAccepted, "Feishu does not take the token that it gave")),
}
_CONNECTIONS: Final = 1000040350
_NO_CONNECTION: Final = frozenset({403, 514, 1000040344, 10003, 10014})
_SCOPE: Final = re.compile(r"\b[a-z0-9_]+(?:[:.][a-z0-9_]+)+\b")
_BEHIND: Final = re.compile(r"ErrCode: ?(\d{1,9})")
"""The number of the card service inside the text of a 230099."""


class FeishuError(Exception):
    """Feishu refused a call. `msg` may contain anything; it asks us to wait for `reset_s`."""

    def __init__(self, status: int, code: int, msg: str = "", reset: str | None = None) -> None:
        super().__init__(f"{status} {code}")
        self.status = status
        self.code = code
        self.msg = msg
        try:
            self.reset_s = min(3600.0, max(0.0, float(reset or "")))
        except ValueError:
            self.reset_s = 0.0


def map_error(error: FeishuError) -> Exception:
    """Return the error to raise: a form of NotDelivered, or ChannelBroken."""
    code = error.code
    found = _BEHIND.search(error.msg)
    behind = int(found[1]) if found else 0
    if code in _ONE_CHAT_THROTTLED:
        return Throttled(error.reset_s or AGAIN_S)
    if code in _ALL_THROTTLED or behind in _ALL_THROTTLED or error.status == 429:
        return Throttled(error.reset_s or BOT_AGAIN_S, whole_bot=True)
    if code in _APP:
        return ChannelBroken(
            f"Feishu does not know the app (error {code}): write the App ID and App Secret of Credentials & Basic Info "
            "into channels.feishu.app_id and app_secret, and see that channels.feishu.domain fits"
        )
    if code == 99991672:
        wanted = ", ".join(list(dict.fromkeys(_SCOPE.findall(error.msg)))[:4]) or "that this needs"
        return ChannelBroken(
            f"the app lacks a permission, one of {wanted}: add it under Permissions & Scopes, and publish a version"
        )
    if code in _BROKEN:
        return ChannelBroken(_BROKEN[code])
    if code in _KNOWN:
        kind, why = _KNOWN[code]
        if kind is NotAccepted and error.status >= 500:
            kind = MaybeSent
        return kind(f"{code}: {why}")
    if code == 230001 and "receive_id" in error.msg:
        return ChatClosed(f"{code}: there is no such chat")
    if code == 230099 and "action is lock" in error.msg:
        return NotAccepted(f"{code}: somebody is using the card")
    if code in (230001, 230054, 230099):
        return MarkupRefused(f"{code}: the card was refused" + (f" ({behind})" if behind else ""))
    return _map_status(error)


def map_connect_error(error: FeishuError) -> Exception:
    """Return the error for a refused long connection."""
    if error.code == _CONNECTIONS:
        return NotAccepted("Feishu has fifty connections of this app already")
    if error.code in _NO_CONNECTION:
        return ChannelBroken(
            f"Feishu opens no connection for this app (error {error.code}): look at channels.feishu.app_id and "
            "app_secret; the app must be self-built, in a version that is published"
        )
    return NotAccepted(f"no connection: {error}")


def _map_status(error: FeishuError) -> Exception:
    if error.status >= 500:
        return MaybeSent(f"{error.status}: Feishu does not know")
    if error.code == NONE and error.status < 400:
        return MaybeSent(f"{error.status}: an answer that is not Feishu's")
    if error.code == NONE:
        return NotAccepted(f"{error.status} without a number of Feishu's; is channels.feishu.api right?")
    return PostRefused(f"{error.code}: refused by Feishu")
