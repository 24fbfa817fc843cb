"""What the build of the image runs: the slim variant leaves out what nothing else needs, and the list of what is in it
is the same each time."""

from __future__ import annotations

import json
import runpy
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]

PACKAGES: dict[str, tuple[str, ...]] = {
    "litellm": ("Shared>=1", "only_litellms", "both[fast]"),
    "only-litellms": (),
    "trafilatura": ("lxml_of_it",),
    "lxml-of-it": (),
    "shared": (),
    "both": ('speedup>=2; extra == "fast"', 'tests-of-it; extra == "test"'),
    "speedup": (),
    "aiohttp": ("shared", "both[fast]"),
    "tests-of-it": (),
}


@pytest.fixture
def environment(tmp_path: Path) -> Path:
    """An environment with these packages, each of one module."""
    site = tmp_path / "lib" / "python3.11" / "site-packages"
    for name, needs in PACKAGES.items():
        module = site / name.replace("-", "_")
        about = site / f"{module.name}-1.0.dist-info"
        for folder in (module, about):
            folder.mkdir(parents=True)
        (module / "__init__.py").write_text("")
        lines = [f"Requires-Dist: {one}\n" for one in needs]
        (about / "METADATA").write_text(
            f"Metadata-Version: 2.4\nName: {name}\nVersion: 1.0\nLicense-Expression: MIT\n{''.join(lines)}\n"
        )
        files = [f"{module.name}/__init__.py", f"{about.name}/METADATA", f"{about.name}/RECORD"]
        (about / "RECORD").write_text("".join(f"{one},,\n" for one in files))
    return tmp_path


def run(name: str, *words: object) -> Any:
    return runpy.run_path(str(ROOT / ".ci" / name))["main"](*map(str, words))


def modules(environment: Path) -> set[str]:
    [site] = environment.glob("lib/python*/site-packages")
    return {path.name.replace("_", "-") for path in site.iterdir() if not path.name.endswith(".dist-info")}


def test_slim_leaves_out_what_nothing_else_needs(environment: Path) -> None:
    """Also by an extra that another package asks for; the table of prices of LiteLLM stays."""
    project = environment / "pyproject.toml"
    project.write_text('[project]\ndependencies = ["aiohttp>=3", "litellm==1.0", "trafilatura>=2"]\n')
    [site] = environment.glob("lib/python*/site-packages")
    table = site / "litellm" / "model_prices_and_context_window_backup.json"
    table.write_text("{}")
    with (site / "litellm-1.0.dist-info" / "RECORD").open("a") as record:
        record.write(f"litellm/{table.name},,\n")
    assert run("slim.py", environment, project) == 0
    assert modules(environment) == PACKAGES.keys() - {"trafilatura", "lxml-of-it", "only-litellms"}
    assert [path.name for path in (site / "litellm").iterdir()] == [table.name]


def test_slim_names_packages_that_are_dependencies() -> None:
    """A name that has left pyproject.toml would leave nothing out, silently."""
    project = (ROOT / "pyproject.toml").read_text()
    left_out = runpy.run_path(str(ROOT / ".ci" / "slim.py"))["LEFT_OUT"]
    assert all(f'\n  "{name}' in project for name in left_out)


def test_the_list_of_an_image_is_the_same_each_time(environment: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """CycloneDX: each package once, with its package URL and licence, in one order, with no date."""
    texts = []
    for _ in range(2):
        assert run("sbom.py", environment, "0.1.0") == 0
        texts.append(capsys.readouterr().out)
    assert texts[0] == texts[1]
    listed = json.loads(texts[0])
    assert (listed["bomFormat"], listed["specVersion"]) == ("CycloneDX", "1.6")
    assert {one["purl"] for one in listed["components"]} == {f"pkg:pypi/{name}@1.0" for name in PACKAGES}
    assert all(one["licenses"] == [{"expression": "MIT"}] for one in listed["components"])


def test_the_list_has_every_package_that_is_installed(capsys: pytest.CaptureFixture[str]) -> None:
    """Of an environment that pip made: this one."""
    assert run("sbom.py", sys.prefix, "0.1.0") == 0
    names = {one["name"].lower() for one in json.loads(capsys.readouterr().out)["components"]}
    assert {"litellm", "arq", "redis", "msgspec"} <= names
