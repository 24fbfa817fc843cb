"""`/settings/installation`: what runs here, and the settings that are not the defaults."""

from __future__ import annotations

import inspect
import json
from collections.abc import Iterator
from typing import Any, Final
from urllib.parse import urlsplit

import msgspec
from starlette.requests import Request

from shared.clock import SYSTEM_CLOCK
from shared.redaction import redacted
from shared.settings import McpServerSettings, PresetSettings, Settings, load_few, shown
from shared.settings.sections.webhooks import IncomingWebhook, OutgoingWebhook
from shared.store.client.redis_client import RedisClient
from shared.store.fleet.presence import Presence, channel_state, channel_why, list_processes
from shared.version import VERSION

PAGES: Final = {
    "redis": "operations.md",
    "network": "network.md",
    "model": "providers.md",
    "voice": "agent.md",
    "agent": "agent.md",
    "memory": "agent.md",
    "budget": "agent.md",
    "plugins": "plugins.md",
    "worker": "operations.md",
    "web": "web.md",
    "api": "api.md",
    "metrics": "metrics.md",
    "channels": "channels.md",
    "hooks": "channels.md",
    "webhooks": "webhooks.md",
    "delivery": "channels.md",
    "workspace": "sandbox.md",
    "media": "s3.md",
    "tools": "agent.md",
    "approval": "approvals.md",
    "mcp": "mcp.md",
    "inbox": "busy.md",
    "cron": "schedules.md",
    "heartbeat": "schedules.md",
    "runner": "sandbox.md",
    "tracing": "tracing.md",
    "log": "operations.md",
    "data": "operations.md",
}
"""The page of docs/ that explains each section."""

_TABLES: Final[dict[str, type[msgspec.Struct]]] = {
    "mcp.*": McpServerSettings,
    "model.presets.*": PresetSettings,
    "webhooks.in.*": IncomingWebhook,
    "webhooks.out.*": OutgoingWebhook,
}
_STATE: Final = channel_state("")
PROCESSES_SHOWN: Final = 200


class InstallationPart:
    """Shows the fleet and the settings of this gateway to the owner."""

    def __init__(self, client: RedisClient, settings: Settings) -> None:
        self._client = client
        self._changed = changed_settings(settings)

    async def show_installation(self, principal: str, request: Request) -> dict[str, Any]:
        """Return the version, processes, channels and changed settings."""
        processes = await list_processes(self._client)
        return {
            "version": VERSION,
            "processes": [_process(one) for one in processes[:PROCESSES_SHOWN]],
            "channels": list(_channels(processes)),
            "settings": self._changed,
        }


def changed_settings(settings: Settings) -> list[dict[str, Any]]:
    """Return the sections that differ from the defaults: their lines, what they are for, and their
    page. Secrets are masked, and so is what may be one: addresses lose queries and passwords, commands
    their arguments."""
    usual = dict(_leaves("", shown(load_few((), {}))))
    tables = {name: dict(_defaults(one)) for name, one in _TABLES.items()}
    found: dict[str, list[dict[str, str]]] = {}
    for name, value in _leaves("", shown(settings)):
        if value == _usual_value(name, usual, tables):
            continue
        row = {"name": name, "value": json.dumps(_masked(name, value), ensure_ascii=False)}
        found.setdefault(name.partition(".")[0], []).append(row)
    return [
        {"section": section, "rows": rows, "about": _about(settings, section), "page": f"docs/{PAGES[section]}"}
        for section, rows in found.items()
    ]


def _defaults(table: type[msgspec.Struct]) -> Iterator[tuple[str, Any]]:
    for one in msgspec.structs.fields(table):
        if one.default is not msgspec.NODEFAULT:
            yield one.encode_name, msgspec.to_builtins(one.default, enc_hook=str)
        elif one.default_factory is not msgspec.NODEFAULT:
            yield one.encode_name, msgspec.to_builtins(one.default_factory(), enc_hook=str)


def _usual_value(name: str, usual: dict[str, Any], tables: dict[str, dict[str, Any]]) -> Any:
    for table, defaults in tables.items():
        prefix = table.removesuffix("*")
        if name.startswith(prefix):
            return defaults.get(name.removeprefix(prefix).rpartition(".")[2])
    return usual.get(name)


def _leaves(name: str, value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from _leaves(f"{name}.{key}" if name else key, inner)
    else:
        yield name, value


def _masked(name: str, value: Any) -> Any:
    if isinstance(value, (list, tuple)):
        shown_ones = value[:1] if name.startswith("mcp.") and name.endswith(".command") else value
        masked = [_masked("", one) for one in shown_ones]
        return masked if len(shown_ones) == len(value) else [*masked, "…"]
    if name.startswith("webhooks.out.") and name.endswith(".url"):
        return _masked_path(value)
    return _masked_text(value) if isinstance(value, str) else value


def _masked_text(text: str) -> str:
    if "://" in text:
        try:
            parts = urlsplit(text)
        except ValueError:
            return "***"
        host = parts.netloc.rpartition("@")[2]
        text = parts._replace(netloc=f"***@{host}" if "@" in parts.netloc else host).geturl()
        text = text.partition("?")[0] + ("?…" if parts.query else "")
    return redacted(text)


def _masked_path(url: str) -> str:
    """Leave the host: whoever knows the path of many services may post there."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}/…"


def _about(settings: Settings, section: str) -> str:
    value = McpServerSettings() if section == "mcp" else getattr(settings, section)
    return " ".join((inspect.getdoc(value) or "").split()) if isinstance(value, msgspec.Struct) else ""


def _process(one: Presence) -> dict[str, Any]:
    return {
        "kind": one.kind,
        "name": one.name,
        "host": one.host,
        "version": one.version,
        # A clock that is ahead must not give a negative age.
        "seconds": max(0, SYSTEM_CLOCK.now_ms() - one.started_at) // 1000,
        "running": one.running,
        "slots": one.slots,
        "draining": one.draining,
    }


def _channels(processes: list[Presence]) -> Iterator[dict[str, str]]:
    """Yield each channel of each gateway once, by name, with its state."""
    seen: set[tuple[str, str]] = set()
    for one in processes:
        for detail, state in sorted(one.details.items()):
            if one.kind != "gateway" or not detail.endswith(_STATE):
                continue
            name = detail.removesuffix(_STATE)
            if (name, state) not in seen:
                seen.add((name, state))
                yield {"name": name, "state": state, "why": redacted(one.details.get(channel_why(name), ""))}
