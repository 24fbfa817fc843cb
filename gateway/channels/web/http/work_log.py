"""The steps of a turn for its person: thoughts of the model, and each tool call with its arguments and
its result, from the chat's transcript."""

from __future__ import annotations

from typing import Any, Final

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from gateway.channels.web.http.own_chat import HEADERS, OwnChats, away
from gateway.channels.web.http.responses import problem
from shared.errors import RedisAway, Refused
from shared.messages.transcript import AssistantEntry, ToolEntry, TranscriptEntry, decode_transcript
from shared.redaction import redacted
from shared.store.client.redis_client import RedisClient
from shared.store.sessions.transcripts import Transcripts

CHARS: Final = 4000
"""Most characters of one text; history keeps `agent.saved_result_chars` of a result and
`agent.saved_thought_chars` of thoughts, which may be fewer."""

BATCH: Final = 500
PAGES: Final = 40
"""That are read for one request, so that a chat of any length costs about as much."""


class WorkLogRouter:
    """The route `GET /work/{chat}/{turn}`."""

    def __init__(self, client: RedisClient, own: OwnChats) -> None:
        self._own = own
        self._transcripts = Transcripts(client)

    def routes(self) -> list[BaseRoute]:
        return [Route("/work/{chat}/{turn:int}", self._read, methods=["GET"])]

    async def _read(self, request: Request) -> Response:
        own = await self._own.find_chat(request)
        if isinstance(own, Response):
            return own
        try:
            entries = await self._entries_of(own.session, request.path_params["turn"])
        except (RedisAway, Refused):
            return away()
        if not entries:
            return problem(404, "the steps of this answer are not kept any more")
        return Response(msgspec.json.encode({"steps": steps_of(entries)}), 200, HEADERS, "application/json")

    async def _entries_of(self, session: str, turn: int) -> list[TranscriptEntry]:
        """Return the entries of a turn, oldest first; none if they are gone or too far back."""
        found: list[TranscriptEntry] = []
        before = ""
        for _ in range(PAGES):
            page = await self._transcripts.read_back(session, before, limit=BATCH)
            entries = [entry for record in page.records if (entry := decode_transcript.or_none(record))]
            found = [entry for entry in entries if entry.turn == turn] + found
            before = page.before
            # Turns stand in their order: an older one says that there is nothing more of this one.
            if not before or any(entry.turn < turn for entry in entries):
                break
        return found


def steps_of(entries: list[TranscriptEntry]) -> list[dict[str, Any]]:
    """Return what the model thought, what it wrote before tools, and each call with its result.
    Secrets are masked before anything is cut: half a secret has no shape by which it would be
    found."""
    results = {entry.call_id: entry for entry in entries if isinstance(entry, ToolEntry)}
    steps: list[dict[str, Any]] = []
    for entry in entries:
        if not isinstance(entry, AssistantEntry):
            continue
        if entry.reasoning and entry.reasoning.strip():
            steps.append({"thoughts": _shown(entry.reasoning.strip())})
        if not entry.tool_calls:
            continue
        if entry.content and entry.content.strip():
            steps.append({"text": _shown(entry.content)})
        for call in entry.tool_calls:
            result = results.get(call.id)
            steps.append(
                {
                    "name": call.name,
                    "arguments": _shown(_spread(call.arguments)),
                    "result": _shown(result.content) if result else "",
                    "ok": result is not None and result.ok,
                }
            )
    return steps


def _spread(arguments: str) -> str:
    """Return JSON with a line for each key; what is no JSON as it is."""
    try:
        return msgspec.json.format(arguments, indent=2) if arguments != "{}" else ""
    except msgspec.DecodeError:
        return arguments


def _shown(text: str) -> str:
    masked = redacted(text)
    return masked if len(masked) <= CHARS else f"{masked[: CHARS - 1]}\N{HORIZONTAL ELLIPSIS}"
