"""The fleet under fire: gateways and workers that are started again when they end, and the server they share."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

from proof.chaos.proxy import Proxy
from proof.chaos.recovery import Blow, Until
from shared.embedded import EmbeddedValkey
from shared.errors import RedisAway
from shared.store.client.redis_client import RedisClient
from shared.store.fleet.presence import list_processes
from tests.gateway.harness import TOKENS, answers, free_port
from tests.helpers.processes import Process
from tests.helpers.redis_cluster import RedisCluster


class Member:
    """One gateway or worker group, started again whenever it is found dead."""

    def __init__(self, kind: str, number: int, env: dict[str, str], folder: Path) -> None:
        self.kind = kind
        self.port = free_port() if kind == "gateway" else 0
        self._env = env | ({"SHOAL_WEB__PORT": str(self.port)} if self.port else {})
        self._log = folder / f"{kind}-{number}.log"
        self.process = self._start()
        self.starts = 1

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def log(self) -> str:
        return self.process.log

    def keep(self) -> None:
        """Start it again if it is dead."""
        if not self.process.alive:
            self.process = self._start()
            self.starts += 1

    def _start(self) -> Process:
        return Process(self.kind, env=self._env, log=self._log)


class Fleet:
    """`gateways` and `workers` on one Valkey that fsyncs always, behind a proxy if there is one.

    `blows` is what was done to it, for `proof.chaos.recovery`.
    """

    def __init__(
        self,
        server: EmbeddedValkey | RedisCluster,
        proxy: Proxy | None,
        folder: Path,
        *,
        gateways: int,
        workers: int,
        lease_s: float,
        drain_s: float = 8.0,
        env: Mapping[str, str] | None = None,
    ) -> None:
        self._server = server
        self._proxy = proxy
        self._folder = folder
        self._client = RedisClient(server.url)
        self.blows: list[Blow] = []
        shared = {
            "SHOAL_REDIS__URL": proxy.url if proxy else server.url,
            "SHOAL_DATA__DIR": str(folder),
            "SHOAL_WORKER__LEASE_S": str(lease_s),
            "SHOAL_WORKER__DRAIN_S": str(drain_s),
            "SHOAL_WEB__TOKENS__OWNER": TOKENS["owner"],
            "SHOAL_INBOX__SENDER_PER_MINUTE": "0",  # everybody here is one sender
            "SHOAL_INBOX__CHATS_PER_PERSON": "0",
            **(env or {}),
        }
        self.gateways = [Member("gateway", i, shared, folder) for i in range(gateways)]
        self.workers = [Member("worker", i, shared, folder) for i in range(workers)]

    @property
    def server(self) -> EmbeddedValkey:
        """The one server, where there is only one."""
        assert isinstance(self._server, EmbeddedValkey)
        return self._server

    @property
    def proxy(self) -> Proxy:
        """The proxy before the server."""
        assert self._proxy is not None
        return self._proxy

    async def owners(self, pids: Collection[int]) -> list[str]:
        """The names by which these processes hold leases; nothing when the server cannot be asked."""
        try:
            return [found.name for found in await list_processes(self._client) if found.pid in pids]
        except RedisAway:
            return []

    def note(self, kind: str, owners: Sequence[str], until: Until, *, in_s: float = 0.0) -> None:
        """Something is done now, or in a while, to what these owners hold; `""` is everybody."""
        self.blows.extend(Blow(kind, time.time() + in_s, owner, until) for owner in owners)

    async def close(self) -> None:
        """Let go of the server."""
        await self._client.close()

    def addresses(self) -> list[str]:
        """Where gateways listen, whether they live or not."""
        return [member.address for member in self.gateways]

    def server_files(self, pattern: str) -> list[Path]:
        """Files of the server's data folder."""
        return list((self._folder / "valkey").rglob(pattern))

    def keep(self) -> None:
        """Start again what is dead, as an orchestrator does."""
        for member in (*self.gateways, *self.workers):
            member.keep()

    def ready(self) -> bool:
        """Whether every gateway accepts connections."""
        return all(answers(address) for address in self.addresses())

    def end(self) -> None:
        """SIGTERM to all, SIGKILL after 15 s."""
        members = (*self.gateways, *self.workers)
        for member in members:
            with contextlib.suppress(ProcessLookupError):
                member.process.terminate()
        give_up_at = time.monotonic() + 15
        for member in members:
            with contextlib.suppress(Exception):
                member.process.wait(max(0.1, give_up_at - time.monotonic()))
            if member.process.alive:
                member.process.kill_group()
