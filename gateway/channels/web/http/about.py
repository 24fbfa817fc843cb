"""What belongs to a chat beside its messages, for the page's panel: plans, background work, memory,
files, its link."""

from __future__ import annotations

from typing import Annotated, Any, Final

import msgspec
from msgspec import Meta
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from gateway.channels.web.http.auth import OWNER
from gateway.channels.web.http.media import media_frame
from gateway.channels.web.http.own_chat import HEADERS, OwnChat, OwnChats, away
from gateway.channels.web.http.responses import content_length, problem
from shared.errors import BadInput, RedisAway, Refused
from shared.ids import WEB
from shared.media.reference import read_reference
from shared.messages.schedule import describe_plan
from shared.messages.web import MediaFrame
from shared.store.access.audit import Audit, actor_of
from shared.store.client.redis_client import RedisClient
from shared.store.delivery.outbox import Outbox
from shared.store.schedules.schedules import Schedules
from shared.store.sessions.memory import MemoryChanged, MemoryStore
from shared.store.sessions.session import Sessions
from shared.store.sessions.shares import Shares
from shared.store.subagents.subagents import Subagents
from shared.store.turns.inbox import SHARED_SCOPE

LINES: Final = 500
"""Of the log, the newest, in which files are looked for."""


class _NewMemory(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    text: str
    version: Annotated[str, Meta(max_length=32)]


class AboutRouter:
    """The routes below `/about/{chat}`. What they change, commands change as well: `/cron remove`,
    `/jobs cancel`; but they write no lines."""

    def __init__(self, client: RedisClient, own: OwnChats, shares: Shares, memory_bytes: int) -> None:
        self._own = own
        self._shares = shares
        self._audit = Audit(client)
        self._outbox = Outbox(client)
        self._sessions, self._memory = Sessions(client), MemoryStore(client)
        self._schedules, self._subagents = Schedules(client), Subagents(client)
        self._memory_bytes = memory_bytes

    def routes(self) -> list[BaseRoute]:
        return [
            Route("/about/{chat}", self._read, methods=["GET"]),
            Route("/about/{chat}/memory", self._write_memory, methods=["PUT"]),
            Route("/about/{chat}/share", self._share, methods=["POST"]),
            Route("/about/{chat}/share", self._end_share, methods=["DELETE"]),
            Route("/about/{chat}/plans/{id}", self._remove_plan, methods=["DELETE"]),
            Route("/about/{chat}/jobs/{id}", self._cancel_job, methods=["DELETE"]),
        ]

    async def _read(self, request: Request) -> Response:
        return await self._answer(request)

    async def _write_memory(self, request: Request) -> Response:
        # JSON may need six bytes for one of the text.
        if not 0 < (content_length(request) or 0) <= 6 * self._memory_bytes + 1024:
            return problem(413, f"a memory has at most {self._memory_bytes:,} bytes")
        own = await self._own.find_chat(request)
        if isinstance(own, Response):
            return own
        try:
            new = msgspec.json.decode(await request.body(), type=_NewMemory)
        except (msgspec.DecodeError, UnicodeDecodeError):
            return problem(400, "send the text and the version that it was made from, as JSON")
        if len(new.text.encode(errors="replace")) > self._memory_bytes:
            return problem(413, f"a memory has at most {self._memory_bytes:,} bytes")
        try:
            scope = (await self._sessions.state(own.session)).scope
            if not _may_write(own, scope):
                return problem(403, "this memory belongs to others, too; only the owner changes it")
            await self._memory.write_memory(scope, new.text, version=new.version)
        except MemoryChanged:
            return problem(409, "the memory was changed meanwhile; open it again")
        except (RedisAway, Refused):
            return away()
        return await self._answer(request, own)

    async def _remove_plan(self, request: Request) -> Response:
        own = await self._own.find_chat(request)
        if isinstance(own, Response):
            return own
        try:
            await self._schedules.remove(own.session, request.path_params["id"])
        except (RedisAway, Refused):
            return away()
        return await self._answer(request, own)

    async def _cancel_job(self, request: Request) -> Response:
        own = await self._own.find_chat(request)
        if isinstance(own, Response):
            return own
        try:
            # An empty id would cancel all; the route has none.
            await self._subagents.cancel(own.session, request.path_params["id"])
        except (RedisAway, Refused):
            return away()
        return await self._answer(request, own)

    async def _share(self, request: Request) -> Response:
        own = await self._own.find_chat(request)
        if isinstance(own, Response):
            return own
        if not self._shares.days:
            return problem(403, "sharing is off; an operator can allow it with web.share_days")
        try:
            position = await self._outbox.position(own.session)
            if await self._shares.make(own.session, position.last_seq) is None:
                return problem(404, "there is no such chat")
        except (RedisAway, Refused):
            return away()
        await self._record(own, "made")
        return await self._answer(request, own)

    async def _end_share(self, request: Request) -> Response:
        own = await self._own.find_chat(request)
        if isinstance(own, Response):
            return own
        try:
            await self._shares.end(own.session)
        except (RedisAway, Refused):
            return away()
        await self._record(own, "ended")
        return await self._answer(request, own)

    async def _record(self, own: OwnChat, outcome: str) -> None:
        actor = actor_of(WEB, own.principal)
        await self._audit.record("share", outcome, actor=actor, session=own.session)

    async def _answer(self, request: Request, own: OwnChat | Response | None = None) -> Response:
        """Return everything, also after a change: the page then shows what is so."""
        own = own or await self._own.find_chat(request)
        if isinstance(own, Response):
            return own
        try:
            about = {
                "plans": await self._plans(own),
                "jobs": await self._jobs(own),
                "memory": await self._read_memory(own),
                "files": await self._files(own),
                "share": await self._read_share(own),
            }
        except (RedisAway, Refused):
            return away()
        return Response(msgspec.json.encode(about), 200, HEADERS, "application/json")

    async def _plans(self, own: OwnChat) -> list[dict[str, Any]]:
        return [
            {
                "id": one.schedule.id,
                "when": describe_plan(one.schedule),
                "text": one.schedule.text,
                "next": one.next_ms,
                "paused": one.paused,
            }
            for one in await self._schedules.of_session(own.session)
        ]

    async def _jobs(self, own: OwnChat) -> list[dict[str, Any]]:
        return [
            {
                "id": one.task.id,
                "label": one.task.label,
                "state": one.state,
                "open": one.open,
                "seconds": round(one.age_s),
                "rounds": one.rounds,
                "tokens": one.tokens,
            }
            for one in await self._subagents.of_session(own.session)
        ]

    async def _read_memory(self, own: OwnChat) -> dict[str, Any]:
        scope = (await self._sessions.state(own.session)).scope
        memory = await self._memory.read_memory(scope)
        size = await self._sessions.memory_size(scope)
        whose = "everybody" if scope == SHARED_SCOPE else "person" if scope.startswith("user:") else "chat"
        return {
            "text": memory.text,
            "version": memory.version,
            "of": whose,
            "writable": _may_write(own, scope),
            "history": size.log_entries,
        }

    async def _read_share(self, own: OwnChat) -> dict[str, Any]:
        share = await self._shares.of_session(own.session)
        found = {"path": f"/s/{share.id}", "until": share.until_ms} if share else {}
        return {"days": self._shares.days, **found}

    async def _files(self, own: OwnChat) -> list[MediaFrame]:
        found: dict[str, MediaFrame] = {}
        for numbered in reversed(await self._outbox.read_before(own.session, seq=None, limit=LINES)):
            for reference in numbered.line.media:
                try:
                    ref = read_reference(reference)
                except BadInput:
                    continue
                found.setdefault(ref.file, media_frame(own.chat, ref))
        return list(found.values())


def _may_write(own: OwnChat, scope: str) -> bool:
    return scope != SHARED_SCOPE or own.principal == OWNER
