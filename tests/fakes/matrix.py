"""A Matrix homeserver, as far as a bot of ours uses it (spec.matrix.org, client-server API).

It refuses what Synapse refuses, with its error bodies: unknown tokens, rooms that the bot is not in, events over 65,536
bytes, points that it never gave. A transaction id is known again for the same device, and for no other. News are kept:
whoever asks from an earlier point gets the same again.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import itertools
import json
from collections.abc import Collection, Mapping
from typing import Any, Final

from aiohttp import web

from tests.fakes.http_platform import FakeHttpPlatform, Met, ScriptedFault, hang_up
from tests.fakes.matrix_parts import FakeMessage, error, event_of, fault_answer, json_of, merged

TOKEN: Final = "syt_c2hvYWw_abcdefghijklmnopqrst_0aBcDe"
PASSWORD: Final = "correct horse battery staple"
BOT: Final = "@shoal:pond.example"
EVENT_BYTES: Final = 65_536
DEVICE: Final = web.RequestKey("device", str)


class FakeMatrix(FakeHttpPlatform):
    """A fake homeserver. `rooms` are those that the bot is in: their members, with names."""

    def __init__(self, rooms: Mapping[str, Mapping[str, str]]) -> None:
        super().__init__()
        self.middlewares = [self._known]
        self.rooms = {room: dict(members) for room, members in rooms.items()}
        self.posts: dict[str, list[FakeMessage]] = {}
        self.files: dict[str, bytes] = {}
        self.tokens = {TOKEN: "TOKENDEVICE"}
        self.invites: dict[str, str] = {}
        self.joined: list[str] = []
        self.newest: dict[str, Any] = {}
        self.polls = 0
        self.batch = 50
        """Events of one room in an answer; what is left out is asked for."""
        self.log: list[tuple[str, dict[str, Any]]] = []
        self._before_anybody: list[tuple[str, dict[str, Any]]] = []
        self._anybody = False
        self._done: dict[tuple[str, str], str] = {}
        self._ids = itertools.count(1)
        self._news = asyncio.Condition()

    def add_routes(self, router: web.UrlDispatcher) -> None:
        v3, media = "/_matrix/client/v3", "/_matrix/client/v1/media"
        router.add_post(f"{v3}/login", self._login)
        router.add_post(f"{v3}/logout", self._logout)
        router.add_get(f"{v3}/account/whoami", self._whoami)
        router.add_get(f"{v3}/sync", self._sync)
        router.add_post(f"{v3}/rooms/{{room}}/join", self._join)
        router.add_get(f"{v3}/rooms/{{room}}/joined_members", self._members)
        router.add_get(f"{v3}/rooms/{{room}}/messages", self._messages)
        router.add_get(f"{v3}/rooms/{{room}}/event/{{id}}", self._event)
        router.add_put(f"{v3}/rooms/{{room}}/send/m.room.message/{{transaction}}", self._send)
        router.add_put(f"{v3}/rooms/{{room}}/typing/{{user}}", self._typing)
        router.add_post("/_matrix/media/v3/upload", self._upload)
        router.add_get(f"{media}/download/{{server}}/{{id}}", self._download)

    async def tell(self, room: str, event: dict[str, Any]) -> None:
        """Something happens in a room; whoever asks gets it. Before anybody ever asked, it waits: a bot is told nothing
        of the time before it."""
        if not self._anybody:
            self._before_anybody.append((room, event))
            return
        async with self._news:
            self.log.append((room, event))
            self._news.notify_all()

    async def invite(self, room: str, by: str) -> None:
        """Somebody asks the bot in."""
        async with self._news:
            self.invites[room] = by
            self.log.append(("", {"invited": room}))
            self._news.notify_all()

    def new_id(self) -> str:
        """The id of an event."""
        return "$" + hashlib.sha256(str(next(self._ids)).encode()).hexdigest()[:43]

    # --- who asks

    @web.middleware
    async def _known(self, request: web.Request, handler: Any) -> web.StreamResponse:
        token = request.headers.get("Authorization", "").removeprefix("Bearer ")
        if not request.path.endswith("/login"):
            if not token:
                return error(401, "M_MISSING_TOKEN", "Missing access token")
            if token not in self.tokens:
                return error(401, "M_UNKNOWN_TOKEN", "Invalid access token passed.", soft_logout=False)
            request[DEVICE] = self.tokens[token]
        try:
            done: web.StreamResponse = await handler(request)
        except web.HTTPNotFound:
            return error(404, "M_UNRECOGNIZED", "Unrecognized request")
        return done

    async def _login(self, request: web.Request) -> web.Response:
        asked = await json_of(request)
        who = asked["identifier"]["user"]
        if asked["type"] != "m.login.password" or asked["password"] != PASSWORD or who not in (BOT, "shoal"):
            return error(403, "M_FORBIDDEN", "Invalid username or password")
        number = next(self._ids)
        self.tokens[f"syt_{number}"] = f"DEVICE{number}"
        return web.json_response({"user_id": BOT, "access_token": f"syt_{number}", "device_id": f"DEVICE{number}"})

    async def _logout(self, request: web.Request) -> web.Response:
        self.tokens = {token: device for token, device in self.tokens.items() if device != request[DEVICE]}
        return web.json_response({})

    async def _whoami(self, request: web.Request) -> web.Response:
        return web.json_response({"user_id": BOT, "device_id": request[DEVICE], "is_guest": False})

    # --- news

    async def _sync(self, request: web.Request) -> web.Response:
        since, timeout = request.query.get("since"), int(request.query.get("timeout", 0)) / 1000
        if since is None:
            here, self._anybody = len(self.log), True
            self.log += self._before_anybody
            self._before_anybody = []
            return web.json_response({"next_batch": f"s{here}", "rooms": {"invite": self._invited(self.invites)}})
        if not since.startswith("s") or not since[1:].isdecimal() or int(since[1:]) > len(self.log):
            return error(400, "M_UNKNOWN", "Invalid stream token")
        after = int(since[1:])
        self.polls += 1
        try:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(timeout), self._news:
                    await self._news.wait_for(lambda: len(self.log) > after)
        finally:
            self.polls -= 1
        rooms: dict[str, Any] = {}
        new = {event["invited"] for room, event in self.log[after:] if not room}
        for number, (room, event) in enumerate(self.log[after:], after):
            if not room:
                continue
            timeline = rooms.setdefault(room, {"timeline": {"events": [], "limited": False}})["timeline"]
            timeline["events"].append(event)
            if len(timeline["events"]) > self.batch:
                timeline["events"].pop(0)
                timeline["limited"] = True
                timeline["prev_batch"] = f"t{number - self.batch + 1}"
        answer = {"next_batch": f"s{len(self.log)}", "rooms": {"join": rooms, "invite": self._invited(new)}}
        return web.json_response(answer)

    def _invited(self, rooms: Collection[str]) -> dict[str, Any]:
        found = {}
        for room, by in ((room, by) for room, by in self.invites.items() if room in rooms):
            event = {"type": "m.room.member", "sender": by, "state_key": BOT, "content": {"membership": "invite"}}
            found[room] = {"invite_state": {"events": [event]}}
        return found

    async def _join(self, request: web.Request) -> web.Response:
        room = request.match_info["room"]
        if room not in self.invites and room not in self.rooms:
            return error(403, "M_FORBIDDEN", "You are not invited to this room.")
        by = self.invites.pop(room, "")
        self.rooms.setdefault(room, {by: "Somebody", BOT: "Shoal"})
        self.joined.append(room)
        return web.json_response({"room_id": room})

    async def _members(self, request: web.Request) -> web.Response:
        members = self.rooms.get(request.match_info["room"])
        if members is None:
            return error(403, "M_FORBIDDEN", "User not in room")
        return web.json_response({"joined": {user: {"display_name": name} for user, name in members.items()}})

    async def _messages(self, request: web.Request) -> web.Response:
        """Points here are `t` and `s` with a place in the log; a room's own words are in `said`."""
        room, limit = request.match_info["room"], int(request.query["limit"])
        if "senders" in json.loads(request.query["filter"]):
            ours = [
                {"type": "m.room.message", "event_id": one.id, "content": one.content}
                for one in reversed(self.posts.get(room, []))
            ]
            return web.json_response({"chunk": ours[:limit], "start": "t0"})
        before, after = int(request.query["from"][1:]), int(request.query.get("to", "s0")[1:])
        found = [(n, event) for n, (where, event) in enumerate(self.log[after:before], after) if where == room]
        page = found[::-1][:limit]
        more = {"end": f"t{page[-1][0]}"} if len(found) > limit else {}
        return web.json_response({"chunk": [event for _, event in page], "start": request.query["from"], **more})

    async def _event(self, request: web.Request) -> web.Response:
        room, id = request.match_info["room"], request.match_info["id"]
        for where, event in self.log:
            if (where, event.get("event_id")) == (room, id):
                return web.json_response(event)
        for one in self.posts.get(room, []):
            if one.id == id:
                return web.json_response(event_of(one, BOT))
        return error(404, "M_NOT_FOUND", "Event not found.")

    # --- what the bot says

    async def _send(self, request: web.Request) -> web.StreamResponse:
        room, content = request.match_info["room"], await json_of(request)
        again = (request[DEVICE], request.match_info["transaction"])
        edits = content.get("m.relates_to", {}).get("rel_type") == "m.replace"
        refusal, cut = await self._meet(request, "edit" if edits else "send", room)
        if refusal is not None:
            return refusal
        if again in self._done:
            if cut:
                await hang_up(request)
            return web.json_response({"event_id": self._done[again]})
        if len(json.dumps(content, ensure_ascii=False).encode()) > EVENT_BYTES - 500:
            return error(413, "M_TOO_LARGE", "event too large")
        if not isinstance(content.get("msgtype"), str) or not isinstance(content.get("body"), str):
            return error(400, "M_BAD_JSON", "'body' is a required property")
        id = self.new_id()
        self._done[again], self.newest = id, content
        if edits:
            merged(self.posts.get(room, []), content)
        else:
            sent = FakeMessage(id, content)
            if "url" in content:
                sent.file = self.files[content["url"].rpartition("/")[2]]
            self.posts.setdefault(room, []).append(sent)
        await self.tell(room, event_of(FakeMessage(id, content), BOT))
        if cut:
            await hang_up(request)
        return web.json_response({"event_id": id})

    async def _typing(self, request: web.Request) -> web.StreamResponse:
        refusal, _ = await self._meet(request, "typing", request.match_info["room"])
        return refusal or web.json_response({})

    async def _upload(self, request: web.Request) -> web.Response:
        data = await request.read()
        id = hashlib.sha256(data).hexdigest()[:24]
        self.files[id] = data
        return web.json_response({"content_uri": f"mxc://pond.example/{id}"})

    async def _download(self, request: web.Request) -> web.Response:
        id = request.match_info["id"]
        if id not in self.files:
            return error(404, "M_NOT_FOUND", "Not found")
        return web.Response(body=self.files[id])

    async def _meet(self, request: web.Request, call: str, room: str) -> Met:
        """Take a call, or refuse it as it was scripted; and whether the connection is cut after it was taken."""
        self.record(call, room)
        if room not in self.rooms:
            return error(403, "M_FORBIDDEN", f"User {BOT} not in room {room}"), False
        return await self.meet_fault(request, call, room)

    def fault_answer(self, fault: ScriptedFault, call: str) -> web.Response:
        return fault_answer(fault)
