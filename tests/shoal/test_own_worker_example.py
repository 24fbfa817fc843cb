"""The example of docs/plugins.md, run as a reader would."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_the_example_runs_in_an_empty_folder(tmp_path: Path) -> None:
    """With nothing configured and nothing running: it prints the answer alone, and ends all that it started."""
    text = (ROOT / "docs/plugins.md").read_text(encoding="utf-8")
    [example] = re.findall(r"```python\n(import asyncio\n.*?)```", text, re.DOTALL)
    (tmp_path / "ask.py").write_text(example)
    env = {name: value for name, value in os.environ.items() if not name.startswith("SHOAL_")}
    env |= {"PYTHONPATH": str(ROOT), "HOME": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "ask.py"], cwd=tmp_path, env=env, capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert len(done.stdout.strip().splitlines()) >= 1
    assert "info" not in done.stdout
    assert (tmp_path / ".shoal").is_dir()
    assert not (tmp_path / ".shoal" / "valkey.url").exists()  # its server was stopped
