"""The page of a shared chat: what was said, for everybody who has the link, and nothing else."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import UTC, datetime
from html import escape
from typing import Final

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from gateway.channels.web.http.export import replaced_lines
from gateway.channels.web.http.media import MediaRouter
from gateway.channels.web.http.rates import PrincipalRates
from gateway.channels.web.http.responses import ProblemResponse, page_without_scripts, problem, problem_for_reader
from gateway.channels.web.renderer import MarkdownRenderer
from shared.clock import SYSTEM_CLOCK
from shared.errors import BadInput, RedisAway, Refused
from shared.ids import split_session
from shared.media.reference import MediaRef, read_file_name, read_reference
from shared.messages.outbound import UserLine
from shared.store.delivery.outbox import NumberedLine, Outbox
from shared.store.sessions.chats import Chats
from shared.store.sessions.shares import Share, Shares

LINES: Final = 1000
"""Of a chat, the newest, that its page shows."""

HEADERS: Final = {"Cache-Control": "private, no-store", "X-Robots-Tag": "noindex, nofollow"}
_ID: Final = re.compile(r"[A-Za-z0-9_-]{22}")
_SHOWN: Final = ("reply", "stopped")


class SharedChats:
    """The routes `GET /s/{id}` and `GET /s/{id}/{file}`, for everybody. Wrong, expired and ended
    links get one answer. `styles` is the address of the style sheet."""

    def __init__(
        self, shares: Shares, outbox: Outbox, chats: Chats, markdown: MarkdownRenderer, media: MediaRouter, styles: str
    ) -> None:
        self._shares = shares
        self._outbox = outbox
        self._chats = chats
        self._markdown = markdown
        self._media = media
        self._styles = styles
        self._rates = PrincipalRates(burst=20, per_s=2, clock=SYSTEM_CLOCK)

    def routes(self) -> list[BaseRoute]:
        return [
            Route("/s/{id}", self._page, methods=["GET"]),
            Route("/s/{id}/{file}", self._file, methods=["GET"]),
        ]

    async def _page(self, request: Request) -> Response:
        found = await self._find(request)
        if isinstance(found, ProblemResponse):
            return problem_for_reader(request, found, self._styles)
        share, title, lines = found
        parts = [await self._line(share, one) for one in lines]
        return Response(self._document(share, title, parts), 200, HEADERS, "text/html")

    async def _file(self, request: Request) -> Response:
        found = await self._find(request)
        if isinstance(found, Response):
            return found
        share, _, lines = found
        name = read_file_name(request.path_params["file"])
        # Only what a shown line names: a link is no way to the other files of the chat.
        refs = [ref for one in lines for ref in _files(one)]
        ref = next((one for one in refs if name == (one.digest, one.suffix)), None)
        return _gone() if ref is None else await self._media.send(share.session, ref)

    async def _find(self, request: Request) -> tuple[Share, str, list[NumberedLine]] | ProblemResponse:
        """Return the link, the chat's title and the lines that are shown, or the error."""
        id = request.path_params["id"]
        if not _ID.fullmatch(id):
            return _gone()
        try:
            share = await self._shares.of_id(id)
            if share is None:
                return _gone()
            # By link: whoever has one cannot keep the gateway busy for all others.
            if self._rates.try_acquire(share.id) > 0:
                return problem(429, "too many requests for this page", {"Retry-After": "1"})
            channel, chat_id = split_session(share.session)
            row = await self._chats.row(channel, chat_id.partition("/")[0], chat_id)
            # Its person may still undo that they deleted it.
            if row is None:
                return _gone()
            lines = await self._outbox.read_before(share.session, seq=share.seq + 1, limit=LINES)
        except (RedisAway, Refused):
            return problem(503, "the chat cannot be read just now", {"Retry-After": "2"})
        replaced = replaced_lines(lines)
        return share, row.title or "Chat", [one for one in lines if one.seq not in replaced and _is_shown(one)]

    async def _line(self, share: Share, numbered: NumberedLine) -> str:
        line = numbered.line
        if isinstance(line, UserLine):
            who = "Person"
            kind = "own"
            html = f'<p class="text">{escape(line.text)}</p>' if line.text else ""
        else:
            who = "Shoal"
            kind = "reply"
            html = await self._markdown.html_soon(line.content, share.id)
        files = "".join(_file_html(share.id, ref) for ref in _files(numbered))
        media = f'<div class="media">{files}</div>' if files else ""
        body = f'{media}<div class="body" dir="auto">{html}</div>'
        return f'<article class="card {kind}" aria-label="{who}">{body}</article>'

    def _document(self, share: Share, title: str, parts: Sequence[str]) -> str:
        until = datetime.fromtimestamp(share.until_ms / 1000, UTC)
        name = escape(title)
        cards = "\n".join(parts)
        note = f"A chat that was shared, to be read only, until {until:%d %B %Y}. It may have been longer."
        header = f'  <header><h1>{name}</h1><p class="muted">{note}</p></header>'
        return page_without_scripts(name, self._styles, f'{header}\n  <div id="transcript">\n{cards}\n  </div>')


def _is_shown(numbered: NumberedLine) -> bool:
    """Tell whether a line is one of the conversation: no question for an approval, no command."""
    line = numbered.line
    if isinstance(line, UserLine):
        return not line.text.startswith("/")
    spoken = line.kind in _SHOWN or line.sent_by_tool
    return spoken and line.approval is None and bool(line.content or line.media)


def _files(numbered: NumberedLine) -> list[MediaRef]:
    found = []
    for one in numbered.line.media:
        try:
            found.append(read_reference(one))
        except BadInput:
            continue
    return found


def _file_html(id: str, ref: MediaRef) -> str:
    path = f"/s/{id}/{ref.file}"
    name = escape(ref.name)
    if ref.kind.is_image:
        return f'<a class="picture" href="{path}"><img src="{path}" alt="{name}" loading="lazy"></a>'
    return f'<a class="file" href="{path}"><span class="name">{name}</span></a>'


def _gone() -> ProblemResponse:
    return problem(404, "nothing is shared under this link, or not any more")
