"""Requests about settings: refused in words, or answered as JSON that nothing keeps."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from gateway.channels.web.http.auth import OWNER, origin_allowed
from gateway.channels.web.http.own_chat import HEADERS, Visitors
from gateway.channels.web.http.responses import content_length, problem
from shared.errors import RedisAway, Refused, ReplyError
from shared.log import logger

Part = Callable[[str, Request], Awaitable[object]]
"""A function that gets the principal and the request, and returns what becomes JSON."""

T = TypeVar("T", bound=msgspec.Struct)

log = logger("web")


class Refusal(Exception):
    """A request that is refused with a status and a sentence for the person."""

    def __init__(self, status: int, detail: str) -> None:
        super().__init__(detail)
        self.status = status
        self.detail = detail


def answering(
    part: Part, visitors: Visitors, *, owner: bool = False, own_page: bool = False
) -> Callable[[Request], Awaitable[Response]]:
    """Return the handler of a route: it finds out who asks, lets in everybody or the `owner`, and
    answers with what `part` returns. With `own_page` a browser must be at this host itself: other
    pages may show settings, but not say where keys are sent."""

    async def handle(request: Request) -> Response:
        if own_page and ("origin" not in request.headers or not origin_allowed(request.headers, ())):
            return problem(403, "only the page itself may do that")
        principal = visitors.identify(request)
        if isinstance(principal, Response):
            return principal
        # Refused before it counts: who may not ask must learn nothing, not even by its rate.
        if owner and principal != OWNER:
            return problem(403, "only the owner of this installation may see that")
        if (refusal := visitors.admit(principal)) is not None:
            return refusal
        try:
            found = await part(principal, request)
        except Refusal as exc:
            return problem(exc.status, exc.detail)
        except (RedisAway, Refused):
            return problem(503, "the store cannot be read just now", {"Retry-After": "2"})
        except ReplyError as exc:
            log.warning("store refused", path=request.url.path, error=str(exc))
            return problem(503, "the store refuses that; an operator finds why in the log of the gateway")
        return Response(msgspec.json.encode(found), 200, HEADERS, "application/json")

    return handle


async def read_json(request: Request, kind: type[T], most_bytes: int, advice: str) -> T:
    """Return the body of a request. Raises Refusal, with `advice` for what is no such body."""
    if not 0 < (content_length(request) or 0) <= most_bytes:
        raise Refusal(413, f"at most {most_bytes:,} bytes, please")
    try:
        return msgspec.json.decode(await request.body(), type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError):
        raise Refusal(400, advice) from None
