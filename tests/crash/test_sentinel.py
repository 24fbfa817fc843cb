"""Real Sentinels move the primary while a gateway and two workers are at work: stopped, killed, or by hand."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from redis.sentinel import MasterNotFoundError, Sentinel

from tests.crash.moving import conversation, ours_at
from tests.gateway.harness import free_port
from tests.helpers.need import need
from tests.helpers.openai_server import ScriptedOpenAI
from tests.helpers.redis_server import started
from tests.helpers.wait import eventually

SERVICE = "shoal"
DOWN_AFTER_S = 2.0
STAND_STILL_S = DOWN_AFTER_S + 2.5
MARGIN_S = 20.0
"""For a machine that stalls; what is promised is above, and `proof.chaos` measures it."""

PASSWORD = "of-the-servers"


class Watched:
    """A primary with a replica, and three Sentinels that watch them."""

    def __init__(self, folder: Path) -> None:
        self.sentinels = [free_port() for _ in range(3)]
        self.servers: dict[int, subprocess.Popen[bytes]] = {}
        first, second = free_port(), free_port()
        for port, more in ((first, []), (second, ["--replicaof", "127.0.0.1", str(first)])):
            self.servers[port] = self._start(folder / str(port), port, more)
        self._watchers = [self._watcher(folder / str(port), port, first) for port in self.sentinels]
        sentinel: Any = Sentinel
        self.oracle = sentinel([("127.0.0.1", port) for port in self.sentinels], socket_timeout=1)

    @property
    def url(self) -> str:
        hosts = ",".join(f"127.0.0.1:{port}" for port in self.sentinels)
        return f"redis+sentinel://{hosts}/{SERVICE}/0"

    def primary(self) -> int:
        """The port of the primary, as redis-py finds it."""
        return int(self.oracle.discover_master(SERVICE)[1])

    def ready(self) -> bool:
        """All know each other and the replica, and that is in step."""
        known = [one.sentinel_masters()[SERVICE] for one in self.oracle.sentinels]
        info = self.oracle.master_for(SERVICE, password=PASSWORD).info("replication")
        in_step = info.get("slave0", {}).get("state") == "online"
        return in_step and all(row["num-other-sentinels"] == 2 and row["num-slaves"] == 1 for row in known)

    def end(self) -> None:
        for process in (*self._watchers, *self.servers.values()):
            process.kill()
            process.wait(20)

    def _start(self, folder: Path, port: int, more: list[str]) -> subprocess.Popen[bytes]:
        folder.mkdir()
        common = ["--port", str(port), "--bind", "127.0.0.1", "--appendonly", "yes", "--save", ""]
        login = ["--requirepass", PASSWORD, "--masterauth", PASSWORD]
        return started(["redis-server", *common, *login, *more], folder, f"redis://:{PASSWORD}@127.0.0.1:{port}")

    def _watcher(self, folder: Path, port: int, primary: int) -> subprocess.Popen[bytes]:
        folder.mkdir()
        conf = folder / "sentinel.conf"
        conf.write_text(
            f"port {port}\nbind 127.0.0.1\nsentinel monitor {SERVICE} 127.0.0.1 {primary} 2\n"
            f"sentinel auth-pass {SERVICE} {PASSWORD}\n"
            f"sentinel down-after-milliseconds {SERVICE} {int(DOWN_AFTER_S * 1000)}\n"
            f"sentinel failover-timeout {SERVICE} 10000\n"
        )
        return started(["redis-server", conf, "--sentinel"], folder, f"redis://127.0.0.1:{port}")


@pytest.fixture
def watched(tmp_path: Path) -> Iterator[Watched]:
    need("redis-server")
    made = Watched(tmp_path)
    yield made
    made.end()


@pytest.mark.timeout(240)
@pytest.mark.parametrize("way", ["by hand", "killed", "stopped and resumed"])
async def test_the_fleet_goes_on_at_the_primary_that_sentinels_name(
    way: str, watched: Watched, model: ScriptedOpenAI, tmp_path: Path
) -> None:
    """Nothing is lost or answered twice. A former primary that is resumed has none of our connections left, so it
    can tell nobody anything; the guardian and arq's client have left it, too."""
    await eventually(watched.ready, within_s=60, every_s=0.1)
    async with conversation(watched.url, PASSWORD, model, tmp_path) as people:
        former = await asyncio.to_thread(watched.primary)
        if way == "by hand":
            await asyncio.to_thread(watched.oracle.sentinels[0].sentinel_failover, SERVICE)
        else:
            os.kill(watched.servers[former].pid, signal.SIGKILL if way == "killed" else signal.SIGSTOP)
        await eventually(lambda: asyncio.to_thread(moved, watched, former), within_s=60, every_s=0.05)
        await people.has_answers(5)
        if way == "stopped and resumed":
            os.kill(watched.servers[former].pid, signal.SIGCONT)
            # It first reads what was sent before it stopped, and then that those have closed.
            await eventually(lambda: asyncio.to_thread(lambda: not ours_at(former, PASSWORD)[1]))
            rows = []

            async def demoted() -> bool:
                with contextlib.suppress(ConnectionResetError):  # the Sentinels end all connections then
                    rows.append(await asyncio.to_thread(ours_at, former, PASSWORD))
                return rows[-1:] != [] and rows[-1][0] != b"master"

            await eventually(demoted, within_s=60, what="the end of the former primary's time")
            assert [row for row in rows if row[1]] == []
    assert max(people.gaps) < STAND_STILL_S + MARGIN_S


def moved(watched: Watched, former: int) -> bool:
    """Whether the Sentinels name another server."""
    with contextlib.suppress(MasterNotFoundError):  # while the former one counts as down
        return watched.primary() != former
    return False
