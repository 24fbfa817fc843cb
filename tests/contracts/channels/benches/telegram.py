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
from tests.contracts.channels.bench import PEOPLE, Call, ChannelBench, Fault, OpenBench, Shown, Signing, Told
from tests.fakes.telegram import BOT, TOKEN, FakeTelegram, Trouble

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

    async def tell(self, told: Told) -> None:
        self._api.tell(self._update(told))

    def hook(self, told: Told, signing: Signing = "good") -> HookRequest:
        words = {"good": SECRET, "blank": "", "wrong": "another-secret-word"}
        headers = {"x-telegram-bot-api-secret-token": words[signing]} if signing in words else {}
        body = msgspec.json.encode(self._update(told))
        return HookRequest(method="POST", path="", query={}, headers=headers, body=body)

    def handshake(self) -> tuple[HookRequest, bytes] | None:
        return None

    def fault(self, fault: Fault) -> None:
        self._api.troubles.append(Trouble(fault.kind, fault.call, fault.chat, fault.times, fault.retry_after_s))

    def heal(self) -> None:
        self._api.troubles.clear()

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
            for one in self._api.said.get(chat, [])
        ]

    def calls(self) -> Sequence[Call]:
        kinds: Mapping[str, Any] = {"send": "send", "edit": "edit", "typing": "typing"}
        return [Call(at, kinds[call], chat) for at, call, chat in self._api.calls]

    def listeners(self) -> int:
        return self._api.polls

    def _update(self, told: Told) -> dict[str, Any]:
        again = f"{told.does}/{told.id}/{told.text}"
        update = {"update_id": self._updates.setdefault(again, next(self._count))}
        if told.does == "press":
            newest = self._api.said[told.chat][-1]
            button = next(one for one in newest.buttons if told.text in (one["text"], one["callback_data"]))
            keyboard = {"inline_keyboard": [[one] for one in newest.buttons]}
            message = {**self._message(told, newest.id), "from": BOT, "reply_markup": keyboard}
            data = {"id": told.id, "from": self._sender(told), "message": message, "data": button["callback_data"]}
            return {**update, "callback_query": {**data, "chat_instance": "1"}}
        number = self._numbers.setdefault(told.id, 1 + len(self._numbers))
        message = self._message(told, number)
        if told.does == "edit":
            return {**update, "edited_message": {**message, "edit_date": int(time.time()) + update["update_id"]}}
        return {**update, "message": message}

    def _message(self, told: Told, number: int) -> dict[str, Any]:
        text = f"@{BOT['username']} {told.text}" if told.group and told.addressed else told.text
        chat = {"id": int(told.chat), "type": "supergroup" if told.group else "private"}
        message: dict[str, Any] = {"message_id": number, "date": int(time.time()), "chat": chat}
        message["from"] = self._sender(told)
        mention = [{"type": "mention", "offset": 0, "length": 1 + len(str(BOT["username"]))}]
        if not told.files:
            return {**message, "text": text, **({"entities": mention} if text != told.text else {})}
        [file] = told.files
        handle = hashlib.sha1(file.data).hexdigest()
        self._api.files[handle] = file.data
        document = {"file_id": handle, "file_unique_id": handle, "file_name": file.name, "file_size": len(file.data)}
        message["document"] = {**document, "mime_type": file.media_type}
        return {**message, "caption": text, **({"caption_entities": mention} if text != told.text else {})}

    def _sender(self, told: Told) -> dict[str, Any]:
        person = abs(int(told.chat)) - 100_000 + 1 if told.group else int(told.chat)
        match told.by:
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
