"""Packages that are as good as installed, for tests of plugins."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

import pytest

EXAMPLE = Path(__file__).parent / "plugin_example"
"""A folder as an installer leaves it: a package and its dist-info. On the path, it is installed."""


class Site:
    """A folder of installed packages. What was imported from it is forgotten with `forget()`."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self._folder = folder
        folder.mkdir(parents=True)
        monkeypatch.syspath_prepend(folder)

    def install(self, package: str, source: str, *, version: str = "1.0", **entries: str) -> None:
        """A package of one module; `tools="name=Class"`, `hooks=...` and `commands=...` are its entry points."""
        module = package.replace("-", "_")
        (self._folder / f"{module}.py").write_text(source)
        info = self._folder / f"{module}-{version}.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: {version}\n")
        lines = []
        for group, found in entries.items():
            lines.append(f"[shoal.{group}]")
            lines += [f"{name} = {module}:{made}" for name, _, made in (one.partition("=") for one in found.split())]
        (info / "entry_points.txt").write_text("\n".join(lines))
        sys.modules.pop(module, None)
        importlib.invalidate_caches()
