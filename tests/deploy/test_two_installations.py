"""Two installations in one real Prometheus: neither hides, scales or fills the pictures of the other."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

import pytest

from tests.deploy.test_dashboards import exprs
from tests.helpers.manifests import keda_queries, overlay
from tests.helpers.monitoring import Prometheus, filled_in
from tests.helpers.need import need
from tests.helpers.wait import eventually
from tests.helpers.web_server import reply, web_server
from tools.dashboards.boards import BOARDS

BUSY, IDLE = "shoal", "staging"
PAGE: Final = """\
shoal_build_info{{version="1"}} 1
shoal_processes{{kind="worker"}} {workers}
shoal_processes{{kind="gateway"}} 1
shoal_redis_up 1
shoal_redis_memory_bytes {memory}
shoal_redis_memory_limit_bytes 100
shoal_queue_oldest_due_seconds{{queue="turns"}} {oldest}
shoal_queue_oldest_due_seconds{{queue="jobs"}} {oldest}
shoal_queue_due{{queue="turns"}} {oldest}
shoal_queue_due{{queue="background"}} 0
shoal_queue_due{{queue="jobs"}} {oldest}
shoal_queue_running{{queue="turns"}} 1
shoal_queue_running{{queue="background"}} 1
shoal_queue_running{{queue="jobs"}} 1
shoal_places{{queue="turns"}} 300
shoal_worker_places{{queue="turns"}} 100
shoal_worker_places{{queue="jobs"}} 20
shoal_web_sockets {memory}
"""


@pytest.fixture
async def prometheus(tmp_path: Path) -> AsyncIterator[Prometheus]:
    """It scrapes an installation whose workers have all died, and one that has nothing to do."""
    need("prometheus", install="Debian: apt-get install prometheus")
    text = "text/plain; version=0.0.4"
    async with web_server() as busy, web_server() as idle:
        busy.pages["/metrics"] = reply(PAGE.format(workers=0, memory=95, oldest=40), text)
        idle.pages["/metrics"] = reply(PAGE.format(workers=3, memory=5, oldest=0), text)
        ports = [urlsplit(one.url("/")).port or 0 for one in (busy, idle)]
        made = Prometheus(
            tmp_path,
            {"shoal-gateway": [], "shoal-worker": ports},
            namespaces=dict(zip(ports, (BUSY, IDLE), strict=True)),
        )
        try:
            await made.ready()
            await eventually(
                lambda: len(made.values("shoal_processes")) == 4 and pending(made), within_s=60, every_s=0.2
            )
            yield made
        finally:
            made.stop()


def pending(prometheus: Prometheus) -> set[tuple[str, str]]:
    """The alerts that fire, or will, each with its installation."""
    labels = [one["labels"] for one in prometheus.ask("alerts")["alerts"]]
    return {(one["alertname"], one.get("namespace", "")) for one in labels}


@pytest.mark.slow
@pytest.mark.timeout(120)
async def test_each_installation_has_its_own_alerts_pictures_and_workers(prometheus: Prometheus) -> None:
    """Dead workers are noticed although the other has some; an idle one gets no workers for the other's backlog; a
    picture of one shows nothing of the other, and one of both everything."""
    wanted = {("ShoalNoWorkers", BUSY), ("ShoalOldestTurnWaits", BUSY), ("ShoalRedisMemoryFull", BUSY)}
    await eventually(lambda: wanted <= pending(prometheus), within_s=30, every_s=0.2)
    assert {namespace for _, namespace in pending(prometheus)} == {BUSY}
    queries = keda_queries(overlay("production"))
    assert sorted(one for query in queries for one in prometheus.values(query)) == [40, 40, 42, 95, 205]
    queries = [query.replace(f'"{BUSY}"', f'"{IDLE}"') for query in queries]
    assert sorted(one for query in queries for one in prometheus.values(query)) == [0, 0, 2, 5, 5]
    assert prometheus.values(filled_in("max(shoal_processes{namespace=~'$namespace'})", IDLE)) == [3]
    for expr in (one for board in BOARDS for one in exprs(board) if "vector(0)" not in one):
        assert prometheus.values(filled_in(expr, "another")) == [], expr
        if "shoal_queue_oldest_due_seconds" in expr:
            assert set(prometheus.values(filled_in(expr, IDLE))) == {0}, expr
            assert set(prometheus.values(filled_in(expr))) == {40}, expr
