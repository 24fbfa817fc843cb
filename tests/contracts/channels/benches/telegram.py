"""Telegram, by aiogram."""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from functools import partial
from typing import Any, Final

import msgspec

from gateway.platform.protocol import HookRequest, RunMode
from shared.ids import session_id
from tests.contracts.channels.bench import PEOPLE, Call, ChannelBench, Fault, OpenBench, PersonAction, Shown, Signing
from tests.fakes.telegram import BOT, TOKEN, FakeTelegram

SECRET: Final = "telegram-webhook-secret"
STRANGER: Final = 999


class TelegramBench:
    """A Bot API with PEOPLE people."""

    name = "telegram"
    path: tuple[str, ...] = ()
    cannot = frozenset({"throttled bot", "delete", "old", "changed"})
    """A 429 never says whose limit it is, bots hear of no deletion, and a webhook call has a constant word instead of
    a signature."""

    def __init__(self, api: FakeTelegram, run_mode: RunMode) -> None:
        self.run_mode = run_mode
        self._api = api
        self._numbers: dict[str, int] = {}
        self._updates: dict[str, int] = {}
        self._count = itertools.count(1)

    def table(self) -> dict[str, Any]:
        return {
            "token": TOKEN,
            "webhook_secret": SECRET,
            "api": self._api.address,
            "run": self.run_mode,
            "timeout_s": 2.0,
            "poll_s": 2,
            "allow_from": [self.chat(number) for number in range(PEOPLE)],
            "allow_groups": [self.chat(number, group=True) for number in range(PEOPLE)],
        }

    def chat(self, number: int, *, group: bool = False) -> str:
        return str(-100_000 - number if group else 1 + number)

    def session(self, chat: str) -> str:
        return session_id(self.name, chat)

    async def tell(self, action: PersonAction) -> None:
        self._api.tell(self._update(action))

    def hook(self, action: PersonAction, signing: Signing = "good") -> HookRequest:
        words = {"good": SECRET, "blank": "", "wrong": "another-secret-word"}
        headers = {"x-telegram-bot-api-secret-token": words[signing]} if signing in words else {}
        body = msgspec.json.encode(self._update(action))
        return HookRequest(method="POST", path="", query={}, headers=headers, body=body)

    def handshake(self) -> tuple[HookRequest, bytes] | None:
        return None

    def fault(self, fault: Fault) -> None:
        self._api.script(fault.kind, fault.call, fault.chat, fault.times, fault.retry_after_s)

    def heal(self) -> None:
        self._api.faults.clear()

    def shown(self, chat: str) -> Sequence[Shown]:
        ids = {number: id for id, number in self._numbers.items()}
        return [
            Shown(
                id=str(one.id),
                text=one.text,
                markup=one.markup,
                buttons=tuple(button["text"] for button in one.buttons),
                reply_to=ids.get(one.reply_to) if one.reply_to is not None else None,
                file=one.file,
                edits=one.edits,
            )
            for one in self._api.posts.get(chat, [])
        ]

    def calls(self) -> Sequence[Call]:
        kinds: Mapping[str, Any] = {"send": "send", "edit": "edit", "typing": "typing"}
        return [Call(at, kinds[call], chat) for at, call, chat in self._api.calls]

    def listeners(self) -> int:
        return self._api.polls

    def _update(self, action: PersonAction) -> dict[str, Any]:
        again = f"{action.does}/{action.id}/{action.text}"
        update = {"update_id": self._updates.setdefault(again, next(self._count))}
        if action.does == "press":
            newest = self._api.posts[action.chat][-1]
            button = next(one for one in newest.buttons if action.text in (one["text"], one["callback_data"]))
            keyboard = {"inline_keyboard": [[one] for one in newest.buttons]}
            message = {**self._message(action, newest.id), "from": BOT, "reply_markup": keyboard}
            data = {"id": action.id, "from": self._sender(action), "message": message, "data": button["callback_data"]}
            return {**update, "callback_query": {**data, "chat_instance": "1"}}
        number = self._numbers.setdefault(action.id, 1 + len(self._numbers))
        message = self._message(action, number)
        if action.does == "edit":
            return {**update, "edited_message": {**message, "edit_date": int(time.time()) + update["update_id"]}}
        return {**update, "message": message}

    def _message(self, action: PersonAction, number: int) -> dict[str, Any]:
        text = f"@{BOT['username']} {action.text}" if action.group and action.addressed else action.text
        chat = {"id": int(action.chat), "type": "supergroup" if action.group else "private"}
        message: dict[str, Any] = {"message_id": number, "date": int(time.time()), "chat": chat}
        message["from"] = self._sender(action)
        if action.album:
            message["media_group_id"] = action.album
        mention = [{"type": "mention", "offset": 0, "length": 1 + len(str(BOT["username"]))}]
        if not action.files:
            return {**message, "text": text, **({"entities": mention} if text != action.text else {})}
        [file] = action.files
        handle = hashlib.sha1(file.data).hexdigest()
        self._api.files[handle] = file.data
        document = {"file_id": handle, "file_unique_id": handle, "file_name": file.name, "file_size": len(file.data)}
        message["document"] = {**document, "mime_type": file.media_type}
        return {**message, "caption": text, **({"caption_entities": mention} if text != action.text else {})}

    def _sender(self, action: PersonAction) -> dict[str, Any]:
        person = abs(int(action.chat)) - 100_000 + 1 if action.group else int(action.chat)
        match action.by:
            case "person":
                return {"id": person, "is_bot": False, "first_name": f"Person {person}"}
            case "stranger":
                return {"id": STRANGER, "is_bot": False, "first_name": "Stranger"}
            case "bot":
                return {"id": 777, "is_bot": True, "first_name": "Bot", "username": "other_bot"}
            case "self":
                return dict(BOT)


@contextlib.asynccontextmanager
async def opened(run_mode: RunMode) -> AsyncIterator[ChannelBench]:
    bench = TelegramBench(FakeTelegram(set()), run_mode)
    bench._api.known = {bench.chat(n, group=g) for n in range(PEOPLE) for g in (False, True)} | {str(STRANGER)}
    async with bench._api.serving():
        yield bench


BENCHES: Mapping[str, OpenBench] = {
    "telegram, exclusive": partial(opened, "exclusive"),
    "telegram, webhook": partial(opened, "webhook"),
}
