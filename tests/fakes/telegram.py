"""Telegram's Bot API, as far as a bot of ours uses it (core.telegram.org/bots/api).

Methods are called as the SDK does: `POST /bot<token>/<method>`, forms whose nested values are JSON. It refuses what
Telegram refuses, in its words: HTML that cannot be parsed, texts over 4096 UTF-16 code units, chats it does not know,
two questions for updates at once. Updates are kept until a question with a higher offset confirms them.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import math
import time
from typing import Any, Final

from aiohttp import web

from tests.fakes.http_platform import FakeHttpPlatform, Met, ScriptedFault, hang_up
from tests.fakes.telegram_html import CannotParse, read_html

TOKEN: Final = "123456789:AAbbCCddEEffGGhhIIjjKKllMMnnOOppQQr"
BOT: Final = {"id": 123456789, "is_bot": True, "first_name": "Shoal", "username": "shoal_bot"}


class FakeMessage:
    """What the bot said, as it stands."""

    def __init__(self, id: int) -> None:
        self.id = id
        self.text = ""
        self.markup = False
        self.buttons: list[dict[str, str]] = []
        self.reply_to: int | None = None
        self.file: bytes | None = None
        self.kind = ""  # of the file: photo, voice or document
        self.edits = 0


class FakeTelegram(FakeHttpPlatform):
    """A fake of Telegram. `chats` are the ids of those that it knows."""

    def __init__(self, chats: set[str]) -> None:
        super().__init__()
        self.known = chats
        self.posts: dict[str, list[FakeMessage]] = {}
        self.files: dict[str, bytes] = {}
        self.pressed: list[str] = []
        self.webhook: dict[str, str] = {}
        self.polls = 0
        self._updates: list[dict[str, Any]] = []
        self._ids = itertools.count(1000)
        self._news = asyncio.Event()
        self._newest_poll = 0

    def add_routes(self, router: web.UrlDispatcher) -> None:
        router.add_post("/bot{token}/{method}", self._called)
        router.add_get("/file/bot{token}/{path:.+}", self._file)

    def tell(self, update: dict[str, Any]) -> None:
        """Something happened; whoever asks gets it."""
        self._updates.append(update)
        self._news.set()

    async def _called(self, request: web.Request) -> web.StreamResponse:
        if request.match_info["token"] != TOKEN:
            return _error(401, "Unauthorized")
        form = await request.post()
        given = {
            name: value.file.read() if isinstance(value, web.FileField) else str(value) for name, value in form.items()
        }
        method = request.match_info["method"]
        answer = getattr(self, f"_{method}", None)
        if answer is None:
            return _error(404, "Not Found")
        done: web.StreamResponse = await answer(request, given)
        return done

    async def _getMe(self, _request: web.Request, _given: dict[str, Any]) -> web.Response:
        return _ok(BOT)

    async def _setWebhook(self, _request: web.Request, given: dict[str, Any]) -> web.Response:
        self.webhook = {"url": given["url"], "secret": given["secret_token"]}
        return _ok(True)

    async def _deleteWebhook(self, _request: web.Request, _given: dict[str, Any]) -> web.Response:
        self.webhook = {}
        return _ok(True)

    async def _getUpdates(self, _request: web.Request, given: dict[str, Any]) -> web.Response:
        if self.webhook:
            return _error(409, "Conflict: can't use getUpdates method while webhook is active")
        self._newest_poll = mine = self._newest_poll + 1
        self._news.set()
        offset, timeout = int(given.get("offset", 0)), float(given.get("timeout", 0))
        self._updates = [one for one in self._updates if one["update_id"] >= offset]
        self.polls += 1
        try:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(timeout):
                    while not self._updates and self._newest_poll == mine:
                        self._news.clear()
                        await self._news.wait()
        finally:
            self.polls -= 1
        if self._newest_poll != mine:
            return _error(409, "Conflict: terminated by other getUpdates request")
        return _ok(self._updates[:100])

    async def _sendMessage(self, request: web.Request, given: dict[str, Any]) -> web.StreamResponse:
        return await self._say(request, given, None)

    async def _sendPhoto(self, request: web.Request, given: dict[str, Any]) -> web.StreamResponse:
        return await self._say(request, given, "photo")

    async def _sendVoice(self, request: web.Request, given: dict[str, Any]) -> web.StreamResponse:
        return await self._say(request, given, "voice")

    async def _sendDocument(self, request: web.Request, given: dict[str, Any]) -> web.StreamResponse:
        return await self._say(request, given, "document")

    async def _say(self, request: web.Request, given: dict[str, Any], file: str | None) -> web.StreamResponse:
        chat = given["chat_id"]
        refusal, cut = await self._meet(request, "send", chat, given)
        if refusal is not None:
            return refusal
        sent = FakeMessage(next(self._ids))
        if file is not None:
            sent.kind = file
            sent.file = given[given[file].removeprefix("attach://")] if isinstance(given[file], str) else given[file]
        elif (refusal := self._write(sent, given)) is not None:
            return refusal
        self._dress(sent, given)
        self.posts.setdefault(chat, []).append(sent)
        if cut:
            await hang_up(request)
        return _ok(_message(sent.id, chat))

    async def _editMessageText(self, request: web.Request, given: dict[str, Any]) -> web.StreamResponse:
        chat = given["chat_id"]
        refusal, cut = await self._meet(request, "edit", chat, given)
        if refusal is not None:
            return refusal
        sent = next((one for one in self.posts.get(chat, []) if one.id == int(given["message_id"])), None)
        if sent is None:
            return _error(400, "Bad Request: message to edit not found")
        before = (sent.text, sent.markup, sent.buttons)
        if (refusal := self._write(sent, given)) is not None:
            return refusal
        self._dress(sent, given)
        if before == (sent.text, sent.markup, sent.buttons):
            return _error(400, "Bad Request: message is not modified: specified new message content is the same")
        sent.edits += 1
        if cut:
            await hang_up(request)
        return _ok(_message(sent.id, chat))

    async def _sendChatAction(self, request: web.Request, given: dict[str, Any]) -> web.StreamResponse:
        refusal, _ = await self._meet(request, "typing", given["chat_id"], given)
        return refusal or _ok(True)

    async def _answerCallbackQuery(self, _request: web.Request, given: dict[str, Any]) -> web.Response:
        self.pressed.append(given["callback_query_id"])
        return _ok(True)

    async def _getFile(self, _request: web.Request, given: dict[str, Any]) -> web.Response:
        id = given["file_id"]
        if id not in self.files:
            return _error(400, "Bad Request: invalid file_id")
        if len(self.files[id]) > 20 * 1024 * 1024:
            return _error(400, "Bad Request: file is too big")
        return _ok({"file_id": id, "file_unique_id": id, "file_path": f"documents/{id}"})

    async def _file(self, request: web.Request) -> web.Response:
        id = request.match_info["path"].rpartition("/")[2]
        if request.match_info["token"] != TOKEN or id not in self.files:
            return _error(404, "Not Found")
        return web.Response(body=self.files[id])

    def _write(self, sent: FakeMessage, given: dict[str, Any]) -> web.Response | None:
        text, markup = given.get("text", ""), False
        if given.get("parse_mode") == "HTML":
            try:
                text, markup = read_html(text)
            except CannotParse as exc:
                return _error(400, f"Bad Request: can't parse entities: {exc}")
        if not text.strip():
            return _error(400, "Bad Request: message text is empty")
        if len(text.encode("utf-16-le")) // 2 > 4096:
            return _error(400, "Bad Request: message is too long")
        sent.text, sent.markup = text, markup
        return None

    def _dress(self, sent: FakeMessage, given: dict[str, Any]) -> None:
        rows = json.loads(given.get("reply_markup", "{}")).get("inline_keyboard", [])
        sent.buttons = [button for row in rows for button in row]
        sent.reply_to = json.loads(given.get("reply_parameters", "{}")).get("message_id", sent.reply_to)

    async def _meet(self, request: web.Request, call: str, chat: str, given: dict[str, Any]) -> Met:
        """Take a call, or refuse it as it was scripted; and whether the connection is cut after it was taken."""
        self.record(call, chat)
        if chat not in self.known:
            return _error(400, "Bad Request: chat not found"), False
        return await self.meet_fault(request, call, chat, markup=given.get("parse_mode") == "HTML")

    def fault_answer(self, fault: ScriptedFault, call: str) -> web.Response:
        match fault.kind:
            case "throttled":
                seconds = math.ceil(fault.retry_after_s)
                text = f"Too Many Requests: retry after {seconds}"
                return _error(429, text, parameters={"retry_after": seconds})
            case "markup":
                return _error(400, 'Bad Request: can\'t parse entities: Unsupported start tag "x"')
            case "refused":
                return _error(400, "Bad Request: MESSAGE_REFUSED")
            case "closed":
                return _error(403, "Forbidden: bot was blocked by the user")
            case "down":
                return _error(502, "Bad Gateway")
        raise AssertionError(f"no answer for the fault {fault.kind!r}")


def _ok(result: Any) -> web.Response:
    return web.json_response({"ok": True, "result": result})


def _error(code: int, description: str, **more: Any) -> web.Response:
    return web.json_response({"ok": False, "error_code": code, "description": description, **more}, status=code)


def _message(id: int, chat: str) -> dict[str, Any]:
    kind = "private" if int(chat) > 0 else "supergroup"
    return {"message_id": id, "date": int(time.time()), "chat": {"id": int(chat), "type": kind}, "from": BOT}
