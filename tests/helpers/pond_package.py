"""The package `docs/examples/shoal-pond`, as good as installed."""

from __future__ import annotations

import contextlib
import importlib
import sys
import tempfile
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from tests.helpers.processes import ROOT

EXAMPLE: Final = ROOT / "docs" / "examples" / "shoal-pond"


@contextlib.contextmanager
def pond_package() -> Iterator[tuple[str, ...]]:
    """Python finds it and what its pyproject.toml says of it; the folders that a child process needs, too."""
    project = tomllib.loads((EXAMPLE / "pyproject.toml").read_text())["project"]
    name, version = project["name"], project["version"]
    with tempfile.TemporaryDirectory() as folder:
        info = Path(folder) / f"{name.replace('-', '_')}-{version}.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
        lines = []
        for group, entries in project["entry-points"].items():
            lines += [f"[{group}]", *(f"{entry} = {made}" for entry, made in entries.items())]
        (info / "entry_points.txt").write_text("\n".join(lines))
        path = (folder, str(EXAMPLE))
        sys.path[:0] = path
        importlib.invalidate_caches()
        try:
            yield path
        finally:
            for one in path:
                sys.path.remove(one)
            importlib.invalidate_caches()
