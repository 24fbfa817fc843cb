"""The demo model shows the best features: reminders, files, a question, a search."""

from __future__ import annotations

from typing import Any

import pytest

from shared.messages.schedule import AtPlan, tick_message
from tests.helpers.schedules import schedule
from worker.agent.model.model import ModelRequest, ToolSpec
from worker.llm.demo.demo_model import DemoModel
from worker.llm.demo.reminders import due_reminder, reminder_call
from worker.llm.demo.replies import describe_result
from worker.llm.demo.text import FILE_TEXT, OLD_LINE
from worker.llm.demo.wishes import wanted_tools

NOW_MS = 1_795_000_000_000  # 2026-11-18 11:06:40 UTC
TASK = "Remind the person: "


@pytest.mark.parametrize(
    ("text", "task", "when"),
    [
        ("Remind me in one minute to stretch", "stretch", {"at": "2026-11-18T11:07:40+00:00"}),
        ("please remind me to call Ann in 2 hours.", "call Ann", {"at": "2026-11-18T13:06:40+00:00"}),
        ("remind me of the tea in 90 seconds", "the tea", {"at": "2026-11-18T11:08:10+00:00"}),
        ("Remind me every weekday at 9 to plan the day", "plan the day", {"cron_expr": "0 9 * * 1-5"}),
        ("remind me every day at 18:30 to go home", "go home", {"cron_expr": "30 18 * * *"}),
        ("remind me", "this is your reminder", {"at": "2026-11-18T11:07:40+00:00"}),
        ("remind me every day at 99 to rest", "rest", {"at": "2026-11-18T11:07:40+00:00"}),
    ],
)
def test_a_reminder_is_a_schedule(text: str, task: str, when: dict[str, str]) -> None:
    """The time is taken out of the text; without one it is due in a minute, soon enough to watch."""
    call = reminder_call(text, NOW_MS)
    assert call is not None
    given = {name: value for name, value in call.items() if name in ("at", "cron_expr")}
    assert (call["action"], given) == ("add", when)
    assert call["message"] == f"{TASK}{task}"


@pytest.mark.parametrize(
    ("result", "answer"),
    [
        ("Schedule 7c4 is made: once, at 2026-11-23 19:14 (Monday, UTC).", "I will remind you at 2026-11-23 19:14"),
        ("Schedule 7c4 is made: at '0 9 * * 1-5' (UTC); first 2026-11-24 09:00 (Tuesday, UTC).", "first at 2026-11-24"),
        ("Schedule 7c4 is made: otherwise.", "Schedule 7c4 is made: otherwise."),
    ],
)
def test_a_plan_is_put_in_words(result: str, answer: str) -> None:
    """Nobody wants to read the id of a schedule."""
    assert answer in describe_result("cron", result)


async def test_a_due_reminder_is_shown_without_its_head() -> None:
    """Shoal sends the schedule's text as a message; nobody wants to read that with its head."""
    planned = schedule(plan=AtPlan(NOW_MS))
    message = tick_message(planned, NOW_MS, now_ms=NOW_MS, late=False, text=f"{TASK}stretch")
    answer = due_reminder(message.content)
    assert answer is not None
    assert "**stretch**" in answer
    assert due_reminder("stretch") is None
    reply = await DemoModel(piece_s=0).chat(ModelRequest([{"role": "user", "content": message.content}]))
    assert reply.content == answer


@pytest.mark.parametrize(
    ("text", "tool", "arguments"),
    [
        ("Write a packing list", "write_file", {"content": FILE_TEXT}),
        ("please create a file", "write_file", {"content": FILE_TEXT}),
        ("Change the list", "edit_file", {"old_text": OLD_LINE}),
        ("show me the file", "read_file", {}),
        ("Search your files for working days.", "grep", {"words": "working days"}),
        ("Remind me in one minute to write a list", "cron", {"action": "add"}),
    ],
)
def test_files_and_a_search(text: str, tool: str, arguments: dict[str, Any]) -> None:
    """The real tools of the agent; what it changes it has written before."""
    [(name, given)] = wanted_tools(text, NOW_MS)
    assert (name, arguments.items() <= given.items()) == (tool, True)
    assert given.get("old_text", OLD_LINE) in FILE_TEXT


@pytest.mark.parametrize("text", ["Write some code", "Tell me a long story", "What can you do?", "list 3 fish"])
def test_other_texts_need_no_file(text: str) -> None:
    """The demo's older tricks go on working."""
    assert wanted_tools(text, NOW_MS) == []


async def test_no_tool_is_called_that_is_not_offered() -> None:
    """As in the API, where a chat has no schedules."""
    request = ModelRequest([{"role": "user", "content": "remind me to eat"}], [ToolSpec("grep", "", {})])
    reply = await DemoModel(piece_s=0).chat(request)
    assert not reply.tool_calls
    assert reply.content


def test_marks_in_a_file_do_not_end_its_block() -> None:
    """A file may have fences of its own."""
    assert describe_result("read_file", "a\n```\nb").endswith("````\na\n```\nb\n````")
