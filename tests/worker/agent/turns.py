"""A turn with everything around it in memory."""

from __future__ import annotations

from typing import Any

import msgspec

from shared.errors import ModelError
from shared.messages.transcript import UserEntry
from tests.helpers.scripted_model import Replies, ScriptedModel
from tests.helpers.turn_borders import MemoryJournal, RecordingProgress, RecordingTool
from worker.agent.loop import run_agent
from worker.agent.tools.toolbox import Toolbox
from worker.agent.turn import AgentResult, AgentRunSpec

SPEC = AgentRunSpec(session="s", entry=UserEntry(content="question", turn=7), system="be", channel="web", chat_id="a/b")
BUSY = ModelError("overloaded", "busy", retryable=True)


class Turn:
    """One turn: `run` it, then look at its `model`, `journal`, `progress` and the order of `events`."""

    def __init__(self, replies: Replies, *tools: RecordingTool, spec: AgentRunSpec = SPEC) -> None:
        self.events: list[str] = []
        self.model = ScriptedModel(replies)
        self.journal = MemoryJournal(self.events)
        self.progress = RecordingProgress()
        self.spec = spec
        for tool in tools:
            tool.events = self.events
        self.tools = Toolbox(tools)

    async def run(self, **more: Any) -> AgentResult:
        """Run the turn; `more` are fields of its spec."""
        spec = msgspec.structs.replace(self.spec, **{"progress": self.progress, **more})
        return await run_agent(spec, self.model, self.tools, self.journal)

    def seen(self, nth: int) -> list[tuple[str, str | None]]:
        """Roles and texts of what the model saw in its nth call, without system text and the question."""
        return [(message["role"], message["content"]) for message in self.model.asked[nth][2:]]
