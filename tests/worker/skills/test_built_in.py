"""The built-in skills, each followed in a whole turn with the tools that it names."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shared.messages.transcript import UserEntry
from shared.store import keys
from shared.store.client.redis_client import RedisClient
from shared.store.sessions.memory import MemoryStore
from tests.helpers.clock import HandClock
from tests.helpers.scripted_model import Replies, Reply, ScriptedModel, call, calls
from tests.helpers.turn_borders import MemoryJournal
from worker.agent.loop import run_agent
from worker.agent.tools.schema import names_of
from worker.agent.tools.toolbox import Toolbox
from worker.agent.turn import AgentRunSpec
from worker.prompts.system import SystemPrompt
from worker.skills.catalogue import BUILT_IN, SkillCatalogue
from worker.tools.calculate import evaluate
from worker.tools.registry import TOOLS, build_tools
from worker.tools.search_history import SearchHistory
from worker.turn.files import MemoryFile, TurnFiles

SCOPE = "chat:web:owner/a"
SATURDAY = datetime(2026, 11, 21, 12, tzinfo=UTC)
HISTORY = (
    "[2026-10-02 09:00] They planned the move to Berlin and booked a van.",
    "[2026-11-03 10:00] The van was cancelled. They decided to take the train instead.",
    "[2026-11-12 18:30] The flat was handed over. Ada still has to return the old keys.",
)


class Chat:
    """A chat whose turns have the prompt, the tools and the files of a real one, and a scripted model."""

    def __init__(self, client: RedisClient, agent_dir: Path) -> None:
        self._store = MemoryStore(client)
        self._catalogue = SkillCatalogue(agent_dir)
        self._prompt = SystemPrompt(agent_dir, self._catalogue, tools=tuple(TOOLS))
        self._tools = Toolbox(build_tools())
        self.client = client
        self.system = ""

    async def turn(self, text: str, replies: Replies) -> list[dict[str, Any]]:
        """What the model saw in the last call of the turn."""
        memory = await self._store.read_memory(SCOPE)
        skills = self._catalogue.skills()
        self.system = self._prompt.render(memory.text)
        spec = AgentRunSpec(
            session="web:owner/a",
            entry=UserEntry(content=text, turn=1),
            system=self.system,
            files=TurnFiles(MemoryFile(self._store, SCOPE, memory, claim=None, limit_bytes=32_768), skills=skills),
            clock=HandClock(SATURDAY.timestamp()),
        )
        model = ScriptedModel(replies)
        await run_agent(spec, model, self._tools, MemoryJournal())
        return model.asked[-1]

    async def memory(self) -> str:
        return (await self._store.read_memory(SCOPE)).text

    def location(self, name: str) -> str:
        """Where the prompt says that a skill is."""
        (place,) = re.findall(f"<name>{name}</name>.*?<location>(.*?)</location>", self.system, re.DOTALL)
        return str(place)


@pytest.fixture
def chat(client: RedisClient, tmp_path: Path) -> Chat:
    return Chat(client, tmp_path)


def results(messages: list[dict[str, Any]]) -> list[tuple[str, str]]:
    """Names and texts of the tool results that the model saw."""
    return [(message["name"], message["content"]) for message in messages if message["role"] == "tool"]


async def test_memory_is_active_from_the_start_and_works_as_it_says(chat: Chat) -> None:
    """Its text reaches the model without a tool; what it tells to do for an empty file, for a filled one and for a look
    back does just that, and the next turn knows."""
    await chat.client.command("RPUSH", keys.memlog(SCOPE), *HISTORY)
    first: Replies = [calls(call("write_file", {"path": "MEMORY.md", "content": "## Person\n- Ada\n"})), "Noted."]
    seen = await chat.turn("I am Ada. Remember it.", first)
    skill = (BUILT_IN / "memory" / "SKILL.md").read_text().split("---\n", 2)[2].strip()
    assert f"# Active Skills\n\n## memory\n\n{skill}" in seen[0]["content"]
    assert "> (nothing yet)" in seen[0]["content"]
    edit = call("edit_file", {"path": "MEMORY.md", "old_text": "- Ada", "new_text": "- Ada\n- allergic to nuts"})
    look = call("grep", {"words": "van", "path": "HISTORY.md"})
    seen = await chat.turn("I must not eat nuts. What about the van?", [calls(edit), calls(look), "Cancelled."])
    assert "> ## Person\n> - Ada\n" in seen[0]["content"]
    assert await chat.memory() == "## Person\n- Ada\n- allergic to nuts\n"
    (_, changed), (_, found) = results(seen)
    assert changed == "MEMORY.md is changed."
    assert found.startswith("HISTORY.md: [2026-11-03 10:00] The van was cancelled.")
    seen = await chat.turn("Hello", ["Hello Ada"])
    assert "> - allergic to nuts" in seen[0]["content"]


async def test_recap_is_read_when_it_is_needed_and_followed(chat: Chat) -> None:
    """The prompt names it and its place; read there, its steps find the month and the topic, the newest first."""
    await chat.client.command("RPUSH", keys.memlog(SCOPE), *HISTORY)

    def follow(messages: list[dict[str, Any]]) -> Reply:
        done = results(messages)
        match len(done):
            case 0:
                return calls(call("read_file", {"path": chat.location("recap")}))
            case 1:
                return calls(call("current_time"))
            case 2:
                month = done[1][1][:7]
                steps = [("m", month), ("t", "van")]
                return calls(*(call("grep", {"words": w, "path": "HISTORY.md"}, id) for id, w in steps))
        return "**In short:** you moved."

    seen = await chat.turn("Where were we this month?", follow)
    (_, skill), (_, now), (_, month), (_, topic) = results(seen)
    assert skill == (BUILT_IN / "recap" / "SKILL.md").read_text().rstrip("\n")
    assert now.startswith("2026-11-21")
    assert month.split("\n\n") == [f"HISTORY.md: {entry}" for entry in (HISTORY[2], HISTORY[1])]
    assert topic.split("\n\n") == [f"HISTORY.md: {entry}" for entry in (HISTORY[1], HISTORY[0])]


async def test_dates_are_counted_by_the_formulas_that_the_skill_gives(chat: Chat) -> None:
    """The model takes the expressions out of what it has read, puts numbers in, and calculate answers right."""

    def follow(messages: list[dict[str, Any]]) -> Reply:
        done = results(messages)
        match len(done):
            case 0:
                return calls(call("read_file", {"path": chat.location("dates")}))
            case 1:
                return calls(call("current_time"))
            case 2:
                year, month, day = map(int, done[1][1][:10].split("-"))
                return calls(call("calculate", {"expression": day_number(done[0][1], year, month, day)}, "today"))
            case 3:
                today = int(done[2][1].rpartition("= ")[2])
                return calls(call("calculate", {"expression": f"{today} % 7"}, "weekday"))
        return "It is a Saturday."

    seen = await chat.turn("Which weekday is today?", follow)
    (_, skill), _, (_, number), (_, weekday) = results(seen)
    assert skill == (BUILT_IN / "dates" / "SKILL.md").read_text().rstrip("\n")
    assert number.endswith(f" = {SATURDAY.toordinal()}")
    assert weekday.endswith(" = 6")


DATES = (BUILT_IN / "dates" / "SKILL.md").read_text()


def expression(start: str, end: str = "", *, text: str = DATES) -> str:
    """The one expression of the skill that stands in back-ticks and begins and ends so."""
    (found,) = {one for one in re.findall(r"`([^`]+)`", text) if one.startswith(start) and one.endswith(end)}
    return str(found)


def put(formula: str, **values: int) -> str:
    """A formula with numbers for its names."""
    return re.sub(r"\b[A-Z]\b", lambda name: str(values[name[0]]), formula)


def day_number(text: str, year: int, month: int, day: int) -> str:
    """The skill's expression for a date, January and February as it says."""
    if month < 3:
        year, month = year - 1, month + 12
    return put(expression("D + (", text=text), Y=year, M=month, D=day)


@settings(deadline=None)
@given(st.dates())
def test_the_number_of_a_day_is_right_for_every_date(day: date) -> None:
    """As Python counts them."""
    assert evaluate(day_number(DATES, day.year, day.month, day.day)) == day.toordinal()
    assert evaluate(put(expression("N %"), N=day.toordinal())) == day.isoweekday() % 7


@settings(deadline=None)
@given(st.dates(date(1900, 1, 1), date(2200, 1, 1)), st.integers(1, 300))
def test_working_days_are_counted_right(start: date, count: int) -> None:
    """Between two days, and the day so many working days after another."""
    worked = expression("5*(N//7)")

    def upto(day: date) -> int:
        return int(evaluate(put(worked, N=day.toordinal())))

    end, left = start, count
    while left:
        end += timedelta(days=1)
        left -= end.isoweekday() < 6
    assert upto(end) - upto(start) == count
    assert evaluate(put(expression("7*((T-1)"), T=upto(start) + count)) == end.toordinal()


def test_every_example_in_the_skill_is_right() -> None:
    """People and models learn from examples first."""
    examples = re.findall(r"`([^`]+)` = `(\d+)`", DATES)
    assert len(examples) == 5
    assert all(evaluate(given) == int(value) for given, value in examples)
    assert date.fromordinal(739_954) == date(2026, 12, 4)
    assert (date(2026, 12, 4).isoweekday(), SATURDAY.isoweekday()) == (5, 6)


@pytest.mark.parametrize("path", sorted(BUILT_IN.glob("*/SKILL.md")), ids=lambda path: path.parent.name)
def test_a_skill_names_only_tools_and_parameters_that_exist(path: Path) -> None:
    """A model that follows it never asks for something that is not there."""
    tools = build_tools()
    known = set(TOOLS) | {SearchHistory.name} | {name for tool in tools for name in names_of(tool.parameters)}
    words = {word for word in re.findall(r"`([a-z_]+)`", path.read_text()) if word not in ("dentist", "requires")}
    assert words <= known
    assert len(path.read_text().split()) < 700


@pytest.mark.parametrize("build", [lambda path: path, lambda path: path / "none"], ids=["empty", "missing"])
def test_they_need_nothing_from_the_operator(tmp_path: Path, build: Callable[[Path], Path]) -> None:
    """A new checkout has them, available."""
    assert all(not skill.missing for skill in SkillCatalogue(build(tmp_path)).skills())
