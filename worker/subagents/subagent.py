"""The agent of a subagent: a turn's engine with fewer tools, without history and memory."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from shared.ids import split_session
from shared.messages.subagent import SubagentTask
from shared.messages.transcript import UserEntry
from shared.store.sessions.memory import MemoryStore, MemoryText
from shared.store.subagents.subagents import Subagents
from shared.store.turns.queue import Claim
from worker.agent.hook import CompositeHook
from worker.agent.tools.tool import Tool
from worker.agent.turn import AgentResult, AgentRunSpec
from worker.guards.approval import TurnConsent
from worker.guards.workspace import Workspaces
from worker.hooks.subagent_progress import SubagentProgress
from worker.mcp.servers import Toolboxes
from worker.prompts.sections import subagent_system, subagent_task
from worker.skills.catalogue import SkillCatalogue
from worker.subagents.files import SubagentFiles
from worker.turn.agent_runner import AgentRunner, report_fault
from worker.turn.journal import LeaseJournal
from worker.turn.outside import LeasedOutside

NOT_FOR_SUBAGENTS: Final = frozenset({"message", "spawn", "cron"})
"""Tools that a subagent does not get: it starts no subagents, sends no messages, plans nothing."""


def subagent_tools(tools: Iterable[Tool]) -> list[Tool]:
    """Return the tools of a turn that a subagent may use, too. It has no others."""
    return [tool for tool in tools if tool.name not in NOT_FOR_SUBAGENTS]


class SubagentAgent:
    """The agent of every subagent of one process. Its usage counts towards the budget of the chat."""

    def __init__(
        self,
        runner: AgentRunner,
        children: Subagents,
        memory: MemoryStore,
        *,
        tools: Toolboxes,
        workspaces: Workspaces,
        skills: SkillCatalogue,
    ) -> None:
        self._runner = runner
        self._children = children
        self._memory = memory
        self._tools = tools
        self._workspaces = workspaces
        self._skills = skills
        self._system = subagent_system()

    async def __call__(self, claim: Claim, task: SubagentTask, journal: LeaseJournal) -> AgentResult:
        """Do the task of `claim`. Raises what `run_agent` raises."""
        assert claim.subagent is not None
        runner, agent = self._runner, self._runner.settings.agent
        channel, chat_id = split_session(task.session)
        files = SubagentFiles(
            self._memory,
            "",
            MemoryText("", "0"),
            claim=None,
            limit_bytes=0,
            skills=self._skills.skills(),
            workspace=self._workspaces.workspace_of(task.session),
        )
        # The parent sees how far the subagent is, so its hook comes first.
        hooks = [SubagentProgress(self._children, claim), runner.hook]
        spec = AgentRunSpec(
            session=task.session,
            entry=UserEntry(content=subagent_task(task), turn=task.turn, at=task.at),
            channel=channel,
            chat_id=chat_id,
            system=self._system,
            resume=tuple(journal.entries),
            max_rounds=agent.subagent_rounds,
            files=files,
            pictures=files,
            outside=LeasedOutside(journal, files),
            consent=TurnConsent(runner.approval, task.turn, "subagent"),
            hook=CompositeHook(hooks, report=report_fault, call_limit_s=agent.hook_s),
        )
        return await runner.run("subagent", claim.subagent.preset, spec, await self._tools.current(), journal)
