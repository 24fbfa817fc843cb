"""Wheels for every platform of the image: `python -I .ci/wheels.py [folder]`.

The image is built from wheels alone, so a locked package without one for a platform breaks the build there. Each is
asked of pip's index and checked by its hash; nothing is kept. pip reads the conditions of the lock for this machine, so
run it on Linux.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

LOCK = "requirements-channels.txt"
"""It has all of requirements.txt, at the same versions."""

MACHINES = {"linux/amd64": "x86_64", "linux/arm64": "aarch64"}
PYTHON = "3.11"
GLIBC = 36
"""Minor version of the C library 2.x in the image's base: Debian 12."""

OLDEST_GLIBC = 17


def command(lock: Path, machine: str, folder: str) -> list[str]:
    """pip's, to download all of a lock for a platform."""
    platforms = [f"manylinux_2_{minor}_{machine}" for minor in range(GLIBC, OLDEST_GLIBC - 1, -1)]
    abis = [f"cp{PYTHON.replace('.', '')}", "abi3", "none"]
    return [
        *(sys.executable, "-m", "pip", "download", "--quiet", "--quiet", "--disable-pip-version-check", "--no-input"),
        *("--no-deps", "--require-hashes", "--only-binary=:all:", "--dest", folder, "--requirement", str(lock)),
        *("--implementation", "cp", "--python-version", PYTHON),
        *(word for abi in abis for word in ("--abi", abi)),
        *(word for name in [*platforms, f"manylinux2014_{machine}"] for word in ("--platform", name)),
    ]


def main(folder: Path) -> int:
    """Ask for the lock's packages on each platform."""
    wrong = 0
    for name, machine in MACHINES.items():
        with tempfile.TemporaryDirectory() as kept:
            asked = subprocess.run(command(folder / LOCK, machine, kept), check=False)
        if asked.returncode:
            wrong += 1
            sys.stderr.write(f"{LOCK}: not every package has a wheel for {name}; pip names the first above\n")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1] if len(sys.argv) > 1 else ".")))
