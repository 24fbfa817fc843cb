"""Answering a conversation: everything that an agent needs is put together here, turn by turn."""

from __future__ import annotations

import os
from typing import Final

from shared.errors import ModelError
from shared.log import logger
from shared.metrics import MODEL_REQUESTS
from shared.settings import Settings, child_environment
from shared.store.client import RedisClient
from shared.store.limits import ProviderLimits
from shared.store.memory import MemoryStore, MemoryText
from shared.store.spending import Spending
from worker.agent.compact import make_compact
from worker.agent.hook import CompositeHook
from worker.agent.journal import Show
from worker.agent.loop import run_agent
from worker.agent.tool import Toolbox
from worker.agent.turn import AgentResult, AgentRunSpec
from worker.budget import ChatBudget
from worker.conversation import Conversation
from worker.files import TurnFiles
from worker.hooks.logging import LoggingHook
from worker.hooks.metrics import MetricsHook
from worker.images import read_images
from worker.llm.registry import Models
from worker.plugins import plugin_hooks, plugin_tools
from worker.prompts.system import SystemPrompt
from worker.skills.catalogue import Catalogue
from worker.tools.registry import build_tools
from worker.turn_journal import TurnJournal

log = logger("worker")


class Answerer:
    """The agent of one process: its models, tools, hooks, skills and prompt. Raises SettingsError when one of them
    cannot be had as the settings want it."""

    def __init__(self, settings: Settings, client: RedisClient, memory: MemoryStore) -> None:
        self.models = Models(settings.model, ProviderLimits(client))
        self.timezone: Final = settings.agent.timezone or machine_timezone()
        self._settings = settings
        self._memory = memory
        self._spending = Spending(client)
        tools = [*build_tools(), *plugin_tools(settings.plugins)]
        self._tools = Toolbox(tools, result_limit_bytes=settings.agent.result_bytes, report=_report)
        self._hook = CompositeHook(
            [LoggingHook(log.debug), MetricsHook(), *plugin_hooks(settings.plugins)],
            report=_report,
            call_limit_s=settings.agent.hook_s,
        )
        self._skills = Catalogue(settings.agent.dir, environment=child_environment({}))
        self._prompt = SystemPrompt(settings.agent.dir, self._skills, tools=[tool.name for tool in tools])

    async def __call__(self, conversation: Conversation, journal: TurnJournal, show: Show) -> AgentResult:
        """Raises what `run_agent` raises."""
        message, work, settings = conversation.message, conversation.work, self._settings
        model = self.models.get(work.preset)
        limits = await self.models.limits_of(work.preset)
        skills = self._skills.skills()
        in_group = message.metadata.get("group") == "1"
        spec = AgentRunSpec(
            session=conversation.session,
            entry=conversation.entry,
            images=read_images(message.media)[0],
            channel=message.channel,
            chat_id=message.chat_id,
            sender_name=message.metadata.get("sender_name", "") if in_group else "",
            sender_id=message.sender_id if in_group else "",
            system=self._prompt.text(work.memory),
            history=conversation.history,
            resume=conversation.resume,
            timezone=self.timezone,
            max_rounds=settings.agent.max_rounds,
            memory_window=settings.agent.memory_window,
            max_tokens=limits.max_tokens,
            temperature=limits.temperature,
            continuations=settings.agent.continuations,
            context_tokens=limits.context_tokens,
            compact_at=settings.agent.compact_at,
            compact_keep=settings.agent.compact_keep,
            saved_result_chars=settings.agent.saved_result_chars,
            files=TurnFiles(
                self._memory,
                work.scope,
                MemoryText(work.memory, work.memory_version),
                claim=conversation.claim,
                limit_bytes=settings.memory.file_bytes,
                skills=skills,
            ),
        )
        try:
            return await run_agent(
                spec,
                model,
                self._tools,
                journal,
                hook=self._hook,
                show=show,
                compact=make_compact(model),
                allowance=ChatBudget(self._spending, conversation.session, settings.budget),
            )
        except ModelError as exc:
            MODEL_REQUESTS.labels(model.name, exc.kind).inc()
            raise

    async def warm(self) -> None:
        """Do what the first turn would have to wait for."""
        await self.models.warm()
        log.info("model ready", model=self.models.name)

    async def close(self) -> None:
        """Let connections go."""
        await self.models.close()


def machine_timezone() -> str:
    """The machine's IANA time zone, as far as it says; else UTC."""
    name = os.path.realpath("/etc/localtime").partition("zoneinfo/")[2]
    return name or "UTC"


def _report(where: str, error: BaseException) -> None:
    log.error("fault isolated", where=where, error=type(error).__name__, exc_info=error)
