"""The agent of a process, joined: each setting of it reaches the turn. A real Valkey, a scripted model server."""

from __future__ import annotations

import asyncio
from base64 import b64encode
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any, cast

import pytest
from msgspec.structs import replace
from structlog.testing import capture_logs

from shared.errors import ModelError
from shared.messages.codec import encode
from shared.messages.inbound import TIMEZONE, InboundMessage, TurnOptions
from shared.messages.schedule import HEARTBEAT
from shared.messages.transcript import AssistantEntry, JoinEntry, ToolEntry, TranscriptEntry, UserEntry
from shared.metrics import MODEL_REQUESTS
from shared.settings import (
    AgentSettings,
    BudgetSettings,
    MemorySettings,
    ModelSettings,
    PresetSettings,
    Secret,
    Settings,
)
from shared.settings.sections.tool_use import WorkspaceSettings
from shared.store.client.redis_client import RedisClient
from shared.store.fleet.spending import Spending
from shared.store.sessions.memory import MemoryStore
from shared.store.turns.queue import Claim, TurnWork
from tests.helpers.build import message
from tests.helpers.openai_server import Answer, Call, ScriptedOpenAI
from tests.helpers.plugins import Site
from tests.helpers.turn_borders import MemoryJournal, RecordingProgress
from tests.helpers.wait import eventually
from tests.worker.skills.shelves import write_skill
from worker.agent.model.compact import PROMPT
from worker.agent.turn import AgentResult
from worker.turn.conversation import read_conversation
from worker.turn.journal import TurnJournal
from worker.turn.schedules import NOTHING_NEEDED
from worker.turn.turn_agent import TurnAgent

SESSION, SCOPE = "web:owner/a", "chat:web:owner/a"
LOOK = Answer(role="user", times=0, calls=[Call("read_file", '{"path": "MEMORY.md"}')])

Ask = Callable[..., Awaitable[AgentResult]]


@pytest.fixture(scope="module")
def server() -> Iterator[ScriptedOpenAI]:
    with ScriptedOpenAI(in_thread=True) as server:
        yield server


@pytest.fixture
async def ask(client: RedisClient, server: ScriptedOpenAI, tmp_path: Path) -> AsyncIterator[Ask]:
    """Lets the agent of some settings answer a message."""
    server.reset()
    made: list[TurnAgent] = []

    async def answer(
        *answers: Answer,
        incoming: InboundMessage | None = None,
        history: tuple[TranscriptEntry, ...] = (),
        joined: tuple[InboundMessage, ...] = (),
        preset: str = "",
        model: dict[str, Any] | None = None,
        agent: dict[str, Any] | None = None,
        **sections: Any,
    ) -> AgentResult:
        server.script(*answers)
        reached: dict[str, Any] = {"name": "openai/usual", "api_base": server.base_url, "api_key": Secret("sk-x")}
        reached |= {"client": "direct", "retry_waits_s": ()}
        usual: dict[str, Any] = {"dir": tmp_path, "timezone": "UTC"}
        settings = Settings(
            model=ModelSettings(**(reached | (model or {}))),
            agent=AgentSettings(**(usual | (agent or {}))),
            workspace=WorkspaceSettings(root=tmp_path / "workspaces"),
            **sections,
        )
        store = MemoryStore(client)
        made.append(TurnAgent(settings, client, store))
        memory = await store.read_memory(SCOPE)
        numbers = tuple(range(len(history) + 2, len(history) + 2 + len(joined)))
        work = TurnWork(
            n=len(history) + 1,
            record=encode(incoming or message("question")),
            errors=0,
            crashes=0,
            stop=0,
            attempt=1,
            model_unavailable_ms=0,
            ledger=(encode(JoinEntry(turn=len(history) + 1, messages=numbers)),) if joined else (),
            joined=tuple((number, encode(one)) for number, one in zip(numbers, joined, strict=True)),
            history=tuple(map(encode, history)),
            scope=SCOPE,
            memory=memory.text,
            memory_version=memory.version,
            preset=preset,
        )
        claim = Claim(f"turn:{SESSION}", "worker", "1", 0, False, work)
        journal = cast(TurnJournal, MemoryJournal())
        return await made[-1](read_conversation(claim), journal, RecordingProgress())

    yield answer
    for one in made:
        await one.close()


def talked(many: int, chars: int = 5) -> tuple[TranscriptEntry, ...]:
    """A conversation of so many entries."""
    one, two = "q" * chars, "a" * chars
    return tuple(
        entry
        for n in range(1, many // 2 + 1)
        for entry in (UserEntry(content=one, turn=n), AssistantEntry(content=two, turn=n))
    )


async def test_a_call_has_the_tokens_temperature_and_model_of_the_settings(ask: Ask, server: ScriptedOpenAI) -> None:
    """Also those of the preset that was chosen for the chat; one that is no longer offered is the usual model."""
    presets = {"fast": PresetSettings(name="openai/small", max_tokens=33, temperature=0.4)}
    model = {"max_tokens": 77, "temperature": 0.2, "presets": presets}
    for preset in ("", "fast", "gone"):
        await ask(model=model, preset=preset)
    asked = [(one.body["model"], one.body["max_tokens"], one.body["temperature"]) for one in server.requests()]
    assert asked == [("usual", 77, 0.2), ("small", 33, 0.4), ("usual", 77, 0.2)]


async def test_a_call_has_top_p_and_seed_where_they_are_set(ask: Ask, server: ScriptedOpenAI) -> None:
    """Those of the preset, else those of the model; unset ones are not sent, and 0 is a seed."""
    presets = {"own": PresetSettings(name="openai/small", top_p=0.5, seed=0), "usual": PresetSettings(name="openai/b")}
    await ask()
    for preset in ("", "own", "usual"):
        await ask(model={"top_p": 0.9, "seed": 7, "presets": presets}, preset=preset)
    asked = [(one.body.get("top_p"), one.body.get("seed")) for one in server.requests()]
    assert asked == [(None, None), (0.9, 7), (0.5, 0), (0.9, 7)]
    assert not {"top_p", "seed"} & set(server.requests()[0].body)


async def test_an_answer_says_how_full_the_window_of_its_model_was(ask: Ask, server: ScriptedOpenAI) -> None:
    """The tokens of the last call alone; nothing about a window that is only assumed."""
    answers = (LOOK, Answer(role="tool", text="done"))
    result = await ask(*answers, model={"context_tokens": 60_000})
    final = result.entries[-1]
    assert isinstance(final, AssistantEntry)
    assert (final.window, 0 < final.context < result.usage.total_tokens) == (60_000, True)
    final = (await ask(*answers)).entries[-1]
    assert isinstance(final, AssistantEntry)
    assert (final.window, final.context) == (0, 0)


async def test_a_preset_without_tools_has_a_short_prompt(ask: Ask, server: ScriptedOpenAI, client: RedisClient) -> None:
    """For the titles and tags that front ends ask for: a fraction of the tokens, and nothing of the memory."""
    await MemoryStore(client).write_memory(SCOPE, "likes tea", version="0")
    presets = {"title": PresetSettings(name="openai/small", tools=False)}
    for preset in ("", "title"):
        await ask(model={"presets": presets}, preset=preset)
    usual, title = [one.body for one in server.requests()]
    assert "likes tea" in usual["messages"][0]["content"]
    assert (len(usual["tools"]) > 5, "tools" in title, "tool_choice" in title) == (True, False, False)
    system = title["messages"][0]["content"]
    assert len(system) < 300
    assert "likes tea" not in system
    assert title["messages"][1]["content"].startswith("question")


async def test_what_a_program_asks_for_reaches_the_model(ask: Ask, server: ScriptedOpenAI) -> None:
    """Its limit only below that of the settings, and such a reply is not continued; its system text, its schema."""
    wishes = TurnOptions(max_tokens=50, temperature=0.0, schema='{"type":"object"}', system="be brief")
    asked = replace(message("question"), options=wishes)
    cut = Answer(text='{"a', times=0, finish_reason="length")
    result = await ask(cut, incoming=asked, model={"max_tokens": 77, "temperature": 0.2})
    assert (result.content, result.outcome) == ('{"a', "length")
    [request] = server.requests()
    assert (request.body["max_tokens"], request.body["temperature"]) == (50, 0.0)
    system = request.body["messages"][0]["content"]
    assert "be brief" in system
    assert '{"type":"object"}' in system
    await ask(cut, incoming=replace(asked, options=TurnOptions(max_tokens=500)), model={"max_tokens": 77})
    assert server.requests()[-1].body["max_tokens"] == 77


async def test_the_rounds_of_a_turn_are_those_of_the_settings(ask: Ask, server: ScriptedOpenAI) -> None:
    """`agent.max_rounds`, and the number is in what the person reads."""
    result = await ask(replace(LOOK, role=""), agent={"max_rounds": 3})
    assert (result.outcome, len(server.requests())) == ("round_cap", 3)
    assert "3 steps" in result.content


async def test_a_reply_is_continued_as_often_as_the_settings_say(ask: Ask, server: ScriptedOpenAI) -> None:
    """`agent.continuations`."""
    cut = Answer(text="more", times=0, finish_reason="length")
    assert (await ask(cut, agent={"continuations": 1})).content == "moremore"
    assert len(server.requests()) == 2


async def test_the_model_sees_as_much_of_the_conversation_as_the_settings_say(ask: Ask, server: ScriptedOpenAI) -> None:
    """`agent.memory_window`; the message itself is beside it."""
    await ask(history=talked(20), agent={"memory_window": 6})
    [request] = server.requests()
    assert [one["role"] for one in request.body["messages"]] == ["system", *["user", "assistant"] * 3, "user"]


async def test_a_result_is_cut_for_the_model_and_more_for_history_as_the_settings_say(
    ask: Ask, server: ScriptedOpenAI, client: RedisClient
) -> None:
    """`agent.result_bytes` and `agent.saved_result_chars`."""
    await MemoryStore(client).write_memory(SCOPE, "x" * 5_000, version="0")
    result = await ask(LOOK, Answer(role="tool", text="done"), agent={"result_bytes": 400, "saved_result_chars": 60})
    shown = server.requests()[-1].body["messages"][-1]["content"]
    assert shown.startswith(
        "x" * 400 + "\n\n[cut: 4,600 of 5,000 bytes are left out; the whole is in the file 'results/"
    )
    assert [len(entry.content) for entry in result.entries if isinstance(entry, ToolEntry)] == [60]


async def test_thoughts_are_cut_for_history_and_not_for_their_model(ask: Ask, server: ScriptedOpenAI) -> None:
    """`agent.saved_thought_chars`; within the turn the model gets them back whole."""
    thoughts = "because " * 20
    look = replace(LOOK, reasoning=thoughts)
    result = await ask(look, Answer(role="tool", text="done"), agent={"saved_thought_chars": 60})
    assert server.requests()[-1].body["messages"][-2]["reasoning_content"] == thoughts
    kept = [entry.reasoning for entry in result.entries if isinstance(entry, AssistantEntry)]
    assert [text and len(text) for text in kept] == [60, None]


@pytest.mark.parametrize(("compact_at", "compacts"), [(0.9, False), (0.4, True)])
async def test_a_prompt_is_compacted_where_the_settings_say(
    ask: Ask, server: ScriptedOpenAI, compact_at: float, compacts: bool
) -> None:
    """`agent.compact_at` of `model.context_tokens`, down to `agent.compact_keep` messages."""
    agent = {"compact_at": compact_at, "compact_keep": 3}
    await ask(history=talked(20, chars=4_000), model={"context_tokens": 40_000}, agent=agent)
    *summing, last = [one.body["messages"] for one in server.requests()]
    assert [one[0]["content"] for one in summing] == ([PROMPT] if compacts else [])
    assert len(last) == (1 + 1 + 3 if compacts else 1 + 20 + 1), "system text, summary, the newest"


async def test_a_hook_has_the_time_of_the_settings(ask: Ask, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`agent.hook_s`: a hook of a package that takes longer is passed over, one that does not is heard."""
    source = "import asyncio\nfrom worker.agent.hook import AgentHook\n" + "".join(
        f"class {name}(AgentHook):\n    async def finalize_content(self, text):\n"
        f"        await asyncio.sleep({seconds})\n        return text + ' {name}'\n"
        for name, seconds in (("Slow", 0.5), ("Quick", 0))
    )
    Site(tmp_path / "site", monkeypatch).install("hooks-timed", source, hooks="a=Slow b=Quick")
    assert (await ask(Answer(text="Hello."), agent={"hook_s": 0.05})).content == "Hello. Quick"


async def test_the_turn_knows_time_chat_and_in_groups_who_speaks(ask: Ask, server: ScriptedOpenAI) -> None:
    """`agent.timezone`; where one person talks alone the sender is left out."""
    alone = replace(message("question"), metadata={"sender_name": "Ada"})
    together = replace(alone, metadata={"sender_name": "Ada", "group": "1"})
    for incoming in (alone, together):
        await ask(incoming=incoming, agent={"timezone": "Asia/Tokyo"})
    first, second = [one.body["messages"][-1]["content"] for one in server.requests()]
    assert "(Asia/Tokyo)\nChannel: web\nChat ID: owner/a" in first
    assert "Sender" not in first
    assert second.endswith("\nSender: Ada\nSender ID: owner")


async def test_the_persons_own_zone_is_before_that_of_the_settings(ask: Ask, server: ScriptedOpenAI) -> None:
    """As their browser has it. A name that this machine does not know ends no turn."""
    for zone in ("Europe/Paris", "Mars/Olympus"):
        incoming = replace(message("question"), metadata={TIMEZONE: zone})
        await ask(incoming=incoming, agent={"timezone": "Asia/Tokyo"})
    own, unknown = [one.body["messages"][-1]["content"] for one in server.requests()]
    assert "(Europe/Paris)" in own
    assert "(Asia/Tokyo)" in unknown


async def test_the_system_text_has_what_the_operator_wrote_and_what_is_remembered(
    ask: Ask, server: ScriptedOpenAI, client: RedisClient, tmp_path: Path
) -> None:
    """The files and skills of `agent.dir`, and the MEMORY.md of the turn."""
    (tmp_path / "AGENTS.md").write_text("Speak like a sailor.")
    write_skill(tmp_path / "skills", "knots", "How to tie knots.", text="Take a rope.")
    await MemoryStore(client).write_memory(SCOPE, "- likes tea", version="0")
    read = Call("read_file", '{"path": "skills/knots/SKILL.md"}')
    await ask(Answer(role="user", calls=[read]), Answer(role="tool", text="tied"))
    request, after = server.requests()
    assert after.body["messages"][-1]["content"].endswith("Take a rope.")
    system = request.body["messages"][0]["content"]
    parts = ["You are Shoal", "## AGENTS.md\n\nSpeak like a sailor.", "# Memory", "> - likes tea", "# Active Skills"]
    assert [system.find(part) for part in parts] == sorted(system.find(part) for part in parts)
    assert all(part in system for part in parts)
    assert "<name>knots</name>" in system


async def test_programs_of_skills_are_looked_for_where_commands_run(
    client: RedisClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One on the worker's own PATH alone is of no use: no command finds it."""
    program = tmp_path / "bin" / "only-here"
    program.parent.mkdir()
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(program.parent))
    write_skill(tmp_path / "skills", "tools", metadata="{nanobot: {requires: {bins: [sh, only-here]}}}")
    workspace = WorkspaceSettings(root=tmp_path / "workspaces")
    agent = TurnAgent(Settings(agent=AgentSettings(dir=tmp_path), workspace=workspace), client, MemoryStore(client))
    [skill] = [one for one in agent.skills.skills() if one.name == "tools"]
    assert skill.missing == ("CLI: only-here",)
    await agent.close()


async def test_a_picture_goes_to_the_model_and_its_mark_into_history(ask: Ask, server: ScriptedOpenAI) -> None:
    """The bytes are in the request of its turn alone."""
    picture = b64encode(b"\x89PNG\r\n\x1a\n and so on").decode()
    result = await ask(incoming=replace(message("what is it?"), media=(f"data:image/png;base64,{picture}",)))
    [request] = server.requests()
    image, text = request.body["messages"][-1]["content"]
    assert image["image_url"]["url"] == f"data:image/png;base64,{picture}"
    assert text["text"].startswith("what is it?")
    assert isinstance(result.entries[0], UserEntry)
    assert "[image" in result.entries[0].content


async def test_memory_has_the_limit_of_the_settings(ask: Ask, server: ScriptedOpenAI, client: RedisClient) -> None:
    """`memory.file_bytes`: the model reads both numbers, and nothing is written."""
    write = Call("write_file", '{"path": "MEMORY.md", "content": "' + "x" * 2_000 + '"}')
    answers = (Answer(role="user", calls=[write]), Answer(role="tool", text="too long"))
    await ask(*answers, memory=MemorySettings(file_bytes=1024))
    last_text = server.requests()[-1].body["messages"][-1]["content"]
    assert last_text.startswith("Error: ")
    assert "1,024" in last_text
    assert (await MemoryStore(client).read_memory(SCOPE)).text == ""


async def test_a_chat_without_budget_left_costs_no_call(ask: Ask, server: ScriptedOpenAI, client: RedisClient) -> None:
    """`budget.tokens_per_day`: each call is counted for its chat, and from then on none is made."""
    budget = BudgetSettings(tokens_per_day=1)
    assert (await ask(budget=budget)).outcome == "done"
    assert (await Spending(client).read(SESSION)).tokens > 1
    assert (await ask(budget=budget)).outcome == "budget"
    assert len(server.requests()) == 1


async def test_calls_are_counted_by_how_they_ended(ask: Ask) -> None:
    """So that an operator sees whether a model answers, and why not."""

    def counted(kind: str) -> float:
        return float(MODEL_REQUESTS.labels("openai/usual", kind)._value.get())

    before = counted("ok"), counted("auth")
    await ask()
    with pytest.raises(ModelError):
        await ask(Answer(status=401, times=0))
    assert (counted("ok"), counted("auth")) == (before[0] + 1, before[1] + 1)


async def test_a_turn_that_is_stopped_has_used_its_budget(
    server: ScriptedOpenAI, ask: Ask, client: RedisClient
) -> None:
    """Tokens, and what they cost by the price of its model: stopping before each end makes no call free."""
    prices = {"openai/usual": (1_000.0, 2_000.0)}
    running = asyncio.ensure_future(ask(Answer(fault="hang"), model={"prices": prices}))
    await eventually(lambda: len(server.requests()) == 1)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    tokens = 0

    async def counted() -> bool:
        nonlocal tokens
        tokens = (await Spending(client).read(SESSION)).tokens
        return tokens > 0

    await eventually(counted)
    assert (await Spending(client).read(SESSION)).usd == pytest.approx(tokens / 1_000)
    assert (await ask(budget=BudgetSettings(usd_per_day=0.001))).outcome == "budget"


@pytest.mark.parametrize(("usd", "expected"), [(5.0, ["openai/no-such", "openai/none-such"]), (0.0, [])])
async def test_a_model_without_a_price_is_logged_where_dollars_are_counted(
    client: RedisClient, tmp_path: Path, usd: float, expected: list[str]
) -> None:
    """Each one once: the usual, the fallbacks and the presets. Nobody has to say a price for the demo model."""
    presets = {
        "same": PresetSettings(name="openai/no-such"),
        "own": PresetSettings(name="openai/priced"),
        "offline": PresetSettings(name="demo"),
    }
    model = ModelSettings(
        name="openai/no-such",
        client="direct",
        api_key=Secret("sk-x"),
        fallbacks=("openai/gpt-4o", "openai/none-such"),
        prices={"openai/priced": (1.0, 2.0)},
        presets=presets,
    )
    settings = Settings(
        model=model,
        agent=AgentSettings(dir=tmp_path),
        budget=BudgetSettings(usd_per_day=usd),
        workspace=WorkspaceSettings(root=tmp_path / "workspaces"),
    )
    answerer = TurnAgent(settings, client, MemoryStore(client))
    with capture_logs() as logs:
        await answerer.preload()
    await answerer.close()
    warnings = [one for one in logs if one["event"] == "model without a price"]
    assert [one["model"] for one in warnings] == expected
    assert all("model.prices" in one.values() for one in warnings)
    unsized = [one["model"] for one in logs if one["event"] == "model without a context size"]
    assert unsized == ["openai/no-such", "openai/none-such", "openai/priced"]


@pytest.mark.parametrize("joined", [(), (message("and the time?"),)], ids=["alone", "with a person"])
async def test_a_heartbeat_is_quiet_only_when_nobody_joined_it(ask: Ask, joined: tuple[InboundMessage, ...]) -> None:
    """A person who wrote meanwhile is answered, whatever it is, and what they said is kept."""
    beat = replace(message("look"), metadata={"schedule": HEARTBEAT})
    result = await ask(Answer(text=NOTHING_NEEDED), incoming=beat, joined=joined)
    assert result.content == (NOTHING_NEEDED if joined else "")
    incoming = [entry.content for entry in result.entries if isinstance(entry, UserEntry)]
    assert incoming == (["look", "and the time?"] if joined else [])
