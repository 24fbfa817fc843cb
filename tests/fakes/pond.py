"""Pond, a chat platform that does not exist: the smallest one that has everything a platform can have.

Its API, for bots, with `Authorization: Bearer <token>`; bodies are JSON:

    GET  /me                                   {"id", "name"}
    GET  /events?after=N&wait=S                {"events": [...]}, oldest first; asking `after` N confirms all up to N
    POST /chats/<chat>/messages                {"text", "markup", "key"?, "reply_to"?, "buttons"?} -> {"id"}
    GET  /chats/<chat>/messages?key=K          {"id"}, or 404: was this sent?
    PUT  /chats/<chat>/messages/<id>           the same as for a new one
    POST /chats/<chat>/files?name=N&key=K      the bytes -> {"id"}
    POST /chats/<chat>/typing                  {}
    GET  /files/<handle>                       the bytes that a person sent

A text has at most LIMIT characters; with `markup`, `<b>` and `<i>` are the only tags and `&lt;` is a `<`. Errors are
400 {"error": "markup" | "refused"}, 401, 403 {"error": "closed"}, 409 (somebody else polls), 429 with Retry-After.
With a webhook, events are POSTed instead, with `X-Pond-Time` (seconds) and `X-Pond-Signature`, the hex HMAC-SHA256 of
`<time>.<body>`; a new webhook is asked `GET ?challenge=<word>` first and answers the word.
"""

from __future__ import annotations

import asyncio
import contextlib
import html
import itertools
import re
from typing import Any, Final, Literal

from aiohttp import web

from tests.fakes.http_platform import FakeHttpPlatform, ScriptedFault, hang_up

LIMIT: Final = 400
TOKEN: Final = "pond-token"
BOT: Final = "shoal"

_TAG: Final = re.compile(r"</?[bi]>")

Offers = Literal["key", "look-up", "nothing"]


class Message:
    """What the bot said, as it stands."""

    def __init__(self, id: str, key: str) -> None:
        self.id = id
        self.key = key
        self.text = ""
        self.markup = False
        self.buttons: list[dict[str, str]] = []
        self.reply_to: str | None = None
        self.file: bytes | None = None
        self.edits = 0


class FakePond(FakeHttpPlatform):
    """The server of Pond. `offers` is what it knows of a post that is sent twice."""

    def __init__(self, offers: Offers = "nothing") -> None:
        super().__init__()
        self.offers = offers
        self.chats: dict[str, list[Message]] = {}
        self.files: dict[str, bytes] = {}
        self.polls = 0
        self._events: list[dict[str, Any]] = []
        self.confirmed = 0
        self._numbers = itertools.count(1)
        self._news = asyncio.Event()
        self._turn = 0

    def add_routes(self, router: web.UrlDispatcher) -> None:
        router.add_get("/me", self._me)
        router.add_get("/events", self._poll)
        router.add_post("/chats/{chat}/messages", self._send)
        router.add_get("/chats/{chat}/messages", self._find)
        router.add_put("/chats/{chat}/messages/{id}", self._edit)
        router.add_post("/chats/{chat}/files", self._send)
        router.add_post("/chats/{chat}/typing", self._typing)
        router.add_get("/files/{handle}", self._file)

    def tell(self, event: dict[str, Any]) -> None:
        """Something happened; whoever polls gets it."""
        self._events.append(event)
        self._news.set()

    async def _me(self, request: web.Request) -> web.Response:
        self._check(request)
        return web.json_response({"id": BOT, "name": "Shoal"})

    async def _poll(self, request: web.Request) -> web.Response:
        self._check(request)
        self._turn = mine = self._turn + 1
        self._news.set()  # the newest poll is the one that counts, as on real platforms
        after = int(request.query["after"])
        self.confirmed = max(self.confirmed, after)
        self.polls += 1
        try:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(float(request.query["wait"])):
                    while len(self._events) <= self.confirmed and self._turn == mine:
                        self._news.clear()
                        await self._news.wait()
            if self._turn != mine:
                raise web.HTTPConflict
            numbered = [{"number": number, **event} for number, event in enumerate(self._events, 1)]
            return web.json_response({"events": numbered[self.confirmed : self.confirmed + 20]})
        finally:
            self.polls -= 1

    async def _send(self, request: web.Request) -> web.Response:
        chat, key = request.match_info["chat"], request.query.get("key", "")
        is_file = request.path.endswith("/files")
        body = {} if is_file else await request.json()
        key = key or body.get("key", "")
        cut = await self._meet(request, "send", chat, body)
        sent = self.chats.setdefault(chat, [])
        known = next((one for one in sent if key and one.key == key and self.offers == "key"), None)
        if known is None:
            known = Message(str(next(self._numbers)), key)
            if is_file:
                known.file = await request.read()
            else:
                self._fill(known, body)
            sent.append(known)
        if cut:
            await hang_up(request)
        return web.json_response({"id": known.id})

    async def _find(self, request: web.Request) -> web.Response:
        self._check(request)
        for one in self.chats.get(request.match_info["chat"], []):
            if one.key == request.query["key"] and self.offers == "look-up":
                return web.json_response({"id": one.id})
        raise web.HTTPNotFound

    async def _edit(self, request: web.Request) -> web.Response:
        chat, body = request.match_info["chat"], await request.json()
        cut = await self._meet(request, "edit", chat, body)
        for one in self.chats.get(chat, []):
            if one.id == request.match_info["id"]:
                self._fill(one, body)
                one.edits += 1
                if cut:
                    await hang_up(request)
                return web.json_response({"id": one.id})
        return web.json_response({"error": "refused"}, status=400)

    async def _typing(self, request: web.Request) -> web.Response:
        await self._meet(request, "typing", request.match_info["chat"], {})
        return web.json_response({})

    async def _file(self, request: web.Request) -> web.Response:
        self._check(request)
        if request.match_info["handle"] not in self.files:
            raise web.HTTPNotFound
        return web.Response(body=self.files[request.match_info["handle"]])

    def _check(self, request: web.Request) -> None:
        if request.headers.get("Authorization") != f"Bearer {TOKEN}":
            raise web.HTTPUnauthorized

    async def _meet(self, request: web.Request, call: str, chat: str, body: dict[str, Any]) -> bool:
        """Accept a call, or refuse it as it was scripted; return whether to cut the connection after its effect."""
        self._check(request)
        self.record(call, chat)
        text, markup = str(body.get("text", "")), bool(body.get("markup"))
        if len(text) > LIMIT or (call != "typing" and not request.path.endswith("/files") and not text.strip()):
            raise _refusal(web.HTTPBadRequest, "refused")
        if markup and "<" in _TAG.sub("", text):
            raise _refusal(web.HTTPBadRequest, "markup")
        answer, cut = await self.meet_fault(request, call, chat, markup=markup)
        if isinstance(answer, web.HTTPException):
            raise answer
        return cut

    def fault_answer(self, fault: ScriptedFault, call: str) -> web.Response:
        match fault.kind:
            case "throttled" | "throttled bot":
                error = "bot" if fault.kind == "throttled bot" else "chat"
                return _refusal(web.HTTPTooManyRequests, error, retry_after_s=fault.retry_after_s)
            case "markup" | "refused":
                return _refusal(web.HTTPBadRequest, fault.kind)
            case "closed":
                return _refusal(web.HTTPForbidden, "closed")
            case "down":
                return web.HTTPServiceUnavailable()
        raise AssertionError(f"no answer for the fault {fault.kind!r}")

    def _fill(self, message: Message, body: dict[str, Any]) -> None:
        text, message.markup = str(body["text"]), bool(body.get("markup"))
        message.text = html.unescape(_TAG.sub("", text)) if message.markup else text
        message.markup = message.markup and _TAG.search(text) is not None
        message.buttons = body.get("buttons", [])
        message.reply_to = body.get("reply_to")


def _refusal(kind: type[web.HTTPException], error: str, *, retry_after_s: float = 0.0) -> web.HTTPException:
    headers = {"Retry-After": str(retry_after_s)} if retry_after_s else None
    return kind(text=f'{{"error": "{error}"}}', content_type="application/json", headers=headers)
