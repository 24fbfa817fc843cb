"""What the errors of Feishu's API mean to us (open.feishu.cn/document, the list of each call,
"Generic error codes"). Pure.

The number says it: the status of HTTP is 400 for most. Words of an answer are read, and never
handed on: they may quote what was sent.
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
"""When it does not say how long to wait."""

NONE: Final = -1
"""There was no number."""

TOKEN_GONE: Final = frozenset({99991661, 99991663, 99991664, 99991665, 99991668, 99991671, 99991677})
NO_TOPIC: Final = frozenset({230071, 230072})
"""Of a reply: no topic can be begun there."""

GONE: Final = frozenset({230011, 230019, 230110, 230111})
"""The message, or its topic, is not there any more."""

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


class Said(Exception):
    """Feishu said no. `msg` holds what it likes; `reset_s` is how long it wants to be left
    alone."""

    def __init__(self, status: int, code: int, msg: str = "", reset: str | None = None) -> None:
        super().__init__(f"{status} {code}")
        self.status = status
        self.code = code
        self.msg = msg
        self.reset_s = _seconds(reset)


def refusal(said: Said) -> Exception:
    """The error to raise: NotDelivered in one of its forms, or ChannelBroken."""
    code, behind = said.code, _behind(said.msg)
    if code in _ONE_CHAT_THROTTLED:
        return Throttled(said.reset_s or AGAIN_S)
    if code in _ALL_THROTTLED or behind in _ALL_THROTTLED or said.status == 429:
        return Throttled(said.reset_s or BOT_AGAIN_S, whole_bot=True)
    if code in _APP:
        return ChannelBroken(
            f"Feishu does not know the app (error {code}): write the App ID and App Secret of Credentials & Basic Info "
            "into channels.feishu.app_id and app_secret, and see that channels.feishu.domain fits"
        )
    if code == 99991672:
        wanted = ", ".join(list(dict.fromkeys(_SCOPE.findall(said.msg)))[:4]) or "that this needs"
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
    if code == 230001 and "receive_id" in said.msg:
        return ChatClosed(f"{code}: there is no such chat")
    if code == 230099 and "action is lock" in said.msg:
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
    return _by_status(said)


def no_connection(said: Said) -> Exception:
    """Why there is no long connection."""
    if said.code == _CONNECTIONS:
        return NotAccepted("Feishu has fifty connections of this app already")
    if said.code in _NO_CONNECTION:
        return ChannelBroken(
            f"Feishu opens no connection for this app (error {said.code}): look at channels.feishu.app_id and "
            "app_secret; the app must be self-built, in a version that is published"
        )
    return NotAccepted(f"no connection: {said}")


def _by_status(said: Said) -> Exception:
    if said.status == 503:
        return NotAccepted("503: Feishu is out of order")
    if said.status >= 500:
        return MaybeSent(f"{said.status}: Feishu does not know")
    if said.code == NONE and said.status < 400:
        return MaybeSent(f"{said.status}: an answer that is not Feishu's")
    if said.code == NONE:
        return NotAccepted(f"{said.status} without a number of Feishu's; is channels.feishu.api right?")
    return PostRefused(f"{said.code}: refused by Feishu")


def _behind(msg: str) -> int:
    """The number of the card service, which stands in the words of 230099; 0 = there is none."""
    found = _BEHIND.search(msg)
    return int(found[1]) if found else 0


def _seconds(reset: str | None) -> float:
    try:
        return min(3600.0, max(0.0, float(reset or "")))
    except ValueError:
        return 0.0
