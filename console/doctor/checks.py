"""Checks of `shoal doctor`, in order, with advice for each failure."""

from __future__ import annotations

import asyncio
import os
import secrets
import socket
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from importlib import metadata
from typing import Final
from urllib.parse import urlsplit

from console.doctor.check import Check, failed, ok
from console.doctor.model_check import model_check
from console.doctor.open_calls import describe_open_calls, find_open_calls
from console.redis_call import with_redis
from console.top.fleet_snapshot import FleetSnapshot, take_snapshot
from console.top.problems import server_problems, serves, unserved
from shared.errors import RedisAway, SettingsError
from shared.network.outgoing import check_ca_file
from shared.settings import Settings
from shared.settings.sections.gateways import TOKEN_CHARS, short_tokens
from shared.settings.sections.redis_access import EMBEDDED_URL_FILE, RedisSettings
from shared.settings.trust import load_trusted
from shared.store.client.redis_client import RedisClient
from shared.store.fleet.presence import (
    LIMITED_BY,
    WHY_OFF,
    Presence,
    channel_state,
    channel_why,
    tools_left_out,
)
from shared.store.fleet.redis_server import ServerFacts, read_broken_keys
from shared.store.jobs.jobs import QUEUE, Jobs
from shared.terminal_text import brief, size
from worker.llm.registry import Models

PROBE_WITHIN_S: Final = 5.0
PROXY_WITHIN_S: Final = 3.0
PROCESSES_SHOWN: Final = 10
"""Processes that are reported one by one."""

_LOOK_S: Final = 0.05

EXTRAS: Final = {"channels": "slack-sdk", "tracing": "opentelemetry-sdk", "s3": "obstore"}
"""A package of each extra, which is there if the extra is: an extra is installed as a whole."""


def checks_of(*, probe: bool) -> list[Check]:
    """Every check that can be made: without settings or without Redis the others are left out."""
    try:
        settings = load_trusted()
    except SettingsError as exc:
        return [failed("settings", line) for line in str(exc).splitlines()]
    checks = [
        ok("settings", "every key is known and fits"),
        *_tokens(settings),
        *_model(settings),
        *_network(settings),
        _data_folder(settings),
        extras_check(EXTRAS),
    ]

    async def look(client: RedisClient) -> list[Check]:
        if broken := await read_broken_keys(client):
            return [
                failed(
                    "keys",
                    f"{', '.join(broken)} "
                    "are of another type than Shoal's; the runbook's ShoalKeyBroken says what each one holds",
                )
            ]
        found = await take_snapshot(client)
        answers = ok("redis reachable", f"answers in {brief(found.redis.ping_s)}")
        seen = [
            answers,
            *_redis(found.redis),
            fail_over_check(found.redis, settings.redis),
            *_fleet(found),
            *_provider_routes(found),
            await model_check(client, found, settings.model),
        ]
        if not found.of("worker"):  # where workers run, calls are always open
            open_calls = await find_open_calls(client)
            none = "no call is without a result"
            seen.append(failed("open calls", describe_open_calls(open_calls)) if open_calls else ok("open calls", none))
        return [*seen, await _probe(client, found)] if probe else seen

    try:
        return [*checks, *with_redis(look)]
    except (SettingsError, RedisAway) as exc:
        return [*checks, failed("redis reachable", str(exc))]


def _data_folder(settings: Settings) -> Check:
    folder = settings.data.dir
    name = "data folder"
    if not folder.is_dir():
        why = f"there is no folder {str(folder)!r}; `shoal up` makes it, others need none"
        return Check(name, "skipped", why)
    wrong = []
    if not os.access(folder, os.W_OK | os.X_OK):
        wrong.append(f"{str(folder)!r} cannot be written to by this user")
    for path in (folder, folder / "web.token", folder / EMBEDDED_URL_FILE):
        mode = path.stat().st_mode & 0o777 if path.exists() else 0
        if mode & 0o077:
            wrong.append(f"{str(path)!r} is open to others: chmod {mode & 0o700:o} {path}")
    return failed(name, "; ".join(wrong)) if wrong else ok(name, f"{str(folder)!r} is its owner's alone")


def extras_check(extras: Mapping[str, str]) -> Check:
    """Report which extras are not installed here. Most installations need none: not a failure."""
    missing = [extra for extra, package in extras.items() if not any(metadata.distributions(name=package))]
    if not missing:
        return ok("extras", f"{', '.join(extras)}: installed")
    return Check(
        "extras",
        "skipped",
        f"not installed here: {', '.join(missing)}; where they are used, "
        f"`make channels` installs all, or install shoal[{','.join(missing)}]",
    )


def _tokens(settings: Settings) -> Iterator[Check]:
    if short := short_tokens(settings.web):
        yield failed(
            "tokens",
            f"{', '.join(short)}: "
            f"shorter than {TOKEN_CHARS} characters: it can be guessed, and the next release will refuse it; "
            "make another one, for example by `openssl rand -hex 16`",
        )


def _model(settings: Settings) -> Iterator[Check]:
    """Report models that are compacted at an assumed size. That is safe, so it is not a failure."""
    try:
        unknown = asyncio.run(Models(settings.model).unsized())
    except SettingsError as exc:
        yield failed("model", str(exc))
        return
    if unknown:
        yield Check(
            "model context",
            "skipped",
            f"{', '.join(unknown)}: "
            f"no table has it, so {settings.model.context_default:,} tokens are assumed; "
            "set model.context_tokens",
        )


def _network(settings: Settings) -> Iterator[Check]:
    """Report the way of outgoing calls, where it is not simply the internet."""
    network = settings.network
    if network.ca_file is not None:
        try:
            check_ca_file(network.ca_file)
        except SettingsError as exc:
            yield failed("network", str(exc))
    if network.proxy is None:
        return
    parts = urlsplit(network.proxy.reveal())
    try:
        socket.create_connection((parts.hostname or "", parts.port or 0), PROXY_WITHIN_S).close()
    except OSError as exc:
        yield failed(
            "network",
            f"the proxy {network.proxy} does not answer here ({exc.strerror or type(exc).__name__}): "
            "is it running, and is network.proxy right?",
        )
    else:
        excepted = ", ".join(network.no_proxy) or "no host"
        yield ok("network", f"outgoing calls go through {network.proxy}, but to {excepted}")


def _redis(facts: ServerFacts) -> Iterator[Check]:
    wrong = {problem.code: problem.text for problem in server_problems(facts)}

    def check(name: str, found: str | None, *codes: str) -> Check:
        if problem := next((wrong[code] for code in codes if code in wrong), None):
            return failed(name, problem)
        return ok(name, found) if found else Check(name, "skipped", "the server does not tell; ask whoever runs it")

    version = f"{facts.product} {facts.version}"
    if facts.speaks != facts.version:
        version += f", compatible with Redis {facts.speaks}"
    yield check("redis version", version, "replica", "old")
    yield check("maxmemory-policy", facts.policy, "evicting")
    yield check("appendonly", "yes" if facts.append_only else None, "not_persistent", "disk")
    yield check("appendfsync", facts.fsync, "fsync")
    yield check("restart", "keeps everything" if facts.restart_safe else None, "restart_forgets")
    yield check("memory", None if facts.used_bytes is None else f"{size(facts.used_bytes)} in use", "memory")
    yield check("clock", f"{abs(facts.clock_ahead_s) * 1000:.0f} ms from this machine's", "clock")


def fail_over_check(facts: ServerFacts, redis: RedisSettings) -> Check:
    """Report what a fail-over loses of what was confirmed."""
    name = "fail-over"
    copies = redis.copies
    if facts.replicas is None:
        return Check(name, "skipped", "the server does not tell of replicas; ask whoever runs it")
    servers = facts.replicas + 1
    if copies > servers:
        url = redis.url.reveal()
        without = "writes count with those left, while {} see the primary"
        meanwhile = "no write counts"
        for kind, who in (("+sentinel:", "Sentinels"), ("+cluster:", "most primaries")):
            meanwhile = without.format(who) if kind in url else meanwhile
        return failed(name, f"redis.copies is {copies}, and {servers} of them are there: {meanwhile}; see the replicas")
    if servers == 1:
        return ok(name, "there is none: one server without a replica")
    if copies == 1:
        return Check(name, "skipped", f"up to about 1 s may be lost: set redis.copies = {min(servers, 3)}")
    if copies == servers:
        return ok(name, f"none lost: writes are confirmed on {copies} servers")
    more = f"; redis.copies = {servers} for any" if servers <= 3 else ""
    return ok(name, f"none lost if the freshest replica is promoted{more}")


def _fleet(found: FleetSnapshot) -> Iterator[Check]:
    gateways = found.of("gateway")
    workers = found.of("worker")
    yield _present("gateway", gateways)
    yield _present("worker", workers)
    yield from _channels(gateways)
    due = [problem.text for problem in unserved(found.queues, found.processes)]
    name = "work is taken"
    yield failed(name, "; ".join(due)) if due else ok(name, "nothing waits in vain")
    models = sorted({one.details.get("model", "unknown") for one in workers})
    if models:
        differ = ": workers differ, which is fine only while they are being replaced"
        yield ok("model", ", ".join(models) + (differ if len(models) > 1 else ""))
    yield from _sandbox([one for one in workers if not one.draining])
    if why := tools_left_out(workers):
        yield Check("tools left out", "skipped", why)


def _channels(gateways: Sequence[Presence]) -> Iterator[Check]:
    """Check the channels that gateways listen to, as they report it."""
    names = {one.name: one.details.get("channels", "").split() for one in gateways}
    counts = Counter(name for one in gateways if not one.draining for name in names[one.name])
    if counts:
        shown = (f"{name} ({count} gateways)" if count > 1 else name for name, count in sorted(counts.items()))
        yield ok("channels", ", ".join(shown))
    for one in gateways:
        for name in names[one.name]:
            if why := one.details.get(channel_why(name)):
                state = one.details.get(channel_state(name), "off")
                yield failed(f"channel {name}", f"{state} on {one.name}: {why}")


def _provider_routes(found: FleetSnapshot) -> Iterator[Check]:
    """Check that every provider is in use, not paused by its circuit breaker."""
    names = found.models()
    closed = [
        f"{', '.join(names.get(way.route, [way.route]))} for {way.wait_s:.0f} s ({way.why})"
        for way in found.provider_routes
        if way.state == "closed"
    ]
    if closed:
        yield failed(
            "providers", f"nobody asks {'; '.join(closed)}: look at the provider's status page, or add model.fallbacks"
        )
    elif found.provider_routes:
        yield ok("providers", "none is left alone")


def _sandbox(workers: Sequence[Presence]) -> Iterator[Check]:
    """Report the sandbox of `exec`. Off is safe, so it is not a failure."""
    name = "sandbox of exec"
    tiers: dict[str, list[str]] = {}
    for one in workers:
        if "sandbox" in one.details:  # set once the worker has looked
            kernel = " with cgroup" if one.details.get(LIMITED_BY) == "cgroup" else ""
            tiers.setdefault(one.details["sandbox"] + kernel, []).append(one.name)
    by_tier = ", ".join(f"{tier} ({', '.join(names)})" for tier, names in sorted(tiers.items()))
    whys = sorted({one.details[WHY_OFF] for one in workers if WHY_OFF in one.details})
    if "off" in tiers:
        yield Check(name, "skipped", "; ".join([by_tier, *(whys or ["the worker's log says why"])]))
    elif tiers:
        yield ok(name, by_tier)


def _present(kind: str, processes: Sequence[Presence]) -> Check:
    name = f"{kind}s"
    advice = f"start `python -m {kind}`, or everything with `shoal up`"
    ready = sum(not one.draining for one in processes)
    if not ready:
        none = f"all {len(processes)} are draining" if processes else "none is there"
        return failed(name, f"{none}: {advice}")
    each = [
        " ".join([one.name, *("=".join(item) for item in one.details.items() if not item[0].endswith(".why"))])
        for one in processes[:PROCESSES_SHOWN]
    ]
    if len(processes) > PROCESSES_SHOWN:
        each.append(f"{len(processes) - PROCESSES_SHOWN} more: `shoal status`")
    return ok(name, f"{ready} of {len(processes)} ready: {'; '.join(each)}")


async def _probe(client: RedisClient, found: FleetSnapshot) -> Check:
    if not any(serves(one, QUEUE) for one in found.of("worker")):
        return failed("probe", f"no worker serves queue {QUEUE!r}: start `python -m worker`")
    jobs = Jobs(client)
    probe_text = secrets.token_hex(8)
    started = time.monotonic()
    id = await jobs.enqueue("probe", probe_text)
    try:
        while (result := await jobs.result(id)) is None:
            if time.monotonic() - started > PROBE_WITHIN_S:
                return failed("probe", f"no test job came back within {PROBE_WITHIN_S:g} s: look at the workers' logs")
            await asyncio.sleep(_LOOK_S)
    finally:
        await jobs.forget(id)
    if not result.success or result.result != probe_text:
        return failed("probe", f"a test job failed with {result.result!r}: look at the workers' logs")
    return ok("probe", f"a worker ran a test job in {time.monotonic() - started:.2f} s")
