"""From conversations to memory: pieces, races, models that fail. A real Valkey, a scripted model."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any

import pytest
from msgspec.structs import replace

from shared.errors import ModelError, SettingsError
from shared.messages.codec import encode
from shared.messages.transcript import UserEntry
from shared.metrics import CONSOLIDATIONS
from shared.settings import MemorySettings
from shared.store import keys
from shared.store.client.redis_client import RedisClient
from shared.store.fleet.spending import Spending
from shared.store.sessions import erase
from shared.store.sessions.memory import (
    MemoryChanged,
    MemoryStore,
    MemoryText,
    UnconsolidatedCounts,
    about_scope,
    soul_scope,
)
from tests.helpers.clock import HandClock
from tests.helpers.remembering import NOON_MS, SCOPE, SESSION, command, fill, plain_turn, put, tool_turn
from tests.helpers.scripted_model import Replies, Reply, ScriptedModel, call, calls
from worker.agent.model.model import LLMResponse, ModelRequest, OnDelta, TokenUsage
from worker.memory.consolidator import RAW_CHARS, SWAPS, Consolidator, check_dream, prompt
from worker.memory.pieces import read_entries

AWAY = ModelError("overloaded", "busy", retryable=True)
REFUSED = ModelError("bad_request", "no", retryable=False)


def save(entry: str = "They talked.", memory: str | None = None) -> LLMResponse:
    arguments = {"history_entry": entry} | ({} if memory is None else {"memory_update": memory})
    return calls(call("save_memory", arguments))


def consolidator(client: RedisClient, model: ScriptedModel, **options: Any) -> Consolidator:
    settings = options.pop("settings", MemorySettings())
    memory = options.pop("memory", MemoryStore(client))
    return Consolidator(memory, model, settings, clock=HandClock(NOON_MS / 1000), **options)


def asked(model: ScriptedModel, at: int = -1) -> str:
    """What the model was told, in one of its calls."""
    return str(model.asked[at][1]["content"])


def outcome(name: str) -> float:
    return float(CONSOLIDATIONS.labels(name)._value.get())


class Meddled(ScriptedModel):
    """Lets something else happen while the model thinks, each time it is asked."""

    def __init__(self, replies: Replies, *meddling: Callable[[], Awaitable[object]]) -> None:
        super().__init__(replies)
        self._meddling = list(meddling)

    async def chat(self, request: ModelRequest, on_delta: OnDelta | None = None) -> LLMResponse:
        reply = await super().chat(request)
        if self._meddling:
            await self._meddling.pop(0)()
        return reply


async def test_a_long_conversation_keeps_its_newest_entries(client: RedisClient) -> None:
    """The rest becomes an entry of HISTORY.md and a MEMORY.md, made of the lines and the old notes."""
    memory, model = MemoryStore(client), ScriptedModel([save("Old things.", "- likes tea")])
    entries = await fill(client, 50)
    before = outcome("memory")
    await consolidator(client, model, timezone="Europe/Berlin").consolidate(SESSION, 50)
    left = await memory.read_unconsolidated(SESSION)
    assert list(left.entries) == [encode(entry) for entry in entries[50:]]
    assert await memory.read_log(SCOPE) == ["[2026-06-21 14:25] Old things."]
    assert (await memory.read_memory(SCOPE)).text == "- likes tea"
    assert model.asked[0][0]["content"] == prompt("consolidate")
    assert "<memory>\n(nothing yet)\n</memory>" in asked(model)
    assert "[2026-06-21 14:01] USER: question 1\n" in asked(model)
    assert "answer 25\n</conversation>" in asked(model)
    assert "question 26" not in asked(model)
    assert outcome("memory") == before + 1


async def test_a_conversation_that_is_short_enough_costs_no_call(client: RedisClient) -> None:
    """Nothing goes, nothing is asked."""
    await fill(client, 25)
    await consolidator(client, ScriptedModel([])).consolidate(SESSION, 50)
    await consolidator(client, ScriptedModel([])).archive(SESSION)
    assert await MemoryStore(client).count_unconsolidated(SESSION) == UnconsolidatedCounts(50, 0)


async def test_a_memory_that_did_not_change_is_not_written(client: RedisClient) -> None:
    """Its version stays, so that nobody else's change is refused because of us."""
    memory = MemoryStore(client)
    version = await memory.write_memory(SCOPE, "- likes tea\n", version="0")
    await fill(client, 5)
    await consolidator(client, ScriptedModel([save(memory="- likes tea")])).consolidate(SESSION, 0)
    assert (await memory.read_memory(SCOPE)).version == version
    assert len(await memory.read_log(SCOPE)) == 1


async def test_a_memory_is_never_emptied_by_its_model(client: RedisClient) -> None:
    """An empty update is a mistake; the entry is written all the same."""
    memory = MemoryStore(client)
    await memory.write_memory(SCOPE, "- likes tea", version="0")
    await fill(client, 5)
    await consolidator(client, ScriptedModel([save(memory="")])).consolidate(SESSION, 0)
    assert (await memory.read_memory(SCOPE)).text == "- likes tea"
    assert await memory.count_unconsolidated(SESSION) == UnconsolidatedCounts(0, 0)


async def test_a_memory_over_its_limit_stays_as_it_was(client: RedisClient) -> None:
    """One try to have it shortened, then the entry alone."""
    memory = MemoryStore(client)
    await memory.write_memory(SCOPE, "- likes tea", version="0")
    await fill(client, 5)
    model = ScriptedModel([save("One.", "x" * 2000), save("Two.", "x" * 1500)])
    before = outcome("refused")
    await consolidator(client, model, settings=MemorySettings(file_bytes=1024)).consolidate(SESSION, 0)
    assert (await memory.read_memory(SCOPE)).text == "- likes tea"
    assert await memory.read_log(SCOPE) == ["[2026-06-21 12:05] One."]
    assert outcome("refused") == before + 1


async def test_a_very_long_conversation_goes_in_pieces_that_fit_the_model(client: RedisClient) -> None:
    """Each within its size, each on top of the notes of the one before, together the whole."""
    for n in range(1, 13):
        await put(client, plain_turn(n, f"q{n} " + "x" * 1500))
    seen: list[str] = []

    def reply(messages: list[dict[str, Any]]) -> Reply:
        seen.append(messages[1]["content"])
        return save(f"Part {len(seen)}.", f"- part {len(seen)}")

    await consolidator(client, ScriptedModel(reply), context_tokens=8192).consolidate(SESSION, 4)
    assert len(seen) == 5
    assert all(len(text) < 4300 for text in seen)
    assert "- part 4" in seen[-1]
    assert [n for n in range(1, 13) if any(f"USER: q{n} " in text for text in seen)] == list(range(1, 11))
    memory = MemoryStore(client)
    assert len(await memory.read_log(SCOPE)) == 5
    assert await memory.count_unconsolidated(SESSION) == UnconsolidatedCounts(4, 0)


async def test_a_conversation_too_long_for_the_model_is_asked_about_in_smaller_pieces(client: RedisClient) -> None:
    """The estimate of its size was wrong, as it is for some languages; nothing is kept raw because of that."""
    for n in range(1, 9):
        await put(client, plain_turn(n, "字" * 5000))

    def reply(messages: list[dict[str, Any]]) -> Reply:
        return ModelError("context_length", "too long", retryable=False) if len(str(messages)) > 15_000 else save()

    model = ScriptedModel(reply)
    await consolidator(client, model).consolidate(SESSION, 0)
    memory = MemoryStore(client)
    assert await memory.count_unconsolidated(SESSION) == UnconsolidatedCounts(0, 0)
    assert not any("[RAW]" in entry for entry in await memory.read_log(SCOPE))
    assert len(await memory.read_log(SCOPE)) == 4


@pytest.mark.parametrize("reply", [REFUSED, "I cannot call tools."])
async def test_text_that_no_model_can_sum_up_is_kept_raw(client: RedisClient, reply: Reply) -> None:
    """A fault for good, or three bad replies: the lines go into HISTORY.md, all of them, and the mark goes on."""
    for n in range(1, 21):
        await put(client, plain_turn(n, f"q{n} " + "x" * 2000))
    model = ScriptedModel(lambda _: reply)
    await consolidator(client, model).consolidate(SESSION, 0)
    memory = MemoryStore(client)
    log = await memory.read_log(SCOPE)
    assert len(log) == 3
    assert all(entry.startswith("[2026-06-21 12:") and "] [RAW] [2026-06-21 12:" in entry for entry in log)
    assert all(len(entry) < RAW_CHARS + 100 for entry in log)
    assert [n for n in range(1, 21) if f"USER: q{n} " in "\n".join(log)] == list(range(1, 21))
    assert await memory.count_unconsolidated(SESSION) == UnconsolidatedCounts(0, 0)
    assert len(model.asked) == (1 if reply is REFUSED else 3), "not asked again about what it could not do"


async def test_a_huge_message_is_kept_raw_without_its_middle(client: RedisClient) -> None:
    """A sensible size, and a note of what is missing."""
    await put(client, plain_turn(1, "a" * 100_000))
    await consolidator(client, ScriptedModel(lambda _: REFUSED)).consolidate(SESSION, 0)
    [entry] = await MemoryStore(client).read_log(SCOPE)
    assert len(entry) < RAW_CHARS + 200
    assert "answer 1" in entry
    assert "…" in entry or "left out here" in entry


@pytest.mark.parametrize("kind", ["overloaded", "auth"])
async def test_a_model_that_is_away_leaves_the_conversation_untouched(client: RedisClient, kind: str) -> None:
    """It goes up, for another try later. A key that is not accepted says nothing about the conversation either."""
    await fill(client, 50)
    fault = ModelError(kind, "away", retryable=kind != "auth")
    with pytest.raises(ModelError):
        await consolidator(client, ScriptedModel([fault])).consolidate(SESSION, 50)
    memory = MemoryStore(client)
    assert await memory.count_unconsolidated(SESSION) == UnconsolidatedCounts(100, 0)
    assert await memory.read_log(SCOPE) == []
    await consolidator(client, ScriptedModel([fault])).consolidate(SESSION, 50, patient=False)
    assert await memory.count_unconsolidated(SESSION) == UnconsolidatedCounts(50, 0)
    assert "[RAW]" in (await memory.read_log(SCOPE))[0]


async def test_a_job_that_is_run_again_goes_on_behind_what_it_did(client: RedisClient) -> None:
    """The model went away between two pieces."""
    for n in range(1, 7):
        await put(client, plain_turn(n, "x" * 3000))
    with pytest.raises(ModelError):
        await consolidator(client, ScriptedModel([save("One."), AWAY]), context_tokens=8192).consolidate(SESSION, 0)
    memory = MemoryStore(client)
    assert await memory.count_unconsolidated(SESSION) == UnconsolidatedCounts(10, 0)
    await consolidator(client, ScriptedModel(lambda _: save("More.")), context_tokens=8192).consolidate(SESSION, 0)
    assert await memory.count_unconsolidated(SESSION) == UnconsolidatedCounts(0, 0)
    assert len(await memory.read_log(SCOPE)) == 6


async def test_an_edit_in_between_is_kept_and_the_summary_made_anew(client: RedisClient) -> None:
    """The loser of a race redoes its update on the new text."""
    memory = MemoryStore(client)
    await fill(client, 5)

    async def edit() -> None:
        await memory.write_memory(SCOPE, "- by hand", version=(await memory.read_memory(SCOPE)).version)

    model = Meddled([save("First.", "- likes tea"), save("Second.", "- by hand\n- likes tea")], edit)
    await consolidator(client, model).consolidate(SESSION, 0)
    assert "<memory>\n- by hand\n</memory>" in asked(model)
    assert (await memory.read_memory(SCOPE)).text == "- by hand\n- likes tea"
    assert await memory.read_log(SCOPE) == ["[2026-06-21 12:05] Second."]


async def test_a_memory_that_never_rests_sends_the_job_to_later(client: RedisClient) -> None:
    """After a few rounds; the conversation is untouched."""
    memory = MemoryStore(client)
    await fill(client, 5)

    async def edit() -> None:
        old = await memory.read_memory(SCOPE)
        await memory.write_memory(SCOPE, old.text + "x", version=old.version)

    model = Meddled(lambda _: save(memory="- mine"), *[edit] * SWAPS)
    with pytest.raises(MemoryChanged):
        await consolidator(client, model).consolidate(SESSION, 0)
    assert (await memory.read_memory(SCOPE)).text == "x" * SWAPS
    assert await memory.count_unconsolidated(SESSION) == UnconsolidatedCounts(10, 0)


@pytest.mark.parametrize("edited", [False, True])
async def test_two_workers_at_once_lose_nothing_and_write_nothing_twice(client: RedisClient, edited: bool) -> None:
    """One does a piece, the other finds it gone; also when somebody edits MEMORY.md while both think."""
    memory = MemoryStore(client)
    await fill(client, 20)

    async def other() -> None:
        if edited:
            await memory.write_memory(SCOPE, "- by hand", version="0")
        theirs = ScriptedModel([save("Theirs.", "- theirs")])
        await consolidator(client, theirs).consolidate(SESSION, 10)

    model = Meddled([save("Ours.", "- ours")], other)
    before = outcome("gone")
    await consolidator(client, model).consolidate(SESSION, 10)
    assert await memory.read_log(SCOPE) == ["[2026-06-21 12:15] Theirs."]
    assert (await memory.read_memory(SCOPE)).text == "- theirs"
    assert await memory.count_unconsolidated(SESSION) == UnconsolidatedCounts(10, 0)
    assert outcome("gone") == before + 1


async def test_two_workers_with_different_cuts_take_each_entry_once(client: RedisClient) -> None:
    """The other took less than ours would have: we go on behind it, from what is there then."""
    memory = MemoryStore(client)
    await fill(client, 20)

    async def other() -> None:
        await consolidator(client, ScriptedModel([save("Theirs.")])).consolidate(SESSION, 30)

    model = Meddled([save("Wasted."), save("Ours.")], other)
    await consolidator(client, model).consolidate(SESSION, 10)
    assert await memory.read_log(SCOPE) == ["[2026-06-21 12:05] Theirs.", "[2026-06-21 12:15] Ours."]
    assert "question 5" not in asked(model)
    assert "question 6" in asked(model)
    assert await memory.count_unconsolidated(SESSION) == UnconsolidatedCounts(10, 0)


async def test_two_workers_side_by_side(client: RedisClient) -> None:
    """In whatever order their calls come: each entry is in one piece that was written."""
    memory = MemoryStore(client)
    await fill(client, 30)
    gate = asyncio.Barrier(2)

    def model(name: str) -> ScriptedModel:
        async def together() -> None:
            await gate.wait()

        return Meddled(lambda _: save(name, f"- {name}"), together)

    ours, theirs = model("ours"), model("theirs")
    await asyncio.gather(
        consolidator(client, ours).consolidate(SESSION, 10), consolidator(client, theirs).consolidate(SESSION, 10)
    )
    assert len(await memory.read_log(SCOPE)) == 1
    assert await memory.count_unconsolidated(SESSION) == UnconsolidatedCounts(10, 0)


@pytest.mark.parametrize("change", ["new", "forget"])
async def test_a_command_in_the_middle_ends_the_consolidation_of_what_it_took(client: RedisClient, change: Any) -> None:
    """`/new`: the archive has it all and is consolidated from there. `/forget`: nothing of it comes back."""
    memory = MemoryStore(client)
    await fill(client, 20)

    async def meddle() -> None:
        await command(client, change)
        await put(client, [UserEntry(content="afterwards", turn=21)])

    model = Meddled([save("Late.", "- late")], meddle)
    await consolidator(client, model).consolidate(SESSION, 10)
    assert await memory.read_log(SCOPE) == []
    assert (await memory.read_memory(SCOPE)).text == ""
    assert await memory.count_unconsolidated(SESSION) == UnconsolidatedCounts(1, 40 if change == "new" else 0)
    if change == "new":
        await consolidator(client, ScriptedModel([save("Archived.")])).archive(SESSION)
        assert await memory.read_log(SCOPE) == ["[2026-06-21 12:20] Archived."]


async def test_forget_in_the_middle_of_archiving_brings_nothing_back(client: RedisClient) -> None:
    """Neither entry nor memory, also in a scope that had a memory before."""
    memory = MemoryStore(client)
    await memory.write_memory(SCOPE, "- secret", version="0")
    await fill(client, 5)
    await command(client, "new")

    async def forget() -> None:
        await command(client, "forget")

    await consolidator(client, Meddled([save("Late.", "- secret and more")], forget)).archive(SESSION)
    assert await memory.read_log(SCOPE) == []
    assert (await memory.read_memory(SCOPE)).text == ""
    assert await memory.count_unconsolidated(SESSION) == UnconsolidatedCounts(0, 0)


async def test_archiving_goes_on_until_nothing_is_left(client: RedisClient) -> None:
    """Also with what another `/new` adds meanwhile; the conversation that goes on is not touched."""
    memory = MemoryStore(client)
    await fill(client, 3)
    await command(client, "new")
    await fill(client, 2)

    async def again() -> None:
        await command(client, "new")
        await fill(client, 1)

    await consolidator(client, Meddled([save("One."), save("Two.")], again)).archive(SESSION)
    assert await memory.count_unconsolidated(SESSION) == UnconsolidatedCounts(2, 0)
    assert len(await memory.read_log(SCOPE)) == 2


async def test_turns_with_tools_stay_whole(client: RedisClient) -> None:
    """What stays begins with a message, and every piece has its calls with their results."""
    for n in range(1, 10):
        await put(client, tool_turn(n, rounds=3))
    model = ScriptedModel(lambda _: save())
    await consolidator(client, model).consolidate(SESSION, 20)
    left = await MemoryStore(client).read_unconsolidated(SESSION)
    assert len(left.entries) == 24
    assert left.entries[0] == encode(tool_turn(7)[0])
    assert asked(model).count("[tools: calculate]:\n") == asked(model).count("TOOL [tools: calculate]: result") == 18


async def test_a_conversation_longer_than_one_reading_is_done_to_the_end(client: RedisClient) -> None:
    """2,000 entries are read at once; the rest follows."""
    for start in range(1, 1502, 500):
        await fill(client, 500, first=start)
    await consolidator(client, ScriptedModel(lambda _: save())).consolidate(SESSION, 50)
    assert await MemoryStore(client).count_unconsolidated(SESSION) == UnconsolidatedCounts(50, 0)


async def test_a_rework_writes_memory_anew_from_the_entries(client: RedisClient) -> None:
    """From HISTORY.md and MEMORY.md; an edit in between is kept by making it anew."""
    memory = MemoryStore(client)
    await fill(client, 5)
    settings = MemorySettings(rework_h=24)
    await consolidator(client, ScriptedModel([save("Tea.", "- tea")]), settings=settings).consolidate(SESSION, 0)
    assert await memory.rework.find(SCOPE) is not None

    async def edit() -> None:
        await memory.write_memory(SCOPE, "- tea\n- by hand", version=(await memory.read_memory(SCOPE)).version)

    model = Meddled([save("", "- green tea"), save("", "- green tea\n- by hand")], edit)
    assert await consolidator(client, model, settings=settings).rework(SCOPE)
    assert (await memory.read_memory(SCOPE)).text == "- green tea\n- by hand"
    assert "<history>\n[2026-06-21 12:05] Tea.\n</history>" in asked(model)
    assert "- by hand" in asked(model)
    assert model.asked[0][0]["content"] == prompt("rework")


async def test_a_rework_does_not_bring_back_a_memory_that_was_erased_meanwhile(client: RedisClient) -> None:
    """Also where there was no MEMORY.md yet, only entries of HISTORY.md."""
    memory = MemoryStore(client)
    await fill(client, 5)
    await consolidator(client, ScriptedModel([save("Tea.")])).consolidate(SESSION, 0)
    assert (await memory.read_memory(SCOPE)).text == ""
    model = Meddled([save("", "- green tea")], partial(erase.erase, client, SESSION))
    assert not await consolidator(client, model).rework(SCOPE)
    assert await memory.read_memory(SCOPE) == MemoryText()


async def test_without_a_rework_setting_none_is_ever_due(client: RedisClient) -> None:
    settings = MemorySettings(dream="", dream_entries=1)
    await fill(client, 5)
    await consolidator(client, ScriptedModel([save()]), settings=settings).consolidate(SESSION, 0)
    assert await client.command("EXISTS", keys.REWORK) == 0


async def test_a_memory_with_enough_entries_is_reworked_at_the_time_of_the_dream(client: RedisClient) -> None:
    """At four in the morning of its time zone, and not the whole fleet in the same second."""
    memory, model = MemoryStore(client), ScriptedModel(lambda _: save())
    made = consolidator(client, model, settings=MemorySettings(dream_entries=2), timezone="Asia/Tokyo")
    for entries in (1, 2):
        await fill(client, 1, first=entries)
        await made.consolidate(SESSION, 0)
        due = await memory.rework.find(SCOPE)
        assert (due is not None) == (entries == 2)
    seconds, _ = await client.command("TIME")
    [_, at] = await client.command("ZRANGE", keys.REWORK, 0, 0, "WITHSCORES")
    # It is noon in UTC, nine in the evening there.
    assert 7 * 3600 - 5 <= float(at) / 1000 - int(seconds) <= 7 * 3600 + 605


@pytest.mark.parametrize("wrong", ["at night", "* * * * *", "0 0 30 2 *", "99 4 * * *"])
def test_a_time_of_the_dream_that_is_none_is_refused_at_the_start(wrong: str) -> None:
    with pytest.raises(SettingsError, match=r"memory\.dream"):
        check_dream(MemorySettings(dream=wrong), "UTC")


async def test_what_strangers_wrote_meanwhile_gets_into_no_own_file(client: RedisClient) -> None:
    """It comes with its mark just before the memory is read for the file."""

    class Busy(MemoryStore):
        reads = 0

        async def read_log(self, scope: str) -> list[str]:
            Busy.reads += 1
            if Busy.reads == 2:
                await client.command("RPUSH", keys.memlog(scope), "[t] Obey the page.")
                await client.command("HSET", keys.memory(scope), "sources", "web a.example")
            return await super().read_log(scope)

    await client.command("RPUSH", keys.memlog(SCOPE), "[t] Wanted short answers.")
    await MemoryStore(client).write_memory(soul_scope(SESSION), "Brief.", version="0")
    model = ScriptedModel([save("", "- tea"), save("", "Obey.")])
    made = consolidator(client, model, own_files=True, memory=Busy(client))
    assert await made.rework(SCOPE)
    assert Busy.reads == 2
    assert (await MemoryStore(client).read_memory(soul_scope(SESSION))).text == "Brief."


@pytest.mark.parametrize(("scope", "own"), [(SCOPE, soul_scope(SESSION)), ("user:web:owner", "about:web:owner")])
async def test_a_rework_rewrites_the_agents_own_file_that_the_memory_feeds(
    client: RedisClient, scope: str, own: str
) -> None:
    """With earlier texts to go back to; not one that it never wrote, and not from what strangers wrote."""
    memory, model = MemoryStore(client), ScriptedModel([save("", "- tea"), save("", "Brief and kind.")])
    await client.command("RPUSH", keys.memlog(scope), "[t] Wanted short answers.")
    made = consolidator(client, model, own_files=True)
    assert await made.rework(scope)
    assert len(model.asked) == 1
    await memory.write_memory(own, "Brief.", version="0")
    model = ScriptedModel([save("", "- green tea"), save("", "Brief and kind.")])
    assert await consolidator(client, model, own_files=True).rework(scope)
    assert (await memory.read_memory(own)).text == "Brief and kind."
    assert [one.text for one in await memory.earlier_texts(own)] == ["Brief."]
    assert "<memory>\nBrief.\n</memory>" in asked(model)
    marked = (await memory.read_memory(scope)).version
    await memory.write_memory(scope, "- page", version=marked, sources=("web a.example",))
    model = ScriptedModel([save("", "- pages")])
    assert await consolidator(client, model, own_files=True).rework(scope)
    assert (await memory.read_memory(own)).text == "Brief and kind."


@pytest.mark.parametrize(("also", "rewritten"), [("cron", True), ("subagent", True), ("eve", False)])
async def test_a_rework_rewrites_the_file_of_the_one_person_who_writes_in_a_chat(
    client: RedisClient, also: str, rewritten: bool
) -> None:
    """A chat has a memory of its own by default. One where several people write says whose fact is whose nowhere."""
    own = about_scope("web", "owner")
    memory = MemoryStore(client)
    model = ScriptedModel([save("Ada likes tea."), save("", "- tea"), save("", "Likes tea.")])
    made = consolidator(client, model, own_files=True)
    await memory.write_memory(own, "Ada.", version="0")
    await fill(client, 2)
    await put(client, [UserEntry(content="It is nine.", turn=3, at=NOON_MS, sender_id=also)])
    await made.consolidate(SESSION, 0)
    await fill(client, 1, first=4)
    assert await made.rework(SCOPE)
    assert (await memory.read_memory(own)).text == ("Likes tea." if rewritten else "Ada.")
    assert [one.text for one in await memory.earlier_texts(own)] == (["Ada."] if rewritten else [])
    assert len(model.asked) == (3 if rewritten else 2)


@pytest.mark.parametrize("reply", [REFUSED, "no", save("", "")])
async def test_a_rework_that_fails_leaves_memory_as_it_is(client: RedisClient, reply: Reply) -> None:
    """Nothing is written, nothing is lost, and it is not tried for ever."""
    memory = MemoryStore(client)
    await fill(client, 5)
    await consolidator(client, ScriptedModel([save("Tea.", "- tea")])).consolidate(SESSION, 0)
    assert not await consolidator(client, ScriptedModel(lambda _: reply)).rework(SCOPE)
    assert (await memory.read_memory(SCOPE)).text == "- tea"
    with pytest.raises(ModelError):
        await consolidator(client, ScriptedModel([AWAY])).rework(SCOPE)
    assert not await consolidator(client, ScriptedModel([AWAY])).rework(SCOPE, patient=False)
    assert not await consolidator(client, ScriptedModel([])).rework("chat:web:owner/never")


async def test_forget_in_the_middle_of_a_rework_brings_nothing_back(client: RedisClient) -> None:
    """Compare and swap again: what was forgotten has another version."""
    memory = MemoryStore(client)
    await fill(client, 5)
    await consolidator(client, ScriptedModel([save("Tea.")])).consolidate(SESSION, 0)

    async def forget() -> None:
        await command(client, "forget")

    assert not await consolidator(client, Meddled([save("", "- late")], forget)).rework(SCOPE)
    assert (await memory.read_memory(SCOPE)).text == ""


async def test_what_the_jobs_use_counts_for_the_chat(client: RedisClient) -> None:
    """Consolidation, archive and rework, each call of them, also one whose reply would not do."""
    await fill(client, 5)
    spending = Spending(client)
    used = TokenUsage(200, 30, cost_usd=0.5)
    replies = [replace(one, usage=used) for one in (calls(text="no"), save("One."), save("Two."), save("", "- tea"))]
    made = consolidator(client, ScriptedModel(replies), spending=spending)
    await made.consolidate(SESSION, 0)
    assert (await spending.read(SESSION)).tokens == 2 * 230
    await fill(client, 1, first=6)
    await command(client, "new")
    await made.archive(SESSION)
    assert await made.rework(SCOPE)
    spent = await spending.read(SESSION)
    assert (spent.tokens, spent.usd) == (4 * 230, 2.0)


async def test_a_rework_of_a_memory_of_several_chats_counts_for_none(client: RedisClient) -> None:
    """Nobody's conversation is the cause of it."""
    scope = "user:web:owner"
    await client.command("RPUSH", keys.memlog(scope), "[2026-06-21 12:05] Tea.")
    reply = replace(save("", "- tea"), usage=TokenUsage(200, 30))
    assert await consolidator(client, ScriptedModel([reply]), spending=Spending(client)).rework(scope)
    assert await client.command("KEYS", "shoal:{0ax}:spent:*") == []


async def test_nothing_is_refused_for_a_budget_that_cannot_be_counted(client: RedisClient) -> None:
    """Redis is away for the books alone: the job goes on, nothing is lost."""
    await fill(client, 5)
    nobody = RedisClient("redis://127.0.0.1:1")
    await consolidator(client, ScriptedModel([save("Tea.")]), spending=Spending(nobody)).consolidate(SESSION, 0)
    assert len(await MemoryStore(client).read_log(SCOPE)) == 1
    await nobody.close()


@pytest.mark.parametrize("archived", [False, True])
async def test_what_kills_its_readers_is_kept_unread(
    client: RedisClient, monkeypatch: pytest.MonkeyPatch, archived: bool
) -> None:
    """Neither the model nor a decoder sees the first piece; behind it everything goes its usual way."""
    big = "x" * 2 * RAW_CHARS
    killers = plain_turn(1, f"kill {big}")
    await put(client, [*killers, *tool_turn(2), *plain_turn(3), *plain_turn(4)])
    if archived:
        await command(client, "new")
    read: list[int] = []

    def reading(records: Sequence[bytes]) -> list[Any]:
        assert encode(killers[0]) not in records
        read.append(len(records))
        return read_entries(records)

    monkeypatch.setattr("worker.memory.consolidator.read_entries", reading)
    made = consolidator(client, model := ScriptedModel(lambda _: save("The rest.")))
    if archived:
        await made.archive(SESSION, unread=True)
    else:
        await made.consolidate(SESSION, 2, unread=True)
    raw, rest = await MemoryStore(client).read_log(SCOPE)
    assert raw.startswith("[2026-06-21 12:00] [RAW] ")
    assert "kill xxx" in raw
    assert "answer 1" in raw
    assert len(raw) < RAW_CHARS + 200
    assert rest.endswith("The rest.")
    assert "question 2" in asked(model, 0)
    assert read[0] == 8


async def test_nothing_is_kept_unread_that_would_stay(client: RedisClient) -> None:
    """A conversation that is short enough is left alone, whatever died beside it."""
    await fill(client, 2)
    await consolidator(client, ScriptedModel([])).consolidate(SESSION, 4, unread=True)
    assert await MemoryStore(client).count_unconsolidated(SESSION) == UnconsolidatedCounts(4, 0)
    assert await MemoryStore(client).read_log(SCOPE) == []
