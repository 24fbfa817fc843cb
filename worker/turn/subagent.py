"""The agent of a subagent: a turn's engine with fewer tools, without history and memory."""

from __future__ import annotations

from shared.ids import split_session
from shared.messages.subagent import SubagentTask
from shared.messages.transcript import UserEntry
from shared.store.turns.queue import Claim
from worker.agent.hook import CompositeHook
from worker.agent.turn import AgentResult, AgentRunSpec
from worker.guards.approval import TurnConsent
from worker.hooks.reporting import SubagentProgress
from worker.prompts.system import subagent_system, subagent_task
from worker.turn.agent_runner import report_fault
from worker.turn.files import LeasedOutside, TurnFiles
from worker.turn.journal import LeaseJournal
from worker.turn.turn_agent import TurnAgent


class SubagentAgent:
    """The agent of every subagent of one process. Its usage counts towards the chat's budget."""

    def __init__(self, agent: TurnAgent) -> None:
        self._agent = agent
        self._system = subagent_system()

    async def __call__(self, claim: Claim, task: SubagentTask, journal: LeaseJournal) -> AgentResult:
        """Do the task of `claim`. Raises what `run_agent` raises."""
        assert claim.subagent is not None
        agent, runner = self._agent, self._agent.runner
        settings = runner.settings.agent
        channel, chat_id = split_session(task.session)
        workspace = agent.workspaces.workspace_of(task.session)
        files = TurnFiles(None, skills=agent.skills.skills(), workspace=workspace)
        # The parent sees how far the subagent is, so its hook comes first.
        hooks = [SubagentProgress(agent.children, claim), runner.hook]
        spec = AgentRunSpec(
            session=task.session,
            entry=UserEntry(content=subagent_task(task), turn=task.turn, at=task.at),
            channel=channel,
            chat_id=chat_id,
            system=self._system,
            resume=tuple(journal.entries),
            max_rounds=settings.subagent_rounds,
            files=files,
            pictures=files,
            outside=LeasedOutside(journal.lease, files),
            consent=TurnConsent(runner.approval, task.turn, "subagent"),
            hook=CompositeHook(hooks, report=report_fault, call_limit_s=settings.hook_s),
        )
        tools = await agent.subagent_toolboxes.current()
        return await runner.run("subagent", claim.subagent.preset, spec, tools, journal)
