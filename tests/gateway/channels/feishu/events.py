"""Events as Feishu's documentation has them."""

from __future__ import annotations

import json
from typing import Any, Final

APP_ID: Final = "cli_9f5343c580712544"
BOT: Final = "ou_bot84aad35d084aa403a838cf73ee1846"
ANNA: Final = "ou_84aad35d084aa403a838cf73ee18467"
MESSAGE: Final = "om_5ce6d572455d361153b7cb51da133945"
ROOT: Final = "om_5ce6d572455d361153b7cb5xxfsdfsdfdsf"
CHAT: Final = "oc_5ce6d572455d361153b7xx51da133945"
TOKEN: Final = "rvaYgkND1GOiu5MM0E1rncYC6PLtF7JV"


def mention(number: int, name: str, open_id: str) -> dict[str, Any]:
    ids = {"union_id": "on_8ed6aa67826108097d9ee143816345", "user_id": "e33ggbyz", "open_id": open_id}
    return {"key": f"@_user_{number}", "id": ids, "name": name, "tenant_key": "736588c9260f175e"}


def event(kind: str, body: dict[str, Any], **header: Any) -> bytes:
    known = {
        "event_id": "5e3702a84e847582be8db7fb73283c02",
        "event_type": kind,
        "create_time": "1608725989000",
        "token": TOKEN,
        "app_id": APP_ID,
        "tenant_key": "2ca1d211f64f6438",
    }
    return json.dumps({"schema": "2.0", "header": known | header, "event": body}).encode()


def message(
    content: Any = None, kind: str = "text", *, sender: str = ANNA, sender_type: str = "user", **more: Any
) -> bytes:
    """`im.message.receive_v1`; in a chat of two unless it says otherwise. A value of None is left out."""
    sent = {"text": "hello"} if content is None else content
    known = {
        "message_id": MESSAGE,
        "create_time": "1609073151345",
        "update_time": "1687343654666",
        "chat_id": CHAT,
        "chat_type": "p2p",
        "message_type": kind,
        "content": sent if isinstance(sent, str) else json.dumps(sent),
        "user_agent": "Mozilla/5.0 Lark/6.7.5",
    }
    known = {name: value for name, value in (known | more).items() if value is not None}
    ids = {"union_id": "on_8ed6aa67826108097d9ee143816345", "user_id": "e33ggbyz", "open_id": sender}
    who = {"sender_id": ids, "sender_type": sender_type, "tenant_key": "736588c9260f175e"}
    return event("im.message.receive_v1", {"sender": who, "message": known})


def recalled(**more: Any) -> bytes:
    """`im.message.recalled_v1`."""
    known = {"message_id": MESSAGE, "chat_id": CHAT, "recall_time": "1615380573411", "recall_type": "message_owner"}
    return event("im.message.recalled_v1", known | more)


def pressed(value: Any = None, **more: Any) -> bytes:
    """`card.action.trigger`."""
    behind = {"shoal": "/yes a1", "chat": CHAT, "thread": "", "group": ""} if value is None else value
    known = {
        "operator": {"tenant_key": "2ca1d211f64f6438", "user_id": "867*****", "open_id": ANNA, "union_id": "on_1"},
        "token": "c-295ee57216a5dc9de90fefd0aadb4b1d7dxxxx",
        "action": {"value": behind, "tag": "button", "timezone": "Asia/Shanghai", "name": "Button_lvkepfu3"},
        "host": "im_message",
        "delivery_type": "url_preview",
        "context": {"url": "xxxx", "open_message_id": "om_574d639e4a44e4dd646eaf628e2", "open_chat_id": CHAT},
    }
    return event("card.action.trigger", known | more, create_time="1603977298000000")
