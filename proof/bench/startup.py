"""How long until a worker and a gateway are ready, what they hold then, and what their imports cost.

Ready is the first 200 of /readyz, counted from the moment at which the process is started as an operator does. The
worker's memory is that of the process that runs turns; its guardian stands apart.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import psutil

from proof.bench.children import ROOT, Child, Children, Ended, memory_kb
from proof.bench.plan import Plan
from proof.bench.server import server
from proof.bench.stub import model_name
from proof.bench.table import Report, Rounds
from tests.gateway.harness import free_port

ROUNDS: Final = 5
OF_LITELLM: Final = 2
"""Rounds with LiteLLM, which takes seconds each time."""

WITHIN_S: Final = 60.0
LOOK_S: Final = 0.005
SIDES: Final[dict[str, tuple[str, str]]] = {
    "gateway": ("gateway", "direct"),
    "worker": ("worker", "direct"),
    "worker with LiteLLM": ("worker", "litellm"),
}
"""What is started, and with which client of models."""

COMPILED: Final = {"PYTHONDONTWRITEBYTECODE": ""}
"""The first round leaves bytecode behind, as an installation does, whatever the environment says."""

IMPORTS: Final = {"bare python": "pass", "import aiohttp": "import aiohttp", "import litellm": "import litellm"}
_COST: Final = re.compile(r"import time: +(\d+) \| +\d+ \| +(\w+)")


def measure(plan: Plan) -> Report:
    """Times, memory and imports."""
    found = Rounds()
    with server() as valkey, tempfile.TemporaryDirectory(prefix="shoal-bench-") as folder:
        for n in range(plan.repeats(ROUNDS) + plan.of(1, 0)):
            counted = found if n or plan.quick else Rounds()  # the first one warms up: caches of the disk, bytecode
            for name, (module, client) in SIDES.items():
                if client == "litellm" and (plan.quick or n > OF_LITELLM):
                    continue
                with Children() as start:
                    _once(counted, name, start, module, _settings(valkey.url, folder, client), Path(folder))
            for name, code in IMPORTS.items():
                if "litellm" not in code or not (plan.quick or n > OF_LITELLM):
                    _import(counted, name, code)
    notes = [line for name in ("gateway.app", "worker.arq.settings") for line in _imports(name)]
    return Report(title="startup: until ready", figures=found.figures(), notes=tuple(notes))


def _settings(url: str, folder: str, client: str) -> dict[str, str]:
    return COMPILED | {
        "SHOAL_REDIS__URL": url,
        "SHOAL_DATA__DIR": folder,
        "SHOAL_MODEL__NAME": f"openai/{model_name(1)}",
        "SHOAL_MODEL__API_BASE": "http://127.0.0.1:1/v1",  # nobody is asked anything
        "SHOAL_MODEL__API_KEY": "none",
        "SHOAL_MODEL__CLIENT": client,
        "SHOAL_WEB__TOKENS__OWNER": "sesame",
    }


def _once(found: Rounds, name: str, start: Children, module: str, settings: Mapping[str, str], folder: Path) -> None:
    health, web = free_port(), free_port()
    env = {**settings, "SHOAL_METRICS__PORT": str(health), "SHOAL_WEB__PORT": str(web)}
    log = folder / f"{health}.log"
    began = time.perf_counter()
    child = start(module, env=env, log=log)
    _wait(child, health)
    found.add(f"{name}: ready", "s", time.perf_counter() - began)
    pid = child.pid
    if module == "worker":
        [pid] = [one.pid for one in psutil.Process(child.pid).children() if "worker.main" in one.cmdline()]
        found.add(f"{name}: guardian", "MB", child.memory_kb / 1024)
    found.add(f"{name}: memory when ready", "MB", memory_kb(pid) / 1024)
    if module == "worker":
        while '"model ready"' not in child.log:
            _still_there(child, began)
        found.add(f"{name}: model ready", "s", time.perf_counter() - began)
        found.add(f"{name}: memory then", "MB", memory_kb(pid) / 1024)


def _wait(child: Child, port: int) -> None:
    direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    began = time.perf_counter()
    while True:
        try:
            with direct.open(f"http://127.0.0.1:{port}/readyz", timeout=5):
                return
        except (urllib.error.HTTPError, OSError):
            _still_there(child, began)


def _still_there(child: Child, began: float) -> None:
    if not child.alive or time.perf_counter() - began > WITHIN_S:
        raise Ended(f"process {child.pid} is not ready: {child.log[-2000:]}")
    time.sleep(LOOK_S)


def _import(found: Rounds, name: str, code: str) -> None:
    """Seconds and memory of a Python that does this and ends."""
    say = "import re; print(re.search('VmHWM:[^0-9]*([0-9]+)', open('/proc/self/status').read())[1])"
    began = time.perf_counter()
    done = _python(f"{code}\n{say}")
    found.add(name, "s", time.perf_counter() - began)
    found.add(f"{name}: memory", "MB", int(done.stdout.split()[-1]) / 1024)


def _imports(module: str, most: int = 15) -> list[str]:
    """Where the time of a module's import goes, by package: each without what it imports from others."""
    spent: Counter[str] = Counter()
    for us, package in _COST.findall(_python(f"import {module}", "-X", "importtime").stderr):
        spent[package] += int(us)
    head = f"import {module}: {sum(spent.values()) / 1000:.0f} ms, each package without what it imports from others"
    return [head, *(f"  {us / 1000:6.1f} ms  {name}" for name, us in spent.most_common(most))]


def _python(code: str, *options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-W", "ignore", *options, "-c", code]
    env = {**os.environ, **COMPILED}
    return subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, check=True)
