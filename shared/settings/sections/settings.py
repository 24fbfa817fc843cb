"""All settings together, and what is wrong with values that their kinds allow.

Each section is a Struct in a file of this folder: every key with its kind, its range and its
default. `shared.settings.load` fills them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

from msgspec import Struct, field

from shared.settings.sections.agent import (
    AgentSettings,
    BudgetSettings,
    MemorySettings,
    PluginSettings,
    memory_problems,
    timezone_problem,
)
from shared.settings.sections.chats import (
    CronSettings,
    HeartbeatSettings,
    InboxSettings,
    busy_problems,
    senders_problems,
)
from shared.settings.sections.delivery import DeliverySettings, HooksSettings, MediaSettings
from shared.settings.sections.log import DataSettings, LogSettings
from shared.settings.sections.mcp import McpServerSettings, mcp_problems
from shared.settings.sections.model import (
    ModelSettings,
    headers_problem,
    http_url_problem,
    model_problems,
    presets_problem,
)
from shared.settings.sections.redis import RedisSettings, address_problems, redis_url_problem
from shared.settings.sections.tools import ApprovalSettings, ToolsSettings, WorkspaceSettings, approval_problems
from shared.settings.sections.tracing import TracingSettings, endpoint_problem
from shared.settings.sections.web import (
    MetricsSettings,
    WebSettings,
    origins_problem,
    principals_problem,
    web_problems,
)
from shared.settings.sections.worker import RunnerSettings, WorkerSettings


class Settings(Struct, frozen=True, forbid_unknown_fields=True):
    """All settings. `channels` holds one table a channel, which its own settings module reads;
    `mcp` one a server."""

    redis: RedisSettings = field(default_factory=RedisSettings)
    model: ModelSettings = field(default_factory=ModelSettings)
    agent: AgentSettings = field(default_factory=AgentSettings)
    memory: MemorySettings = field(default_factory=MemorySettings)
    budget: BudgetSettings = field(default_factory=BudgetSettings)
    plugins: PluginSettings = field(default_factory=PluginSettings)
    worker: WorkerSettings = field(default_factory=WorkerSettings)
    web: WebSettings = field(default_factory=WebSettings)
    metrics: MetricsSettings = field(default_factory=MetricsSettings)
    channels: dict[str, dict[str, Any]] = {}
    hooks: HooksSettings = field(default_factory=HooksSettings)
    delivery: DeliverySettings = field(default_factory=DeliverySettings)
    workspace: WorkspaceSettings = field(default_factory=WorkspaceSettings)
    media: MediaSettings = field(default_factory=MediaSettings)
    tools: ToolsSettings = field(default_factory=ToolsSettings)
    approval: ApprovalSettings = field(default_factory=ApprovalSettings)
    mcp: dict[str, McpServerSettings] = {}
    inbox: InboxSettings = field(default_factory=InboxSettings)
    cron: CronSettings = field(default_factory=CronSettings)
    heartbeat: HeartbeatSettings = field(default_factory=HeartbeatSettings)
    runner: RunnerSettings = field(default_factory=RunnerSettings)
    tracing: TracingSettings = field(default_factory=TracingSettings)
    log: LogSettings = field(default_factory=LogSettings)
    data: DataSettings = field(default_factory=DataSettings)


def problem_in(key: str, value: object) -> str | None:
    """Return what is wrong with the value of `key`, as the end of a sentence that begins with its
    name; None when it is valid."""
    check = _CHECKS.get(key)
    return check(value) if check else None


def problems_between(settings: Settings) -> Iterator[str]:
    """Yield a line for each conflict between settings that are valid one by one."""
    yield from web_problems(settings.web)
    yield from model_problems(settings.model)
    yield from memory_problems(settings.memory)
    yield from address_problems(settings.redis)
    yield from mcp_problems(settings.mcp)
    yield from busy_problems(settings.channels)
    yield from senders_problems(settings.channels)
    yield from approval_problems(settings.approval)


_CHECKS: Final[dict[str, Callable[[Any], str | None]]] = {
    "redis.url": redis_url_problem,
    "model.api_base": http_url_problem,
    "web.allowed_origins": origins_problem,
    "web.tokens": principals_problem,
    "agent.timezone": timezone_problem,
    "model.presets": presets_problem,
    "model.headers": headers_problem,
    "tracing.endpoint": endpoint_problem,
    "tracing.headers": headers_problem,
}
