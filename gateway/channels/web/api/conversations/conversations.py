"""Conversations: named sessions of a principal, and what happened in them, as OpenAI's clients ask for
them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from gateway.channels.web.api.completion import ApiServices
from gateway.channels.web.api.conversations.items import ConversationItem, read_items
from gateway.channels.web.api.conversations.request import (
    ADD,
    CHANGE,
    CREATE,
    ConversationRequest,
    conversation_session,
    parse_conversation_request,
)
from gateway.channels.web.api.errors import ApiError, bad_parameter, conversation_busy, no_conversation
from gateway.channels.web.api.parameters import Parameters, ignored_header
from gateway.channels.web.api.responses.request import CONVERSATION, made_name
from gateway.channels.web.api.responses.stored import json_response, list_response, slice_items
from gateway.channels.web.http.auth import Login
from shared.ids import API, session_id, split_session
from shared.messages.codec import encode
from shared.messages.sources import OF_PROGRAMS, Sources
from shared.messages.transcript import ToolEntry
from shared.store.sessions.details import SessionDetails
from shared.store.turns.client_calls import CLIENT_TOOLS

READS_AT_ONCE: Final = 4
"""Conversations that a gateway reads whole at once: each may have some MB."""

Handle = Callable[[Request, Login], Awaitable[Response]]
HandleBody = Callable[[Request, Login, bytes, str | None], Awaitable[Response]]
"""Handles a request with its body and its idempotency key."""

Endpoint = Callable[[Request], Awaitable[Response]]


class ConversationRouter:
    """The routes below /v1/conversations. A conversation of another principal, one that has expired
    or was deleted, and an unknown one are all the same 404."""

    def __init__(self, services: ApiServices) -> None:
        self._services = services
        self._conversations = services.sink.conversations
        self._reading = asyncio.Semaphore(READS_AT_ONCE)

    def routes(
        self, plain: Callable[[Handle], Endpoint], with_body: Callable[[HandleBody], Endpoint]
    ) -> list[BaseRoute]:
        """Return the routes; the arguments make endpoints of handlers without and with a body."""
        one = "/v1/conversations/{id}"
        return [
            Route("/v1/conversations", with_body(self.create), methods=["POST"]),
            Route(one, plain(self.show), methods=["GET"]),
            Route(one, with_body(self.change), methods=["POST"]),
            Route(one, plain(self.delete), methods=["DELETE"]),
            Route(f"{one}/items", plain(self.list_items), methods=["GET"]),
            Route(f"{one}/items", with_body(self.add_items), methods=["POST"]),
            Route(f"{one}/items/{{item}}", plain(self.show_item), methods=["GET"]),
            Route(f"{one}/items/{{item}}", plain(self.delete_item), methods=["DELETE"]),
        ]

    async def create(self, request: Request, login: Login, body: bytes, key: str | None) -> Response:
        """Begin a conversation."""
        asked = await self._parse(body, CREATE)
        # A name is made of the ticket, so there is no session yet; this one is only looked up.
        other = session_id(API, f"{login.principal}/{CONVERSATION}")
        begun = await self._services.requests.begin(login.principal, key=key, session=other, asked=asked.hash)
        session = session_id(API, f"{login.principal}/{made_name(begun.ticket)}")
        if begun.answer is None:
            make = asked.make(begun.at_ms)
            sources = _sources_of(asked)
            made = await self._conversations.begin(login.principal, begun, session, make, sources, asked.metadata)
            if made.outcome == "chat_limit":
                await self._services.requests.release(begun)
                message = "this token has written in too many conversations lately; go on in one of them"
                raise ApiError(429, message, code="chat_limit", retry_after_s=3600)
            await self._services.requests.store_answer(begun, b"{}")
        return _ignoring(asked, _shown(session, await self._details(session)))

    async def show(self, request: Request, login: Login) -> Response:
        """Return a conversation."""
        session, details = await self._find(request, login)
        return _shown(session, details)

    async def change(self, request: Request, login: Login, body: bytes, key: str | None) -> Response:
        """Replace the metadata of a conversation."""
        session, _ = await self._find(request, login)
        asked = await self._parse(body, CHANGE)
        if not await self._conversations.set_metadata(session, asked.metadata):
            raise no_conversation()
        return _ignoring(asked, _shown(session, await self._details(session)))

    async def delete(self, request: Request, login: Login) -> Response:
        """Delete a conversation with everything in it."""
        session, _ = await self._find(request, login)
        await self._conversations.end(login.principal, session)
        return json_response({"id": _id_of(session), "object": "conversation.deleted", "deleted": True})

    async def list_items(self, request: Request, login: Login) -> Response:
        """Return the items of a conversation, in pages."""
        session, _ = await self._find(request, login)
        items = [item.fields for item in await self._items(session)]
        page, more = slice_items(items, request.query_params)
        return list_response(page, more=more)

    async def add_items(self, request: Request, login: Login, body: bytes, key: str | None) -> Response:
        """Add items to a conversation, between two turns."""
        session, _ = await self._find(request, login)
        asked = await self._parse(body, ADD)
        requests = self._services.requests
        principal = login.principal
        begun = await requests.begin(principal, key=key, session=session, asked=f"{session} {asked.hash}")
        make = asked.make(begun.at_ms)
        added = await self._conversations.add(principal, begun, session, make, _sources_of(asked))
        if added.outcome in ("no_session", "running"):
            await requests.release(begun)
            raise no_conversation() if added.outcome == "no_session" else conversation_busy()
        await requests.mark_accepted(begun, ephemeral=False)
        items = read_items([encode(entry) for entry in make(added.number)])
        return _ignoring(asked, list_response([item.fields for item in items], more=False))

    async def show_item(self, request: Request, login: Login) -> Response:
        """Return one item."""
        session, _ = await self._find(request, login)
        return json_response((await self._item(session, request)).fields)

    async def delete_item(self, request: Request, login: Login) -> Response:
        """Remove an item from a conversation, and return the conversation."""
        session, details = await self._find(request, login)
        item = await self._item(session, request)
        outcome = await self._conversations.drop(session, item.record) if item.alone else "gone"
        if outcome == "running":
            raise conversation_busy()
        if outcome == "gone":
            message = "this item cannot be removed alone: it belongs to calls, or it has left what the model reads"
            raise bad_parameter("item_id", message, code="unsupported_item")
        return _shown(session, details)

    async def _parse(self, body: bytes, known: Parameters) -> ConversationRequest:
        strict = self._services.api.strict
        return await asyncio.to_thread(parse_conversation_request, body, known, strict=strict)

    async def _find(self, request: Request, login: Login) -> tuple[str, SessionDetails]:
        session = conversation_session(login.principal, request.path_params["id"])
        return session, await self._details(session)

    async def _details(self, session: str) -> SessionDetails:
        details = await self._conversations.lookup(session) if session else None
        if details is None:
            raise no_conversation()
        return details

    async def _items(self, session: str) -> list[ConversationItem]:
        async with self._reading:
            records = await self._conversations.records(session)
            return await asyncio.to_thread(read_items, records)

    async def _item(self, session: str, request: Request) -> ConversationItem:
        wanted = request.path_params["item"]
        found = next((item for item in await self._items(session) if item.id == wanted), None)
        if found is None:
            raise ApiError(404, "there is no such item in this conversation", code="item_not_found")
        return found


def _sources_of(asked: ConversationRequest) -> Sources:
    results = any(isinstance(entry, ToolEntry) for entry in asked.entries)
    return ((OF_PROGRAMS,) if asked.entries else ()) + ((CLIENT_TOOLS,) if results else ())


def _id_of(session: str) -> str:
    return CONVERSATION + split_session(session)[1].partition("/")[2]


def _shown(session: str, details: SessionDetails) -> Response:
    made_s = (details.created_at or details.updated_at) // 1000
    known = {"id": _id_of(session), "object": "conversation", "created_at": made_s, "metadata": details.metadata}
    return json_response(known)


def _ignoring(asked: ConversationRequest, response: Response) -> Response:
    if asked.ignored:
        response.headers["Shoal-Ignored"] = ignored_header(asked.ignored)
    return response
