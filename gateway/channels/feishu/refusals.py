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
_CLOSED: Final = {
    230002: "the bot is not in the group",
    230013: "the person may not use the app",
    230018: "the group lets the bot say nothing",
    230027: "the bot may not write here",
    230029: "the person has left",
    230034: "there is no such chat",
    230035: "the bot may not write here",
    230038: "a chat of two with another company",
    230045: "there is no such chat",
    230053: "the person wants no messages of the bot",
    230075: "a secret chat",
    232009: "the group is dissolved",
}
_REFUSED: Final = {
    230017: "the file is not the bot's",
    230022: "the text was called sensitive",
    230025: "it is too long",
    230028: "it did not pass the company's audit",
    230031: "the message is older than 14 days",
    230055: "the file was uploaded as another type",
}
_OUT_OF_ORDER: Final = frozenset({1, 230101, 1000040343})
_CONNECTIONS: Final = 1000040350
_NO_CONNECTION: Final = frozenset({403, 514, 1000040344, 10003, 10014})
_SCOPE: Final = re.compile(r"\b[a-z0-9_]+(?:[:.][a-z0-9_]+)+\b")
_BEHIND: Final = re.compile(r"ErrCode: ?(\d{1,9})")


class FeishuError(Exception):
    """Feishu refused a call. `msg` may contain anything; `reset_s` is how long it asks us to
    wait."""

    def __init__(self, status: int, code: int, msg: str = "", reset: str | None = None) -> None:
        super().__init__(f"{status} {code}")
        self.status = status
        self.code = code
        self.msg = msg
        self.reset_s = _reset_seconds(reset)


def map_error(error: FeishuError) -> Exception:
    """Return the error to raise: a form of NotDelivered, or ChannelBroken."""
    code, behind = error.code, _card_error_code(error.msg)
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
    if code == 99991401:
        return ChannelBroken("Feishu takes calls of this app from other addresses alone: see its IP whitelist")
    if code == 230006:
        return ChannelBroken("the app has no bot: add one under Features, and publish a version")
    if code == 230036:
        return ChannelBroken("the company's key for Feishu is deleted: its administrator must mend that")
    if code in _CLOSED:
        return ChatClosed(f"{code}: {_CLOSED[code]}")
    if code == 230001 and "receive_id" in error.msg:
        return ChatClosed(f"{code}: there is no such chat")
    if code == 230099 and "action is lock" in error.msg:
        return NotAccepted(f"{code}: somebody is using the card")
    if code in (230001, 230054, 230099):
        return MarkupRefused(f"{code}: the card was refused" + (f" ({behind})" if behind else ""))
    if code in _REFUSED:
        return PostRefused(f"{code}: {_REFUSED[code]}")
    if code in TOKEN_GONE:
        return NotAccepted(f"{code}: Feishu does not take the token that it gave")
    if code == 230049:
        return MaybeSent(f"{code}: it is being sent")
    if code in _OUT_OF_ORDER:
        return NotAccepted(f"{code}: Feishu is out of order")
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
    if error.status == 503:
        return NotAccepted("503: Feishu is out of order")
    if error.status >= 500:
        return MaybeSent(f"{error.status}: Feishu does not know")
    if error.code == NONE and error.status < 400:
        return MaybeSent(f"{error.status}: an answer that is not Feishu's")
    if error.code == NONE:
        return NotAccepted(f"{error.status} without a number of Feishu's; is channels.feishu.api right?")
    return PostRefused(f"{error.code}: refused by Feishu")


def _card_error_code(msg: str) -> int:
    """Return the number of the card service inside the text of a 230099; 0 = none."""
    found = _BEHIND.search(msg)
    return int(found[1]) if found else 0


def _reset_seconds(reset: str | None) -> float:
    try:
        return min(3600.0, max(0.0, float(reset or "")))
    except ValueError:
        return 0.0
