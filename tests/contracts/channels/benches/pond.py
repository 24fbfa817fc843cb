"""Pond, by the package of docs/examples/shoal-pond: the example of a bench."""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from functools import partial
from typing import Any, Final

import msgspec

from gateway.platform.protocol import HookRequest, RunMode
from shared.ids import session_id
from tests.contracts.channels.bench import PEOPLE, Call, ChannelBench, Fault, OpenBench, PersonAction, Shown, Signing
from tests.fakes.pond import BOT, TOKEN, FakePond, Offers
from tests.helpers.pond_package import pond_package

SECRET: Final = "pond-secret"


class PondBench:
    """A pond with PEOPLE people on it."""

    name = "pond"
    cannot = frozenset[str]()

    def __init__(self, pond: FakePond, run_mode: RunMode, path: tuple[str, ...]) -> None:
        self.run_mode = run_mode
        self.path = path
        self._pond = pond

    def table(self) -> dict[str, Any]:
        return {
            "api": self._pond.address,
            "token": TOKEN,
            "secret": SECRET,
            "run": self.run_mode,
            "offers": self._pond.offers,
            "timeout_s": 2.0,
            "allow_from": [f"person{number}" for number in range(PEOPLE)],
            "allow_groups": [self.chat(number, group=True) for number in range(PEOPLE)],
        }

    def chat(self, number: int, *, group: bool = False) -> str:
        return f"group{number}" if group else f"chat{number}"

    def session(self, chat: str) -> str:
        return session_id(self.name, chat)

    async def tell(self, action: PersonAction) -> None:
        self._pond.tell(self._event(action))

    def hook(self, action: PersonAction, signing: Signing = "good") -> HookRequest:
        body = msgspec.json.encode(self._event(action))
        at = str(int(time.time()) - (301 if signing == "old" else 0))
        secret = "another" if signing == "wrong" else SECRET
        signature = hmac.new(secret.encode(), at.encode() + b"." + body, hashlib.sha256).hexdigest()
        headers = {"x-pond-time": at, "x-pond-signature": "" if signing == "blank" else signature}
        if signing == "none":
            headers = {}
        if signing == "changed":
            body = body.replace(b'"message"', b'"messagf"')
        return HookRequest(method="POST", path="", query={}, headers=headers, body=body)

    def handshake(self) -> tuple[HookRequest, bytes] | None:
        request = HookRequest(method="GET", path="", query={"challenge": "frog"}, headers={}, body=b"")
        return request, b"frog"

    def fault(self, fault: Fault) -> None:
        self._pond.script(fault.kind, fault.call, fault.chat, fault.times, fault.retry_after_s)

    def heal(self) -> None:
        self._pond.faults.clear()

    def shown(self, chat: str) -> Sequence[Shown]:
        return [
            Shown(
                id=one.id,
                text=one.text,
                markup=one.markup,
                buttons=tuple(button["label"] for button in one.buttons),
                reply_to=one.reply_to,
                file=one.file,
                edits=one.edits,
            )
            for one in self._pond.chats.get(chat, [])
        ]

    def calls(self) -> Sequence[Call]:
        kinds: Mapping[str, Any] = {"send": "send", "edit": "edit", "typing": "typing"}
        return [Call(at, kinds[call], chat) for at, call, chat in self._pond.calls]

    def listeners(self) -> int:
        return self._pond.polls

    def _event(self, action: PersonAction) -> dict[str, Any]:
        number = "".join(sign for sign in action.chat if sign.isdigit())
        senders = {"person": f"person{number}", "stranger": "stranger", "bot": "frog", "self": BOT}
        event: dict[str, Any] = {
            "kind": "message" if action.does == "press" else action.does,
            "id": action.id,
            "chat": action.chat,
            "sender": senders[action.by],
            "at": int(time.time() * 1000),
            "text": self._pressed(action) if action.does == "press" else action.text,
            "group": action.group,
            "is_bot": action.by == "bot",
            "mentions": [BOT] if action.group and action.addressed else [],
        }
        if action.does in ("edit", "delete"):
            event |= {"id": f"{action.id}/{action.does}", "of": action.id}
        for file in action.files:
            handle = hashlib.sha1(file.data).hexdigest()
            self._pond.files[handle] = file.data
            sent_file = {"handle": handle, "name": file.name, "type": file.media_type, "bytes": len(file.data)}
            event.setdefault("files", []).append(sent_file)
        return event

    def _pressed(self, action: PersonAction) -> str:
        buttons = self._pond.chats[action.chat][-1].buttons
        return next(button["says"] for button in buttons if action.text in (button["label"], button["says"]))


@contextlib.asynccontextmanager
async def opened(run_mode: RunMode, offers: Offers) -> AsyncIterator[ChannelBench]:
    with pond_package() as path:
        async with FakePond(offers).serving() as pond:
            yield PondBench(pond, run_mode, path)


BENCHES: Mapping[str, OpenBench] = {
    "pond, exclusive": partial(opened, "exclusive", "nothing"),
    "pond, webhook": partial(opened, "webhook", "key"),
    "pond, exclusive, look-up": partial(opened, "exclusive", "look-up"),
}
