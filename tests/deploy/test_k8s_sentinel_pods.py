"""Servers and Sentinels of the component redis-sentinel as processes of this machine, each at an address of its own."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator

import pytest

from tests.gateway.harness import free_port
from tests.helpers.kubelet import Cluster, Pod, Running
from tests.helpers.local_cluster import local_cluster
from tests.helpers.wait import eventually_sync

KINDS = {"shoal-redis": "valkey", "shoal-sentinel": "sentinel"}


class Servers:
    """Three of each, as a StatefulSet starts them."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._ca = cluster.folder / "shoal-redis-0" / "tls" / "ca.crt"
        self._pods: dict[str, Pod] = {}
        self.running: dict[str, Running] = {}
        names = [f"{kind}-{n}" for kind in KINDS for n in range(3)]
        addresses = {name: f"127.83.0.{at}" for at, name in enumerate(names, start=1)}
        cluster.hosts |= {f"{name}.{name[:-2]}": address for name, address in addresses.items()}
        for name in names:
            ours = {"0.0.0.0": addresses[name]}
            pod = cluster.pod("StatefulSet", name[:-2], instance=name[-2:], ours=ours)
            assert pod.run("users").process.wait(30) == 0
            self._pods[name] = pod

    def start(self, *names: str) -> None:
        """Start the containers of pods; without a name of all."""
        for name in names or self._pods:
            self.running[name] = self._pods[name].run(KINDS[name[:-2]])

    def kill(self, *names: str) -> None:
        for name in names or tuple(self.running):
            self.running.pop(name).kill()

    def ask(self, name: str, *words: str) -> str:
        """Say a command to a server or a Sentinel as admin."""
        port = self._cluster.ours["6379" if "redis" in name else "26379"]
        password = self._cluster.secrets["shoal-redis-admin"]["password"].strip()
        host = self._cluster.hosts[f"{name}.{name[:-2]}"]
        login = ["--no-auth-warning", "--user", "admin", "--pass", password, "--tls", "--cacert", str(self._ca)]
        command = ["redis-cli", "-h", host, "-p", port, *login, *words]
        return subprocess.run(command, capture_output=True, text=True, timeout=20, check=False).stdout.strip()

    def primary(self) -> str:
        """The one that all Sentinels name; nothing while they differ."""
        command = "SENTINEL", "GET-MASTER-ADDR-BY-NAME", "shoal"
        named = {self.ask(f"shoal-sentinel-{n}", *command).partition(".")[0] for n in range(3)}
        return named.pop() if len(named) == 1 else ""

    def in_step(self) -> bool:
        """Both replicas follow the primary, and every Sentinel knows them. Sentinels look more often than they do by
        themselves, which is every ten seconds."""
        for n in range(3):
            self.ask(f"shoal-sentinel-{n}", "SENTINEL", "DEBUG", "INFO-PERIOD", "500", "PUBLISH-PERIOD", "500")
        primary = self.primary()
        facts = self.ask(primary, "INFO", "replication") if primary else ""
        rows = [self.ask(f"shoal-sentinel-{n}", "SENTINEL", "MASTER", "shoal").splitlines() for n in range(3)]
        known = [dict(zip(row[::2], row[1::2], strict=True)) for row in rows]
        counts = [(row.get("num-slaves"), row.get("num-other-sentinels")) for row in known]
        return facts.count("state=online") == 2 and counts == [("2", "2")] * 3

    def wait(self) -> str:
        eventually_sync(self.in_step, within_s=60, every_s=0.2, what="three servers in step")
        return self.primary()

    def wipe(self, name: str) -> None:
        """Take the data of a server away, as a lost volume does."""
        folder = self._cluster.folder / name / "data"
        shutil.rmtree(folder)
        folder.mkdir()


@pytest.fixture(scope="module")
def servers() -> Iterator[Servers]:
    """Three servers and three Sentinels that know each other, for both tests."""
    with local_cluster("dev-redis-small+redis-sentinel", {"26379": str(free_port())}) as cluster:
        made = Servers(cluster)
        try:
            made.start()
            assert made.wait() == "shoal-redis-0"
            yield made
        finally:
            made.kill()


@pytest.mark.timeout(120)
def test_a_sentinel_tells_everybody_the_primary_and_obeys_only_its_own(servers: Servers) -> None:
    """Processes of Shoal have no password for it."""
    primary = servers.wait()
    ca = servers._ca
    host = servers._cluster.hosts["shoal-sentinel-0.shoal-sentinel"]
    command = ["redis-cli", "-h", host, "-p", servers._cluster.ours["26379"], "--tls", "--cacert", str(ca)]

    def ask(*words: str) -> str:
        return subprocess.run([*command, *words], capture_output=True, text=True, check=False).stdout

    assert ask("SENTINEL", "GET-MASTER-ADDR-BY-NAME", "shoal").startswith(f"{primary}.shoal-redis\n")
    assert "num-slaves" in ask("SENTINEL", "MASTER", "shoal")
    for words in (("SENTINEL", "FAILOVER", "shoal"), ("SENTINEL", "REMOVE", "shoal"), ("SENTINEL", "RESET", "*")):
        assert ask(*words).startswith("NOPERM"), words


# The last one here: what it starts anew ends with the fixture.
@pytest.mark.timeout(240)
def test_what_was_written_outlives_each_of_them_and_all_together(servers: Servers) -> None:
    """A killed primary comes back as a replica, one without data too; a hand-over takes no time; and after a start of
    all the last primary is it again."""
    first = servers.wait()
    assert servers.ask(first, "SET", "kept", "1") == "OK"
    servers.kill(first)
    servers.start(first)
    second = servers.wait()
    assert second != first

    running = servers.running[second]
    assert running.execute(["sh", "/etc/valkey/hand-over"], 30) == 0
    third = servers.wait()
    assert third != second
    assert servers.ask(third, "GET", "kept") == "1"

    servers.kill()
    servers.start()
    assert servers.wait() == third
    assert servers.ask(third, "GET", "kept") == "1"

    servers.kill(third)
    servers.wipe(third)
    servers.start(third)
    last = servers.wait()
    assert last != third
    assert [servers.ask(f"shoal-redis-{n}", "GET", "kept") for n in range(3)] == ["1"] * 3
