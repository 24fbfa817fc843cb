"""Slack's Web API, as far as a bot of ours uses it (docs.slack.dev/reference/methods), files and Socket Mode.

Methods are called as the SDK does: JSON, a form or a query, with the token in a header; refusals are 200 with `ok`
false and Slack's word for it. Messages are kept as conversations.history tells them, with metadata only for who asks.
"""

from __future__ import annotations

import itertools
import json
import time
from typing import Any, Final

from aiohttp import web

from tests.fakes.http_platform import FakeHttpPlatform, Met, ScriptedFault, hang_up
from tests.fakes.slack_socket import SlackSockets
from tests.fakes.slack_text import shown

BOT_TOKEN: Final = "xoxb-111111111111-222222222222-abcdefghijklmnopqrstuvwx"
APP_TOKEN: Final = "xapp-1-A0001-333333333333-0123456789abcdef"
TEAM, USER, BOT, NAME = "T0001", "U0SHOAL", "B0SHOAL", "shoal"
SCOPES: Final = "chat:write,app_mentions:read,channels:history,im:history,files:read,files:write,commands"

POST_CHARS: Final = 40_000
EDIT_CHARS: Final = 4_000


class FakeSlack(FakeHttpPlatform):
    """A fake of Slack. `chats` are the ids of the channels that the bot is in; `posts[chat]` its
    messages there, oldest first, with `_edits` and `_file` in addition to the fields that Slack
    returns."""

    def __init__(self, chats: set[str]) -> None:
        super().__init__()
        self.known = chats
        self.posts: dict[str, list[dict[str, Any]]] = {}
        self.methods: list[str] = []
        self.files: dict[str, bytes] = {}
        self.scopes = SCOPES
        self.answers: dict[str, web.Response] = {}
        """What a method answers, whatever it is asked."""

        self.fetched: list[tuple[str, str]] = []
        self.sockets = SlackSockets()
        self._uploads: dict[str, tuple[str, bytes]] = {}
        self._numbers = itertools.count(1)

    @property
    def api(self) -> str:
        return f"{self.address}/api/"

    def add_routes(self, router: web.UrlDispatcher) -> None:
        router.add_route("*", "/api/{method}", self._called)
        router.add_post("/upload/v1/{id}", self._upload)
        router.add_get("/files-pri/{id}/{rest:.+}", self._download)
        router.add_get("/link", self.sockets.link)

    async def run_background(self) -> None:
        await self.sockets.run()

    def ts(self) -> str:
        """The next one."""
        return f"{int(time.time())}.{next(self._numbers):06d}"

    async def _called(self, request: web.Request) -> web.StreamResponse:
        method = request.match_info["method"]
        self.methods.append(method)
        if method in self.answers:
            return self.answers[method]
        wanted = APP_TOKEN if method == "apps.connections.open" else BOT_TOKEN
        token = request.headers.get("Authorization", "").removeprefix("Bearer ")
        if token != wanted:
            return self._no("invalid_auth" if token else "not_authed")
        given: dict[str, Any] = dict(request.query)
        if request.content_type == "application/json" and request.can_read_body:
            given |= await request.json()
        elif request.method == "POST":
            given |= dict(await request.post())
        answer = getattr(self, "_" + method.replace(".", "_"), None)
        if answer is None:
            return self._no("unknown_method")
        done: web.StreamResponse = await answer(request, given)
        return done

    async def _auth_test(self, _request: web.Request, _given: dict[str, Any]) -> web.Response:
        url = "https://pond.slack.com/"
        return self._ok(url=url, team="Pond", user=NAME, team_id=TEAM, user_id=USER, bot_id=BOT)

    async def _apps_connections_open(self, _request: web.Request, _given: dict[str, Any]) -> web.Response:
        return self._ok(url=f"ws://127.0.0.1:{self.port}/link?ticket={self.sockets.ticket()}")

    async def _chat_postMessage(self, request: web.Request, given: dict[str, Any]) -> web.StreamResponse:
        refusal, cut = await self._meet(request, "send", given)
        refusal = refusal or self._unfit(given, POST_CHARS)
        if refusal is not None:
            return refusal
        message = {**self._message(given), "metadata": given.get("metadata")}
        self.posts.setdefault(given["channel"], []).append(message)
        if cut:
            await hang_up(request)
        return self._ok(channel=given["channel"], ts=message["ts"], message=_as_listed(message))

    async def _chat_update(self, request: web.Request, given: dict[str, Any]) -> web.StreamResponse:
        refusal, cut = await self._meet(request, "edit", given)
        refusal = refusal or self._unfit(given, EDIT_CHARS)
        if refusal is not None:
            return refusal
        message = next((one for one in self.posts.get(given["channel"], []) if one["ts"] == given["ts"]), None)
        if message is None:
            return self._no("message_not_found")
        for name in ("text", "attachments", "metadata"):  # what is not given stays
            message[name] = given.get(name, message.get(name))
        message["_edits"] += 1
        if cut:
            await hang_up(request)
        return self._ok(channel=given["channel"], ts=given["ts"], text=message["text"])

    async def _conversations_history(self, _request: web.Request, given: dict[str, Any]) -> web.Response:
        sent = [one for one in self.posts.get(given["channel"], []) if one.get("thread_ts") in (None, one["ts"])]
        return self._page(given, list(reversed(sent)))

    async def _conversations_replies(self, _request: web.Request, given: dict[str, Any]) -> web.Response:
        return self._page(
            given, [one for one in self.posts.get(given["channel"], []) if one["thread_ts"] == given["ts"]]
        )

    def _page(self, given: dict[str, Any], sent: list[dict[str, Any]]) -> web.Response:
        if given["channel"] not in self.known:
            return self._no("channel_not_found")
        start, limit = int(given.get("cursor") or 0), int(given.get("limit", 100))
        found = [one for one in sent if float(one["ts"]) > float(given.get("oldest", 0))]
        cursor = str(start + limit) if start + limit < len(found) else ""
        listed = [
            _as_listed(one, metadata=given.get("include_all_metadata") == "1") for one in found[start : start + limit]
        ]
        return self._ok(messages=listed, has_more=bool(cursor), response_metadata={"next_cursor": cursor})

    async def _files_getUploadURLExternal(self, _request: web.Request, given: dict[str, Any]) -> web.Response:
        id = f"F{next(self._numbers):08d}"
        self._uploads[id] = given["filename"], b""
        return self._ok(upload_url=f"{self.address}/upload/v1/{id}", file_id=id)

    async def _files_completeUploadExternal(self, request: web.Request, given: dict[str, Any]) -> web.StreamResponse:
        given["channel"] = given["channel_id"]
        refusal, cut = await self._meet(request, "send", given)
        if refusal is not None:
            return refusal
        [file] = json.loads(given["files"])
        name, data = self._uploads[file["id"]]
        message = {**self._message(given), "subtype": "file_share", "blocks": json.loads(given.get("blocks", "[]"))}
        message |= {"files": [{"id": file["id"], "name": name, "size": len(data)}], "_file": data}
        self.posts.setdefault(given["channel"], []).append(message)
        if cut:
            await hang_up(request)
        return self._ok(files=[{"id": file["id"], "title": file.get("title", "")}])

    async def _files_info(self, _request: web.Request, given: dict[str, Any]) -> web.Response:
        if given["file"] not in self.files:
            return self._no("file_not_found")
        return self._ok(file={"id": given["file"], "url_private_download": self.file_url(given["file"])})

    def file_url(self, id: str, name: str = "file") -> str:
        """Where the bytes of a file of `files` are."""
        return f"{self.address}/files-pri/{TEAM}-{id}/download/{name}"

    async def _upload(self, request: web.Request) -> web.Response:
        id = request.match_info["id"]
        if "Authorization" in request.headers or id not in self._uploads:
            raise web.HTTPBadRequest
        self._uploads[id] = self._uploads[id][0], await request.read()
        return web.Response(text=f"OK - {len(self._uploads[id][1])}")

    async def _download(self, request: web.Request) -> web.Response:
        id, token = request.match_info["id"].partition("-")[2], request.headers.get("Authorization", "")
        self.fetched.append((id, token))
        if token != f"Bearer {BOT_TOKEN}":
            raise web.HTTPFound(f"{self.address}/?redir=%2Ffiles-pri")
        if id not in self.files:
            raise web.HTTPNotFound
        return web.Response(body=self.files[id])

    def _message(self, given: dict[str, Any]) -> dict[str, Any]:
        kept = {name: given.get(name) for name in ("text", "attachments", "thread_ts", "mrkdwn")}
        return {"type": "message", "user": USER, "bot_id": BOT, "ts": self.ts(), "_edits": 0, **kept}

    def _unfit(self, given: dict[str, Any], limit: int) -> web.Response | None:
        """What Slack refuses for its form."""
        if not (given.get("text") or "").strip():
            return self._no("no_text")
        if len(given["text"]) > limit:
            return self._no("msg_too_long")
        for attachment in given.get("attachments") or ():
            for block in attachment.get("blocks", ()):
                for button in block["elements"]:
                    if len(button["text"]["text"]) > 75 or not 0 < len(button["value"]) <= 2000:
                        return self._no("invalid_blocks")
        return None

    async def _meet(self, request: web.Request, call: str, given: dict[str, Any]) -> Met:
        """Take a call, or refuse it as it was scripted; and whether the connection is cut after it was taken."""
        chat = given["channel"]
        self.record(call, chat)
        if chat not in self.known:
            return self._no("channel_not_found"), False
        marked = given.get("mrkdwn", True) and (call == "send" or shown(given.get("text", ""))[1])
        return await self.meet_fault(request, call, chat, markup=bool(marked))

    def fault_answer(self, fault: ScriptedFault, call: str) -> web.Response:
        match fault.kind:
            case "throttled":
                return self._no("ratelimited", status=429, headers={"Retry-After": f"{fault.retry_after_s:g}"})
            case "markup":
                return self._no("invalid_blocks")
            case "refused":
                return self._no("msg_too_long" if call == "send" else "edit_window_closed")
            case "closed":
                return self._no("is_archived")
            case "down":
                return web.Response(status=503, text="<h1>Service Unavailable</h1>", content_type="text/html")
        raise AssertionError(f"no answer for the fault {fault.kind!r}")

    def _ok(self, **more: Any) -> web.Response:
        return web.json_response({"ok": True, **more}, headers={"X-OAuth-Scopes": self.scopes})

    def _no(self, error: str, *, status: int = 200, headers: dict[str, str] | None = None) -> web.Response:
        return web.json_response({"ok": False, "error": error}, status=status, headers=headers)


def _as_listed(message: dict[str, Any], *, metadata: bool = False) -> dict[str, Any]:
    hidden = () if metadata else ("metadata",)
    return {
        name: value for name, value in message.items() if name[0] != "_" and name not in hidden and value is not None
    }
