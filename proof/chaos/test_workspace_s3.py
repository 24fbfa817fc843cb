"""A smoke of the kills of a write back to S3."""

from __future__ import annotations

import subprocess
import sys


def test_no_state_is_torn() -> None:
    """In a process of its own: multiprocessing's server of forks lives as long as the process that uses it."""
    command = [sys.executable, "-m", "proof.chaos.workspace_s3", "--kills", "20"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("20 kills: 0 torn, ")
