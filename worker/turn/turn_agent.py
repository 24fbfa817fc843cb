"""The agent of turns and subagents: builds everything that one of them needs, and runs it."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
from collections.abc import AsyncIterator, Iterable, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Final

from shared.clock import SYSTEM_CLOCK
from shared.confinement.parsers import can_confine_parsers
from shared.errors import ToolFailed, TurnReleased
from shared.ids import is_ephemeral, is_stored, split_session
from shared.log import logger
from shared.media.disk import DiskFloor
from shared.media.store import MediaStore
from shared.messages.inbound import PRESET, SYSTEM, TIMEZONE, TurnOptions
from shared.messages.schedule import HEARTBEAT, is_background
from shared.messages.subagent import SubagentTask
from shared.messages.transcript import UserEntry
from shared.object_store import open_store
from shared.process.service import freeze_heap
from shared.settings import Settings, ToolsSettings, child_environment
from shared.settings.sections.tool_use import WorkspaceSettings
from shared.store.access.audit import Audit
from shared.store.client.redis_client import RedisClient
from shared.store.schedules.schedules import Schedules
from shared.store.schedules.times import usable_timezone
from shared.store.sessions.memory import MemoryStore, MemoryText, about_scope, soul_scope
from shared.store.sessions.transcripts import Transcripts
from shared.store.sessions.workspace_marks import WorkspaceMarks
from shared.store.subagents.subagents import Subagents
from shared.store.turns.inbox import InboxLimits
from shared.store.turns.queue import Claim
from shared.store.turns.standing import StandingApprovals
from shared.tasks import close_all
from worker.agent.composite_hook import CompositeHook
from worker.agent.hook import AgentHook
from worker.agent.ports import TurnProgress
from worker.agent.tools.text import cut
from worker.agent.tools.tool import Tool
from worker.agent.tools.toolbox import Toolbox
from worker.agent.turn import AgentResult, AgentRunSpec
from worker.guards.approval import TurnConsent, build_consent
from worker.guards.chats import ChatPolicy
from worker.guards.folder import Quota
from worker.guards.marks import TurnMark, WorkspaceMark
from worker.guards.openat import Access, NoSuchFile
from worker.guards.workspace import Workspace, Workspaces
from worker.hooks.reporting import SubagentProgress
from worker.mcp.server_sandbox import confined, hidden_paths
from worker.mcp.servers import McpServers, Toolboxes
from worker.prompts.system import (
    SystemPrompt,
    folder_section,
    plain_system,
    subagent_system,
    subagent_task,
    system_prompt,
)
from worker.sandbox.command import CommandLimits, Sandbox
from worker.sandbox.layout import PATH as COMMAND_PATH
from worker.skills.catalogue import OWN, SkillCatalogue
from worker.skills.skill import Skill
from worker.tools.cron import CronTool
from worker.tools.exec import Exec
from worker.tools.message import MessageTool
from worker.tools.registry import build_tools, check_tools, plugin_tools, trusted_tools
from worker.tools.search_history import SearchHistory
from worker.tools.spawn import WAIT_S, SpawnTool
from worker.turn.agent_runner import AgentRunner, report_fault
from worker.turn.attachments import Attachments, TurnAttachments
from worker.turn.conversation import Conversation
from worker.turn.files import SOUL, USER, LeasedOutside, MemoryFile, TurnFiles
from worker.turn.journal import LeaseJournal, TurnJournal
from worker.turn.live_updates import count_continued
from worker.turn.recordings import Recordings
from worker.turn.schedules import HEARTBEAT_FILE, TurnSchedules, drop_quiet_heartbeat
from worker.turn.spoken_answer import SUFFIXES, SpokenAnswer

if TYPE_CHECKING:
    from worker.copies.copies import WorkspaceCopies
    from worker.llm.clients.voice_client import VoiceClient

HEARTBEAT_BYTES: Final = 16 * 1024  # of a HEARTBEAT.md that is put into a message
OWN_SKILLS_S: Final = 2.0  # longest wait of a turn for the list of skills in its workspace
NOT_FOR_SUBAGENTS: Final = frozenset({"message", "spawn", "cron", "search_history"})
"""Tools that a subagent does not get: it starts no subagents, sends no messages, plans nothing, and
does not know the conversation."""

_MB: Final = 1024 * 1024

log = logger("worker")


class TurnAgent:
    """The agent of one process: its models, tools, hooks, skills and prompt, with `tools` and
    `hooks` of the program that it runs in. Raises SettingsError when one of them cannot be had as
    the settings want it, BadInput for one of those tools."""

    def __init__(
        self,
        settings: Settings,
        client: RedisClient,
        memory: MemoryStore,
        tools: Sequence[Tool] = (),
        hooks: Sequence[AgentHook] = (),
    ) -> None:
        agent = settings.agent
        limits = InboxLimits.of(settings)
        self._settings = settings
        self.memory: Final = memory
        self._marks = WorkspaceMarks(client)
        self._standing = StandingApprovals(client)
        self.children: Final = Subagents(client, limits)
        self.schedules: Final = Schedules(client, settings.cron, limits)
        self._audit = Audit(client)
        self._transcripts = Transcripts(client)
        self.media: Final = MediaStore(settings.media)
        self._attachments = Attachments(self.media)
        voice = settings.voice
        self._voice = _voice(settings) if voice.model or voice.speaker else None
        space = settings.workspace
        quota = Quota(
            space.quota_mb * _MB,
            space.files,
            space.results_days * 86_400,
            space.person_mb * _MB,
            DiskFloor(space.free_mb * _MB),
        )
        folders = {name: (path, name in space.folders_write) for name, path in space.folders.items()}
        self.workspaces: Final = Workspaces(space.root, quota, access=Access(space.group), folders=folders)
        self.copies: Final = _copies(space) if space.store else None
        self.workspaces.erase_stored = self.copies.erase if self.copies else None
        tools = self._build_tools(tools)
        self.runner: Final = AgentRunner(settings, client, trusted=trusted_tools(tools), hooks=hooks)
        names = [tool.name for tool in tools]
        servers = {name: confined(one, hidden_paths(settings)) for name, one in settings.mcp.items()}
        self.mcp: Final = McpServers(servers, reserved_names=[Exec.name, *names])
        limit_bytes = agent.result_bytes
        make_toolbox = partial(Toolbox, result_limit_bytes=limit_bytes, report=report_fault)
        self._toolboxes = Toolboxes(tools, self.mcp, make_toolbox)
        self._subagent_toolboxes = Toolboxes(subagent_tools(tools), self.mcp, make_toolbox)
        self.skills: Final = SkillCatalogue(
            agent.dir, environment=child_environment({}), find=partial(shutil.which, path=COMMAND_PATH)
        )
        self._prompt = SystemPrompt(agent.dir, self.skills, tools=names)
        self._subagent_system, self._plain_system = subagent_system(), plain_system()
        self._no_tools = make_toolbox()

    async def __call__(self, conversation: Conversation, journal: TurnJournal, show: TurnProgress) -> AgentResult:
        """Answer a conversation. Raises what `run_agent` raises."""
        async with self._copy_of(conversation.session, journal):
            return await self._answer(conversation, journal, show)

    async def _answer(self, conversation: Conversation, journal: TurnJournal, show: TurnProgress) -> AgentResult:
        claim = conversation.claim
        message = conversation.message
        work = conversation.work
        settings = self._settings
        agent = self._settings.agent
        joined = conversation.joined
        begun = conversation.begun if settings.model.continue_partial else ""
        if begun:
            count_continued("worker", len(begun))
        preset = message.metadata.get(PRESET, work.preset)
        chosen = settings.model.presets.get(preset)
        plain = chosen is not None and not chosen.tools
        tools = self._no_tools if plain else await self._toolboxes.current()
        skills = self.skills.skills()
        mark = journal.mark
        workspace, marked = await self._workspace(conversation.session, mark)
        mark.add_messages(conversation.messages)
        if work.memory.strip():
            mark.add(work.memory_sources)
        own = () if plain else await self._own_skills(workspace)
        if own or message.metadata.get("schedule") == HEARTBEAT:
            marked.note_read()
            await marked.settle()
        # Files go into its own workspace
        sent = WorkspaceMark(mark, self._marks, conversation.session)
        voice = self._voice
        listen = None
        if voice is not None and settings.voice.model:
            listen = Recordings(voice, journal, settings.voice.show)
        attached = TurnAttachments(self._attachments, workspace, journal, joined, sent, listen)
        opening = await attached.load_message(message, work.n, conversation.opening)
        await attached.load_joined()
        schedules = TurnSchedules(self.schedules, settings.cron, claim, message, mark)
        seen = MemoryText(work.memory, work.memory_version)
        limit = settings.memory.file_bytes
        memory = MemoryFile(self.memory, work.scope, seen, claim=claim, limit_bytes=limit, mark=mark)
        own_files = () if plain else await self._own_files(conversation, memory)
        own_texts = {file.name: file.seen.text for file in own_files}
        mark.add(label for file in own_files for label in file.seen.sources)
        system = self._plain_system if plain else self._prompt.render(work.memory, own, own_texts)
        system = system_prompt([system, folder_section(marked.folder, workspace.granted)])
        files = TurnFiles(memory, skills=skills, workspace=workspace, mark=marked, own=own_files)
        spec = AgentRunSpec(
            session=conversation.session,
            entry=opening.entry,
            images=opening.images,
            channel=message.channel,
            chat_id=message.chat_id,
            sender_name=opening.sender_name,
            sender_id=opening.sender_id,
            timezone=usable_timezone(message.metadata.get(TIMEZONE, "")) or self.runner.timezone,
            system=system,
            history=conversation.history,
            steps=(message.options or TurnOptions()).steps,
            resume=conversation.resume,
            joined={number: one.followup for number, one in joined.items()},
            begun=begun,
            continue_partial=settings.model.continue_partial,
            max_rounds=agent.max_rounds,
            memory_window=agent.memory_window,
            saved_result_chars=agent.saved_result_chars,
            saved_thought_chars=agent.saved_thought_chars,
            options=message.options or TurnOptions(),
            calls_wait_s=settings.api.calls_wait_s,
            # The session ends with the request, or with the last one that continues it.
            goes_on_unanswered=not (is_ephemeral(conversation.session) or is_stored(conversation.session)),
            files=files,
            pictures=files,
            outside=LeasedOutside(journal.lease, files),
            schedules=schedules,
            consent=build_consent(
                self.runner.approval,
                work.n,
                lambda: conversation.messages,
                mark=marked,
                unsafe_subagents=self.runner.approval.has_unsafe(await self._subagent_toolboxes.current()),
                standing=self._standing,
            ),
            hook=self.runner.hook,
            progress=show,
            followups=attached,
        )
        result = await self.runner.run("shoal", preset, spec, tools, journal)
        every_s = settings.heartbeat.every_min * 60
        now_ms = SYSTEM_CLOCK.now_ms()
        await schedules.keep_heartbeat(result.entries, every_s=every_s, now_ms=now_ms)
        result = result if joined else drop_quiet_heartbeat(message, result)
        if voice is not None and settings.voice.speaker and work.speaks:
            spoken = SpokenAnswer(voice, self.media, conversation.session, SUFFIXES[settings.voice.speaker_format])
            result = await spoken.add_to(result, conversation.messages, journal.pending_reply(result))
        return result

    async def run_subagent(self, claim: Claim, task: SubagentTask, journal: LeaseJournal) -> AgentResult:
        """Do the task of a subagent: with fewer tools, without history and memory. Its usage counts
        towards the budget of the chat. Raises what `run_agent` raises."""
        async with self._copy_of(task.session, journal):
            return await self._do_task(claim, task, journal)

    async def _do_task(self, claim: Claim, task: SubagentTask, journal: LeaseJournal) -> AgentResult:
        assert claim.subagent is not None
        runner = self.runner
        settings = self._settings.agent
        channel, chat_id = split_session(task.session)
        workspace, marked = await self._workspace(task.session, journal.mark)
        files = TurnFiles(None, skills=self.skills.skills(), workspace=workspace, mark=marked)
        # The parent sees how far the subagent is, so its hook comes first.
        hooks = [SubagentProgress(self.children, claim), runner.hook]
        spec = AgentRunSpec(
            session=task.session,
            entry=UserEntry(content=subagent_task(task), turn=task.turn, at=task.at),
            channel=channel,
            chat_id=chat_id,
            timezone=runner.timezone,
            system=system_prompt([self._subagent_system, folder_section(marked.folder, workspace.granted)]),
            resume=tuple(journal.entries),
            max_rounds=settings.subagent_rounds,
            files=files,
            pictures=files,
            outside=LeasedOutside(journal.lease, files),
            consent=TurnConsent(runner.approval, task.turn, "subagent", mark=marked, session=task.session),
            hook=CompositeHook(hooks, report=report_fault, call_limit_s=settings.hook_s),
        )
        tools = await self._subagent_toolboxes.current()
        return await runner.run("subagent", claim.subagent.preset, spec, tools, journal)

    async def read_heartbeat(self, session: str) -> str:
        """Return a session's HEARTBEAT.md, `""` if none. Raises ToolFailed without a workspace."""
        try:
            async with self._copy_of(session):
                data = await self.workspaces.workspace_of(session).read_file(HEARTBEAT_FILE)
        except NoSuchFile:
            return ""
        except TurnReleased:
            raise ToolFailed("the store of workspaces is away") from None
        rest = f"read {HEARTBEAT_FILE!r} for all of it"
        return cut(data.decode(errors="replace"), HEARTBEAT_BYTES, rest=rest)

    def offer_exec(self, sandbox: Sandbox) -> None:
        """Offer the exec tool to turns and subagents that begin from now on."""
        tools = self._settings.tools
        mine = child_environment({})
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
            skill_files=self.skills.command_files,
        )
        self._toolboxes.add_tool(tool)
        self._prompt.add_tool(tool.name)
        self._subagent_toolboxes.add_tool(tool.for_subagents())

    async def preload(self) -> None:
        """Load what a first turn would wait for; log models that no dollar budget can count."""
        models = self.runner.models
        budget = "budget.usd_per_day"
        for name in await models.unpriced() if self._settings.budget.usd_per_day else ():
            log.warning("model without a price", model=name, unheeded=budget, set="model.prices")
        for name in await models.unsized():
            assumed = self._settings.model.context_default
            log.warning("model without a context size", model=name, assumed_tokens=assumed, set="model.context_tokens")
        await models.preload()
        with contextlib.suppress(ToolFailed):
            await self.workspaces.detect_local_disk()
        if not can_confine_parsers():
            doing = "limiting them only"
            reason = "it takes Linux 6.2 with Landlock"
            log.warning("parser sandbox unavailable", doing=doing, reason=reason)
        freeze_heap()
        if models.name in await self.runner.refused_models():
            log.error("model key refused", model=models.name, look="`shoal doctor` says what the provider says")
        else:
            log.info("model ready", model=models.name)

    async def close(self) -> None:
        """Close connections and threads."""
        self.workspaces.close()
        self._attachments.close()
        await close_all(self.mcp.close, self.runner.close)

    def _build_tools(self, given: Sequence[Tool]) -> list[Tool]:
        """Return the tools of every turn: built-in ones, then plugins' and those that were given,
        all with other names."""
        settings = self._settings
        agent = self._settings.agent
        reach = ChatPolicy(settings.tools.message_to)
        files = settings.media.per_message
        message = MessageTool(reach, self.media, files=files, audit=self._audit)
        own = [*build_tools(), SearchHistory(self._transcripts), message, *_web_tools(settings.tools)]
        if settings.cron.on:
            own.append(CronTool(settings.heartbeat.every_min))
        wait_s = min(WAIT_S, agent.subagent_timeout_s, agent.turn_timeout_s / 2)
        own.append(SpawnTool(self.children, wait_s=wait_s))
        reserved = [Exec.name, *(tool.name for tool in own)]
        plugins = plugin_tools(settings.plugins, reserved=reserved)
        return [*own, *plugins, *check_tools(given, reserved=[*reserved, *(tool.name for tool in plugins)])]

    async def _own_files(self, conversation: Conversation, memory: MemoryFile) -> list[MemoryFile]:
        """Return SOUL.md of the chat and USER.md of the person who writes, if the agent may have
        them. A message that no person wrote has no USER.md."""
        if not self._settings.agent.own_files:
            return []
        message = conversation.message
        scopes = {SOUL: soul_scope(conversation.session)}
        if not is_background(message) and message.channel != SYSTEM:
            scopes[USER] = about_scope(message.channel, message.sender_id)
        texts = await self.memory.read_memories(*scopes.values())
        files = zip(scopes.items(), texts, strict=True)
        return [replace(memory, name=name, scope=scope, seen=seen) for (name, scope), seen in files]

    @contextlib.asynccontextmanager
    async def _copy_of(self, session: str, journal: LeaseJournal | None = None) -> AsyncIterator[None]:
        """Hold the local copy of a workspace that lives in a store; nothing where it does not."""
        if (copies := self.copies) is None:
            yield
            return
        async with copies.in_use(session):
            if journal is None:
                yield
                return
            keep = partial(copies.keep, session, journal.lease)
            journal.before_result = keep
            yield
            await keep()

    async def _workspace(self, session: str, mark: TurnMark) -> tuple[Workspace, WorkspaceMark]:
        """Return the workspace of a chat, or the operator's folder that was chosen for it, with its
        mark."""
        folder = await self._marks.folder(session) if self._settings.workspace.folders else ""
        workspace = self.workspaces.workspace_of(session, folder)
        return workspace, WorkspaceMark(mark, self._marks, session, folder if workspace.granted else "")

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


def _copies(settings: WorkspaceSettings) -> WorkspaceCopies:
    """Return the local copies. Only where there is a store is its library imported."""
    from worker.copies.copies import WorkspaceCopies

    store = open_store(settings, "workspace.store")
    return WorkspaceCopies(store, settings.root, Access(settings.group))


def _voice(settings: Settings) -> VoiceClient:
    """Return what writes recordings down and speaks. Only where it is wanted is its HTTP library
    imported."""
    from worker.llm.clients.voice_client import VoiceClient

    return VoiceClient(settings.voice, settings.model)


def _web_tools(settings: ToolsSettings) -> tuple[Tool, ...]:
    """Return the web tools if they are on. Only then is their HTTP library imported."""
    if not settings.web:
        return ()
    from worker.tools.web import build_web_tools

    return build_web_tools(settings)


def subagent_tools(tools: Iterable[Tool]) -> list[Tool]:
    """Return the tools of a turn that a subagent may use, too. It has no others."""
    return [tool for tool in tools if tool.name not in NOT_FOR_SUBAGENTS]
