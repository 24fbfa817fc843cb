"""Look at what was installed: `python -I -S .ci/check_packages.py <virtual environment> <lock> ...`.

Fails when a file would run code at every start of Python that we do not know, or when litellm is not exactly the
version of the lock or is one that was reported as compromised. With -S, Python does not run such files before we
have looked at them. Standard library only.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

COMPROMISED = re.compile(r"1\.82\.7|1\.82\.8|1\.107\..*")

# setuptools' own, which `python -m venv` of Python 3.11 brings along
KNOWN_PTH = {
    "distutils-precedence.pth": re.compile(
        r"import os; var = 'SETUPTOOLS_USE_DISTUTILS'; "
        r"enabled = os\.environ\.get\(var, '(?:local|stdlib)'\) == 'local'; "
        r"enabled and __import__\('_distutils_hack'\)\.add_shim\(\);\s*"
    )
}


def problems(folder: Path, locks: list[Path]) -> Iterator[str]:
    """Each finding in one site-packages folder as one line; nothing when all is well."""
    for path in sorted(folder.glob("*.pth")):
        known = KNOWN_PTH.get(path.name)
        if known is None or not known.fullmatch(path.read_text(encoding="utf-8", errors="replace")):
            yield f"{path}: an unknown .pth file; it runs at every start of Python. Find out which package wrote it"
    for name in ("sitecustomize", "usercustomize"):
        for path in sorted(folder.glob(f"{name}*")):
            yield f"{path}: runs at every start of Python and is none of ours. Find out which package wrote it"
    versions = sorted({found.version for found in metadata.distributions(path=[str(folder)], name="litellm")})
    if not versions:
        yield f"litellm is not installed in {folder}; install from the lock"
    for version in versions:
        if COMPROMISED.fullmatch(version):
            yield f"litellm {version} was reported as compromised. Remove {folder} and change the lock"
        for lock in locks:
            if f"litellm=={version} \\" not in lock.read_text(encoding="utf-8").splitlines():
                yield f"litellm {version} is installed, but {lock} names another; install from the lock"


def main(venv: str, *locks: str) -> int:
    """Check every site-packages folder of `venv`; the exit code says whether all is well."""
    folders = sorted(Path(venv).glob("lib/python*/site-packages"))
    found = [line for folder in folders for line in problems(folder, [Path(lock) for lock in locks])]
    if not folders:
        found = [f"{venv} has no site-packages folder; it is no virtual environment"]
    for line in found:
        sys.stderr.write(f"supply chain: {line}\n")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
