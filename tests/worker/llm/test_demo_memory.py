"""The built-in model keeps memory, too: `make up` without a key consolidates."""

from __future__ import annotations

from pathlib import Path

from structlog.testing import capture_logs

from shared.messages.transcript import AssistantEntry, UserEntry
from shared.settings import MemorySettings
from shared.store import keys
from shared.store.client.redis_client import RedisClient
from shared.store.sessions.memory import MemoryStore
from tests.helpers.remembering import NOON_MS, SCOPE, SESSION, fill, put
from tests.helpers.turn_borders import MemoryJournal
from tests.worker.llm.test_demo import Chat
from worker.agent.loop import run_agent
from worker.agent.tools.toolbox import Toolbox
from worker.agent.turn import AgentRunSpec
from worker.llm.demo.demo_model import DemoModel
from worker.llm.demo.memory import facts, rework_arguments, save_arguments
from worker.memory.consolidator import Consolidator
from worker.prompts.system import SystemPrompt
from worker.skills.catalogue import SkillCatalogue


def user_and_answer(text: str, turn: int) -> list[UserEntry | AssistantEntry]:
    return [
        UserEntry(content=text, turn=turn, at=NOON_MS + turn * 60_000),
        AssistantEntry(content="Noted: my answer is 42.", turn=turn, at=NOON_MS + turn * 60_000),
    ]


async def test_facts_of_a_person_come_into_memory(client: RedisClient) -> None:
    """Facts as notes, the newest of each kind, beside what others wrote there; and an account of the conversation."""
    memory = MemoryStore(client)
    await memory.write_memory(SCOPE, "# Notes\n- The person's name is Bob.\n- likes tea", version="0")
    await put(client, user_and_answer("Hi, my name is Ada. My favourite colour is dark\nblue.", 1))
    await fill(client, 3, first=2)
    await put(client, user_and_answer("my favourite colour is green", 5))
    consolidator = Consolidator(memory, DemoModel(), MemorySettings())
    await consolidator.consolidate(SESSION, 0)
    assert (await memory.read_memory(SCOPE)).text.splitlines() == [
        "# Notes",
        "- likes tea",
        "- The person's name is Ada.",
        "- The person's favourite colour is green.",
    ]
    assert await memory.read_log(SCOPE) == [
        (
            "[2026-06-21 12:05] The person wrote 5 messages. It began with “Hi, my name is Ada. My favourite colour is "
            "dark blue.” and ended with “my favourite colour is green”."
        )
    ]
    assert not await consolidator.rework(SCOPE), "it has nothing to add to what it knows"


async def test_it_answers_from_its_memory(tmp_path: Path) -> None:
    """What left the conversation is in the system text; what was said since is newer."""
    notes = "- The person's name is Ada.\n- The person's favourite colour is green."
    system = SystemPrompt(tmp_path, SkillCatalogue(tmp_path)).render(notes)

    async def ask(text: str, chat: Chat) -> str:
        spec = AgentRunSpec(session="s", entry=UserEntry(content=text, turn=9), system=system, history=chat.history)
        return (await run_agent(spec, DemoModel(sleep=chat.sleep), Toolbox(), MemoryJournal())).content

    chat = Chat()
    assert await ask("What is my name?", chat) == "Your name is **Ada**."
    await chat.say("Call me Bob")
    assert await ask("What is my name?", chat) == "Your name is **Bob**."
    assert await ask("What is my favourite colour?", chat) == "Your favourite colour is **green**."


def test_a_conversation_without_facts_changes_no_notes() -> None:
    """The account alone; also of one that nobody began."""
    prompt = "<memory>\n(nothing yet)\n</memory>\n\n<conversation>\n[2026-06-21 12:00] USER: hi\n</conversation>"
    assert save_arguments(prompt) == {
        "history_entry": "[2026-06-21 12:00] The person wrote one message: “hi”.",
        "memory_update": "",
    }
    assert save_arguments("")["history_entry"]
    assert list(facts("nothing here")) == []


async def test_a_rework_is_answered(client: RedisClient) -> None:
    """Also of a memory that has no note: what the accounts tell becomes one, or it stays as it is, without a fault."""
    memory = MemoryStore(client)
    consolidator = Consolidator(memory, DemoModel(), MemorySettings())
    await client.command("RPUSH", keys.memlog(SCOPE), "[2026-06-21 12:00] The person wrote one message: “hi”.")
    with capture_logs() as logged:
        assert not await consolidator.rework(SCOPE)
    assert logged == []
    await client.command("RPUSH", keys.memlog(SCOPE), "[2026-06-21 12:05] They wrote: “My name is Ada”.")
    assert await consolidator.rework(SCOPE)
    assert (await memory.read_memory(SCOPE)).text == "- The person's name is Ada."
    assert not await consolidator.rework(SCOPE), "another time it comes to the same"


def test_a_rework_adds_what_the_notes_lack_and_joins_what_stands_twice() -> None:
    """A note wins over an account; of two accounts the later one is right; a fact that was cut is none."""
    notes = "# Notes\n\n- likes tea\n- likes tea\n\n- The person's name is Ada."
    accounts = [
        "[2026-06-21 12:00] It began with “my name is Bob” and ended with “my dog is Rex”.",
        "[2026-06-22 12:00] It began with “my dog is Bello” and ended with “my plans are to go to …”.",
    ]
    prompt = f"<memory>\n{notes}\n</memory>\n\n<history>\n{chr(10).join(accounts)}\n</history>"
    assert rework_arguments(prompt)["memory_update"].splitlines() == [
        "# Notes",
        "",
        "- likes tea",
        "",
        "- The person's name is Ada.",
        "- The person's dog is Bello.",
    ]
