"""Export of a chat for its person: every line that is kept, as Markdown or JSON."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import UTC, datetime
from typing import Any, Final
from urllib.parse import quote

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from gateway.channels.web.http.own_chat import HEADERS, OwnChats, away
from gateway.channels.web.http.responses import problem
from shared.errors import BadInput, RedisAway, Refused
from shared.media.reference import read_reference
from shared.messages.outbound import UserLine
from shared.store.delivery.outbox import NumberedLine, Outbox

BATCH: Final = 500
_TYPES: Final = {"md": "text/markdown; charset=utf-8", "json": "application/json"}


class ExportRouter:
    """The route `GET /export/{chat}?format=md|json`. A principal exports only their own chats."""

    def __init__(self, outbox: Outbox, own: OwnChats) -> None:
        self._outbox = outbox
        self._own = own

    async def export(self, request: Request) -> Response:
        """Handle the request."""
        form = request.query_params.get("format", "md")
        if form not in _TYPES:
            return problem(404, "there is /export/<chat>?format=md and ?format=json")
        own = await self._own.find(request)
        if isinstance(own, Response):
            return own
        try:
            lines = await self._read_all(own.session)
        except (RedisAway, Refused):
            return away()
        title = own.title or "Chat"
        body = _json(own.chat, title, lines) if form == "json" else _markdown(title, lines)
        name = quote(f"{title[:60]}.{form}", safe="")
        disposition = {"Content-Disposition": f"attachment; filename*=UTF-8''{name}"}
        return Response(body, 200, {**HEADERS, **disposition}, _TYPES[form])

    async def _read_all(self, session: str) -> list[NumberedLine]:
        batches: list[list[NumberedLine]] = []
        before: int | None = None
        while lines := await self._outbox.read_before(session, seq=before, limit=BATCH):
            batches.append(lines)
            before = lines[0].seq
        return [line for batch in reversed(batches) for line in batch]


def replaced_lines(lines: Sequence[NumberedLine]) -> set[int]:
    """Return the numbers of the lines in whose place a later message and its answer came."""
    turns = {one.line.replaces for one in lines if isinstance(one.line, UserLine)} - {0}
    ended = [one for one in lines if not isinstance(one.line, UserLine) and one.line.turn in turns]
    asked = {id for one in ended if not isinstance(one.line, UserLine) for id in one.line.in_reply_to}
    own = {one.seq for one in lines if isinstance(one.line, UserLine) and one.line.id in asked}
    return own | {one.seq for one in ended}


def _fields(replaced: Collection[int], numbered: NumberedLine) -> dict[str, Any]:
    line = numbered.line
    own = isinstance(numbered.line, UserLine)
    text = line.text if isinstance(line, UserLine) else line.content
    kind = "message" if isinstance(line, UserLine) else "approval" if line.approval else line.kind
    about: dict[str, Any] = {"seq": numbered.seq, "at": line.at, "from": "person" if own else "agent"}
    if numbered.seq in replaced:
        about["replaced"] = True
    if not isinstance(line, UserLine) and line.kind == "command" and line.turn:
        about["ended"] = True  # only a command that ends the conversation has the number of a turn
    return {**about, "kind": kind, "text": text, "files": [_file_name(one) for one in line.media]}


def _file_name(reference: str) -> str:
    try:
        return read_reference(reference).name
    except BadInput:
        return "file"


def _json(chat: str, title: str, lines: Sequence[NumberedLine]) -> bytes:
    replaced = replaced_lines(lines)
    document = {"kind": "shoal chat", "version": 1, "chat": chat, "title": title}
    return msgspec.json.format(
        msgspec.json.encode({**document, "lines": [_fields(replaced, one) for one in lines]}), indent=2
    )


def _markdown(title: str, lines: Sequence[NumberedLine]) -> bytes:
    parts = [f"# {title}"]
    replaced = replaced_lines(lines)
    for fields in (_fields(replaced, one) for one in lines):
        if not fields["text"].strip() and not fields["files"]:
            continue  # it only ended a turn
        who = "You" if fields["from"] == "person" else "Shoal"
        at = datetime.fromtimestamp(fields["at"] / 1000, UTC)
        parts.append(f"## {who}, {at:%Y-%m-%d %H:%M} UTC{', replaced' if fields.get('replaced') else ''}")
        parts += [fields["text"]] if fields["text"].strip() else []
        parts += [f"*File: {name}*" for name in fields["files"]]
        parts += ["---", "*New conversation*"] if fields.get("ended") else []
    return "\n\n".join(parts).encode() + b"\n"
