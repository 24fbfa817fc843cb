"""Doing what a subagent was asked: the same engine as a turn's, with less of everything around
it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from shared.errors import ModelError
from shared.ids import split_session
from shared.messages.transcript import UserEntry
from shared.metrics import MODEL_REQUESTS
from shared.settings import Settings
from shared.store.fleet.spending import Spending
from shared.store.sessions.memory import MemoryStore, MemoryText
from shared.store.subagents.subagents import Children
from worker.agent.hook import AgentHook, CompositeHook
from worker.agent.loop import run_agent
from worker.agent.model.compact import make_compact
from worker.agent.tools.tool import Report, Tool
from worker.agent.turn import AgentResult, AgentRunSpec
from worker.guards.approval import ApprovalPolicy, TurnConsent
from worker.guards.workspace import Workspaces
from worker.hooks.subagent_progress import SubagentProgress
from worker.llm.registry import Models
from worker.mcp.servers import Toolboxes
from worker.prompts.subagent import subagent_system, subagent_task
from worker.skills.catalogue import Catalogue
from worker.subagents.assignment import Assignment
from worker.subagents.files import SubagentFiles
from worker.turn.budget import BackgroundSpending, ChatBudget
from worker.turn.journal import LeaseJournal
from worker.turn.outside import LeasedOutside
from worker.turn.traces import agent_span, set_agent_result

NOT_FOR_SUBAGENTS: Final = frozenset({"message", "spawn", "cron"})
"""A subagent starts none of its own, says nothing to anybody and plans nothing: it answers."""


def subagent_tools(tools: Iterable[Tool]) -> list[Tool]:
    """Those of a turn's tools that a subagent has, too; it never has others."""
    return [tool for tool in tools if tool.name not in NOT_FOR_SUBAGENTS]


class SubagentAgent:
    """The subagents of one process. What one uses is counted in its session's budget."""

    def __init__(
        self,
        settings: Settings,
        children: Children,
        memory: MemoryStore,
        *,
        models: Models,
        tools: Toolboxes,
        hook: AgentHook,
        report: Report,
        spending: Spending,
        late_counts: BackgroundSpending,
        workspaces: Workspaces,
        skills: Catalogue,
        timezone: str,
    ) -> None:
        self._settings = settings
        self._approval = ApprovalPolicy(settings)
        self._children = children
        self._memory = memory
        self._models = models
        self._tools = tools
        self._hook = hook
        self._report = report
        self._spending = spending
        self._late_counts = late_counts
        self._workspaces = workspaces
        self._skills = skills
        self._timezone = timezone
        self._system = subagent_system()

    async def __call__(self, assignment: Assignment, journal: LeaseJournal) -> AgentResult:
        """Raises what `run_agent` raises."""
        task, work, agent = assignment.task, assignment.work, self._settings.agent
        model = self._models.get(work.preset)
        limits = await self._models.limits_of(work.preset)
        facts = await self._models.facts_of(work.preset)
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
        spec = AgentRunSpec(
            session=task.session,
            entry=UserEntry(content=subagent_task(task), turn=task.turn, at=task.at),
            channel=channel,
            chat_id=chat_id,
            system=self._system,
            resume=assignment.resume,
            timezone=self._timezone,
            max_rounds=agent.subagent_rounds,
            max_tokens=limits.max_tokens,
            temperature=limits.temperature,
            continuations=agent.continuations,
            context_tokens=limits.context_tokens,
            compact_at=agent.compact_at,
            compact_keep=agent.compact_keep,
            files=files,
            pictures=files,
            outside=LeasedOutside(journal, files),
            consent=TurnConsent(self._approval, task.turn, "subagent"),
            hook=CompositeHook(
                [SubagentProgress(self._children, assignment.claim), self._hook],
                report=self._report,
                call_limit_s=agent.hook_s,
            ),
            compact=make_compact(model),
            allowance=ChatBudget(
                self._spending, task.session, self._settings.budget, late=self._late_counts, price=facts.cost_usd
            ),
        )
        try:
            with agent_span("subagent", task.session, model.name) as now:
                result = await run_agent(spec, model, await self._tools.now(), journal)
                set_agent_result(now, result)
                return result
        except ModelError as exc:
            MODEL_REQUESTS.labels(model.name, exc.kind).inc()
            raise
