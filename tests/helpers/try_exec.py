"""What a worker of this user finds and what its commands see, as JSON on one line. For tests.helpers.pod.

Words: `choose` (all tiers by the settings of the environment), or `bubblewrap` and the folder `top` in which a
workspace is made, or `network`, such a folder and a Python that this user can start.
"""

from __future__ import annotations

import asyncio
import concurrent.futures.thread  # as all of these: before this process becomes another user, who cannot read them
import json
import sys
from collections.abc import Sequence
from pathlib import Path

from shared.settings import load
from worker.sandbox.bubblewrap import Bubblewrap
from worker.sandbox.command import SandboxBroken, SandboxCommand
from worker.sandbox.probe import SandboxOff, choose_sandbox
from worker.sandbox.runner.client import RunnerSandbox

__all__ = ["RunnerSandbox", "concurrent"]

_PLAIN = "echo kept >note; cat MEMORY.md; ls /; ls -A /proc | wc -l; cat /mnt/* 2>&1"
_NETWORK = """echo kept >note; grep -o '[a-z0-9]*:' /proc/net/dev
exec 3<>/dev/tcp/127.0.0.1/3128; printf 'CONNECT 127.0.0.1:80 HTTP/1.1\\r\\n\\r\\n' >&3; head -c 70 <&3"""


def main(words: Sequence[str]) -> int:
    """0 when there is a sandbox."""
    if words[0] == "network":
        sys.executable = words[2]
        return asyncio.run(_bubblewrap(Path(words[1]), line=_NETWORK, network=True))
    return asyncio.run(_choose() if words[0] == "choose" else _bubblewrap(Path(words[1])))


async def _choose() -> int:
    found = await choose_sandbox(load())
    print(json.dumps({"off": found.reason} if isinstance(found, SandboxOff) else {"tier": found.tier}))
    return int(isinstance(found, SandboxOff))


async def _bubblewrap(top: Path, *, line: str = _PLAIN, network: bool = False) -> int:
    folder = top / "workspaces" / "mine"
    folder.mkdir(parents=True, mode=0o700)
    try:
        sandbox = await Bubblewrap.find()
        finished = await sandbox.run(
            SandboxCommand(
                what=line, folder=str(folder), session="mine", shown={"MEMORY.md": b"fact\n"}, network=network
            )
        )
    except SandboxBroken as exc:
        print(json.dumps({"off": str(exc)}))
        return 1
    print(
        json.dumps({"output": finished.output.decode(), "code": finished.code, "kept": (folder / "note").read_text()})
    )
    return 0
