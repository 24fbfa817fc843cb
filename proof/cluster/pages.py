"""Blocks of the documentation, run as they are written, on an installation in another namespace than theirs."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path
from typing import Final

from tests.helpers.manifests import ROOT, tool

WRAPPER: Final = """\
#!/bin/sh
before=
for word; do
  shift
  [ "$before" != -n ] || word=$SHOAL_NAMESPACE
  before=$word
  set -- "$@" "$word"
done
exec {kubectl} "$@"
"""
"""kubectl for a page: the namespace after -n is that of the installation."""

KUBERNETES: Final = "kubernetes.md"
OPERATIONS: Final = "operations.md"
DAY_TWO: Final = "kubernetes-operations.md"
BEGIN: Final = "admin() {"
"""Each shell of that page begins with the block that has this."""


def shell_blocks(page: str) -> list[str]:
    """Return the shell blocks of a page, without the indent of a list."""
    text = (ROOT / "docs" / page).read_text()
    found = re.findall(r"^( *)```sh\n(.*?)^ *```$", text, re.MULTILINE | re.DOTALL)
    return [re.sub(f"(?m)^{indent}", "", block) for indent, block in found]


def block_with(page: str, part: str) -> str:
    """Return the only block of a page that has `part`."""
    [found] = [block for block in shell_blocks(page) if part in block]
    return found


class Pages:
    """Runs blocks in `folder`, in which `secrets` is what deploy/make-secrets wrote."""

    def __init__(self, folder: Path, namespace: str) -> None:
        self._folder = folder
        (folder / "bin").mkdir()
        (folder / "bin" / "kubectl").write_text(WRAPPER.format(kubectl=tool("kubectl")))
        (folder / "bin" / "kubectl").chmod(0o755)
        (folder / "deploy").symlink_to(ROOT / "deploy")
        path = f"{folder / 'bin'}:{os.environ['PATH']}"
        self._variables = {**os.environ, "PATH": path, "SHOAL_NAMESPACE": namespace}

    def run(self, page: str, part: str, within_s: float = 300.0) -> str:
        """Run the block of `page` that has `part`; return its output. Raises RuntimeError if a command fails."""
        begin = block_with(DAY_TWO, BEGIN)
        result = subprocess.run(
            ["bash", "--norc", "-e", "-o", "pipefail", "-c", begin + block_with(page, part)],
            cwd=self._folder,
            env=self._variables,
            capture_output=True,
            text=True,
            errors="replace",  # SLOWLOG shows arguments as they are
            timeout=within_s,
            check=False,
        )
        if result.returncode:
            raise RuntimeError(f"docs/{page}, the block with {part!r}: {result.stdout[-1000:]}{result.stderr[-2000:]}")
        return result.stdout
