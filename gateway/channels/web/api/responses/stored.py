"""Responses that are stored: found, continued, shown, cancelled and deleted."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec
from msgspec.structs import replace
from starlette.requests import Request
from starlette.responses import Response

from gateway.channels.web.api import errors
from gateway.channels.web.api.answer import DROPPED, read_answer
from gateway.channels.web.api.completion import ApiServices, stop_message
from gateway.channels.web.api.errors import PREVIOUS, ApiError, bad_parameter
from gateway.channels.web.api.options import ANY_OBJECT
from gateway.channels.web.api.request import CompletionRequest, Prompt
from gateway.channels.web.api.responses.items import RESPONSE_ID
from gateway.channels.web.api.responses.numbers import check_after, parse_after
from gateway.channels.web.api.responses.request import is_made_name
from gateway.channels.web.api.responses.shape import ResponseShape
from gateway.channels.web.http.auth import Login
from shared.chatlog.turn_reader import TurnReader
from shared.errors import RedisAway, Refused
from shared.ids import API, is_stored, session_id, split_session
from shared.messages.codec import encode
from shared.messages.inbound import TurnOptions
from shared.messages.outbound import StoredAnswer, decode_answer
from shared.settings.sections.gateways import OWNER
from shared.store.responses.responses import StoredResponse
from shared.tasks import event_within

CANCEL_S: Final = 5.0  # wait for a turn to end that was told to
READ_S: Final = 10.0
ITEMS: Final = 20
MOST_ITEMS: Final = 100


class FoundStream(msgspec.Struct, frozen=True):
    """A response whose events are asked for, from the one after number `after` on. `answer` is None
    while it runs."""

    response: StoredResponse
    answer: StoredAnswer | None
    after: int | None

    def request(self) -> CompletionRequest:
        """Return the request that it answers, as far as its stream depends on that."""
        found = self.response
        return CompletionRequest(
            model="",
            preset="",
            name=_name_of(found),
            stream=True,
            with_usage=True,
            prompt=Prompt(text=""),
            hash="",
            options=TurnOptions(schema=ANY_OBJECT) if _is_formed(found) else None,
            shown=found.shown,
            stored=True,
        )


class StoredResponses:
    """Handles requests for responses that exist. Each principal has their own; those of others,
    expired and unknown ones are all the same 404."""

    def __init__(self, services: ApiServices) -> None:
        self._services = services

    async def locate(self, login: Login, asked: CompletionRequest) -> CompletionRequest:
        """Return the request with the session and the turn of the response that it continues."""
        if not asked.previous:
            await self._check_conversation(login, asked.name)
            return asked
        found = await self._find(login, asked.previous, param=PREVIOUS)
        return replace(asked, session=found.session, follows=found.turn, name=_name_of(found))

    async def _check_conversation(self, login: Login, name: str | None) -> None:
        """Raise ApiError for a conversation with a name of ours that is not there: with a name of
        their own programs begin one."""
        if name is not None and is_made_name(name):
            session = session_id(API, f"{login.principal}/{name}")
            if await self._services.sink.conversations.lookup(session) is None:
                raise errors.no_conversation("conversation")

    async def show(self, request: Request, login: Login) -> Response:
        """Return a response as it is now."""
        found = await self._named(request, login)
        return _whole(found, await self._answer(login, found))

    async def find_stream(self, request: Request, login: Login) -> FoundStream | None:
        """Return the response whose events are asked for; None where it is asked for whole."""
        after = request.query_params.get("starting_after")
        if request.query_params.get("stream", "false").lower() != "true":
            if after is not None:
                raise bad_parameter("starting_after", "'starting_after' is for 'stream=true'")
            return None
        number = None if after is None else parse_after(after)
        found = await self._named(request, login)
        answer = await self._answer(login, found)
        if number is not None:
            # A message of a named session may have joined a turn that streams as it writes.
            in_one_piece = _is_formed(found) and is_stored(found.session)
            check_after(number, answer, in_one_piece=in_one_piece)
        return FoundStream(found, answer, number)

    async def find_running(self, login: Login, name: str) -> FoundStream | None:
        """Return the newest response of the session with this name while it has no answer."""
        found = await self._services.responses.find_newest(
            login.principal, session_id(API, f"{login.principal}/{name}")
        )
        if found is None or await self._answer(login, found) is not None:
            return None
        return FoundStream(found, None, None)

    async def stop_running(self, login: Login, name: str) -> None:
        """Stop the newest response of the session with this name, and return when it has ended. With
        none that runs, stop the turn that runs or waits there for results."""
        if (running := await self.find_running(login, name)) is None:
            await self._services.sink.stop(session_id(API, f"{login.principal}/{name}"))
            return
        found = running.response
        await stop_message(self._services.sink, found.session, found.id, found.turn)
        await self._answer(login, found, within_s=CANCEL_S)

    async def delete(self, request: Request, login: Login) -> Response:
        """Delete a response, with its session if that has no other one."""
        found = await self._named(request, login)
        if await self._services.responses.drop(login.principal, found):
            await self._services.sessions.end(found.session, found.turn)
        return json_response({"id": f"resp_{found.id}", "object": "response", "deleted": True})

    async def cancel(self, request: Request, login: Login) -> Response:
        """Stop the turn of a response, and return it; one that is over is returned as it is."""
        found = await self._named(request, login)
        answer = await self._answer(login, found)
        if answer is None:
            await stop_message(self._services.sink, found.session, found.id, found.turn)
            answer = await self._answer(login, found, within_s=CANCEL_S)
        return _whole(found, answer)

    async def list_input(self, request: Request, login: Login) -> Response:
        """Return the items that a response answers, in pages."""
        found = await self._named(request, login)
        listed = msgspec.json.decode(found.input)
        items = [{"id": f"msg_{found.id}_in{at}", **item} for at, item in enumerate(listed)]
        page, more = slice_items(items, request.query_params)
        return list_response(page, more=more)

    async def _named(self, request: Request, login: Login) -> StoredResponse:
        id = RESPONSE_ID.fullmatch(request.path_params["id"])
        return await self._find(login, id[1] if id else "", param=None)

    async def _find(self, login: Login, ticket: str, *, param: str | None) -> StoredResponse:
        found = await self._services.responses.lookup(login.principal, ticket) if ticket else None
        if found is None:
            message = "there is no such response; perhaps it has expired or was deleted, or 'store' was false"
            raise ApiError(404, message, code="response_not_found", param=param)
        return found

    async def _answer(self, login: Login, found: StoredResponse, *, within_s: float = 0) -> StoredAnswer | None:
        """Return the answer, None while there is none. The log of the chat has it if the client
        went away before it was there, or if it is too long to be stored; it is then stored now."""
        if found.answer is not None:
            return decode_answer(found.answer)
        services = self._services
        reader = TurnReader(found.id, found.after, found.turn if found.continues else None)
        reader.number = found.turn
        reader.stale = True
        await services.follower.follow(found.session, reader)
        try:
            await wait_until_read(reader, within_s)
        finally:
            services.follower.unfollow(found.session, reader)
        if reader.end is None:
            return DROPPED if reader.lost else None
        owner = login.principal == OWNER
        answer = read_answer(reader, reader.end, found.id, formed=_is_formed(found), owner=owner)
        with contextlib.suppress(RedisAway, Refused):
            await services.responses.store_answer(found.id, encode(answer))
        return answer


def _name_of(found: StoredResponse) -> str | None:
    return None if is_stored(found.session) else split_session(found.session)[1].partition("/")[2]


def _is_formed(found: StoredResponse) -> bool:
    form = msgspec.json.decode(found.shown).get("text", {}).get("format", {"type": "text"})
    return bool(form["type"] != "text")


async def wait_until_read(reader: TurnReader, within_s: float) -> None:
    """Wait until the whole log was read, and then for the answer. Raises ApiError."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(READ_S):
            # An event may have begun another reading by the time that this one is over.
            while reader.reading is not None:
                await asyncio.wait([reader.reading])
    if reader.away or reader.failed or reader.reading is not None:
        raise errors.store_unavailable()
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(within_s):
            while within_s and reader.end is None and not reader.lost:
                reader.changed.clear()
                await event_within(reader.changed, within_s)


def slice_items(items: list[dict[str, Any]], query: Mapping[str, str]) -> tuple[list[dict[str, Any]], bool]:
    """Return a page of items, given in their order, and whether more follow. Raises ApiError."""
    order = query.get("order", "desc")
    limit = query.get("limit", str(ITEMS))
    if order not in ("asc", "desc"):
        raise bad_parameter("order", "'order' must be 'asc' or 'desc'")
    if not limit.isdecimal() or not 1 <= int(limit) <= MOST_ITEMS:
        raise bad_parameter("limit", f"'limit' must be between 1 and {MOST_ITEMS}")
    if order == "desc":
        items.reverse()
    if (after := query.get("after")) is not None:
        at = next((at for at, item in enumerate(items) if item["id"] == after), None)
        if at is None:
            raise bad_parameter("after", "'after' must be the id of an item of this list")
        items = items[at + 1 :]
    return items[: int(limit)], len(items) > int(limit)


def list_response(items: Sequence[dict[str, Any]], *, more: bool) -> Response:
    """Return a page of items."""
    ends = {"first_id": items[0]["id"] if items else None, "last_id": items[-1]["id"] if items else None}
    return json_response({"object": "list", "data": items, "has_more": more, **ends})


def _whole(found: StoredResponse, answer: StoredAnswer | None) -> Response:
    return json_response(ResponseShape(found.id, found.at_ms // 1000, found.shown).whole(answer))


def json_response(body: dict[str, Any]) -> Response:
    """Return a body that no cache keeps."""
    return Response(msgspec.json.encode(body), 200, {"Cache-Control": "no-store"}, "application/json")
