"""Discord's HTTP API, as far as a bot of ours uses it (docs.discord.com/developers), with its gateway beside it.

It refuses what Discord refuses, in its words: wrong tokens, agents without the form `DiscordBot (…)`, texts over 2000
characters, forms that are not as they should be, channels it does not know. A message that is sent again with the same
nonce and `enforce_nonce` within minutes is the one that is there. It keeps what was written in each channel.
"""

from __future__ import annotations

import itertools
import json
import re
import time
from datetime import UTC, datetime
from typing import Any, Final

from aiohttp import web

from tests.fakes.discord_forms import by_id, error, invalid, ok, plain, throttled, wrong
from tests.fakes.discord_gateway import FakeGateway
from tests.fakes.http_platform import FakeHttpPlatform, Met, ScriptedFault, hang_up

TOKEN: Final = "MTIzNDU2Nzg5MDEyMzQ1Njc4.fakefk.not-a-real-token-but-of-its-form"
BOT: Final = {"id": "123456789012345678", "username": "shoal", "discriminator": "0", "global_name": None, "bot": True}
GUILD: Final = "222222222222222222"
EPOCH_MS: Final = 1_420_070_400_000
NONCE_S: Final = 300.0

_ids = itertools.count()


def snowflake(at_ms: int | None = None) -> str:
    """The id of something that happens at this moment, or at another one; each is higher than the last."""
    ms = int(time.time() * 1000) if at_ms is None else at_ms
    return str((ms - EPOCH_MS << 22) + next(_ids) % (1 << 22))


def iso(at_ms: int) -> str:
    """A time as Discord writes it."""
    return datetime.fromtimestamp(at_ms / 1000, UTC).isoformat()


def read_markdown(text: str) -> tuple[str, bool]:
    """What is shown of a text, and whether there was any markup."""
    kept: list[str] = []

    def keep(found: re.Match[str]) -> str:
        kept.append(next(one for one in found.groups() if one is not None))
        return f"\x00{len(kept) - 1}\x00"

    plain = re.sub(r"```\w*\n(.*?)\n```|(?<!`)`([^`]+)`|\\([^0-9A-Za-z\s])", keep, text, flags=re.DOTALL)
    bare = re.sub(r"\[([^\[\]]*)\]\(<[^<>\s]+>\)", r"\1", plain)
    bare = re.sub(r"\*\*|~~|(?<!\w)_|_(?!\w)|(?m:^#{1,3} |^> )", "", bare)
    markup = bare != plain or "`" in text
    shown = re.sub(r"<(https?://[^<>\s]*)>", r"\1", bare)
    return re.sub("\x00(\\d+)\x00", lambda found: kept[int(found[1])], shown).replace("\u200b", ""), markup


class FakeDiscord(FakeHttpPlatform):
    """A fake of Discord. `channels` are those that it knows, by id: objects as `GET /channels/<id>`
    returns them."""

    def __init__(self) -> None:
        super().__init__()
        self.middlewares = [self._checked]
        self.gateway = FakeGateway(TOKEN, dict(BOT))
        self.channels: dict[str, dict[str, Any]] = {}
        self.written: dict[str, list[dict[str, Any]]] = {}
        self.reads: list[str] = []
        self.files: dict[str, bytes] = {}
        self.answered: list[str] = []
        self.edits: dict[str, int] = {}
        self._nonces: dict[tuple[str, str], tuple[float, str]] = {}

    def add_routes(self, router: web.UrlDispatcher) -> None:
        router.add_get("/api/v10/users/@me", self._me)
        router.add_get("/api/v10/gateway/bot", self._entrance)
        router.add_get("/api/v10/channels/{channel}", self._channel)
        router.add_get("/api/v10/channels/{channel}/messages", self._messages)
        router.add_post("/api/v10/channels/{channel}/messages", self._send)
        router.add_patch("/api/v10/channels/{channel}/messages/{id}", self._edit)
        router.add_post("/api/v10/channels/{channel}/typing", self._typing)
        router.add_post("/api/v10/interactions/{id}/{token}/callback", self._pressed)
        router.add_get("/attachments/{id}/{name}", self._file)
        router.add_get("/gateway/", self.gateway.serve)

    def started(self) -> None:
        self.gateway.address = f"ws://127.0.0.1:{self.port}/gateway/"

    async def stop(self) -> None:
        await self.gateway.cut()

    def posts(self, channel: str) -> list[dict[str, Any]]:
        """What the bot said there."""
        return [one for one in self.written.get(channel, []) if one["author"]["id"] == BOT["id"]]

    def message(self, channel: str, author: dict[str, Any], content: str, **more: Any) -> dict[str, Any]:
        """A message as Discord has it; it stays in its channel."""
        id = str(more.pop("id", None) or snowflake())
        made = {
            "id": id,
            "channel_id": channel,
            "author": author,
            "content": content,
            "timestamp": iso(EPOCH_MS + (int(id) >> 22)),
            "edited_timestamp": None,
            "tts": False,
            "mention_everyone": False,
            "mentions": [],
            "mention_roles": [],
            "attachments": [],
            "embeds": [],
            "pinned": False,
            "type": 0,
            "flags": 0,
            "components": [],
            **more,
        }
        kept = self.written.setdefault(channel, [])
        kept[:] = [one for one in kept if one["id"] != id] + [made]
        return made

    def as_event(self, message: dict[str, Any]) -> dict[str, Any]:
        """A message as the gateway tells it: in a server, with the server's id."""
        guild = self.channels.get(message["channel_id"], {}).get("guild_id")
        return message | ({"guild_id": guild, "member": {"nick": None, "roles": []}} if guild else {})

    @web.middleware
    async def _checked(self, request: web.Request, handler: Any) -> web.StreamResponse:
        if request.path.startswith("/api/"):
            if not request.headers.get("User-Agent", "").startswith("DiscordBot ("):
                return error(403, 40333, "internal network error")
            if not request.path.startswith("/api/v10/interactions/"):
                if request.headers.get("Authorization") != f"Bot {TOKEN}":
                    return error(401, 0, "401: Unauthorized")
                channel = request.match_info.get("channel")
                if channel is not None and channel not in self.channels:
                    return error(404, 10003, "Unknown Channel")
        answer: web.StreamResponse = await handler(request)
        return answer

    async def _me(self, _request: web.Request) -> web.Response:
        return ok(BOT)

    async def _entrance(self, _request: web.Request) -> web.Response:
        limit = {"total": 1000, "remaining": self.gateway.left, "reset_after": 14400000}
        limit["max_concurrency"] = self.gateway.at_once
        return ok({"url": self.gateway.address, "shards": self.gateway.shards, "session_start_limit": limit})

    async def _channel(self, request: web.Request) -> web.Response:
        channel = request.match_info["channel"]
        self.reads.append(channel)
        refusal, _ = await self._meet(request, "room", channel)
        return refusal or ok(self.channels[channel])

    async def _messages(self, request: web.Request) -> web.Response:
        channel, after = request.match_info["channel"], int(request.query["after"])
        self.reads.append(f"{channel}/messages")
        found = sorted((one for one in self.written.get(channel, []) if int(one["id"]) > after), key=by_id)
        return ok(found[: int(request.query["limit"])][::-1])

    async def _send(self, request: web.Request) -> web.StreamResponse:
        channel, file = request.match_info["channel"], None
        if request.content_type == "multipart/form-data":
            form = await request.post()
            listed, part = form["payload_json"], form["files[0]"]
            assert isinstance(listed, str | bytes | bytearray)
            assert isinstance(part, web.FileField)
            body = json.loads(listed)
            assert body["attachments"] == [{"id": 0, "filename": part.filename}]
            file = part.file.read()
        else:
            body = await request.json()
        refusal, cut = await self._meet(request, "send", channel)
        refusal = refusal or wrong(body, file)
        if refusal is not None:
            return refusal
        known = self._known(channel, body)
        if known is None:
            known = self.message(channel, dict(BOT), body["content"], components=body.get("components", []))
            known |= {"allowed_mentions": body.get("allowed_mentions"), "flags": body.get("flags", 0)}
            known["message_reference"] = body.get("message_reference")
            if file is not None:
                known["file"] = file
            if "nonce" in body:
                self._nonces[channel, body["nonce"]] = (time.monotonic(), known["id"])
            await self.gateway.tell("MESSAGE_CREATE", plain(self.as_event(known)))
        if cut:
            await hang_up(request)
        return ok(plain(known))

    def _known(self, channel: str, body: dict[str, Any]) -> dict[str, Any] | None:
        at, id = self._nonces.get((channel, str(body.get("nonce"))), (0.0, ""))
        if not body.get("enforce_nonce") or time.monotonic() - at > NONCE_S:
            return None
        return next((one for one in self.posts(channel) if one["id"] == id), None)

    async def _edit(self, request: web.Request) -> web.StreamResponse:
        channel, body = request.match_info["channel"], await request.json()
        refusal, cut = await self._meet(request, "edit", channel)
        refusal = refusal or wrong(body, None)
        if refusal is not None:
            return refusal
        posts = next((one for one in self.posts(channel) if one["id"] == request.match_info["id"]), None)
        if posts is None:
            return error(404, 10008, "Unknown Message")
        posts |= {"content": body["content"], "edited_timestamp": iso(int(time.time() * 1000))}
        posts["components"] = body.get("components", posts["components"])
        self.edits[posts["id"]] = self.edits.get(posts["id"], 0) + 1
        await self.gateway.tell("MESSAGE_UPDATE", plain(self.as_event(posts)))
        if cut:
            await hang_up(request)
        return ok(plain(posts))

    async def _typing(self, request: web.Request) -> web.StreamResponse:
        refusal, _ = await self._meet(request, "typing", request.match_info["channel"])
        return refusal or web.Response(status=204)

    async def _pressed(self, request: web.Request) -> web.Response:
        if request.match_info["id"] in self.answered:
            return error(400, 40060, "Interaction has already been acknowledged.")
        assert (await request.json())["type"] == 6
        self.answered.append(request.match_info["id"])
        return web.Response(status=204)

    async def _file(self, request: web.Request) -> web.Response:
        assert "Authorization" not in request.headers
        if request.match_info["id"] not in self.files:
            return web.Response(status=404)
        return web.Response(body=self.files[request.match_info["id"]])

    async def _meet(self, request: web.Request, call: str, channel: str) -> Met:
        """Take a call, or refuse it as it was scripted; and whether the connection is cut after it was taken."""
        if call != "room":
            self.record(call, channel)
        return await self.meet_fault(request, call, channel)

    def fault_answer(self, fault: ScriptedFault, call: str) -> web.Response:
        match fault.kind:
            case "throttled" | "throttled bot" as kind:
                return throttled(fault.retry_after_s, whole_bot=kind == "throttled bot")
            case "refused":
                return invalid("content", "CONTENT_REFUSED", "This is not taken.")
            case "closed":
                return error(403, 50007, "Cannot send messages to this user")
            case "down":
                return web.Response(status=503, text="upstream connect error", content_type="text/html")
            case "banned":
                return web.Response(status=429, text="error code: 1015", content_type="text/html")
            case other if other:
                status, code = other.split("/")
                return error(int(status), int(code), "No.")
        raise AssertionError(f"no answer for the fault {fault.kind!r}")
