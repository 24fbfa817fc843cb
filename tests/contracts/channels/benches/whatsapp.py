"""WhatsApp, by the Cloud API."""

from __future__ import annotations

import contextlib
import hashlib
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any, Final

import msgspec

from gateway.channels.whatsapp.channel import signature
from gateway.platform.protocol import HookRequest, RunMode
from shared.ids import session_id
from tests.contracts.channels.bench import PEOPLE, Call, ChannelBench, Fault, OpenBench, PersonAction, Shown, Signing
from tests.fakes.whatsapp import NUMBER, TOKEN, FakeWhatsApp

APP_SECRET: Final = "0123456789abcdef0123456789abcdef"
VERIFY_TOKEN: Final = "a-word-of-our-own"
STRANGER: Final = "15550009999"


class WhatsAppBench:
    """A number with PEOPLE people."""

    name = "whatsapp"
    path: tuple[str, ...] = ()
    run_mode: RunMode = "webhook"
    cannot = frozenset({"markup", "edit", "delete", "group", "bot", "self", "old"})
    """Markup is never refused; numbers are not told of edits and deletions, are in no group, hear no other number and
    not themselves; a webhook call is signed without its time."""

    def __init__(self, api: FakeWhatsApp) -> None:
        self._api = api

    def table(self) -> dict[str, Any]:
        return {
            "access_token": TOKEN,
            "app_secret": APP_SECRET,
            "verify_token": VERIFY_TOKEN,
            "phone_number_id": NUMBER,
            "api": self._api.address,
            "timeout_s": 2.0,
            "allow_from": [self.chat(number) for number in range(PEOPLE)],
        }

    def chat(self, number: int, *, group: bool = False) -> str:
        return str(15_550_000_000 + number)

    def session(self, chat: str) -> str:
        return session_id(self.name, chat)

    async def tell(self, action: PersonAction) -> None:
        raise NotImplementedError("WhatsApp only calls")

    def hook(self, action: PersonAction, signing: Signing = "good") -> HookRequest:
        body = msgspec.json.encode(self._call(action))
        signed = signature("f" * 32 if signing == "wrong" else APP_SECRET, body)
        headers = {} if signing == "none" else {"x-hub-signature-256": "" if signing == "blank" else signed}
        if signing == "changed":
            body = body.replace(b"wamid.", b"wamie.", 1)
        return HookRequest(method="POST", path="", query={}, headers=headers, body=body)

    def handshake(self) -> tuple[HookRequest, bytes] | None:
        query = {"hub.mode": "subscribe", "hub.verify_token": VERIFY_TOKEN, "hub.challenge": "1158201444"}
        return HookRequest(method="GET", path="", query=query, headers={}, body=b""), b"1158201444"

    def fault(self, fault: Fault) -> None:
        self._api.script(fault.kind, fault.call, fault.chat, fault.times, fault.retry_after_s)

    def heal(self) -> None:
        self._api.faults.clear()

    def shown(self, chat: str) -> Sequence[Shown]:
        return [
            Shown(
                id=one.id,
                text=one.text,
                markup=one.markup,
                buttons=tuple(choice["title"] for choice in one.choices),
                reply_to=one.reply_to.removeprefix("wamid.") if one.reply_to is not None else None,
                file=one.file,
            )
            for one in self._api.posts.get(chat, [])
        ]

    def calls(self) -> Sequence[Call]:
        kinds: Mapping[str, Any] = {"send": "send", "typing": "typing"}
        return [Call(at, kinds[call], chat) for at, call, chat in self._api.calls]

    def listeners(self) -> int:
        return 0

    def _call(self, action: PersonAction) -> dict[str, Any]:
        sender = STRANGER if action.by == "stranger" else action.chat
        value = {
            "messaging_product": "whatsapp",
            "metadata": {"display_phone_number": "15550783881", "phone_number_id": NUMBER},
            "contacts": [{"profile": {"name": "Person"}, "wa_id": sender}],
            "messages": [self._message(action, sender)],
        }
        entry = {"id": "102290129340398", "changes": [{"value": value, "field": "messages"}]}
        return {"object": "whatsapp_business_account", "entry": [entry]}

    def _message(self, action: PersonAction, sender: str) -> dict[str, Any]:
        id = f"wamid.{action.id}"
        self._api.received[id] = sender
        message: dict[str, Any] = {"from": sender, "id": id, "timestamp": str(int(time.time()))}
        if action.does == "press":
            newest = self._api.posts[action.chat][-1]
            pressed = next(one for one in newest.choices if action.text in (one["title"], one["id"]))
            context = {"from": "15550783881", "id": newest.id}
            return {
                **message,
                "type": "interactive",
                "context": context,
                "interactive": {"type": "button_reply", "button_reply": pressed},
            }
        if not action.files:
            return {**message, "type": "text", "text": {"body": action.text}}
        [file] = action.files
        handle = str(int(hashlib.sha1(file.data).hexdigest()[:12], 16))
        self._api.files[handle] = file.data
        document = {"id": handle, "filename": file.name, "mime_type": file.media_type, "caption": action.text}
        return {**message, "type": "document", "document": {**document, "sha256": "x"}}


@contextlib.asynccontextmanager
async def opened() -> AsyncIterator[ChannelBench]:
    bench = WhatsAppBench(FakeWhatsApp(set()))
    bench._api.known = {bench.chat(n) for n in range(PEOPLE)} | {STRANGER}
    async with bench._api.serving():
        yield bench


BENCHES: Mapping[str, OpenBench] = {"whatsapp, webhook": opened}
