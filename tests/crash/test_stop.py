"""/stop in every state of a turn, with a real worker: it ends long before what it is doing would, keeps what was said,
and never eats the next message. That it takes a second at most is for `proof.chaos.stops` to measure."""

from __future__ import annotations

from pathlib import Path

import pytest

from shared.messages.outbound import OutboundMessage
from shared.store import keys
from shared.store.client.redis_client import RedisClient
from shared.store.delivery.outbox import Outbox
from shared.store.turns.inbox import Inbox
from tests.helpers.build import say
from tests.helpers.fleet import warm, watching
from tests.helpers.fleet_fixtures import Spawn
from tests.helpers.openai_server import Answer, Call, ScriptedOpenAI
from tests.helpers.wait import eventually

TOOLS = Path(__file__).parents[1] / "helpers" / "crash_tools"
SESSION = "web:owner/a"
WITHIN_S = 25.0
"""The tool would sleep twice as long, and the others would never end."""


async def lines(client: RedisClient) -> list[OutboundMessage]:
    found = [one.line for one in await Outbox(client).read_after(SESSION, after=0)]
    return [one for one in found if isinstance(one, OutboundMessage)]


@pytest.mark.parametrize("state", ["stream", "hanging model", "tool", "retry", "queued"])
async def test_stop_reaches_a_turn_wherever_it_is(
    client: RedisClient, spawn: Spawn, model: ScriptedOpenAI, tmp_path: Path, state: str
) -> None:
    """Said twice, with a message behind it, and once more after the end: one turn is stopped, the next is answered."""
    answers = {
        "stream": Answer(match="first", text="one two three", delta_s=0.2, stall_after=2, times=0),
        "hanging model": Answer(match="first", fault="hang", times=0),
        "tool": Answer(match="first", calls=[Call("sleep", '{"word": "s"}')], text="let me see", times=0),
        "retry": Answer(match="first", status=503, times=0),
        "queued": Answer(match="first", text="never said", times=0),
    }
    model.script(Answer(match="next", text="answered", times=0), answers[state])
    inbox = Inbox(client)
    if state == "queued":
        await say(inbox, "first", id="x1")
        await say(inbox, "next", id="x2")
        assert await inbox.stop(SESSION) == 1
    worker = spawn("worker", env={"MARKS": str(tmp_path), "PYTHONPATH": str(TOOLS)}, MODEL__CLIENT="direct")
    await warm(worker)
    if state != "queued":
        await say(inbox, "first", id="x1")
        await eventually(lambda: model.requests(), within_s=60, what="the model call")
        if state == "tool":
            await eventually((tmp_path / "asleep").exists, within_s=60, what="the tool")
        if state == "stream":
            async with watching(client, SESSION) as seen:
                await eventually(lambda: any("two" in delta.text for delta in seen.deltas()), within_s=60)
        await say(inbox, "next", id="x2")
        assert await inbox.stop(SESSION, 1) == 1
        assert await inbox.stop(SESSION, 1) in (1, None), "twice"

        async def stopped() -> bool:
            return bool(await lines(client))

        await eventually(stopped, within_s=WITHIN_S)

    async def both() -> bool:
        return len(await lines(client)) == 2

    await eventually(both, within_s=60, what="the next message's answer")
    assert await inbox.stop(SESSION, 1) is None, "after its end it hits nobody"
    first, second = await lines(client)
    assert (first.kind, first.in_reply_to) == ("stopped", ("x1",))
    assert (second.kind, second.content, second.in_reply_to) == ("reply", "answered", ("x2",))
    if state == "stream":
        assert first.content.split() == ["one", "two"]
    if state == "tool":
        assert (tmp_path / "woken").read_text() == "cancelled", "the tool was cancelled, and could clean up"
    left = await client.command("HMGET", keys.session(SESSION), "stop", "taken", "cut")
    assert left == [None, None, None]
