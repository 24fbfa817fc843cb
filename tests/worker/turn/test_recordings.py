"""Voice notes: written down once, shown to the person, read by the model; a fault of the endpoint ends no turn."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
from structlog.testing import capture_logs

from shared.clock import SYSTEM_CLOCK
from shared.errors import ModelError
from shared.media.kinds import KINDS
from shared.media.reference import MediaRef
from shared.messages.outbound import OutboundMessage
from shared.messages.transcript import EffectEntry, decode_ledger
from shared.settings import ModelSettings, Secret
from shared.settings.sections.language_models import VoiceSettings
from shared.store import keys
from shared.store.client.redis_client import RedisClient
from shared.store.delivery.outbox import Outbox
from shared.store.turns.inbox import Inbox, InboxLimits
from shared.store.turns.queue import LeaseQueue
from shared.store.turns.turn_writes import Turns
from tests.helpers.build import say
from tests.helpers.media_files import OGG
from tests.helpers.openai_server import Answer, ScriptedOpenAI
from worker.lease.lease import Lease
from worker.llm.clients import voice_client
from worker.llm.clients.direct_client import CONNECTIONS
from worker.llm.clients.voice_client import TEXT_CHARS, VoiceClient
from worker.turn.journal import TurnJournal
from worker.turn.recordings import Recordings

NOTE = MediaRef("0" * 64, "ogg", len(OGG), "voice.ogg")


@pytest.fixture(scope="module")
def server() -> Iterator[ScriptedOpenAI]:
    with ScriptedOpenAI(in_thread=True) as server:
        yield server


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch, server: ScriptedOpenAI) -> None:
    monkeypatch.setattr(voice_client, "RETRY_WAITS_S", (0.0, 0.0))
    server.reset()


@pytest.fixture
async def listener(server: ScriptedOpenAI) -> AsyncIterator[VoiceClient]:
    yield voice_of(server)
    await CONNECTIONS.close()


def voice_of(server: ScriptedOpenAI, **voice: Any) -> VoiceClient:
    model = ModelSettings(api_base=server.base_url, api_key=Secret("sk-models"), headers={"X-Team": Secret("blue")})
    return VoiceClient(VoiceSettings(model="whisper", **voice), model)


def spoken(text: str = "", **more: Any) -> Answer:
    return Answer(role="voice", text=text, **more)


# The endpoint


async def test_a_recording_is_sent_as_openai_has_it(server: ScriptedOpenAI, listener: VoiceClient) -> None:
    """Without the sender's name for the file, at the model's address and with its key and headers."""
    server.script(spoken(" Buy milk. "))
    assert await listener.transcribe(NOTE, OGG) == "Buy milk."
    [request] = server.requests()
    assert request.body == {"model": "whisper", "response_format": "json", "file": len(OGG), "name": "recording.ogg"}
    assert request.headers["authorization"] == "Bearer sk-models"
    assert request.headers["x-team"] == "blue"


async def test_an_address_of_its_own_gets_only_its_own_key(server: ScriptedOpenAI) -> None:
    """What opens the model's provider is no business of another one."""
    server.script(spoken("a"), spoken("b"))
    await voice_of(server, api_base=server.base_url, language="de").transcribe(NOTE, OGG)
    await voice_of(server, api_base=server.base_url, api_key=Secret("sk-voice")).transcribe(NOTE, OGG)
    await CONNECTIONS.close()
    first, second = server.requests()
    assert "authorization" not in first.headers
    assert "x-team" not in first.headers
    assert first.body["language"] == "de"
    assert second.headers["authorization"] == "Bearer sk-voice"


async def test_a_fault_that_may_pass_is_met_twice_and_a_refusal_never(
    server: ScriptedOpenAI, listener: VoiceClient
) -> None:
    """Three calls at most."""
    server.script(spoken(status=429), spoken(status=503), spoken("at last"))
    assert await listener.transcribe(NOTE, OGG) == "at last"
    server.reset()
    server.script(spoken(status=401))
    with pytest.raises(ModelError, match="auth"):
        await listener.transcribe(NOTE, OGG)
    assert len(server.requests()) == 1
    server.script(spoken(status=500, times=0))
    with pytest.raises(ModelError):
        await listener.transcribe(NOTE, OGG)
    assert len(server.requests()) == 4


async def test_too_large_a_recording_is_not_sent_and_a_long_text_is_cut(server: ScriptedOpenAI) -> None:
    """`voice.file_mb`; and no endpoint fills a ledger."""
    small = voice_of(server, file_mb=1)
    with pytest.raises(ModelError, match=r"voice\.file_mb"):
        await small.transcribe(NOTE, b"x" * (1024 * 1024 + 1))
    assert server.requests() == []
    server.script(spoken("x" * (TEXT_CHARS + 1)))
    assert len(await small.transcribe(NOTE, OGG)) == TEXT_CHARS
    await CONNECTIONS.close()


# The step


class Turn:
    """A turn of one message that one worker after the other has."""

    def __init__(self, client: RedisClient) -> None:
        self._client = client

    async def begin(self) -> TurnJournal:
        queue = LeaseQueue(self._client, "turns", owner="w", lease_s=30)
        [claim] = await queue.acquire(1)
        assert claim.turn is not None
        ledger = [decode_ledger(record) for record in claim.turn.ledger]
        lease = Lease(claim, queue, claimed_at=SYSTEM_CLOCK.monotonic(), clock=SYSTEM_CLOCK, proxy=None)
        return TurnJournal(lease, Turns(self._client), ledger)


async def lines(client: RedisClient) -> list[OutboundMessage]:
    found = await Outbox(client).read_after("web:owner/a", after=0)
    return [one.line for one in found if isinstance(one.line, OutboundMessage)]


async def test_it_is_asked_for_once_and_shown_once(
    client: RedisClient, server: ScriptedOpenAI, listener: VoiceClient
) -> None:
    """The step has the text and its line; the worker that takes over reads it there."""
    server.script(spoken("Buy milk."))
    await say(Inbox(client), "", chat="owner/a")
    turn = Turn(client)
    journal = await turn.begin()
    assert await Recordings(listener, journal, True)(1, NOTE, OGG) == "\n[it says:]\nBuy milk."
    assert [(line.content, line.kind, line.turn) for line in await lines(client)] == [
        ("You said: \N{LEFT DOUBLE QUOTATION MARK}Buy milk.\N{RIGHT DOUBLE QUOTATION MARK}", "notice", 1)
    ]
    records = await client.command("XRANGE", keys.ledger("web:owner/a"), "-", "+")
    successor = TurnJournal(journal.lease, Turns(client), [decode_ledger(fields[1]) for _, fields in records])
    assert await Recordings(listener, successor, True)(1, NOTE, OGG) == "\n[it says:]\nBuy milk."
    assert len(server.requests()) == 1
    assert len(await lines(client)) == 1


async def test_silence_and_a_setting_show_nothing(
    client: RedisClient, server: ScriptedOpenAI, listener: VoiceClient
) -> None:
    """The step is there all the same."""
    server.script(spoken(""), spoken("quiet"))
    await say(Inbox(client), "", chat="owner/a")
    journal = await Turn(client).begin()
    assert await Recordings(listener, journal, True)(1, NOTE, OGG) == "\n[nothing is said in it]"
    other = MediaRef("1" * 64, "ogg", 3, "b.ogg")
    assert await Recordings(listener, journal, False)(1, other, OGG) == "\n[it says:]\nquiet"
    assert await lines(client) == []
    assert [entry.text for entry in journal.entries if isinstance(entry, EffectEntry)] == ["", "quiet"]


async def test_an_endpoint_that_is_away_ends_no_turn(
    client: RedisClient, server: ScriptedOpenAI, listener: VoiceClient
) -> None:
    """The agent tells the person; no step claims that there was nothing to be understood; no log has a word of it."""
    server.script(spoken(status=500, times=0))
    await say(Inbox(client), "", chat="owner/a")
    journal = await Turn(client).begin()
    with capture_logs() as logs:
        note = await Recordings(listener, journal, True)(1, NOTE, OGG)
    assert "could not be written down" in note
    assert journal.entries == []
    assert [entry["event"] for entry in logs] == ["recording not transcribed"]


async def test_what_waits_still_joins_behind_a_recording(
    client: RedisClient, server: ScriptedOpenAI, listener: VoiceClient
) -> None:
    """Two notes in a row are one turn, as two messages are: writing the first down is no beginning of an answer."""
    server.script(spoken("first"))
    inbox = Inbox(client, InboxLimits(busy="merge", merge_ms=0))
    await say(inbox, "", chat="owner/a")
    await say(inbox, "second", chat="owner/a")
    journal = await Turn(client).begin()
    await Recordings(listener, journal, True)(1, NOTE, OGG)
    assert [one.entry.content for one in await journal.claim()] == ["second"]


def test_recordings_are_those_kinds() -> None:
    assert {suffix for suffix, kind in KINDS.items() if kind.is_recording} == {
        "mp3", "ogg", "wav", "flac", "m4a", "webm",
    }  # fmt: skip
