"""Settings: `shoal.toml` and the environment, read once at start into frozen Structs."""

from shared.settings.load import (
    child_environment,
    is_named,
    load,
    load_few,
    own_key_file,
    redis_url,
    secret_files,
    secrets_of,
    shown,
)
from shared.settings.read import read_section
from shared.settings.secret import ProxyUrl, RedisUrl, Secret
from shared.settings.sections.agents import AgentSettings, BudgetSettings, MemorySettings, PluginSettings
from shared.settings.sections.chats import CronSettings
from shared.settings.sections.gateways import ApiSettings, MediaSettings, WebSettings
from shared.settings.sections.language_models import ModelSettings, PresetSettings
from shared.settings.sections.network import NetworkSettings
from shared.settings.sections.processes import LogSettings
from shared.settings.sections.settings import Settings
from shared.settings.sections.tool_use import McpServerSettings, ToolsSettings
from shared.settings.sections.webhooks import IncomingWebhook, OutgoingWebhook, WebhookSettings

__all__ = [
    "AgentSettings",
    "ApiSettings",
    "BudgetSettings",
    "CronSettings",
    "IncomingWebhook",
    "LogSettings",
    "McpServerSettings",
    "MediaSettings",
    "MemorySettings",
    "ModelSettings",
    "NetworkSettings",
    "OutgoingWebhook",
    "PluginSettings",
    "PresetSettings",
    "ProxyUrl",
    "RedisUrl",
    "Secret",
    "Settings",
    "ToolsSettings",
    "WebSettings",
    "WebhookSettings",
    "child_environment",
    "is_named",
    "load",
    "load_few",
    "own_key_file",
    "read_section",
    "redis_url",
    "secret_files",
    "secrets_of",
    "shown",
]
