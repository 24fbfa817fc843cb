"""What the processes of a worker, and a gateway, show to others of the same user: nothing."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from shared import embedded
from shared.confinement import own_process
from tests.gateway.harness import TOKENS, free_port
from tests.helpers.need import need
from tests.helpers.processes import Process
from tests.helpers.wait import eventually

KEY = "sk-canary-of-the-model"


def test_a_server_of_our_own_gets_no_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    """`make up` starts Valkey, which shows its environment to others of this user."""
    monkeypatch.setenv("SHOAL_MODEL__API_KEY", KEY)
    monkeypatch.setenv("ANTHROPIC_API_KEY", KEY)
    assert KEY not in embedded._environment().values()


@pytest.mark.parametrize(("fields", "found"), [(50, (47, 48)), (49, (47, 48)), (48, (0, 0)), (42, (0, 0)), (0, (0, 0))])
def test_where_the_environment_is_may_be_untold(fields: int, found: tuple[int, int]) -> None:
    """qemu, which runs images of another processor, writes fewer fields than Linux; the name may hold anything."""
    stat = b"1 (a) b) " + b" ".join(b"%d" % at for at in range(fields)) + b"\n"
    assert own_process._environment_range(stat) == found


def test_a_hidden_process_keeps_its_environment_and_passes_it_on() -> None:
    """Only the copy in /proc is empty; it cannot be traced or dumped by others of its user."""
    need("/proc", found=Path("/proc/self/stat").exists(), install="a Linux with /proc")
    script = (
        "import os, subprocess, ctypes\n"
        "from shared.confinement.own_process import hide_process\n"
        "hide_process()\n"
        "print(os.environ['KEY'], ctypes.CDLL(None).prctl(3, 0, 0, 0, 0))\n"
        "print(subprocess.run(['sh', '-c', 'echo $KEY'], capture_output=True, text=True).stdout.strip())\n"
        "print(open('/proc/self/environ', 'rb').read().strip(b'\\0'))\n"
    )
    env = {**os.environ, "KEY": KEY}
    result = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, env=env, check=True)
    assert result.stdout.splitlines() == [f"{KEY} 0", KEY, "b''"]


@pytest.mark.parametrize("kind", ["worker", "gateway"])
async def test_no_process_of_ours_shows_the_model_key(kind: str, redis_url: str, tmp_path: Path) -> None:
    """Guardian, worker and gateway: /proc/<pid>/environ is empty, also for root, and the key stays usable."""
    need("/proc", found=Path("/proc/self/stat").exists(), install="a Linux with /proc")
    web = {"SHOAL_WEB__PORT": str(free_port()), "SHOAL_WEB__TOKENS__OWNER": TOKENS["owner"]}
    env = {"SHOAL_REDIS__URL": redis_url, "SHOAL_DATA__DIR": str(tmp_path), "SHOAL_MODEL__API_KEY": KEY, **web}
    process = Process(kind, env=env, log=tmp_path / "log")
    try:
        started = f"{kind} started" if kind == "worker" else "web listening"
        await eventually(lambda: started in process.log, within_s=60)
        top = psutil.Process(process.popen.pid)
        ours = [top, *top.children(recursive=True)]
        assert len(ours) >= (2 if kind == "worker" else 1)
        for one in ours:
            assert KEY.encode() not in Path(f"/proc/{one.pid}/environ").read_bytes(), one.cmdline()
    finally:
        process.terminate()
        process.wait(60)
