"""Feishu and Lark: long connections and webhook."""

from __future__ import annotations

import contextlib
import json
import secrets
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from functools import partial
from typing import Any, Final

import msgspec

from gateway.channels.feishu.cipher import signature
from gateway.platform.protocol import HookRequest, RunMode
from shared.ids import session_id
from tests.contracts.channels.bench import PEOPLE, Call, ChannelBench, Fault, OpenBench, PersonAction, Shown, Signing
from tests.fakes.feishu import APP_ID, BOT, SECRET, FakeFeishu
from tests.fakes.feishu_parts import encrypt_body

KEY: Final = "our-own-encrypt-key"
TOKEN: Final = "v1wSQnPzPYFZcZeNoiSDYX8nCoU2UL0J"
STRANGER: Final = "ou_9999"
MENTION: Final = "@_user_1"


class FeishuBench:
    """A company with PEOPLE people."""

    name = "feishu"
    path: tuple[str, ...] = ()
    cannot = frozenset({"edit", "typing"})
    """Apps are not told of edits, and have no sign that they type."""

    def __init__(self, feishu: FakeFeishu, run_mode: RunMode) -> None:
        self.run_mode = run_mode
        self._feishu = feishu
        self._threads: dict[str, str] = {}

    def table(self) -> dict[str, Any]:
        return {
            "app_id": APP_ID,
            "app_secret": SECRET,
            "encrypt_key": KEY,
            "verification_token": TOKEN,
            "api": self._feishu.address,
            "run": self.run_mode,
            "timeout_s": 2.0,
            "allow_from": [f"ou_{1000 + number}" for number in range(PEOPLE)],
            "allow_groups": [self.chat(number, group=True) for number in range(PEOPLE)],
        }

    def chat(self, number: int, *, group: bool = False) -> str:
        return f"oc_{'group' if group else ''}{1000 + number}"

    def session(self, chat: str) -> str:
        thread = self._threads.get(chat)
        return session_id(self.name, f"{chat}#{thread}" if thread else chat)

    async def tell(self, action: PersonAction) -> None:
        event = self._event(action)
        id = event["header"]["event_id"]
        self._feishu.sockets.tell(id, event, action.chat, is_press=action.does == "press")

    def hook(self, action: PersonAction, signing: Signing = "good") -> HookRequest:
        return self.signed(self._event(action), signing)

    def signed(self, event: dict[str, Any], signing: Signing = "good") -> HookRequest:
        """A call that tells this."""
        body = encrypt_body(KEY, json.dumps(event).encode(), secrets.token_bytes(16))
        at, nonce = str(int(time.time()) - (301 if signing == "old" else 0)), "950646929"
        signed = signature("another-key" if signing == "wrong" else KEY, at, nonce, body)
        headers = {"content-type": "application/json;charset=utf-8"}
        headers |= {"x-lark-request-timestamp": at, "x-lark-request-nonce": nonce}
        if signing != "none":
            headers["x-lark-signature"] = "" if signing == "blank" else signed
        if signing == "changed":
            body = body[:40] + (b"A" if body[40:41] != b"A" else b"B") + body[41:]
        return HookRequest(method="POST", path="", query={}, headers=headers, body=body)

    def handshake(self) -> tuple[HookRequest, bytes] | None:
        asked = {"challenge": "ajls384kdjxxxx", "token": TOKEN, "type": "url_verification"}
        request = self.signed(asked)
        unsigned = {name: value for name, value in request.headers.items() if not name.startswith("x-lark-")}
        return msgspec.structs.replace(request, headers=unsigned), b'{"challenge":"ajls384kdjxxxx"}'

    def fault(self, fault: Fault) -> None:
        self._feishu.script(fault.kind, fault.call, fault.chat, fault.times, fault.retry_after_s)

    def heal(self) -> None:
        self._feishu.faults.clear()

    def shown(self, chat: str) -> Sequence[Shown]:
        return [
            Shown(
                id=one.id,
                text=one.shown.text,
                markup=one.shown.markup,
                buttons=tuple(label for label, _ in one.shown.buttons),
                reply_to=one.parent.removeprefix("om_") if one.parent is not None else None,
                file=self._feishu.files.data[one.shown.key] if one.shown.key is not None else None,
                edits=one.edits,
            )
            for one in self._feishu.posts.get(chat, [])
        ]

    def calls(self) -> Sequence[Call]:
        kinds: Mapping[str, Any] = {"send": "send", "edit": "edit"}
        return [Call(at, kinds[call], chat) for at, call, chat in self._feishu.calls]

    def listeners(self) -> int:
        return len(self._feishu.sockets.open)

    def _event(self, action: PersonAction) -> dict[str, Any]:
        kind = {"message": "im.message.receive_v1", "delete": "im.message.recalled_v1", "press": "card.action.trigger"}
        at = str(int(time.time() * 1000))
        header = {
            "event_id": f"{action.does}{action.id}",
            "event_type": kind[action.does],
            "create_time": at,
            "token": TOKEN,
            "app_id": APP_ID,
            "tenant_key": "2ca1d211f64f6438",
        }
        id = f"om_{action.id}"
        if action.does == "press":
            event = self._press(action)
        elif action.does == "delete":
            self._feishu.gone.add(id)
            event = {"message_id": id, "chat_id": action.chat, "recall_time": at, "recall_type": "message_owner"}
        else:
            event = {"sender": self._sender(action), "message": self._message(action, id, at)}
        return {"schema": "2.0", "header": header, "event": event}

    def _message(self, action: PersonAction, id: str, at: str) -> dict[str, Any]:
        self._feishu.received[id] = action.chat
        if action.group:
            self._threads[action.chat] = id
        message: dict[str, Any] = {
            "message_id": id,
            "create_time": at,
            "update_time": at,
            "chat_id": action.chat,
            "chat_type": "group" if action.group else "p2p",
            "message_type": "text",
            "content": json.dumps({"text": action.text}),
        }
        if action.group and action.addressed:
            who = {"key": MENTION, "id": {"open_id": BOT, "union_id": "on_1"}, "name": "Shoal", "tenant_key": "2ca1"}
            return message | {"content": json.dumps({"text": f"{MENTION} {action.text}"}), "mentions": [who]}
        if action.files:  # a message is a text or a file; words and files together are rich text with a video in it
            parts = [[{"tag": "text", "text": action.text, "style": []}]]
            for number, file in enumerate(action.files):
                key = f"file_{action.id}_{number}"
                self._feishu.files.data[key] = file.data
                parts.append([{"tag": "media", "file_key": key, "image_key": "img_x", "file_name": file.name}])
            return message | {"message_type": "post", "content": json.dumps({"title": "", "content": parts})}
        return message

    def _sender(self, action: PersonAction) -> dict[str, Any]:
        ids = {"person": f"ou_{action.chat[-4:]}", "stranger": STRANGER, "bot": "ou_0ther", "self": BOT}
        kind = "app" if action.by in ("bot", "self") else "user"
        return {"sender_id": {"open_id": ids[action.by], "union_id": "on_2"}, "sender_type": kind, "tenant_key": "2ca1"}

    def _press(self, action: PersonAction) -> dict[str, Any]:
        newest = self._feishu.posts[action.chat][-1]
        value = next(one for label, one in newest.shown.buttons if action.text in (label, one["shoal"]))
        return {
            "operator": {"tenant_key": "2ca1", "open_id": f"ou_{action.chat[-4:]}", "union_id": "on_2"},
            "token": "c-295ee57216a5dc9de90fefd0aadb4b1d7d7d9",
            "action": {"value": value, "tag": "button"},
            "host": "im_message",
            "context": {"open_message_id": newest.id, "open_chat_id": action.chat},
        }


@contextlib.asynccontextmanager
async def opened(run_mode: RunMode) -> AsyncIterator[ChannelBench]:
    bench = FeishuBench(FakeFeishu(set()), run_mode)
    bench._feishu.known = {bench.chat(number, group=group) for number in range(PEOPLE) for group in (False, True)}
    async with bench._feishu.serving():
        yield bench


BENCHES: Mapping[str, OpenBench] = {
    "feishu, socket": partial(opened, "socket"),
    "feishu, webhook": partial(opened, "webhook"),
}
