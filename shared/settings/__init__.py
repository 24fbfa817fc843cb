"""Settings: `shoal.toml` and the environment, read once at start into frozen Structs."""

from shared.settings.approval import ApprovalSettings
from shared.settings.cron import CronSettings, HeartbeatSettings
from shared.settings.delivery import DeliverySettings, HooksSettings
from shared.settings.load import child_environment, load, load_few, redis_url
from shared.settings.masking import secrets_of, shown
from shared.settings.mcp import McpServerSettings
from shared.settings.media import MediaSettings
from shared.settings.read import read_section
from shared.settings.runner import RunnerSettings
from shared.settings.secret import RedisUrl, Secret
from shared.settings.sections import (
    AgentSettings,
    BudgetSettings,
    DataSettings,
    InboxSettings,
    LogSettings,
    MemorySettings,
    MetricsSettings,
    ModelSettings,
    PluginSettings,
    PresetSettings,
    RedisSettings,
    Settings,
    ToolsSettings,
    WebSettings,
    WorkerSettings,
    WorkspaceSettings,
)
from shared.settings.tracing import TracingSettings

__all__ = [
    "AgentSettings",
    "ApprovalSettings",
    "BudgetSettings",
    "CronSettings",
    "DataSettings",
    "DeliverySettings",
    "HeartbeatSettings",
    "HooksSettings",
    "InboxSettings",
    "LogSettings",
    "McpServerSettings",
    "MediaSettings",
    "MemorySettings",
    "MetricsSettings",
    "ModelSettings",
    "PluginSettings",
    "PresetSettings",
    "RedisSettings",
    "RedisUrl",
    "RunnerSettings",
    "Secret",
    "Settings",
    "ToolsSettings",
    "TracingSettings",
    "WebSettings",
    "WorkerSettings",
    "WorkspaceSettings",
    "child_environment",
    "load",
    "load_few",
    "read_section",
    "redis_url",
    "secrets_of",
    "shown",
]
