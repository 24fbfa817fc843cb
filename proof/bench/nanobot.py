"""nanobot, one process, on the same model server with the same turns as `turn` and `inflight` have.

It is no part of what Shoal is tested with: it is run by the Python of an environment of its own, `--peer PYTHON`, else
`.venv/nanobot/bin/python`. Where that is not there, this says how to make it, and ends with code 2.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from proof.bench.children import ROOT, Child, Children
from proof.bench.plan import Plan
from proof.bench.stub import Stub, model_name
from proof.bench.table import Report, Rounds

ROUNDS: Final = 3
VERSION: Final = "0.3.0"
"""The one that the targets are about; another one is measured as it is."""

PYTHON: Final = ROOT / ".venv" / "nanobot" / "bin" / "python"
INSTALL: Final = f"python3 -m venv .venv/nanobot && .venv/nanobot/bin/pip install nanobot-ai=={VERSION}"


def measure(plan: Plan) -> Report:
    """CPU and memory of a turn, and turns a second with a model that takes 2 s."""
    python = plan.peer or str(PYTHON)
    if not _installed(python):
        print(f"nanobot is not installed for {python!r}; this installs it:\n\n    {INSTALL}", file=sys.stderr)
        sys.exit(2)
    found = Rounds()
    with tempfile.TemporaryDirectory(prefix="shoal-bench-") as top, Children() as start:
        stub = Stub(start)
        version = _turns(found, plan, _side(start, python, stub, model_name(50), Path(top) / "turns"))
        _rate(found, plan, stub, _side(start, python, stub, model_name(20, first_ms=2000), Path(top) / "rate"))
    by_name = {figure.name: statistics.median(figure.values) for figure in found.figures()}
    notes = (f"nanobot {version}: {by_name['a turn']:.0f} ms CPU a turn, its client of models included",)
    return Report(title="nanobot: one process, the same turns", figures=found.figures(), notes=notes)


def _installed(python: str) -> bool:
    if not Path(python).exists():
        return False
    return subprocess.run([python, "-c", "import nanobot"], capture_output=True, check=False).returncode == 0


def _side(start: Children, python: str, stub: Stub, model: str, folder: Path) -> Child:
    folder.mkdir()
    script = Path(__file__).with_name("nanobot_side.py")
    command = [python, "-P", "-W", "ignore", str(script), stub.base_url, model, str(folder)]
    env = {"HOME": str(folder), "TIKTOKEN_CACHE_DIR": str(_tokenizers())}
    return start.run(command, env=env, log=folder / "log", talks=True)


def _tokenizers() -> Path:
    """The table of a tokenizer that comes with LiteLLM: without it nanobot looks for one on the internet at each turn,
    and where there is none that is all that would be measured."""
    spec = find_spec("litellm")
    assert spec is not None
    assert spec.origin is not None
    return Path(spec.origin).parent / "litellm_core_utils" / "tokenizers"


def _turns(found: Rounds, plan: Plan, side: Child) -> str:
    version = side.line().split()[0]
    found.add("idle", "MB", side.memory_kb / 1024)
    chats = plan.of(16, 2)
    for n in range(plan.repeats(ROUNDS) + 1):
        turns, seconds, cpu_s = map(float, side.ask(f"{n * chats} {chats} 0").split())
        if n or plan.quick:
            found.add("a turn", "ms CPU", cpu_s / turns * 1000)
            found.add("a model that answers at once: rate", "turns/s", turns / seconds)
    return version


def _rate(found: Rounds, plan: Plan, stub: Stub, side: Child) -> None:
    side.line()
    before = stub.process.cpu_s
    turns, seconds, _ = map(float, side.ask(f"0 {plan.of(60, 4)} {plan.of(30.0, 5.0)}").split())
    found.add("a model that takes 2 s: rate", "turns/s", turns / seconds)
    found.add("after that", "MB", side.memory_kb / 1024)
    found.add("model server", "ms CPU a turn", (stub.process.cpu_s - before) / max(1.0, turns) * 1000)
