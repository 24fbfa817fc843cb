"""Joins a gateway: settings, Redis, stores, channels, and the health server."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator, Sequence
from typing import Any

from gateway.channel import Channel
from gateway.chat_channel import ChatChannel
from gateway.choice import make_channels, problems_of, wanted
from gateway.commands.registry import build_commands, plugin_commands
from gateway.ingress.ingest import Ingress
from gateway.platform.webhooks import WebhookServer
from gateway.upkeep import RedisWatch
from shared import log
from shared.errors import SettingsError
from shared.media.store import check_store
from shared.network import outgoing
from shared.process.fleet_gauges import FleetGauges, warn_of_restart
from shared.process.listening import HealthServer
from shared.process.service import EXIT_SETTINGS, freeze_heap
from shared.process.stats import Announcer
from shared.process.volume_gauges import VolumeGauges
from shared.settings import Settings, load, redis_url, secrets_of
from shared.store.client.redis_client import RedisClient
from shared.store.turns.inbox import InboxLimits
from shared.tasks import close_all
from shared.tracing import process as tracing


async def check(names: Sequence[str], _: asyncio.Event) -> int:
    """Print the problems in the settings of these channels (none named: of every chat platform that
    is on), a line each, or "ok"; return the exit code. Nothing is connected. Raises SettingsError
    for problems in all other settings."""
    problems = await problems_of(names, load())
    sys.stdout.write("".join(f"{line}\n" for line in problems or ["ok"]))
    return EXIT_SETTINGS if problems else 0


async def main(names: Sequence[str], stop: asyncio.Event) -> None:
    """Run these channels until `stop` is set; without names the web chat and every platform that is
    on. Raises SettingsError when something it needs is missing or taken."""
    settings = load()
    for secret, setting in secrets_of(settings):
        log.redact(secret, setting)
    log.configure(settings.log, process="gateway", for_good=True)
    chosen = wanted(names, settings)
    outgoing.start(settings.network)
    tracing.start(settings.tracing, process="gateway")
    client = RedisClient(redis_url(settings), name="shoal-gateway", copies=settings.redis.copies)
    hooks = WebhookServer(settings.hooks, stop)
    try:
        channels = make_channels(chosen, settings, client, hooks)
        commands = build_commands(settings, client, plugin_commands(settings.plugins))
        ingress = Ingress(client, commands, InboxLimits.of(settings))
        await _run(settings, client, channels, hooks, ingress, stop)
    finally:
        await close_all(client.close, tracing.stop)


async def _run(
    settings: Settings,
    client: RedisClient,
    channels: Sequence[Channel],
    hooks: WebhookServer,
    ingress: Ingress,
    stop: asyncio.Event,
) -> None:
    watch = RedisWatch(client)

    def state() -> dict[str, Any]:
        details = {"channels": " ".join(channel.name for channel in channels)}
        for channel in channels:
            details |= channel.facts()
        return {"draining": stop.is_set(), "details": details}

    announcer = Announcer(client, "gateway", state)

    def reason() -> str | None:
        if stop.is_set():
            return "draining"
        if not watch.available:
            return "redis is away"
        off = list(_off(channels))
        return "; ".join(off) if len(off) == len(channels) else None

    health = HealthServer(
        settings.metrics.host,
        settings.metrics.port_of("gateway"),
        reason,
        refresh=FleetGauges(client, volumes=VolumeGauges.of(settings, workspaces=False)).refresh,
        spare=settings.metrics.port is None,
        detail=lambda: "".join(f"{line}\n" for line in _off(channels)),
    )
    await health.start()
    freeze_heap()
    problems: list[str] = []
    try:
        async with asyncio.TaskGroup() as group:
            start = group.create_task
            listening = [start(each.listen(ingress, stop), name=each.name) for each in channels]
            listening.append(group.create_task(hooks.run(), name="hooks"))
            chores = [
                group.create_task(work)
                for work in (watch.run(), announcer.run(), warn_of_restart(client), check_store(settings.media))
            ]
            await asyncio.wait(listening)
            for chore in chores:
                chore.cancel()
    except* SettingsError as found:
        problems = [str(exc) for exc in found.exceptions]
    finally:
        await close_all(announcer.farewell, health.stop)
    if problems:
        raise SettingsError("\n".join(problems))


def _off(channels: Sequence[Channel]) -> Iterator[str]:
    """Yield a line for each chat platform that does not work now. One stops no other."""
    for channel in channels:
        if isinstance(channel, ChatChannel) and channel.why_off:
            yield f"{channel.name}: {channel.why_off}"
