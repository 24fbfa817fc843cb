"""Settings: `shoal.toml` and the environment, read once at start into frozen Structs."""

from shared.settings.load import child_environment, load, redis_url
from shared.settings.masking import secrets_of, shown
from shared.settings.read import read_section
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

__all__ = [
    "AgentSettings",
    "BudgetSettings",
    "DataSettings",
    "InboxSettings",
    "LogSettings",
    "MemorySettings",
    "MetricsSettings",
    "ModelSettings",
    "PluginSettings",
    "PresetSettings",
    "RedisSettings",
    "RedisUrl",
    "Secret",
    "Settings",
    "ToolsSettings",
    "WebSettings",
    "WorkerSettings",
    "WorkspaceSettings",
    "child_environment",
    "load",
    "read_section",
    "redis_url",
    "secrets_of",
    "shown",
]
