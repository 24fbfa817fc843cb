"""One good save_memory call, whatever a model answers first."""

from __future__ import annotations

from typing import Any

import pytest

from shared.errors import ModelError
from tests.helpers.scripted_model import Replies, ScriptedModel, call, calls
from worker.agent.model.model import LLMResponse, ToolCallRequest
from worker.memory.saving import CONSOLIDATE, ENTRY_CHARS, REWORK, SavedMemory
from worker.memory.scribe import REPLIES, MemoryWriter, UnusableReply

STAMP = "2026-06-21 12:00"
LIMIT_BYTES = 4096
NOTES = "# Notes\n" + "\n".join(f"- fact number {n} about the person" for n in range(60))


def save(entry: Any = "[2026-06-21 11:59] They talked.", **arguments: Any) -> LLMResponse:
    return calls(call("save_memory", {"history_entry": entry, **arguments}))


async def ask(replies: Replies, *, old: str = "- old") -> tuple[SavedMemory, ScriptedModel]:
    model = ScriptedModel(replies)
    scribe = MemoryWriter(model, limit_bytes=LIMIT_BYTES, max_tokens=500)
    return await scribe.ask("system", "text", CONSOLIDATE, old=old, stamp=STAMP), model


async def test_one_call_is_enough() -> None:
    """The tool is offered alone; its arguments are the answer."""
    saved, model = await ask([save(memory_update="- new\n")])
    assert saved == SavedMemory("[2026-06-21 11:59] They talked.", "- new")
    assert model.offered == [["save_memory"]]
    assert [message["role"] for message in model.asked[0]] == ["system", "user"]


def test_the_tool_says_what_is_wanted() -> None:
    """Both arguments have a type and a description; only the entry is required."""
    parameters = CONSOLIDATE.parameters
    assert set(parameters["properties"]) == {"history_entry", "memory_update"}
    assert parameters["required"] == ["history_entry"]
    assert all(part["type"] == "string" and part["description"] for part in parameters["properties"].values())
    assert REWORK.parameters["required"] == ["memory_update"]


@pytest.mark.parametrize(
    ("given", "entry"),
    [
        ("They talked.", f"[{STAMP}] They talked."),
        ("2026-06-21: They talked.", f"[{STAMP}] 2026-06-21: They talked."),
        ({"summary": "tea"}, f'[{STAMP}] {{\n  "summary": "tea"\n}}'),
        (["a", 1], f'[{STAMP}] [\n  "a",\n  1\n]'),
        (7, f"[{STAMP}] 7"),
    ],
)
async def test_arguments_are_accepted_as_models_write_them(given: Any, entry: str) -> None:
    """Objects and lists become their JSON text, a missing time is added."""
    saved, _ = await ask([save(given)])
    assert saved.entry == entry


async def test_an_update_that_is_an_object_becomes_its_text() -> None:
    """Rather a MEMORY.md in JSON than one that was lost."""
    saved, _ = await ask([save(memory_update={"likes": ["tea"]})])
    assert saved.memory == '{\n  "likes": [\n    "tea"\n  ]\n}'


async def test_an_endless_entry_is_cut() -> None:
    """HISTORY.md is made of short entries."""
    saved, _ = await ask([save("[2026-06-21 11:59] " + "word " * 5000)])
    assert len(saved.entry) == ENTRY_CHARS


@pytest.mark.parametrize(
    "update", [None, "", "  \n", "- old", " - old\n", "(unchanged)", "No changes.", "no change needed", "None", "N/A"]
)
async def test_what_says_nothing_new_leaves_memory_as_it_is(update: str | None) -> None:
    """Also an empty text: a memory is never emptied by a model that had nothing to add."""
    saved, model = await ask([save(memory_update=update)])
    assert saved.memory is None
    assert not saved.refused
    assert len(model.asked) == 1


@pytest.mark.parametrize(
    ("bad", "complaint"),
    [
        ("I would say they talked.", "did not call"),
        (LLMResponse(content=None), "did not call"),
        (calls(call("other_tool", {"x": 1})), "did not call"),
        (calls(ToolCallRequest("1", "save_memory", None, "{broken")), "not one complete JSON object"),
        (calls(call("save_memory", {"memory_update": "- new"})), "history_entry"),
        (calls(call("save_memory", {"history_entry": "  "})), "history_entry"),
        (calls(call("save_memory", {"history_entry": "cut"}), finish_reason="length"), "cut off"),
    ],
)
async def test_a_reply_without_a_good_call_is_sent_back_with_the_reason(bad: str | LLMResponse, complaint: str) -> None:
    """A sharper reminder, in a form that every provider takes. A cut reply is bad however well its JSON was mended."""
    saved, model = await ask([bad, save(memory_update="- new")])
    assert saved.memory == "- new"
    bad_reply, reminder = model.asked[1][-2:]
    assert bad_reply["role"] == "assistant"
    assert bad_reply["content"]
    assert complaint in reminder["content"]
    assert "Call `save_memory` now" in reminder["content"]


async def test_after_three_bad_replies_it_is_given_up() -> None:
    """Some models cannot do it at all."""
    with pytest.raises(UnusableReply, match="scripted"):
        await ask(["no"] * REPLIES)


async def test_a_memory_that_is_too_big_is_sent_back_once() -> None:
    """The second, shorter one counts."""
    saved, model = await ask([save(memory_update="x" * 5000), save("better", memory_update="- short")])
    assert saved == SavedMemory(f"[{STAMP}] better", "- short")
    called, answered = model.asked[1][-2:]
    assert called["tool_calls"][0]["function"]["name"] == "save_memory"
    assert answered["tool_call_id"] == called["tool_calls"][0]["id"]
    assert "5,000 bytes; at most 4,096" in answered["content"]


@pytest.mark.parametrize(
    "second",
    [
        save("worse", memory_update="y" * 5000),
        "I will not.",
        ModelError("bad_request", "no", retryable=False),
    ],
)
async def test_a_memory_that_stays_too_big_is_refused_and_the_entry_is_kept(second: Any) -> None:
    """The old MEMORY.md stays; what was said is not lost."""
    saved, _ = await ask([save("first", memory_update="x" * 5000), second])
    assert saved == SavedMemory(f"[{STAMP}] first", None, refused=True)


async def test_the_size_counts_in_bytes() -> None:
    """As the limit says."""
    saved, _ = await ask([save(memory_update="é" * 2100), save(memory_update="é" * 2000)])
    assert saved.memory == "é" * 2000


async def test_a_memory_that_lost_most_of_the_old_one_is_sent_back() -> None:
    """Many models answer with the news alone; written as they are they would erase everything else."""
    whole = f"{NOTES}\n- likes tea"
    saved, model = await ask([save(memory_update="- likes tea"), save(memory_update=whole)], old=NOTES)
    assert saved.memory == whole
    assert "write it whole" in model.asked[1][-1]["content"]
    saved, _ = await ask([save(memory_update="- likes tea")] * 2, old=NOTES)
    assert saved.memory is None
    assert saved.refused


async def test_a_small_memory_may_become_smaller() -> None:
    """Correcting a few notes is no loss."""
    saved, _ = await ask([save(memory_update="- new")], old="- a note that is not true any more, and another one")
    assert saved.memory == "- new"


async def test_a_model_that_is_away_is_somebody_elses_business() -> None:
    """Also when it goes away between two replies: nothing is saved by half."""
    away = ModelError("overloaded", "busy", retryable=True)
    with pytest.raises(ModelError, match="busy"):
        await ask([away])
    with pytest.raises(ModelError, match="busy"):
        await ask([save(memory_update="x" * 5000), away])


async def test_a_rework_needs_no_entry() -> None:
    """Its tool has one argument."""
    model = ScriptedModel([calls(call("save_memory", {"memory_update": "- new"}))])
    scribe = MemoryWriter(model, limit_bytes=LIMIT_BYTES, max_tokens=500)
    assert await scribe.ask("s", "t", REWORK, old="- old") == SavedMemory("", "- new")
