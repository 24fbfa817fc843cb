"""What was said and done in a chat is found word for word, and brings its mark with it."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from shared.messages.codec import encode
from shared.messages.sources import Sources
from shared.messages.transcript import AssistantEntry, ToolCall, ToolEntry, TranscriptEntry, UserEntry
from shared.store import keys
from shared.store.client.redis_client import RedisClient
from shared.store.sessions.memory import MemoryStore
from shared.store.sessions.transcripts import Transcripts
from tests.helpers.clock import HandClock
from tests.helpers.remembering import NOON_MS, SESSION, put
from tests.helpers.scripted_model import call
from worker.agent.tools.tool import ToolContext, ToolOutcome
from worker.agent.tools.toolbox import Toolbox
from worker.guards.marks import TurnMark
from worker.tools.search_history import SearchHistory
from worker.turn.turn_agent import NOT_FOR_SUBAGENTS

TURN: list[TranscriptEntry] = [
    UserEntry(content="Which dentist did we call?\nAsk Ada.", turn=7, at=NOON_MS, sender_id="ada"),
    AssistantEntry(
        content=None, turn=7, tool_calls=(ToolCall("c1", "web_search", '{"query":"dentist Berlin"}'),), at=NOON_MS
    ),
    ToolEntry(call_id="c1", name="web_search", content="Dr. Molar, 030 123", turn=7, at=NOON_MS),
    AssistantEntry(content="Dr. Molar.", turn=7, at=NOON_MS),
]


async def searched(client: RedisClient, *, mark: TurnMark | None = None, **arguments: Any) -> ToolOutcome:
    more = {"clock": arguments.pop("clock")} if "clock" in arguments else {}
    context = ToolContext(session=SESSION, turn=9, call_id="c", mark_read=(mark or TurnMark()).add, **more)
    box = Toolbox([SearchHistory(Transcripts(client))], result_limit_bytes=10**6)
    return await box.call(call("search_history", arguments), context)


async def leave(client: RedisClient, entries: list[Any]) -> None:
    """Entries that have left the conversation."""
    await put(client, entries)
    memory = MemoryStore(client)
    read = await memory.read_unconsolidated(SESSION)
    assert await memory.consolidate(SESSION, read, take=len(entries), entry="They talked.")


async def test_an_entry_is_found_by_its_words_wherever_it_is(client: RedisClient) -> None:
    """In the transcript and in the conversation, the newest first, with tool calls, in any order and case."""
    await leave(client, TURN)
    await put(client, [UserEntry(content="The dentist again", turn=8, at=NOON_MS + 60_000)])
    found = (await searched(client, words="DENTIST")).content
    assert found.split("\n\n") == [
        "#8 [2026-06-21 12:01] USER: The dentist again",
        '#7 [2026-06-21 12:00] ASSISTANT [tools: web_search]:\n    web_search({"query":"dentist Berlin"})',
        "#7 [2026-06-21 12:00] USER ada: Which dentist did we call?\n    Ask Ada.",
    ]
    assert (await searched(client, words='"030 123" molar')).content.startswith("#7 [2026-06-21 12:00] TOOL")
    assert "was not found in what is kept" in (await searched(client, words="lawyer")).content


async def test_a_turn_is_shown_whole(client: RedisClient) -> None:
    """By the number that a result names; the rest of a long chat is not read for it."""
    await leave(client, [*TURN, UserEntry(content="x" * 3000, turn=8, at=NOON_MS)])
    found = (await searched(client, turn=7)).content
    assert found.count("#7 ") == 4
    assert len((await searched(client, turn=8)).content) > 3000
    assert "Turn 6 was not found" in (await searched(client, turn=6)).content


async def test_a_search_is_bounded_and_says_where_to_go_on(client: RedisClient) -> None:
    """By the number of results, and by time; a search from there finds the others."""
    for first in range(0, 1000, 250):
        await leave(client, [UserEntry(content=f"tea {n}", turn=n + 1, at=NOON_MS) for n in range(first, first + 250)])
    found = (await searched(client, words="tea", limit=5)).content
    assert found.split("\n\n")[4].endswith("tea 995")
    assert "195 more up to here" in found
    before = found.rpartition("before='")[2].removesuffix("']")
    assert (await searched(client, words="tea", limit=5, before=before)).content.split("\n\n")[0].endswith("tea 799")

    class Late(HandClock):
        def monotonic(self) -> float:
            self.at += 5
            return super().monotonic()

    slow = await searched(client, words="nothing", clock=Late())
    assert "older entries were not searched" in slow.content


@pytest.mark.parametrize(
    ("trusted", "marked"), [(0, ("example.org",)), (6, ("example.org",)), (7, ())], ids=["never", "before", "trusted"]
)
async def test_text_of_strangers_keeps_its_mark(client: RedisClient, trusted: int, marked: Sources) -> None:
    """A turn that finds it again is marked, also after `/new`, unless a person has trusted it; finding nothing of it
    marks nothing."""
    await leave(client, [TURN[0], *(replace(entry, sources=("example.org",)) for entry in TURN[1:])])
    await client.command("HSET", keys.session(SESSION), "trusted", trusted, "trusted_sources", "example.org")
    mark = TurnMark()
    await searched(client, words="Ask Ada", mark=mark)
    assert mark.sources == ()
    await searched(client, words="molar", mark=mark)
    assert mark.sources == marked


async def test_what_cannot_be_read_is_left_out_and_a_wrong_call_is_answered(client: RedisClient) -> None:
    """Records of a newer release, a page that is broken, a place that is none."""
    await put(client, TURN)
    await client.command("LPUSH", keys.history(SESSION), b"\xc1", encode(TURN[0])[:-3])
    assert (await searched(client, words="molar")).ok
    for wrong in ({"words": " "}, {"words": "a", "before": "page 3"}, {"words": "a", "limit": 0}):
        assert (await searched(client, **wrong)).outcome != "ok"


def test_a_subagent_does_not_search_the_conversation() -> None:
    """It has none: what it needs stands in its task."""
    assert SearchHistory.name in NOT_FOR_SUBAGENTS
