"""Joins a gateway: settings, Redis, channels, and what machines ask."""

from __future__ import annotations

import asyncio
import importlib
from collections.abc import Sequence
from typing import Final, Protocol, cast

from gateway.announcer import Announcer
from gateway.channel import Channel, Sink
from gateway.commands.registry import build_commands, plugin_commands
from gateway.ingress import Ingress
from gateway.watch import RedisWatch
from shared import log
from shared.errors import SettingsError
from shared.health import HealthServer
from shared.readings import Readings
from shared.settings import Settings, load, redis_url, secrets_of
from shared.store.client import RedisClient
from shared.store.inbox import InboxLimits

CHANNELS: Final = {"web": "gateway.channels.web.channel:make"}
"""Every channel by name; imported when it is asked for."""


class MakeChannel(Protocol):
    """What stands behind a name in CHANNELS."""

    def __call__(self, settings: Settings, client: RedisClient) -> Channel: ...


async def main(names: Sequence[str], stop: asyncio.Event) -> None:
    """Run these channels until `stop` is set. Raises SettingsError when something it needs is missing or taken."""
    unknown = [name for name in names if name not in CHANNELS]
    if unknown:
        raise SettingsError(f"there is no channel {unknown[0]!r}; the channels are: {', '.join(sorted(CHANNELS))}")
    settings = load()
    for secret in secrets_of(settings):
        log.redact(secret)
    log.configure(settings.log, process="gateway")
    client = RedisClient(redis_url(settings), name="shoal-gateway")
    try:
        channels = [_maker(name)(settings, client) for name in dict.fromkeys(names)]
        commands = build_commands(settings, client, plugin_commands(settings.plugins))
        await _run(settings, client, channels, Ingress(client, commands, InboxLimits.of(settings)), stop)
    finally:
        await client.close()


async def _run(
    settings: Settings, client: RedisClient, channels: Sequence[Channel], sink: Sink, stop: asyncio.Event
) -> None:
    watch = RedisWatch(client)
    announcer = Announcer(client, channels, stop.is_set)

    def reason() -> str | None:
        if stop.is_set():
            return "draining"
        return None if watch.there else "redis is away"

    health = HealthServer(
        settings.metrics.host,
        settings.metrics.port_of("gateway"),
        reason,
        refresh=Readings(client).refresh,
        spare=settings.metrics.port is None,
    )
    await health.start()
    problems: list[str] = []
    try:
        async with asyncio.TaskGroup() as group:
            listening = [group.create_task(channel.listen(sink, stop), name=channel.name) for channel in channels]
            chores = [group.create_task(watch.run()), group.create_task(announcer.run())]
            await asyncio.wait(listening)
            for chore in chores:
                chore.cancel()
    except* SettingsError as found:
        problems = [str(exc) for exc in found.exceptions]
    finally:
        await announcer.farewell()
        await health.stop()
    if problems:
        raise SettingsError("\n".join(problems))


def _maker(name: str) -> MakeChannel:
    module, _, function = CHANNELS[name].partition(":")
    return cast(MakeChannel, getattr(importlib.import_module(module), function))
