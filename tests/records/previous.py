"""The previous version of the wire: the newest commit whose scripts or records differ from today's.

Rolling updates put two versions on one Redis. The frozen bytes in this folder cover the records; the scripts and the
processes of the previous version are taken from the history of this repository.
"""

from __future__ import annotations

import io
import re
import subprocess
import tarfile
from functools import cache
from pathlib import Path
from typing import Any, Final

import pytest

from shared.store import keys
from shared.store.client.redis_client import RedisClient, Value
from shared.store.client.scripts import Script, from_folder, load
from tests.helpers.need import need
from tests.helpers.processes import ROOT

WIRE: Final = ("shared/store/lua", "shared/messages")
"""What two versions share a Redis by: the scripts, and the records."""

TOPS: Final = ("console", "gateway", "shared", "shoal", "worker")


@cache
def revision() -> str:
    """Return the commit; skip the test, by name, in a copy of the repository without its history."""
    need("git")
    if _git("rev-parse", "--is-inside-work-tree", check=False) != "true" or (
        _git("rev-parse", "--is-shallow-repository") == "true"
    ):
        pytest.skip("this check compares with an earlier commit: it needs the history of the repository")
    for candidate in _git("log", "--format=%H", "--", *WIRE).split():
        if subprocess.run(["git", "diff", "--quiet", candidate, "--", *WIRE], cwd=ROOT, check=False).returncode:
            # Names of keys changed once, before the first release: two versions on either side share nothing.
            if keys.PREFIX not in _git("show", f"{candidate}:shared/store/keys.py", check=False):
                break
            return candidate
    pytest.skip("no earlier commit has other scripts or records under the same names")


def extract(folder: Path) -> Path:
    """Lay the product of the previous version out in a folder."""
    tops = [top for top in TOPS if _git("ls-tree", "--name-only", revision(), top)]
    packed = subprocess.run(["git", "archive", revision(), *tops], cwd=ROOT, capture_output=True, check=True).stdout
    with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
        archive.extractall(folder, filter="data")
    return folder


class PreviousClient(RedisClient):
    """A client that sends the previous version of each script, called as today's Python calls it."""

    def __init__(self, url: str, folder: Path) -> None:
        super().__init__(url)
        self._lua = folder / "shared/store/lua"

    async def evaluate(self, script: Script, call: tuple[Value, ...]) -> Any:
        """Run the previous version of a script."""
        return await super().evaluate(from_folder(script.name, f"{self._lua}/"), call)


def same_calls(folder: Path, names: tuple[str, ...]) -> bool:
    """Tell whether these scripts take the same keys and arguments in both versions."""
    lua = folder / "shared/store/lua"
    return all(
        (lua / f"{name}.lua").exists()
        and parameters((lua / f"{name}.lua").read_text()) == parameters(load(name).source)
        for name in names
    )


def parameters(source: str) -> list[str]:
    """The lines in which a script names its keys and arguments."""
    return re.findall(r"^local [\w,\s]+ =\s+unpack\((?:KEYS|ARGV)\)$", source, re.MULTILINE)


def _git(*words: str, check: bool = True) -> str:
    return subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=check).stdout.strip()
