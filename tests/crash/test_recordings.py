"""A worker killed around the text of a voice note."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest

from shared.crash_points import VARIABLE
from shared.media.store import MediaStore
from shared.messages.outbound import OutboundMessage
from shared.settings import MediaSettings
from shared.store.client.redis_client import RedisClient
from shared.store.delivery.outbox import Outbox
from shared.store.turns.inbox import Inbox
from tests.helpers.build import say
from tests.helpers.fleet import warm
from tests.helpers.fleet_fixtures import Spawn
from tests.helpers.media_files import OGG
from tests.helpers.openai_server import Answer, ScriptedOpenAI
from tests.helpers.wait import eventually

CHAT = "web:owner/a"


@pytest.mark.parametrize(("point", "asked"), [("before_ledger_effect", 2), ("after_ledger_effect", 1)])
async def test_a_note_is_shown_once_whoever_dies(
    client: RedisClient, spawn: Spawn, model: ScriptedOpenAI, tmp_path: Path, point: str, asked: int
) -> None:
    """SIGKILL: one line with the text, one reply, and no call again for a text that was stored."""
    armed, media = tmp_path / "crash", tmp_path / "media"
    worker = spawn(
        "worker", env={VARIABLE: str(armed)}, MODEL__CLIENT="direct", MEDIA__DIR=str(media), VOICE__MODEL="whisper",
        WORKSPACE__ROOT=str(tmp_path / "workspaces"),
    )  # fmt: skip
    await warm(worker)
    note = MediaStore(MediaSettings(dir=media)).put(CHAT, OGG, "voice.ogg")
    model.script(Answer(role="voice", text="Buy milk.", times=0), Answer(text="I will.", times=0))
    armed.write_text(f"{point} 1")
    await say(Inbox(client), "", chat="owner/a", media=(str(note),))
    await eventually(partial(_answered, client), within_s=30)
    await eventually(lambda: not armed.exists(), what="the death of the worker")
    assert [line.content for line in await _lines(client)] == [
        "You said: \N{LEFT DOUBLE QUOTATION MARK}Buy milk.\N{RIGHT DOUBLE QUOTATION MARK}",
        "I will.",
    ]
    requests = model.requests()
    voice = [request for request in requests if "file" in request.body]
    assert len(voice) == asked
    content = str(requests[-1].body["messages"][-1]["content"])
    assert "[it says:]\nBuy milk." in content
    assert "inbox/1-voice.ogg" in content


async def _lines(client: RedisClient) -> list[OutboundMessage]:
    found = await Outbox(client).read_after(CHAT, after=0)
    return [one.line for one in found if isinstance(one.line, OutboundMessage)]


async def _answered(client: RedisClient) -> bool:
    return any(line.in_reply_to for line in await _lines(client))
