"""Parts of the Matrix homeserver: what the bot said, answers to faults, answers."""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from html import unescape
from typing import Any

from aiohttp import web

from tests.fakes.http_platform import ScriptedFault


class FakeMessage:
    """What the bot said, as it stands."""

    def __init__(self, id: str, content: dict[str, Any]) -> None:
        self.id = id
        self.content = content
        self.file: bytes | None = None
        self.edits = 0

    @property
    def text(self) -> str:
        """As clients show it: of HTML, where there is some."""
        if self.file is not None:
            return ""
        html = self.content.get("formatted_body")
        if html is None:
            return str(self.content["body"])
        breaks = re.sub(r"<br ?/?>|</p>(?=.)|</li>|</h\d>", "\n", html)
        return unescape(re.sub(r"</?[a-z][^<>]*>", "", breaks)).strip()

    @property
    def markup(self) -> bool:
        return "<" in re.sub(r"</?(?:p|br)\b[^<>]*>", "", self.content.get("formatted_body", ""))

    @property
    def reply_to(self) -> str | None:
        relation = self.content.get("m.relates_to", {})
        if relation.get("is_falling_back"):
            return None
        id: str | None = relation.get("m.in_reply_to", {}).get("event_id")
        return id


def fault_answer(fault: ScriptedFault) -> web.Response:
    """Return what a homeserver answers for a fault."""
    match fault.kind:
        case "throttled" | "throttled bot":
            ms = int(fault.retry_after_s * 1000)
            return error(429, "M_LIMIT_EXCEEDED", "Too Many Requests", retry_after_ms=ms)
        case "refused":
            return error(400, "M_BAD_JSON", "Invalid event")
        case "too large":
            return error(413, "M_TOO_LARGE", "event too large")
        case "closed":
            return error(403, "M_FORBIDDEN", "User not in room")
        case "logged out":
            return error(401, "M_UNKNOWN_TOKEN", "Access token has expired", soft_logout=True)
        case "down":
            return web.Response(status=502, text="<html>Bad Gateway</html>", content_type="text/html")
    raise AssertionError(f"no answer for the fault {fault.kind!r}")


def merged(sent: Sequence[FakeMessage], content: dict[str, Any]) -> None:
    """An edit, as clients show it."""
    for one in sent:
        if one.id == content["m.relates_to"]["event_id"]:
            one.content = {**content["m.new_content"], "m.relates_to": one.content.get("m.relates_to", {})}
            one.edits += 1


def event_of(sent: FakeMessage, sender: str) -> dict[str, Any]:
    """A message of the bot as an event of its room."""
    whole = {"type": "m.room.message", "event_id": sent.id, "sender": sender, "content": sent.content}
    return {**whole, "origin_server_ts": int(time.time() * 1000)}


def error(status: int, code: str, text: str, **more: Any) -> web.Response:
    """The standard error response."""
    return web.json_response({"errcode": code, "error": text, **more}, status=status)


async def json_of(request: web.Request) -> dict[str, Any]:
    """The body of a call; none of ours is anything else."""
    body: dict[str, Any] = await request.json()
    assert isinstance(body, dict)
    return body
