"""`/settings/work`: plans, background jobs and memory of all chats of a person, page by page."""

from __future__ import annotations

from typing import Any, Final

from starlette.requests import Request

from gateway.channels.web.settings.answers import Refusal
from shared.ids import WEB, session_id
from shared.messages.schedule import describe_plan
from shared.store import keys
from shared.store.client.redis_client import RedisClient
from shared.store.schedules.schedules import Schedules
from shared.store.sessions.chats import LIST_LIMIT, ChatInfo, Chats
from shared.store.subagents.subagents import Subagents
from shared.store.turns.inbox import SHARED_SCOPE

PAGE: Final = 100
"""Chats that one request looks through; seven round trips, however many of them have plans."""

TEXT_CHARS: Final = 300


class WorkPart:
    """Collects what goes on in the chats of a person, the latest activity first."""

    def __init__(self, client: RedisClient) -> None:
        self._client = client
        self._chats = Chats(client)
        self._schedules, self._subagents = Schedules(client), Subagents(client)

    async def list_work(self, principal: str, request: Request) -> dict[str, Any]:
        """Return what the next PAGE chats after `?skip=` have; `next` is where to go on, 0 at the
        end."""
        skip = _skip_of(request)
        chats = await self._chats.latest(WEB, principal, PAGE, skip=skip)
        sessions = [session_id(WEB, one.chat_id) for one in chats]
        plans = await self._plans(chats, sessions)
        jobs = await self._jobs(chats, sessions)
        # Deleted chats are left out of `chats`, so its length says nothing of the end.
        more = await self._client.command("ZCARD", keys.chats(WEB, principal)) > skip + PAGE
        return {
            "plans": plans,
            "jobs": jobs,
            "memories": await self._memories(chats, sessions),
            "next": skip + PAGE if more and skip + PAGE < LIST_LIMIT else 0,
        }

    async def _plans(self, chats: list[ChatInfo], sessions: list[str]) -> list[dict[str, Any]]:
        found = [
            {
                **_name(chat),
                "id": one.schedule.id,
                "when": describe_plan(one.schedule),
                "text": one.schedule.text[:TEXT_CHARS],
                "next": one.next_ms,
                "paused": one.paused,
            }
            for chat, plans in zip(chats, await self._schedules.of_sessions(sessions), strict=True)
            for one in plans
        ]
        return sorted(found, key=lambda row: row["next"])

    async def _jobs(self, chats: list[ChatInfo], sessions: list[str]) -> list[dict[str, Any]]:
        found = await self._subagents.of_sessions(sessions)
        return [
            {
                **_name(chat),
                "id": one.task.id,
                "label": one.task.label[:TEXT_CHARS],
                "state": one.state,
                "open": one.open,
                "seconds": round(one.age_s),
                "tokens": one.tokens,
            }
            for chat, jobs in zip(chats, found, strict=True)
            for one in jobs
        ]

    async def _memories(self, chats: list[ChatInfo], sessions: list[str]) -> list[dict[str, Any]]:
        """Return each memory once, with the latest chat that has it."""
        scopes = await self._client.pipeline([("HGET", keys.session(one), "scope") for one in sessions])
        first: dict[str, ChatInfo] = {}
        for chat, session, scope in zip(chats, sessions, scopes, strict=True):
            first.setdefault(scope.decode(errors="replace") if scope else f"chat:{session}", chat)
        sizes = await self._client.pipeline([("HSTRLEN", keys.memory(scope), "text") for scope in first])
        return [
            {**_name(chat), "bytes": size, "of": _whose(scope)}
            for (scope, chat), size in zip(first.items(), sizes, strict=True)
            if size
        ]


def _name(chat: ChatInfo) -> dict[str, Any]:
    return {"chat": chat.chat_id.partition("/")[2], "title": chat.title}


def _whose(scope: str) -> str:
    return "everybody" if scope == SHARED_SCOPE else "person" if scope.startswith("user:") else "chat"


def _skip_of(request: Request) -> int:
    text = request.query_params.get("skip", "0")
    if not (text.isascii() and text.isdigit() and len(text) < 6) or int(text) > LIST_LIMIT:
        raise Refusal(400, "skip is the number of chats that were looked through")
    return int(text)
