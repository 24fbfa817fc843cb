"""Readiness as a balancer sees it, of real processes: while Redis comes and goes, and while they drain."""

from __future__ import annotations

import urllib.error
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from shared.embedded import EmbeddedValkey
from shared.store.client.redis_client import RedisClient
from shared.store.turns.inbox import Inbox
from tests.gateway.harness import TOKENS, free_port
from tests.helpers.build import say
from tests.helpers.fleet import holder, warm
from tests.helpers.fleet_fixtures import Spawn, model, model_server, spawn
from tests.helpers.monitoring import fetch
from tests.helpers.openai_server import Answer, ScriptedOpenAI
from tests.helpers.valkey import command
from tests.helpers.wait import eventually

__all__ = ["model", "model_server", "spawn"]


@pytest.fixture
def server(tmp_path: Path) -> Iterator[EmbeddedValkey]:
    """A Redis of the test's own, with an address, that is away."""
    made = EmbeddedValkey(tmp_path / "valkey")
    made.start()
    made.stop()
    yield made
    made.kill()


def page(port: int, name: str) -> tuple[int, str]:
    """Status and text; 0 when nobody answers."""
    try:
        return 200, fetch(f"http://127.0.0.1:{port}/{name}").strip()
    except urllib.error.HTTPError as exc:
        with exc:
            return exc.code, exc.read().decode().strip()
    except OSError:
        return 0, ""


def both(spawn: Spawn, server: EmbeddedValkey) -> list[int]:
    """Start a gateway and a worker; return where each is asked."""
    ports = [free_port(), free_port()]
    for kind, port in zip(("gateway", "worker"), ports, strict=True):
        spawn(
            kind,
            REDIS__URL=server.url,
            METRICS__PORT=str(port),
            WEB__PORT="0",
            WEB__TOKENS__OWNER=TOKENS["owner"],
            MODEL__CLIENT="direct",
        )
    return ports


async def all_say(ports: list[int], what: Callable[[int], bool], within_s: float = 60) -> None:
    """Wait until it is so of each process."""
    await eventually(lambda: all(map(what, ports)), within_s=within_s, every_s=0.1)


def is_ready(port: int) -> bool:
    return page(port, "readyz")[0] == 200


def knows_redis_up(port: int) -> bool:
    return "\nshoal_redis_up 1.0\n" in page(port, "metrics")[1]


def knows_redis_away(port: int) -> bool:
    return "\nshoal_redis_up 0.0\n" in page(port, "metrics")[1]


async def test_readiness_follows_redis_and_liveness_does_not(server: EmbeddedValkey, spawn: Spawn) -> None:
    """False before a worker's first acquire and a gateway's first answer, and whenever Redis is away; a process that is
    not ready is alive, and its metrics can be read."""
    ports = both(spawn, server)

    def away(port: int) -> bool:
        status, text = page(port, "readyz")
        return status == 503 and "redis" in text.lower()

    for _ in range(2):
        await all_say(ports, away)
        assert [page(port, "healthz") for port in ports] == [(200, "ok")] * 2
        await all_say(ports, knows_redis_away, within_s=60)
        server.start()
        await all_say(ports, is_ready)
        await all_say(ports, knows_redis_up, within_s=60)
        server.kill()
    await all_say(ports, away)


async def test_nobody_is_ready_at_a_replica_that_follows_its_primary(
    server: EmbeddedValkey, spawn: Spawn, tmp_path: Path
) -> None:
    """It answers PING and reads like a primary, and refuses every write: a fixed address after a fail-over."""
    server.start()
    other = EmbeddedValkey(tmp_path / "other")
    other.start()
    try:
        ports = both(spawn, server)
        await all_say(ports, is_ready)
        command(server.url, "CONFIG", "SET", "masterauth", urlsplit(other.url).password or "")
        command(server.url, "REPLICAOF", "127.0.0.1", str(other.port))
        await eventually(lambda: "master_link_status:up" in command(server.url, "INFO", "replication"), within_s=60)
        await all_say(ports, lambda port: page(port, "readyz")[0] == 503, within_s=60)
        await all_say(ports, knows_redis_away, within_s=60)
        assert [page(port, "healthz") for port in ports] == [(200, "ok")] * 2, "a restart would not help"
        command(server.url, "REPLICAOF", "NO", "ONE")
        await all_say(ports, is_ready)
    finally:
        other.kill()


async def test_a_worker_that_drains_is_not_ready_while_its_turn_ends(
    client: RedisClient, spawn: Spawn, model: ScriptedOpenAI
) -> None:
    """No new work is sent to it, and what it has comes to its border."""
    model.script(Answer(match="slow", text="slow " * 50, held_after=5))
    port = free_port()
    worker = spawn("worker", METRICS__PORT=str(port), MODEL__CLIENT="direct")
    await warm(worker)
    await eventually(lambda: page(port, "readyz")[0] == 200, within_s=60)
    await say(Inbox(client), "slow")
    await holder(client, "web:owner/a")
    await eventually(lambda: model.stats()["open"] == 1, within_s=60)
    worker.terminate()
    await eventually(lambda: page(port, "readyz") == (503, "draining"), within_s=60)
    assert page(port, "healthz") == (200, "ok")
    model.release()
    assert worker.wait(60) == 0
