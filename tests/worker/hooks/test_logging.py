"""The log tells how a turn went, and nothing of what was said in it."""

from __future__ import annotations

from typing import Any

from shared.messages.transcript import UserEntry
from tests.helpers.scripted_model import Replies, ScriptedModel, call, calls
from tests.helpers.turn_borders import MemoryJournal, RecordingTool
from worker.agent.loop import run_agent
from worker.agent.tools.toolbox import Toolbox
from worker.agent.turn import AgentRunSpec
from worker.hooks.reporting import LoggingHook


async def test_rounds_and_tools_are_logged_without_text() -> None:
    """Names, numbers and times; neither question, answer, argument nor result."""
    lines: list[tuple[str, dict[str, Any]]] = []
    replies: Replies = [calls(call("look", {"text": "canary"}), call("lost"), text="canary"), "canary"]
    hook = LoggingHook(lambda event, **fields: lines.append((event, fields)))
    spec = AgentRunSpec(session="s", entry=UserEntry(content="canary", turn=1), system="canary", hook=hook)
    await run_agent(spec, ScriptedModel(replies), Toolbox([RecordingTool("look")]), MemoryJournal())
    assert [event for event, _ in lines] == ["round begins", "tools begin", "round done", "round begins", "round done"]
    assert lines[1][1] == {"tools": ["look", "lost"]}
    done = lines[2][1]
    assert (done["tools_ok"], done["tools_failed"]) == (["look"], ["lost"])
    assert (done["round"], done["model"], done["prompt_tokens"], done["completion_tokens"]) == (1, "scripted", 10, 1)
    assert "canary" not in repr(lines)
