"""Requests of a principal: who asks, and which of their chats they ask about."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import Final

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from gateway.channels.web.http.auth import Principals, origin_allowed
from gateway.channels.web.http.rates import PrincipalRates
from gateway.channels.web.http.responses import problem
from shared.clock import SYSTEM_CLOCK
from shared.errors import RedisAway, Refused
from shared.ids import WEB, session_id
from shared.store.sessions.chats import Chats

HEADERS: Final = {"Cache-Control": "private, no-store"}
_CHAT: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")


class OwnChat(msgspec.Struct, frozen=True):
    """A chat of the principal that asks. `chat` is its name in addresses and frames."""

    principal: str
    chat: str
    session: str
    title: str


class Visitors:
    """Finds the principal of a request. `what` names the requests in a refusal, of which a
    principal may make `burst` at once and `per_s` a second."""

    def __init__(
        self, principals: Principals, allowed_origins: Sequence[str], *, what: str, burst: int, per_s: float
    ) -> None:
        self._principals = principals
        self._allowed_origins = allowed_origins
        self._what = what
        self._rates = PrincipalRates(burst=burst, per_s=per_s, clock=SYSTEM_CLOCK)

    def identify(self, request: Request) -> str | Response:
        """Return the principal, or the error that answers the request."""
        if not origin_allowed(request.headers, self._allowed_origins):
            return problem(403, "pages of this origin may not do that")
        try:
            login = self._principals.bearer(request)
        except Refused as exc:
            return problem(429, exc.message, {"Retry-After": f"{math.ceil(exc.retry_after_s)}"})
        if login is None:
            return problem(401, "a valid token is needed", {"WWW-Authenticate": "Bearer"})
        return login.principal

    def admit(self, principal: str) -> Response | None:
        """Count a request of a principal. Return the refusal of one that is too many."""
        if (wait_s := self._rates.try_acquire(principal)) > 0:
            return problem(429, f"too many {self._what} at once", {"Retry-After": f"{math.ceil(wait_s)}"})
        return None


class OwnChats:
    """Finds the chat of a request `/…/{chat}`; those of other principals are not found."""

    def __init__(self, chats: Chats, visitors: Visitors) -> None:
        self._chats = chats
        self._visitors = visitors

    async def find_chat(self, request: Request) -> OwnChat | Response:
        """Return the chat, or the error that answers the request."""
        principal = self._visitors.identify(request)
        if isinstance(principal, Response):
            return principal
        chat = request.path_params["chat"]
        if not _CHAT.fullmatch(chat):
            return problem(404, "there is no such chat")
        if (refusal := self._visitors.admit(principal)) is not None:
            return refusal
        chat_id = f"{principal}/{chat}"
        try:
            row = await self._chats.row(WEB, principal, chat_id)
        except (RedisAway, Refused):
            return away()
        if row is None:
            return problem(404, "there is no such chat")
        return OwnChat(principal, chat, session_id(WEB, chat_id), row.title)


def away() -> Response:
    """Build the answer while Redis is unavailable."""
    return problem(503, "the chat cannot be read just now", {"Retry-After": "2"})
