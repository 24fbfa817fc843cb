"""Settings: `shoal.toml` and the environment, read once at start into frozen Structs."""

from shared.settings.address import redis_url
from shared.settings.load import child_environment, load, load_few
from shared.settings.masking import secrets_of, shown
from shared.settings.read import read_section
from shared.settings.secret import RedisUrl, Secret
from shared.settings.sections.agent import AgentSettings, BudgetSettings, MemorySettings, PluginSettings
from shared.settings.sections.chats import CronSettings, HeartbeatSettings, InboxSettings
from shared.settings.sections.delivery import DeliverySettings, HooksSettings, MediaSettings
from shared.settings.sections.log import DataSettings, LogSettings
from shared.settings.sections.mcp import McpServerSettings
from shared.settings.sections.model import ModelSettings, PresetSettings
from shared.settings.sections.redis import RedisSettings
from shared.settings.sections.settings import Settings
from shared.settings.sections.tools import ApprovalSettings, ToolsSettings, WorkspaceSettings
from shared.settings.sections.tracing import TracingSettings
from shared.settings.sections.web import MetricsSettings, WebSettings
from shared.settings.sections.worker import RunnerSettings, WorkerSettings

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
