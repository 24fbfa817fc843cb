"""WhatsApp's Cloud API, as far as a number of ours uses it (developers.facebook.com/docs/whatsapp/cloud-api).

It refuses what WhatsApp refuses, with its numbers: a wrong token, texts over 4096 characters, more than three buttons,
long or equal labels, kinds of files that it does not take, numbers that it does not know. It keeps no time: a person
may always be written to.
"""

from __future__ import annotations

import itertools
import json
import re
from typing import Any, Final

from aiohttp import web

from tests.fakes.http_platform import FakeHttpPlatform, Met, ScriptedFault, hang_up

TOKEN: Final = "EAAGm0PX4ZCpsBAFakeTokenOfASystemUser"
NUMBER: Final = "106540352242922"
VERSION: Final = "v23.0"

UPLOADS: Final = re.compile(
    r"audio/(aac|mp4|mpeg|amr|ogg|opus)|image/(jpeg|png|webp)|video/(mp4|3gpp)|text/plain"
    r"|application/(pdf|msword|vnd\.ms-(excel|powerpoint)|vnd\.openxmlformats-officedocument\..*)"
)
_MARKS: Final = re.compile(r"```(.+?)```|\*(?=\S)([^*\n]+?)(?<=\S)\*|_(?=\S)([^_\n]+?)(?<=\S)_", re.DOTALL)
_JOINT: Final = "\u200b"


class FakeMessage:
    """A message to a person."""

    def __init__(self, id: str, reply_to: str | None) -> None:
        self.id = id
        self.reply_to = reply_to
        self.text = ""
        self.markup = False
        self.choices: list[dict[str, str]] = []
        self.kind = "text"
        self.file: bytes | None = None


class FakeWhatsApp(FakeHttpPlatform):
    """A fake of WhatsApp. `known` are the numbers that can be written to, `received` the chats of
    messages to us."""

    def __init__(self, known: set[str]) -> None:
        super().__init__()
        self.known = known
        self.received: dict[str, str] = {}
        self.posts: dict[str, list[FakeMessage]] = {}
        self.files: dict[str, bytes] = {}
        self.files_at = ""
        self.asked: list[str] = []
        self._ids = itertools.count(1000)

    @property
    def address(self) -> str:
        return f"{self.origin}/{VERSION}"

    def add_routes(self, router: web.UrlDispatcher) -> None:
        router.add_get("/lookaside/{id}", self._file)
        router.add_post(f"/{VERSION}/{NUMBER}/messages", self._messages)
        router.add_post(f"/{VERSION}/{NUMBER}/media", self._media)
        router.add_get(f"/{VERSION}/{{id}}", self._node)
        router.add_post(f"/{VERSION}/{{path:.+}}", self._nowhere)

    # --- files and numbers

    async def _node(self, request: web.Request) -> web.Response:
        if (refusal := _unknown(request)) is not None:
            return refusal
        id = request.match_info["id"]
        if id == NUMBER:
            return web.json_response({"id": NUMBER, "display_phone_number": "15550783881"})
        if id not in self.files:
            return await self._nowhere(request)
        base = self.files_at or f"http://127.0.0.1:{self.port}/lookaside"
        about = {"messaging_product": "whatsapp", "id": id, "url": f"{base}/{id}?mid={id}&ext=1&hash=ARl%2Bx"}
        return web.json_response({**about, "mime_type": "text/plain", "file_size": len(self.files[id])})

    async def _nowhere(self, request: web.Request) -> web.Response:
        return _unknown(request) or _error(
            400, 100, "Unsupported request. Object does not exist, or permissions are missing", error_subcode=33
        )

    async def _file(self, request: web.Request) -> web.Response:
        self.asked.append(request.headers.get("Authorization", ""))
        if (refusal := _unknown(request)) is not None:
            return refusal
        return web.Response(body=self.files[request.match_info["id"]])

    async def _media(self, request: web.Request) -> web.Response:
        if (refusal := _unknown(request)) is not None:
            return refusal
        form = await request.post()
        file = form["file"]
        if not isinstance(file, web.FileField) or form.get("messaging_product") != "whatsapp":
            return _error(400, 100, "(#100) The parameter messaging_product is required.")
        if not UPLOADS.fullmatch(file.content_type) or file.content_type != form.get("type"):
            return _error(400, 100, "(#100) Param file must be a file with one of the following types: ...")
        id = str(next(self._ids))
        self.files[id] = file.file.read()
        return web.json_response({"id": id})

    # --- messages

    async def _messages(self, request: web.Request) -> web.Response:
        if (refusal := _unknown(request)) is not None:
            return refusal
        message = await request.json()
        if message.get("messaging_product") != "whatsapp":
            return _error(400, 100, "(#100) The parameter messaging_product is required.")
        if message.get("status") == "read":
            return await self._read(request, message)
        chat = message["to"]
        refusal, cut = await self._meet(request, "send", chat)
        if refusal is not None:
            return refusal
        sent = FakeMessage(f"wamid.out{next(self._ids)}", message.get("context", {}).get("message_id"))
        wrong = self._write(sent, message)
        if wrong is not None:
            return wrong
        self.posts.setdefault(chat, []).append(sent)
        if cut:
            await hang_up(request)
        contact = {"input": chat, "wa_id": chat}
        return web.json_response(
            {"messaging_product": "whatsapp", "contacts": [contact], "messages": [{"id": sent.id}]}
        )

    async def _read(self, request: web.Request, message: dict[str, Any]) -> web.Response:
        chat = self.received.get(message["message_id"])
        if chat is None or message.get("typing_indicator") not in (None, {"type": "text"}):
            return _error(400, 131009, "(#131009) Parameter value is not valid")
        refusal, _ = await self._meet(request, "typing", chat)
        return refusal or web.json_response({"success": True})

    def _write(self, sent: FakeMessage, message: dict[str, Any]) -> web.Response | None:
        sent.kind = message["type"]
        content = message[sent.kind]
        if sent.kind == "text":
            return self._put(sent, content["body"], 4096)
        if sent.kind == "interactive":
            return self._offer(sent, content)
        sent.text = content.get("caption", "")
        return self._attach(sent, sent.kind, content)

    def _put(self, sent: FakeMessage, text: str, limit: int) -> web.Response | None:
        if not text.strip() or len(text) > limit:
            return _error(400, 100, f"(#100) Param text['body'] must be 1 to {limit} characters long.")
        sent.text = _MARKS.sub(lambda found: next(filter(None, found.groups())), text).replace(_JOINT, "")
        sent.markup = _MARKS.search(text) is not None
        return None

    def _attach(self, sent: FakeMessage, kind: str, content: dict[str, Any]) -> web.Response | None:
        if content["id"] not in self.files:
            return _error(400, 131009, "(#131009) Parameter value is not valid")
        if kind == "audio" and set(content) - {"id"}:
            return _error(400, 100, "(#100) Unexpected key on param audio.")
        sent.file = self.files[content["id"]]
        return None

    def _offer(self, sent: FakeMessage, content: dict[str, Any]) -> web.Response | None:
        kind, action = content["type"], content["action"]
        if kind == "button":
            sent.choices = [one["reply"] for one in action["buttons"]]
            most, label, says, text = 3, 20, 256, 1024
        else:
            sent.choices = [row for section in action["sections"] for row in section["rows"]]
            most, label, says, text = 10, 24, 200, 4096
            if not 1 <= len(action["button"]) <= 20 or "header" in content:
                return _error(400, 131009, "(#131009) Parameter value is not valid")
        titles, ids = ([one[key] for one in sent.choices] for key in ("title", "id"))
        if (
            not 1 <= len(sent.choices) <= most
            or any(not 1 <= len(one) <= label for one in titles)
            or any(not 1 <= len(one) <= says or one != one.strip() for one in ids)
            or any(len(one.get("description", "")) > 72 for one in sent.choices)
            or len(set(ids)) < len(ids)
            or (kind == "button" and len(set(titles)) < len(titles))
        ):
            return _error(400, 131009, "(#131009) Parameter value is not valid")
        header = content.get("header")
        if header is not None and (wrong := self._attach(sent, header["type"], header[header["type"]])) is not None:
            return wrong
        return self._put(sent, content["body"]["text"], text)

    async def _meet(self, request: web.Request, call: str, chat: str) -> Met:
        """Take a call, or refuse it as it was scripted; and whether the connection is cut after it was taken."""
        self.record(call, chat)
        if chat not in self.known:
            return _error(400, 131030, "(#131030) Recipient phone number not in allowed list"), False
        return await self.meet_fault(request, call, chat)

    def fault_answer(self, fault: ScriptedFault, call: str) -> web.Response:
        match fault.kind:
            case "throttled":
                text = "(#131056) (Business Account, Consumer Account) pair rate limit hit"
                return _error(400, 131056, text)
            case "throttled bot":
                return _error(429, 130429, "(#130429) Rate limit hit")
            case "refused":
                return _error(400, 131009, "(#131009) Parameter value is not valid")
            case "closed":
                return _error(400, 131047, "(#131047) Re-engagement message")
            case "down":
                return _error(503, 131016, "(#131016) Service unavailable")
        raise AssertionError(f"no answer for the fault {fault.kind!r}")


def _unknown(request: web.Request) -> web.Response | None:
    if request.headers.get("Authorization") == f"Bearer {TOKEN}":
        return None
    return _error(401, 190, "Error validating access token: Session has expired", type="OAuthException")


def _error(status: int, code: int, message: str, **more: Any) -> web.Response:
    error = {"message": message, "type": "OAuthException", "code": code, "fbtrace_id": "AJv7N1kXkOWgnyJ1lQ2vH5F"}
    details = {"messaging_product": "whatsapp", "details": message}
    return web.json_response({"error": {**error, "error_data": details, **more}}, status=status, dumps=json.dumps)
