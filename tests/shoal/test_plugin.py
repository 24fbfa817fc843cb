"""The names that packages of other people import."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
from importlib import import_module
from pathlib import Path

import pytest

import shoal
from shoal import plugin

ROOT = Path(__file__).parents[2]
NAMES = {name: home for home, names in plugin.HOMES.items() for name in names.split()}
PACKAGES = ("docs/examples/shoal-pond", "tests/helpers/plugin_example")
PLUGINS = (ROOT / "docs" / "plugins.md").read_text()
PAGES = ("docs/plugins.md", "docs/channels.md", "README.md")


def shoal_imports(source: str) -> set[str]:
    """The modules of this repository that a source imports."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Import(names=names):
                found |= {one.name for one in names}
            case ast.ImportFrom(module=str(module)):
                found.add(module)
    return {name for name in found if name.partition(".")[0] in ("console", "gateway", "shared", "shoal", "worker")}


@pytest.mark.parametrize("folder", PACKAGES)
def test_an_example_package_imports_nothing_but_the_public_face(folder: str) -> None:
    """What a package may rely on is in one place, so everything else is free to change."""
    for path in (ROOT / folder).rglob("*.py"):
        assert shoal_imports(path.read_text()) <= {"shoal", "shoal.plugin"}, path


@pytest.mark.parametrize("page", PAGES)
def test_the_pages_show_nothing_but_the_public_face(page: str) -> None:
    """Code blocks and dotted names alike."""
    text = (ROOT / page).read_text()
    for block in re.findall(r"^```python\n(.*?)^```", text, re.DOTALL | re.MULTILINE):
        assert shoal_imports(block) <= {"shoal", "shoal.plugin"}, block
    for name in re.findall(r"`shoal\.plugin\.(\w+)`", text):
        assert name in NAMES
    assert re.findall(r"`(?:gateway|worker|shared)\.[a-z_.]+[A-Z]\w+`", text) == []


@pytest.mark.parametrize(("name", "home"), sorted(NAMES.items()))
def test_a_name_is_that_of_its_home(name: str, home: str) -> None:
    """It is handed on, not copied."""
    assert getattr(plugin, name) is getattr(import_module(home), name)


def test_type_checkers_and_python_see_the_same_names() -> None:
    """The imports that only a type checker reads, and the table that Python reads."""
    tree = ast.parse(Path(plugin.__file__).read_text())
    block = next(node for node in tree.body if isinstance(node, ast.If))
    typed = {alias.name: node.module for node in block.body if isinstance(node, ast.ImportFrom) for alias in node.names}
    assert typed == NAMES
    assert dir(plugin) == sorted(NAMES)


@pytest.mark.parametrize(
    ("name", "unwanted"),
    [("CommandAnswer", "worker"), ("Platform", "worker"), ("AgentHook", "gateway"), ("Tool", "gateway")],
)
def test_one_side_does_not_load_the_other(name: str, unwanted: str) -> None:
    """A gateway with a command of a package stays free of the agent, a worker free of the gateway."""
    script = f"import sys; from shoal.plugin import {name}; print(*sys.modules)"
    ran = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True)
    assert unwanted not in ran.stdout.split()


def test_the_page_of_plugins_lists_every_name() -> None:
    """In its table, by what they are for."""
    listed = re.findall(
        r"`(\w+)`", " ".join(re.findall(r"^\| \w+(?: messages)? \| (`[A-Z].*)\|$", PLUGINS, re.MULTILINE))
    )
    assert sorted(listed) == sorted(NAMES)


def test_a_name_that_is_not_part_of_the_surface_is_refused() -> None:
    """By name, with the page that lists what exists."""
    with pytest.raises(AttributeError, match=r"'Hub'.*docs/plugins\.md"):
        _ = plugin.Hub  # type: ignore[attr-defined]
    with pytest.raises(AttributeError, match="'hub'"):
        _ = shoal.hub  # type: ignore[attr-defined]


def test_the_version_is_that_of_the_package() -> None:
    """Read from one place."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert shoal.__version__ == project["version"]


def test_process_direct_is_a_function_of_the_package() -> None:
    """With the errors that it raises."""
    assert (
        shoal.process_direct.__module__ == shoal.NotAnswered.__module__ == shoal.AnswerLate.__module__ == "shoal.direct"
    )
