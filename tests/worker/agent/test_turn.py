"""What is kept of a turn."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from shared.messages.transcript import AssistantEntry, IntentEntry, LedgerEntry, ToolCall, ToolEntry, UserEntry
from worker.agent.history import NO_RESULT, resume_point, saved_history

ASKED = UserEntry(content="go", turn=3)
CALLED = AssistantEntry(content=None, turn=3, tool_calls=(ToolCall("a", "x", "{}"), ToolCall("b", "y", "{}")))


def result(call_id: str, content: str = "ok") -> ToolEntry:
    return ToolEntry(call_id=call_id, name="x", content=content, turn=3)


def test_saved_results_are_cut_and_intents_are_not_saved() -> None:
    """History keeps 500 characters of a result; the model saw more of it when it mattered."""
    final = AssistantEntry(content="done", turn=3)
    steps: list[LedgerEntry] = [
        CALLED,
        IntentEntry(call_id="a", turn=3),
        result("b", "y" * 500),
        result("a", "x" * 501),
    ]
    kept = saved_history(ASKED, steps, final)
    assert kept[:2] == (ASKED, CALLED)
    assert kept[-1] == final
    a, b = kept[2:4]
    assert isinstance(a, ToolEntry)
    assert (a.call_id, len(a.content), a.content[-5:]) == ("a", 500, "(cut)")
    assert b == result("b", "y" * 500)
    assert len(kept) == 5


@pytest.mark.parametrize("chars", [10, 50, 501, 5_000])
def test_how_much_of_a_result_history_keeps_can_be_set(chars: int) -> None:
    """The number is a setting; a result within it stays whole."""
    kept = saved_history(ASKED, [CALLED, result("a", "x" * 501), result("b")], result_chars=chars)
    assert isinstance(kept[2], ToolEntry)
    assert len(kept[2].content) == min(chars, 501)
    assert kept[2].content.endswith("... (cut)") is (chars < 501)


@pytest.mark.parametrize(("chars", "kept"), [(0, None), (50, f"{'x' * 40}\n... (cut)"), (60, "x" * 60)])
def test_how_much_of_the_thoughts_history_keeps_can_be_set(chars: int, kept: str | None) -> None:
    """Those before a call and those before the answer; 0 keeps none."""
    called = replace(CALLED, reasoning="x" * 60)
    final = AssistantEntry(content="done", turn=3, reasoning="x" * 60)
    entries = saved_history(ASKED, [called, result("a"), result("b")], final, thought_chars=chars)
    assert [entry.reasoning for entry in entries if isinstance(entry, AssistantEntry)] == [kept, kept]


def test_a_turn_that_was_stopped_leaves_no_call_without_result() -> None:
    """What a stop cut off is named, so that the next turn can be sent to any provider."""
    kept = saved_history(ASKED, [CALLED, result("a")])
    assert [entry.content for entry in kept] == ["go", None, "ok", NO_RESULT]


def test_the_resume_point_is_the_last_reply_and_how_far_it_got() -> None:
    """Results of earlier rounds do not count for the last one, whatever their ids."""
    assert resume_point(()) is None
    first = AssistantEntry(content=None, turn=3, tool_calls=(ToolCall("a", "x", "{}"),))
    point = resume_point([first, IntentEntry(call_id="a", turn=3), result("a"), CALLED, result("b")])
    assert point is not None
    assert (point.reply, set(point.intents), set(point.results), point.answered) == (CALLED, set(), {"b"}, False)
    whole = resume_point([CALLED, result("a"), result("b")])
    assert whole is not None
    assert whole.answered
