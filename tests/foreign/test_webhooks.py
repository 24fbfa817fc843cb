"""Webhooks as the official library of Standard Webhooks and OpenAI's client read and make them: `make foreign`."""

from __future__ import annotations

import asyncio
import json
from asyncio.subprocess import PIPE
from pathlib import Path
from typing import Any

from shared.store.responses.responses import Responses
from shared.store.sessions.requests import Requests
from tests.foreign import test_clients
from tests.gateway.webhooks.stage import SECRET, outgoing
from tests.gateway.webhooks.test_incoming import site
from tests.helpers.need import need


async def used(calls: list[Any], bodies: list[Any]) -> dict[str, Any]:
    """What the libraries make of our calls, and of bodies that they are to sign."""
    home = test_clients.HOME
    need("foreign clients", install="run `make foreign`", found=(home / ".stamp").exists())
    source = Path(__file__).with_name("use_webhooks.py")
    process = await asyncio.create_subprocess_exec(
        home / "bin" / "python", "-I", source, stdin=PIPE, stdout=PIPE, stderr=PIPE
    )
    asked = json.dumps({"secret": SECRET, "calls": calls, "bodies": bodies}).encode()
    output, errors = await process.communicate(asked)
    assert process.returncode == 0, errors.decode()[-3000:]
    found: dict[str, Any] = json.loads(output)
    return found


async def test_our_webhooks_are_verified_by_others(redis_url: str, tmp_path: Path) -> None:
    """Each kind of event; OpenAI's client gives those of responses the classes of its own."""
    async with outgoing(redis_url, tmp_path) as s, s.gateway():
        begun = await Requests(s.client).begin("ann", key=None, session=None, asked="h", stored=True)
        message = await s.say(begun.session, begun.ticket)
        assert await Responses(s.client).keep("ann", begun, 1, shown=b"{}", input=b"[]")
        await s.end(await s.claim(), [message.id])
        await s.turn(state="failed", kind="apology")
        calls = await s.program.called(3)
        found = await used([[asked.headers, asked.body.decode()] for asked in calls], [])
        types = ["turn.completed", "response.completed", "turn.failed"]
        assert found["verified"] == types
        assert [event[1:] for event in found["unwrapped"]] == list(map(list, zip(s.program.ids, types, strict=True)))
        assert found["unwrapped"][1][0] == "ResponseCompletedWebhookEvent"


async def test_webhooks_of_others_are_verified_by_us(redis_url: str) -> None:
    """Signed by the official library."""
    bodies = [["msg_1", '{"alert": {"title": "Ölstand"}}'], ["msg_2", "[]"]]
    found = await used([], bodies)
    async with site(redis_url) as s:
        for headers, (_, body) in zip(found["signed"], bodies, strict=True):
            assert await s.post("alerts", headers, body.encode()) == 202
            assert await s.post("alerts", headers, body.encode() + b" ") == 401
        assert len(await s.messages("web:ann/alerts")) == 2
