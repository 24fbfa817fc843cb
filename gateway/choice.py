"""The choice of a gateway's channels: those that were named, else the web chat, every platform that
is on, and webhooks of programs if there are any."""

from __future__ import annotations

import asyncio
import importlib
from collections.abc import Sequence
from typing import Final

from gateway.channel import Channel
from gateway.chat_channel import ChatChannel
from gateway.platform.registry import is_on, platform_names
from gateway.platform.webhooks import WebhookServer
from shared.errors import SettingsError
from shared.settings import Settings
from shared.settings.sections.webhooks import HOOK
from shared.store.client.redis_client import RedisClient

READ_BY_PEOPLE: Final = ("web", "api", "cli")
"""Names whose tables in `[channels]` configure messages from there, and start no platform."""


def wanted(names: Sequence[str], settings: Settings) -> list[str]:
    """Return the channels to run. Raises SettingsError for a name that is unknown or turned off."""
    hooks = [HOOK] if _has_webhooks(settings) else []
    if not names:
        return ["web", *_on(settings), *hooks]
    known = {"web", HOOK, *platform_names(off=settings.plugins.off)}
    problems = []
    for name in names:
        if name not in known:
            problems.append(f"there is no channel {name!r}; the channels are: {', '.join(sorted(known))}")
        elif name == HOOK and not hooks:
            problems.append(
                f"channel {name!r} has no settings; write [webhooks.in.<name>] or [webhooks.out.<name>], "
                "docs/webhooks.md says how"
            )
        elif name not in ("web", HOOK) and name not in settings.channels:
            problems.append(f"channel {name!r} has no settings; write [channels.{name}], docs/channels.md says how")
        elif name not in ("web", HOOK) and not is_on(settings.channels[name]):
            problems.append(f"channels.{name}.on is false; set it to true, or do not start {name!r}")
    if problems:
        raise SettingsError("\n".join(problems))
    return list(dict.fromkeys(names))


def make_channels(names: Sequence[str], settings: Settings, client: RedisClient, hooks: WebhookServer) -> list[Channel]:
    """Make the channels, not connected. Raises SettingsError with every problem of all of them."""
    made: list[Channel] = []
    problems: list[str] = []
    for name in names:
        try:
            made.append(_make(name, settings, client, hooks))
        except SettingsError as exc:
            problems.append(str(exc))
    if problems:
        raise SettingsError("\n".join(problems))
    return made


async def problems_of(names: Sequence[str], settings: Settings) -> list[str]:
    """Return the problems in the settings of these channels, or of all platforms that are on."""
    client = RedisClient("redis://127.0.0.1:1")  # never connected
    try:
        chosen = wanted(names, settings) if names else _on(settings)
        make_channels(chosen, settings, client, WebhookServer(settings.hooks, asyncio.Event()))
    except SettingsError as exc:
        return str(exc).splitlines()
    finally:
        await client.close()
    return []


def _on(settings: Settings) -> list[str]:
    tables = settings.channels
    return [name for name in tables if name not in READ_BY_PEOPLE and is_on(tables[name])]


def _has_webhooks(settings: Settings) -> bool:
    return bool(settings.webhooks.in_ or settings.webhooks.out)


def _make(name: str, settings: Settings, client: RedisClient, hooks: WebhookServer) -> Channel:
    # Imported when wanted: the page is no small part of a gateway.
    if name == HOOK:
        hook: Channel = importlib.import_module("gateway.webhooks.channel").make(settings, client, hooks)
        return hook
    if name != "web":
        return ChatChannel(name, settings, client, hooks)
    made: Channel = importlib.import_module("gateway.channels.web.channel").make(settings, client)
    return made
