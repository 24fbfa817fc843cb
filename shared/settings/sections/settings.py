"""All settings together, and what is wrong with values that their kinds allow. Each section is a
Struct in a file of this folder. `shared.settings.load` fills them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

from msgspec import Struct, field

from shared.settings.sections import (
    agents,
    chats,
    gateways,
    language_models,
    network,
    processes,
    redis_access,
    tool_use,
    webhooks,
)


class Settings(Struct, frozen=True, forbid_unknown_fields=True):
    """All settings. `channels` holds a table a channel, which the channel reads; `mcp` one a
    server."""

    redis: redis_access.RedisSettings = field(default_factory=redis_access.RedisSettings)
    network: network.NetworkSettings = field(default_factory=network.NetworkSettings)
    model: language_models.ModelSettings = field(default_factory=language_models.ModelSettings)
    voice: language_models.VoiceSettings = field(default_factory=language_models.VoiceSettings)
    agent: agents.AgentSettings = field(default_factory=agents.AgentSettings)
    memory: agents.MemorySettings = field(default_factory=agents.MemorySettings)
    budget: agents.BudgetSettings = field(default_factory=agents.BudgetSettings)
    plugins: agents.PluginSettings = field(default_factory=agents.PluginSettings)
    worker: processes.WorkerSettings = field(default_factory=processes.WorkerSettings)
    web: gateways.WebSettings = field(default_factory=gateways.WebSettings)
    api: gateways.ApiSettings = field(default_factory=gateways.ApiSettings)
    metrics: gateways.MetricsSettings = field(default_factory=gateways.MetricsSettings)
    channels: dict[str, dict[str, Any]] = {}
    hooks: gateways.HooksSettings = field(default_factory=gateways.HooksSettings)
    webhooks: webhooks.WebhookSettings = field(default_factory=webhooks.WebhookSettings)
    delivery: gateways.DeliverySettings = field(default_factory=gateways.DeliverySettings)
    workspace: tool_use.WorkspaceSettings = field(default_factory=tool_use.WorkspaceSettings)
    media: gateways.MediaSettings = field(default_factory=gateways.MediaSettings)
    tools: tool_use.ToolsSettings = field(default_factory=tool_use.ToolsSettings)
    approval: tool_use.ApprovalSettings = field(default_factory=tool_use.ApprovalSettings)
    mcp: dict[str, tool_use.McpServerSettings] = {}
    inbox: chats.InboxSettings = field(default_factory=chats.InboxSettings)
    cron: chats.CronSettings = field(default_factory=chats.CronSettings)
    heartbeat: chats.HeartbeatSettings = field(default_factory=chats.HeartbeatSettings)
    runner: processes.RunnerSettings = field(default_factory=processes.RunnerSettings)
    tracing: processes.TracingSettings = field(default_factory=processes.TracingSettings)
    log: processes.LogSettings = field(default_factory=processes.LogSettings)
    data: processes.DataSettings = field(default_factory=processes.DataSettings)


def problem_in(key: str, value: object) -> str | None:
    """Return what is wrong with a value, as the end of a sentence that begins with its key."""
    check = _CHECKS.get(key)
    return check(value) if check else None


def problems_between(settings: Settings) -> Iterator[str]:
    """Yield a line for each conflict between settings that are valid one by one."""
    yield from gateways.web_problems(settings.web)
    yield from language_models.model_problems(settings.model)
    yield from language_models.voice_problems(settings.voice, settings.model)
    yield from agents.memory_problems(settings.memory)
    yield from agents.title_problems(settings.agent, settings.model.presets)
    yield from redis_access.address_problems(settings.redis)
    for name, server in settings.mcp.items():
        yield from tool_use.mcp_problems(name, server)
    yield from chats.busy_problems(settings.channels)
    yield from chats.senders_problems(settings.channels)
    yield from webhooks.webhook_problems(settings.webhooks)
    yield from tool_use.approval_problems(settings.approval)
    yield from tool_use.store_key_problems("workspace", settings.workspace)
    yield from tool_use.store_key_problems("media", settings.media)


_CHECKS: Final[dict[str, Callable[[Any], str | None]]] = {
    "redis.url": redis_access.redis_url_problem,
    "network.proxy": network.proxy_problem,
    "network.no_proxy": network.no_proxy_problem,
    "model.api_base": language_models.http_url_problem,
    "voice.api_base": language_models.http_url_problem,
    "web.allowed_origins": gateways.origins_problem,
    "web.tokens": gateways.principals_problem,
    "agent.timezone": agents.timezone_problem,
    "model.presets": language_models.presets_problem,
    "model.headers": language_models.headers_problem,
    "workspace.folders": tool_use.folders_problem,
    "workspace.store": tool_use.store_problem,
    "media.store": tool_use.store_problem,
    "tracing.endpoint": processes.endpoint_problem,
    "tracing.headers": language_models.headers_problem,
}
