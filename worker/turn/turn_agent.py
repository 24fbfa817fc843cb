"""The agent of turns and subagents: builds everything that one of them needs, and runs it."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterable
from functools import partial
from typing import Final

from shared.clock import SYSTEM_CLOCK
from shared.errors import ToolFailed
from shared.ids import split_session
from shared.log import logger
from shared.media.store import MediaStore
from shared.messages.inbound import PRESET
from shared.messages.subagent import SubagentTask
from shared.messages.transcript import UserEntry
from shared.process.service import freeze_heap
from shared.settings import Settings, ToolsSettings, child_environment
from shared.store.access.audit import Audit
from shared.store.client.redis_client import RedisClient
from shared.store.schedules.schedules import Schedules
from shared.store.sessions.memory import MemoryStore, MemoryText
from shared.store.subagents.subagents import Subagents
from shared.store.turns.inbox import InboxLimits
from shared.store.turns.queue import Claim
from worker.agent.composite_hook import CompositeHook
from worker.agent.ports import TurnProgress
from worker.agent.tools.text import cut
from worker.agent.tools.tool import Tool
from worker.agent.tools.toolbox import Toolbox
from worker.agent.turn import AgentResult, AgentRunSpec
from worker.guards.approval import TurnConsent, build_consent
from worker.guards.chats import ChatPolicy
from worker.guards.folder import Quota
from worker.guards.openat import Access, NoSuchFile
from worker.guards.workspace import Workspace, Workspaces
from worker.hooks.reporting import SubagentProgress
from worker.mcp.servers import McpServers, Toolboxes
from worker.prompts.system import SystemPrompt, subagent_system, subagent_task
from worker.sandbox.command import CommandLimits, Sandbox
from worker.sandbox.parser_confinement import can_confine_parsers
from worker.skills.catalogue import OWN, SkillCatalogue
from worker.skills.skill import Skill
from worker.tools.cron import CronTool
from worker.tools.exec import Exec
from worker.tools.message import MessageTool
from worker.tools.registry import build_tools, plugin_tools
from worker.tools.spawn import WAIT_S, SpawnTool
from worker.turn.agent_runner import AgentRunner, report_fault
from worker.turn.attachments import Attachments, TurnAttachments
from worker.turn.conversation import Conversation
from worker.turn.files import LeasedOutside, MemoryFile, TurnFiles
from worker.turn.journal import LeaseJournal, TurnJournal
from worker.turn.schedules import HEARTBEAT_FILE, TurnSchedules, drop_quiet_heartbeat

HEARTBEAT_BYTES: Final = 16 * 1024  # of a HEARTBEAT.md that is put into a message
OWN_SKILLS_S: Final = 2.0  # longest wait of a turn for the list of skills in its workspace
NOT_FOR_SUBAGENTS: Final = frozenset({"message", "spawn", "cron"})
"""Tools that a subagent does not get: it starts no subagents, sends no messages, plans nothing."""

log = logger("worker")


class TurnAgent:
    """The agent of one process: its models, tools, hooks, skills and prompt. Raises SettingsError
    when one of them cannot be had as the settings want it."""

    def __init__(self, settings: Settings, client: RedisClient, memory: MemoryStore) -> None:
        agent, limits = settings.agent, InboxLimits.of(settings)
        self._settings = settings
        self.memory: Final = memory
        self.runner: Final = AgentRunner(settings, client)
        self.children: Final = Subagents(client, limits)
        self.schedules: Final = Schedules(client, settings.cron, limits)
        self._audit = Audit(client)
        self.media: Final = MediaStore(settings.media)
        self._attachments = Attachments(self.media)
        space = settings.workspace
        quota = Quota(space.quota_mb * 1024 * 1024, space.files, space.results_days * 86_400)
        self.workspaces: Final = Workspaces(space.root, quota, access=Access(space.group))
        tools = self._build_tools()
        names = [tool.name for tool in tools]
        self.mcp: Final = McpServers(settings.mcp, reserved_names=[Exec.name, *names])
        limit_bytes = agent.result_bytes
        make_toolbox = partial(Toolbox, result_limit_bytes=limit_bytes, report=report_fault)
        self._toolboxes = Toolboxes(tools, self.mcp, make_toolbox)
        self._subagent_toolboxes = Toolboxes(subagent_tools(tools), self.mcp, make_toolbox)
        self.skills: Final = SkillCatalogue(agent.dir, environment=child_environment({}))
        self._prompt = SystemPrompt(agent.dir, self.skills, tools=names)
        self._subagent_system = subagent_system()

    async def __call__(self, conversation: Conversation, journal: TurnJournal, show: TurnProgress) -> AgentResult:
        """Answer a conversation. Raises what `run_agent` raises."""
        claim, message, work = conversation.claim, conversation.message, conversation.work
        settings, agent, joined = self._settings, self._settings.agent, conversation.joined
        tools = await self._toolboxes.current()
        skills = self.skills.skills()
        workspace = self.workspaces.workspace_of(conversation.session)
        own = await self._own_skills(workspace)
        attached = TurnAttachments(self._attachments, workspace, journal, joined)
        opening = await attached.load_message(message, work.n, conversation.opening)
        await attached.load_joined()
        schedules = TurnSchedules(self.schedules, settings.cron, claim, message)
        seen, limit = MemoryText(work.memory, work.memory_version), settings.memory.file_bytes
        memory = MemoryFile(self.memory, work.scope, seen, claim=claim, limit_bytes=limit)
        files = TurnFiles(memory, skills=skills, workspace=workspace)
        spec = AgentRunSpec(
            session=conversation.session,
            entry=opening.entry,
            images=opening.images,
            channel=message.channel,
            chat_id=message.chat_id,
            sender_name=opening.sender_name,
            sender_id=opening.sender_id,
            system=self._prompt.render(work.memory, own),
            history=conversation.history,
            resume=conversation.resume,
            joined={number: one.followup for number, one in joined.items()},
            max_rounds=agent.max_rounds,
            memory_window=agent.memory_window,
            saved_result_chars=agent.saved_result_chars,
            files=files,
            pictures=files,
            outside=LeasedOutside(journal.lease, files),
            schedules=schedules,
            consent=build_consent(self.runner.approval, work.n, lambda: conversation.messages),
            hook=self.runner.hook,
            progress=show,
            followups=attached,
        )
        preset = message.metadata.get(PRESET, work.preset)
        result = await self.runner.run("shoal", preset, spec, tools, journal)
        every_s, now_ms = settings.heartbeat.every_min * 60, SYSTEM_CLOCK.now_ms()
        await schedules.keep_heartbeat(result.entries, every_s=every_s, now_ms=now_ms)
        return result if joined else drop_quiet_heartbeat(message, result)

    async def run_subagent(self, claim: Claim, task: SubagentTask, journal: LeaseJournal) -> AgentResult:
        """Do the task of a subagent: with fewer tools, without history and memory. Its usage counts
        towards the budget of the chat. Raises what `run_agent` raises."""
        assert claim.subagent is not None
        runner, settings = self.runner, self._settings.agent
        channel, chat_id = split_session(task.session)
        workspace = self.workspaces.workspace_of(task.session)
        files = TurnFiles(None, skills=self.skills.skills(), workspace=workspace)
        # The parent sees how far the subagent is, so its hook comes first.
        hooks = [SubagentProgress(self.children, claim), runner.hook]
        spec = AgentRunSpec(
            session=task.session,
            entry=UserEntry(content=subagent_task(task), turn=task.turn, at=task.at),
            channel=channel,
            chat_id=chat_id,
            system=self._subagent_system,
            resume=tuple(journal.entries),
            max_rounds=settings.subagent_rounds,
            files=files,
            pictures=files,
            outside=LeasedOutside(journal.lease, files),
            consent=TurnConsent(runner.approval, task.turn, "subagent"),
            hook=CompositeHook(hooks, report=report_fault, call_limit_s=settings.hook_s),
        )
        tools = await self._subagent_toolboxes.current()
        return await runner.run("subagent", claim.subagent.preset, spec, tools, journal)

    async def read_heartbeat(self, session: str) -> str:
        """Return a session's HEARTBEAT.md, `""` if none. Raises ToolFailed without a workspace."""
        try:
            data = await self.workspaces.workspace_of(session).read_file(HEARTBEAT_FILE)
        except NoSuchFile:
            return ""
        rest = f"read {HEARTBEAT_FILE!r} for all of it"
        return cut(data.decode(errors="replace"), HEARTBEAT_BYTES, rest=rest)

    def offer_exec(self, sandbox: Sandbox) -> None:
        """Offer the exec tool to turns and subagents that begin from now on."""
        tools, mine = self._settings.tools, child_environment({})
        limits = CommandLimits(
            cpu_s=tools.exec_cpu_s,
            memory_bytes=tools.exec_memory_mb * 2**20,
            processes=tools.exec_processes,
            file_bytes=tools.exec_file_mb * 2**20,
            wall_s=tools.exec_timeout_s,
            output_bytes=tools.exec_output_kb * 1024,
        )
        tool = Exec(
            sandbox,
            self.workspaces,
            limits=limits,
            network=tools.exec_network,
            environment={name: mine[name] for name in tools.exec_env if name in mine},
            audit=self._audit,
        )
        self._toolboxes.add_tool(tool)
        self._subagent_toolboxes.add_tool(tool.for_subagents())

    async def preload(self) -> None:
        """Load what a first turn would wait for; log models that no dollar budget can count."""
        models, budget = self.runner.models, "budget.usd_per_day"
        for name in await models.unpriced() if self._settings.budget.usd_per_day else ():
            log.warning("model without a price", model=name, unheeded=budget, set="model.prices")
        await models.preload()
        with contextlib.suppress(ToolFailed):
            await self.workspaces.detect_local_disk()
        if not can_confine_parsers():
            doing, reason = "limiting them only", "it takes Linux 6.2 with Landlock"
            log.warning("parser sandbox unavailable", doing=doing, reason=reason)
        freeze_heap()
        log.info("model ready", model=models.name)

    async def close(self) -> None:
        """Close connections and threads."""
        await self.mcp.close()
        await self.runner.close()
        self.workspaces.close()
        self._attachments.close()

    def _build_tools(self) -> list[Tool]:
        """Return the tools of every turn: built-in ones, then plugins', with other names."""
        settings, agent = self._settings, self._settings.agent
        reach, files = ChatPolicy(settings.tools.message_to), settings.media.per_message
        message = MessageTool(reach, self.media, files=files, audit=self._audit)
        own = [*build_tools(), message, *_web_tools(settings.tools)]
        if settings.cron.on:
            own.append(CronTool(settings.heartbeat.every_min))
        wait_s = min(WAIT_S, agent.subagent_timeout_s, agent.turn_timeout_s / 2)
        own.append(SpawnTool(self.children, wait_s=wait_s))
        reserved = [Exec.name, *(tool.name for tool in own)]
        return [*own, *plugin_tools(settings.plugins, reserved=reserved)]

    async def _own_skills(self, workspace: Workspace) -> tuple[Skill, ...]:
        """Return the skills that the agent wrote into its workspace; none while the workspace is
        unavailable, because a turn can do without them."""
        if workspace.surely_without(OWN):
            return ()
        try:
            async with asyncio.timeout(OWN_SKILLS_S):
                return await workspace.run_in_folder(self.skills.workspace_skills)
        except (ToolFailed, TimeoutError):
            log.warning("workspace away", doing="going on without its skills")
            return ()


def _web_tools(settings: ToolsSettings) -> tuple[Tool, ...]:
    """Return the web tools if they are on. Only then is their HTTP library imported."""
    if not settings.web:
        return ()
    from worker.tools.web import build_web_tools

    return build_web_tools(settings)


def subagent_tools(tools: Iterable[Tool]) -> list[Tool]:
    """Return the tools of a turn that a subagent may use, too. It has no others."""
    return [tool for tool in tools if tool.name not in NOT_FOR_SUBAGENTS]
