"""A successor goes on where the ledger shows that its predecessor stood: the resume table, row by row."""

from __future__ import annotations

import msgspec
import pytest

from shared.errors import LeaseLost
from shared.messages.transcript import AssistantEntry, IntentEntry, LedgerEntry, ToolCall, ToolEntry, UserEntry
from tests.helpers.scripted_model import Replies, ScriptedModel, call, calls
from tests.helpers.turn_borders import AnyArguments, MemoryJournal, RecordingTool
from worker.agent.loop import run_agent
from worker.agent.ports import Files, NullPorts
from worker.agent.tools.tool import Safety, ToolContext
from worker.agent.tools.toolbox import Toolbox
from worker.agent.turn import AgentResult, AgentRunSpec

LOST_AT = 1_795_262_400_000  # 2026-11-21 12:00 UTC
ASKED = UserEntry(content="question", turn=7)
ALL: tuple[Safety, ...] = ("read_only", "idempotent", "unsafe")


def stored(*ids: str, text: str | None = "I go.") -> AssistantEntry:
    return AssistantEntry(
        content=text, turn=7, tool_calls=tuple(ToolCall(id, "act", f'{{"text":"{id}"}}') for id in ids)
    )


def intent(id: str) -> IntentEntry:
    return IntentEntry(call_id=id, turn=7, at=LOST_AT)


def result(id: str) -> ToolEntry:
    return ToolEntry(call_id=id, name="act", content=f"old {id}", turn=7)


class Successor:
    """A second attempt on another worker."""

    def __init__(self, safety: Safety | None, replies: Replies, *ledger: LedgerEntry, max_rounds: int = 40) -> None:
        self.events: list[str] = []
        self.tool = RecordingTool("act", safety or "unsafe", events=self.events)
        self.toolbox = Toolbox([self.tool] if safety else [])
        self.model = ScriptedModel(replies)
        self.journal = MemoryJournal(self.events)
        self.spec = AgentRunSpec(session="s", entry=ASKED, resume=ledger, max_rounds=max_rounds)

    async def run(self) -> AgentResult:
        return await run_agent(self.spec, self.model, self.toolbox, self.journal)

    def results(self, nth: int = 0) -> list[tuple[str, str]]:
        return [(m["tool_call_id"], m["content"]) for m in self.model.asked[nth] if m["role"] == "tool"]


async def test_an_empty_ledger_runs_from_the_message() -> None:
    """Row 1: nothing."""
    second = Successor("read_only", ["answer"])
    assert (await second.run()).content == "answer"
    assert second.events == ["checkpoint"]


@pytest.mark.parametrize("safety", ALL)
async def test_a_stored_reply_without_intent_goes_on_with_its_tools(safety: Safety) -> None:
    """Row 2: no new model call for what the model already said, whatever the class of the tool."""
    second = Successor(safety, ["answer"], stored("1", "2"))
    done = await second.run()
    assert second.tool.runs == [AnyArguments("1"), AnyArguments("2")]
    assert len(second.model.asked) == 1
    assert "assistant" not in second.events
    assert [m["role"] for m in second.model.asked[0]] == ["user", "assistant", "tool", "tool"]
    assert done.rounds == 2


@pytest.mark.parametrize("safety", ["read_only", "idempotent"])
async def test_a_begun_harmless_call_runs_again(safety: Safety) -> None:
    """Rows 3 and 4: intent, no result; the intent is not written twice."""
    second = Successor(safety, ["answer"], stored("1"), intent("1"))
    await second.run()
    assert second.tool.runs == [AnyArguments("1")]
    assert "intent:1" not in second.events
    assert "result:1" in second.events


@pytest.mark.parametrize("safety", ["unsafe", None])
async def test_a_begun_unsafe_call_does_not_run_again(safety: Safety | None) -> None:
    """Row 5: its outcome is unknown, and the model is told so; a tool that is gone counts as unsafe."""
    second = Successor(safety, ["answer"], stored("1"), intent("1"))
    done = await second.run()
    assert second.tool.runs == []
    unknown = "outcome unknown: the worker was lost at 2026-11-21 12:00:00 UTC; verify before repeating"
    assert second.results() == [("1", unknown)]
    assert second.events == ["checkpoint", "result:1", "checkpoint"]
    entry = done.entries[2]
    assert isinstance(entry, ToolEntry)
    assert (entry.content, entry.ok) == (unknown, False)


@pytest.mark.parametrize("safety", ALL)
async def test_all_results_begin_the_next_round(safety: Safety) -> None:
    """Row 6: results are kept, nothing runs again, in whatever order they were written."""
    second = Successor(safety, ["answer"], stored("1", "2"), intent("1"), result("2"), result("1"))
    done = await second.run()
    assert second.tool.runs == []
    assert second.results() == [("1", "old 1"), ("2", "old 2")]
    assert second.events == ["checkpoint"]
    assert [entry.content for entry in done.entries] == ["question", "I go.", "old 1", "old 2", "answer"]


async def test_a_half_done_batch_runs_only_its_rest() -> None:
    """Done, begun and untouched calls of one reply, each by its own row, answered in the order of the calls."""
    second = Successor("unsafe", ["answer"], stored("1", "2", "3"), intent("1"), result("1"), intent("2"))
    await second.run()
    assert second.tool.runs == [AnyArguments("3")]
    assert [(id, text.split(":")[0]) for id, text in second.results()] == [
        ("1", "old 1"),
        ("2", "outcome unknown"),
        ("3", "act says 3"),
    ]


async def test_rounds_count_over_attempts() -> None:
    """A turn that keeps crashing cannot go round for ever."""
    ledger = (stored("1"), result("1"), stored("2"), result("2"))
    second = Successor("read_only", [calls(call("act", id="3"))], *ledger, max_rounds=3)
    done = await second.run()
    assert (done.outcome, done.rounds) == ("round_cap", 3)
    assert done.content.startswith("I go.\n\n")


async def test_new_calls_do_not_take_ids_of_earlier_attempts() -> None:
    """An id names one call in the whole turn."""
    second = Successor("read_only", [calls(call("act", id="1")), "x"], stored("1"), result("1"))
    await second.run()
    assert [id for id, _ in second.results(1)] == ["1", "call_2_0"]


async def test_a_stored_final_text_is_the_answer() -> None:
    """Whoever stored it: the model is not asked again."""
    second = Successor("read_only", [], AssistantEntry(content="final", turn=7))
    done = await second.run()
    assert done.content == "final"
    assert [entry.content for entry in done.entries] == ["question", "final"]


async def test_stored_arguments_that_are_no_object_are_refused_again() -> None:
    """What could not be read the first time cannot be read now."""
    broken = AssistantEntry(content=None, turn=7, tool_calls=(ToolCall("1", "act", "{broken"),))
    second = Successor("read_only", ["x"], broken)
    await second.run()
    assert second.tool.runs == []
    assert "not one complete JSON object" in second.results()[0][1]


STEPS = ("checkpoint", "assistant", "confirm", "intent:a", "result:a", "intent:b", "result:b", "result:c")


@pytest.mark.parametrize("before", [True, False])
@pytest.mark.parametrize("event", STEPS)
async def test_wherever_a_worker_is_lost_no_unsafe_call_runs_twice_and_the_turn_ends(event: str, before: bool) -> None:
    """A worker is lost before or after each step; its successor finishes the turn with the ledger that is left."""
    runs: list[str] = []
    tools = Toolbox(
        [
            RecordingTool("send", "unsafe", events=runs),
            RecordingTool("write", "idempotent", events=runs),
            RecordingTool("read", events=runs),
        ]
    )
    wanted = calls(call("send", id="a"), call("write", id="b"), call("read", id="c"))
    journal = MemoryJournal()
    journal.on(event, LeaseLost("lost"), before=before)
    spec = AgentRunSpec(session="s", entry=ASKED)
    with pytest.raises(LeaseLost):
        await run_agent(spec, ScriptedModel([wanted, "answer"]), tools, journal)

    left = tuple(journal.entries)
    replies: Replies = ["answer"] if any(isinstance(entry, AssistantEntry) for entry in left) else [wanted, "answer"]
    done = await run_agent(msgspec.structs.replace(spec, resume=left), ScriptedModel(replies), tools, MemoryJournal())
    assert done.content == "answer"
    assert runs.count("run:a") <= 1
    assert runs.count("run:b") >= 1
    assert [e.call_id for e in done.entries if isinstance(e, ToolEntry)] == ["a", "b", "c"]
    sent = next(e for e in done.entries if isinstance(e, ToolEntry) and e.call_id == "a")
    begun = any(isinstance(entry, IntentEntry) and entry.call_id == "a" for entry in left)
    has_result = any(isinstance(entry, ToolEntry) and entry.call_id == "a" for entry in left)
    assert sent.content.startswith("outcome unknown" if begun and not has_result else "send says")


class Versions(NullPorts):
    """Files at one version, or as of another."""

    def __init__(self, version: str) -> None:
        self.version = version

    def stamp(self) -> str:
        return self.version

    def as_of(self, stamp: str) -> Files:
        return Versions(stamp)


async def test_calls_see_the_files_as_of_the_reply_that_asked_for_them() -> None:
    """A resumed call works on what its model had seen, a later one on what is there now; history keeps none of it."""
    seen: list[str] = []

    async def look(arguments: AnyArguments, context: ToolContext) -> str:
        seen.append(context.files.stamp())
        return "seen"

    old = msgspec.structs.replace(stored("1"), seen="v1")
    second = Successor("idempotent", [calls(call("act", id="2")), "answer"], old, intent("1"))
    second.tool._behaviour = look
    second.spec = msgspec.structs.replace(second.spec, files=Versions("v2"))
    done = await second.run()
    assert seen == ["v1", "v2"]
    [reply] = [entry for entry in second.journal.entries if isinstance(entry, AssistantEntry)]
    assert reply.seen == "v2"
    assert {entry.seen for entry in done.entries if isinstance(entry, AssistantEntry)} == {""}
