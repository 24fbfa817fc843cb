"""The pod tier for real: a container runtime's own filter, no capability, no new privilege, and user 1001.

The tests of the runner itself (test_runner.py) run under the same conditions as well.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from shared.confinement import landlock
from tests.helpers import pod
from tests.helpers.need import need
from tests.helpers.runner import RunnerProcess

ROOT = Path(__file__).parents[3]

pytestmark = pytest.mark.timeout(180)


@pytest.fixture(scope="module")
def runner() -> Iterator[RunnerProcess]:
    need("Landlock", found=landlock.abi() >= landlock.NEEDED_ABI, install="Linux 6.2 or newer with Landlock on")
    need("libseccomp2", found=pod.library() is not None)
    made = RunnerProcess(profile=True)
    yield made
    made.close()


async def test_the_runner_lives_as_in_a_pod(runner: RunnerProcess) -> None:
    """The kernel confirms the restrictions of the process: without them the other tests would prove nothing."""
    await runner.ready()
    lines = Path(f"/proc/{runner.process.pid}/status").read_text().splitlines()
    status = dict(line.split(":\t", 1) for line in lines if ":\t" in line)
    assert status["Seccomp"] == "2"
    assert status["NoNewPrivs"] == "1"
    assert int(status["CapEff"], 16) == int(status["CapPrm"], 16) == 0
    assert set(status["Uid"].split()) == {str(runner.uid)}


def test_bubblewrap_cannot_start_there() -> None:
    """The reason for the runner."""
    need("libseccomp2", found=pod.library() is not None)
    words = ["tests.helpers.pod", "--profile", str(pod.PROFILE), "tests.helpers.try_bubblewrap"]
    ran = subprocess.run([sys.executable, "-m", *words], cwd=ROOT, capture_output=True, text=True, check=False)
    assert ran.returncode == 1, ran.stdout + ran.stderr
    assert "namespace" in ran.stdout


async def test_every_way_out_is_shut(runner: RunnerProcess) -> None:
    """Network, namespaces, traces, keys, kernel programs, other processes: refused to a program that asks directly."""
    need("python3")
    sandbox = await runner.ready()
    script = (
        "import ctypes, json, os, socket\n"
        "libc = ctypes.CDLL(None, use_errno=True)\n"
        "def tried(call):\n"
        "    try:\n"
        "        call()\n"
        "    except OSError as exc:\n"
        "        return exc.errno\n"
        "    return 0\n"
        "def asked(*words):\n"
        "    return ctypes.get_errno() if libc.syscall(*words) < 0 else 0\n"
        "print(json.dumps([\n"
        "    tried(lambda: socket.create_connection(('169.254.169.254', 80), 1)),\n"
        "    tried(lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM)),\n"
        "    tried(lambda: socket.socket(socket.AF_UNIX)),\n"
        "    tried(lambda: open(f'/proc/{os.getppid()}/mem')),\n"
        "    tried(lambda: open('/proc/self/environ')),\n"
        "    tried(lambda: os.listdir('/proc')),\n"
        "    tried(lambda: os.setpriority(os.PRIO_PROCESS, os.getppid(), 19)),\n"
        "    tried(lambda: os.sched_setaffinity(os.getppid(), {0})),\n"
        "    asked(425, 8, 0), asked(435, 0, 0), asked(434, os.getppid(), 0),\n"
        "]))\n"
    )
    finished = await sandbox.run(runner.command(("/usr/bin/python3", "-c", script)))
    assert finished.code == 0, finished
    codes = json.loads(finished.output)
    assert all(code != 0 for code in codes), codes
    assert codes[:6] == [1, 1, 1, 13, 13, 13]
