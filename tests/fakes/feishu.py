"""Feishu's open API, as far as an app of ours uses it (open.feishu.cn/document/server-docs), and its long connection.

It refuses what Feishu refuses, with its numbers: a wrong token (99991663), cards that it cannot read (230099), what is
too long (230025), chats that it does not know, messages that are gone (230011), more than twenty changes of a text
(230072). The same `uuid` shows a message once.
"""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Callable
from typing import Any, Final

from aiohttp import web

from tests.fakes.feishu_card import Seen, seen
from tests.fakes.feishu_parts import Files, no
from tests.fakes.feishu_socket import SERVICE, SOCKETS, FeishuSockets
from tests.fakes.http_platform import FakeHttpPlatform, Met, ScriptedFault, hang_up

APP_ID: Final = "cli_a1b2c3d4e5f60001"
SECRET: Final = "0123456789abcdefghijABCDEFGHIJ01"
BOT: Final = "ou_0b07"
EDITS: Final = 20


class Posted:
    """A message of the bot."""

    def __init__(self, id: str, chat: str, kind: str, shown: Seen, content: str, parent: str | None) -> None:
        self.id, self.chat, self.kind, self.shown, self.content, self.parent = id, chat, kind, shown, content, parent
        self.in_topic = False
        self.edits = 0


class FakeFeishu(FakeHttpPlatform):
    """A fake of Feishu. `known` are the chats that the bot is in, `received` the messages of people
    by id, with their chat, and `items` the look-ups of them."""

    def __init__(self, known: set[str]) -> None:
        super().__init__()
        self.middlewares = [self._meeting]
        self.known = known
        self.received: dict[str, str] = {}
        self.items: dict[str, list[dict[str, Any]]] = {}
        self.gone: set[str] = set()
        self.posts: dict[str, list[Posted]] = {}
        self.paths: list[str] = []
        self.files = Files()
        self.modes: dict[str, str] = {}
        self.answers: dict[str, Callable[[], web.Response]] = {}
        """What a path answers, whatever it is asked."""

        self.no_topics = False
        self.tokens = 0
        self.token = ""
        self.expire = 7200
        self.ping_s = 120
        self.bot_status = 2
        self.sockets = FeishuSockets()
        self._keys: dict[str, Posted] = {}
        self._ids = itertools.count(1)

    def add_routes(self, router: web.UrlDispatcher) -> None:
        im = "/open-apis/im/v1"
        router.add_post("/open-apis/auth/v3/tenant_access_token/internal", self._issue)
        router.add_get("/open-apis/bot/v3/info", self._info)
        router.add_post(f"{im}/messages", self._create)
        router.add_post(f"{im}/messages/{{id}}/reply", self._reply)
        router.add_patch(f"{im}/messages/{{id}}", self._change)
        router.add_put(f"{im}/messages/{{id}}", self._change)
        router.add_get(f"{im}/messages/{{id}}", self._look)
        router.add_get(f"{im}/messages/{{id}}/resources/{{key}}", self._resource)
        router.add_get(f"{im}/chats/{{id}}", self._chat)
        router.add_post(f"{im}/{{kind:images|files}}", self.files.upload)
        router.add_post("/callback/ws/endpoint", self._endpoint)
        router.add_get("/ws", self.sockets.link)

    async def run_background(self) -> None:
        await self.sockets.run()

    def gone_token(self) -> None:
        """The token is good no more."""
        self.token = ""

    # --- the app

    @web.middleware
    async def _meeting(self, request: web.Request, handler: Any) -> web.StreamResponse:
        self.paths.append(f"{request.method} {request.path}")
        if request.path in self.answers:
            return self.answers[request.path]()
        if request.path.startswith("/open-apis/") and not request.path.startswith("/open-apis/auth/"):
            given = request.headers.get("Authorization", "")
            if not given:
                return no(99991661, "Missing access token for authorization.", status=401)
            if not self.token or given != f"Bearer {self.token}":
                return no(
                    99991663, "Invalid access token for authorization. Please make a request with token attached."
                )
        answer: web.StreamResponse = await handler(request)
        return answer

    async def _issue(self, request: web.Request) -> web.Response:
        given = await request.json()
        if given.get("app_id") != APP_ID:
            return web.json_response({"code": 10003, "msg": "invalid param"})
        if given.get("app_secret") != SECRET:
            return web.json_response({"code": 10014, "msg": "app secret invalid"})
        self.tokens += 1
        self.token = f"t-g104{self.tokens:04d}"
        return web.json_response({"code": 0, "msg": "ok", "tenant_access_token": self.token, "expire": self.expire})

    async def _info(self, _: web.Request) -> web.Response:
        bot = {
            "activate_status": self.bot_status,
            "app_name": "Shoal",
            "avatar_url": "",
            "ip_white_list": [],
            "open_id": BOT,
        }
        return web.json_response({"code": 0, "msg": "ok", "bot": bot})

    async def _endpoint(self, request: web.Request) -> web.Response:
        given = await request.json()
        if (given.get("AppID"), given.get("AppSecret")) != (APP_ID, SECRET):
            return web.json_response({"code": 514, "msg": "AppID or AppSecret is wrong"})
        if len(self.sockets.open) >= SOCKETS:
            return web.json_response({"code": 1000040350, "msg": "the number of connections exceeded the limit"})
        url = f"ws://127.0.0.1:{self.port}/ws?device_id={self.sockets.ticket()}&service_id={SERVICE}&aid=1"
        config = {"ReconnectCount": -1, "ReconnectInterval": 120, "ReconnectNonce": 30, "PingInterval": self.ping_s}
        return web.json_response({"code": 0, "msg": "", "data": {"URL": url, "ClientConfig": config}})

    # --- messages

    async def _create(self, request: web.Request) -> web.StreamResponse:
        given = await request.json()
        if request.query.get("receive_id_type") != "chat_id":
            return no(99992402, "field validation failed")
        return await self._post(request, given["receive_id"], given, None)

    async def _reply(self, request: web.Request) -> web.StreamResponse:
        given, parent = await request.json(), request.match_info["id"]
        if parent in self.gone:
            return no(230011, "The message is recalled.")
        chat = self.received.get(parent) or next((one.chat for one in self._all() if one.id == parent), None)
        if chat is None:
            return no(230001, "Your request contains an invalid request parameter, ext=invalid message_id.")
        if given.get("reply_in_thread") and self.no_topics:
            return no(230071, "The group to which the message belongs does not support reply in thread.")
        return await self._post(request, chat, given, parent)

    async def _post(
        self, request: web.Request, chat: str, given: dict[str, Any], parent: str | None
    ) -> web.StreamResponse:
        key = given.get("uuid", "")
        refusal, cut = await self._meet(request, "send", chat, marked=given["msg_type"] == "interactive")
        if refusal is not None:
            return refusal
        if len(key) > 50:
            return no(230001, "Your request contains an invalid request parameter, ext=uuid is too long.")
        posted = self._keys.get(key) if key else None
        if posted is None:
            shown = seen(given["msg_type"], given["content"])
            if isinstance(shown, tuple):
                return no(*shown)
            if shown.key is not None and shown.key not in self.files.data:
                return no(230017, "Bot is NOT the owner of the resource.")
            posted = Posted(f"om_out{next(self._ids)}", chat, given["msg_type"], shown, given["content"], parent)
            posted.in_topic = bool(given.get("reply_in_thread"))
            self.posts.setdefault(chat, []).append(posted)
            if key:
                self._keys[key] = posted
        if cut:
            await hang_up(request)
        return web.json_response({"code": 0, "msg": "success", "data": self._as_item(posted)})

    async def _change(self, request: web.Request) -> web.StreamResponse:
        given, id, is_card = await request.json(), request.match_info["id"], request.method == "PATCH"
        posted = next((one for one in self._all() if one.id == id), None)
        if posted is None:
            return no(230001, "Your request contains an invalid request parameter, ext=invalid message_id.")
        refusal, cut = await self._meet(request, "edit", posted.chat, marked=is_card)
        if refusal is not None:
            return refusal
        if (posted.kind == "interactive") is not is_card or posted.kind not in ("interactive", "text"):
            return no(230001, "Your request contains an invalid request parameter, ext=This message is NOT a card.")
        if not is_card and posted.edits >= EDITS:
            return no(230072, "The message has reached the number of times it can be edited.")
        shown = seen(posted.kind, given["content"])
        if isinstance(shown, tuple):
            return no(*shown)
        posted.shown, posted.content = shown, given["content"]
        posted.edits += 1
        if cut:
            await hang_up(request)
        return web.json_response({"code": 0, "msg": "success", "data": {} if is_card else self._as_item(posted)})

    async def _look(self, request: web.Request) -> web.Response:
        id = request.match_info["id"]
        if id in self.items:
            return web.json_response({"code": 0, "msg": "success", "data": {"items": self.items[id]}})
        posted = next((one for one in self._all() if one.id == id), None)
        if posted is not None:
            return web.json_response({"code": 0, "msg": "success", "data": {"items": [self._as_item(posted)]}})
        if id not in self.received:
            return no(230001, "Your request contains an invalid request parameter, ext=invalid message_id.")
        item = {"message_id": id, "msg_type": "text", "chat_id": self.received[id], "deleted": id in self.gone}
        item |= {"sender": {"id": "ou_1", "id_type": "open_id", "sender_type": "user"}}
        return web.json_response({"code": 0, "msg": "success", "data": {"items": [item]}})

    async def _resource(self, request: web.Request) -> web.Response:
        if request.match_info["id"] not in self.received:
            return no(234003, "File not in msg.")
        return self.files.resource(request)

    async def _chat(self, request: web.Request) -> web.Response:
        mode = self.modes.get(request.match_info["id"])
        if mode is None:
            return no(99991672, "Access denied. One of the following scopes is required: [im:chat:readonly, im:chat].")
        return web.json_response({"code": 0, "msg": "success", "data": {"chat_mode": mode, "name": "Pond"}})

    def _as_item(self, posted: Posted) -> dict[str, Any]:
        item = {
            "message_id": posted.id, "msg_type": posted.kind, "create_time": str(int(time.time() * 1000)),
            "update_time": str(int(time.time() * 1000)), "deleted": False, "updated": posted.edits > 0,
            "chat_id": posted.chat, "body": {"content": posted.content},
            "sender": {"id": APP_ID, "id_type": "app_id", "sender_type": "app", "tenant_key": "736588c9260f175e"},
        }  # fmt: skip
        answered = {"root_id": posted.parent, "parent_id": posted.parent} if posted.parent else {}
        return item | answered | ({"thread_id": f"omt_{posted.parent}"} if posted.in_topic else {})

    def _all(self) -> list[Posted]:
        return [one for sent in self.posts.values() for one in sent]

    async def _meet(self, request: web.Request, call: str, chat: str, *, marked: bool) -> Met:
        """Take a call, or refuse it as it was scripted; and whether the connection is cut after it was taken."""
        self.record(call, chat)
        if chat not in self.known:
            return no(230002, "The bot can not be outside the group."), False
        return await self.meet_fault(request, call, chat, markup=marked)

    def fault_answer(self, fault: ScriptedFault, call: str) -> web.Response:
        reset = {"x-ogw-ratelimit-reset": str(math.ceil(fault.retry_after_s))}
        match fault.kind:
            case "throttled":
                return no(230020, "This operation triggers the frequency limit.", headers=reset)
            case "throttled bot":
                return no(99991400, "request trigger frequency limit", status=429, headers=reset)
            case "markup":
                return no(
                    230099, "Failed to create card content, ext=ErrCode: 11310; ErrMsg: element exceeds the limit; "
                )
            case "refused":
                return no(230028 if call == "send" else 230031, "The messages do NOT pass the audit.")
            case "closed":
                return no(230013, "Bot has NO availability to this user.")
            case "down":
                return web.Response(status=503, text="<h1>Service Unavailable</h1>", content_type="text/html")
        raise AssertionError(f"no answer for the fault {fault.kind!r}")
