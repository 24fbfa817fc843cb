"""A process that shut itself in reads its libraries, and reaches nothing else."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from shared.confinement import landlock
from tests.helpers.need import need
from tests.helpers.processes import ROOT

TRIES = {
    "the worker's environment": "open(f'/proc/{os.getppid()}/environ', 'rb').read()",
    "the worker's memory": "open(f'/proc/{os.getppid()}/mem', 'rb')",
    "a file of the user": "open(sys.argv[1]).read()",
    "a new file": "open(sys.argv[1] + '.new', 'w')",
    "the project's own files": "open('pyproject.toml').read()",
    "the network": "socket.socket()",
    "a process": "os.kill(os.getppid(), 0)",
    "tracing": "os.pidfd_open(os.getppid())",
}
SCRIPT = """
import os, socket, sys
from shared.confinement.parsers import confine_parser
assert confine_parser()
import decimal, lxml.etree, pypdf, docx, openpyxl, pptx, trafilatura
for line in sys.stdin:
    try:
        exec(line)
        print("reached")
    except OSError as exc:
        print(type(exc).__name__)
"""


@pytest.fixture
def _landlock() -> None:
    need("Landlock", found=landlock.abi() >= landlock.NEEDED_ABI, install="Linux 6.2 or newer with Landlock on")


@pytest.mark.usefixtures("_landlock")
def test_nothing_is_reached_and_libraries_can_be_read(tmp_path: Path) -> None:
    """Not the worker, whose user it is; also a library that is imported only then works."""
    secret = tmp_path / "secret"
    secret.write_text("canary")
    ran = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(secret)], cwd=ROOT, input="\n".join(TRIES.values()), capture_output=True,
        text=True, check=False,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr
    assert dict(zip(TRIES, ran.stdout.split(), strict=True)) == dict.fromkeys(TRIES, "PermissionError")
