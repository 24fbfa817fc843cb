"""Answers by voice: a recording goes with the text where a person spoke and wants it; else the text goes alone."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from structlog.testing import capture_logs

from shared.media.reference import read_reference
from shared.media.store import MediaStore
from shared.messages.inbound import InboundMessage
from shared.settings import MediaSettings, ModelSettings, Secret
from shared.settings.sections.language_models import VoiceSettings
from tests.helpers.build import message
from tests.helpers.media_files import OGG, png
from tests.helpers.openai_server import Answer, ScriptedOpenAI
from worker.agent.model.model import TokenUsage
from worker.agent.turn import AgentResult
from worker.llm.clients import voice_client
from worker.llm.clients.direct_client import CONNECTIONS
from worker.llm.clients.voice_client import SPEECH_CHARS, VoiceClient
from worker.turn.spoken_answer import SpokenAnswer, speakable

SESSION = "web:owner/a"
DONE = AgentResult(content="It is late.", entries=(), rounds=1, usage=TokenUsage())


@pytest.fixture(scope="module")
def server() -> Iterator[ScriptedOpenAI]:
    with ScriptedOpenAI(in_thread=True) as server:
        yield server


@pytest.fixture(autouse=True)
async def at_once(monkeypatch: pytest.MonkeyPatch, server: ScriptedOpenAI) -> AsyncIterator[None]:
    monkeypatch.setattr(voice_client, "RETRY_WAITS_S", (0.0, 0.0))
    server.reset()
    yield
    await CONNECTIONS.close()


@pytest.fixture
def media(tmp_path: Path) -> MediaStore:
    return MediaStore(MediaSettings(dir=tmp_path))


@pytest.fixture
def spoken(server: ScriptedOpenAI, media: MediaStore) -> SpokenAnswer:
    model = ModelSettings(api_base=server.base_url, api_key=Secret("sk-models"))
    return SpokenAnswer(VoiceClient(VoiceSettings(speaker="tts", speaker_voice="nova"), model), media, SESSION, "ogg")


@pytest.fixture
def note(media: MediaStore) -> InboundMessage:
    return replace(message(""), media=(str(media.put(SESSION, OGG, "voice.ogg")),))


def speech(recording: bytes = OGG, **more: int) -> Answer:
    return Answer(role="speech", text=recording.decode("latin-1"), **more)  # type: ignore[arg-type]


async def test_a_recording_is_answered_by_one(
    server: ScriptedOpenAI, spoken: SpokenAnswer, media: MediaStore, note: InboundMessage
) -> None:
    """Asked for as OpenAI has it; kept among the chat's files and named by the reply."""
    server.script(speech())
    result = await spoken.add_to(DONE, [note], "It is **late**.")
    [request] = server.requests()
    assert request.body == {"model": "tts", "voice": "nova", "input": "It is late.", "response_format": "opus"}
    assert request.headers["authorization"] == "Bearer sk-models"
    [reference] = result.media
    ref = read_reference(reference)
    assert (ref.name, ref.kind.media_type) == ("answer.ogg", "audio/ogg")
    assert media.read(SESSION, ref) == OGG
    assert replace(result, media=()) == DONE


@pytest.mark.parametrize(
    ("result", "text"),
    [
        pytest.param(DONE, "```\nprint()\n```", id="nothing to say"),
        pytest.param(replace(DONE, outcome="budget"), "half of it", id="not whole"),
    ],
)
async def test_nothing_is_asked_for_without_something_to_say(
    server: ScriptedOpenAI, spoken: SpokenAnswer, note: InboundMessage, result: AgentResult, text: str
) -> None:
    assert await spoken.add_to(result, [note], text) == result
    assert server.requests() == []


async def test_a_written_message_is_answered_in_writing(
    server: ScriptedOpenAI, spoken: SpokenAnswer, media: MediaStore
) -> None:
    """A picture is no recording, and a damaged reference none of anything."""
    picture = replace(
        message("hello"), media=(str(media.put(SESSION, png(), "a.png")), "media:broken", "http://x/a.ogg")
    )
    assert await spoken.add_to(DONE, [picture, message("more")], "hello") == DONE
    assert server.requests() == []


@pytest.mark.parametrize(
    ("answer", "kind", "requests"),
    [
        pytest.param(speech(status=503, times=0), "overloaded", 3, id="away"),
        pytest.param(speech(status=401), "auth", 1, id="refused"),
        pytest.param(speech(b"no recording"), "bad_reply", 1, id="a text"),
        pytest.param(speech(b"\x7fELF\0"), "file_refused", 1, id="a program"),
    ],
)
async def test_an_answer_that_cannot_be_spoken_stays_a_text(
    server: ScriptedOpenAI, spoken: SpokenAnswer, note: InboundMessage, answer: Answer, kind: str, requests: int
) -> None:
    """No log has a word of it."""
    server.script(answer)
    with capture_logs() as logs:
        assert await spoken.add_to(DONE, [note], "secret words") == DONE
    assert [(entry["event"], entry["kind"]) for entry in logs] == [("answer not spoken", kind)]
    assert "secret" not in str(logs)
    assert len(server.requests()) == requests


async def test_a_full_volume_costs_the_recording_alone(
    server: ScriptedOpenAI, spoken: SpokenAnswer, note: InboundMessage, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    server.script(speech())
    monkeypatch.setattr(spoken.media, "put", full)
    assert await spoken.add_to(DONE, [note], "words") == DONE


async def test_a_long_answer_is_spoken_to_its_limit(
    server: ScriptedOpenAI, spoken: SpokenAnswer, note: InboundMessage
) -> None:
    server.script(speech())
    await spoken.add_to(DONE, [note], "word " * SPEECH_CHARS)
    assert len(server.requests()[0].body["input"]) == SPEECH_CHARS


@pytest.mark.parametrize(
    ("markdown", "words"),
    [
        ("# Title\n\nSome **bold _and_ italic**, `code`.", "Title\n\nSome bold _and_ italic, code."),
        ("- one\n- [x] two\n> quoted", "one\ntwo\nquoted"),
        ("See [the docs](https://example.com/a) or https://example.com.", "See the docs or"),
        ("before\n```python\nx = 1\n```\nafter", "before\n\nafter"),
        ("an open fence\n```\nx = 1", "an open fence"),
        ("| a | b |\n|---|---|\n| 1 | 2 |", "a   b  \n\n  1   2"),
        ("2 * 3 * 4 and snake_case_name", "2 * 3 * 4 and snake_case_name"),
    ],
)
def test_marks_are_not_read_aloud(markdown: str, words: str) -> None:
    assert speakable(markdown) == words


@given(st.text(alphabet="ab *_`~#>|-[]()\n:/h", max_size=300))
def test_any_text_can_be_spoken(markdown: str) -> None:
    """And gets no longer by it."""
    assert len(speakable(markdown)) <= len(markdown)
