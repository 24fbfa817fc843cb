"""A release asks for wheels of every platform of the image. No index is asked here: `pip` is a fake."""

from __future__ import annotations

import re
import runpy
import subprocess
from pathlib import Path
from typing import Any, Final

import pytest

ROOT: Final = Path(__file__).parents[2]
DEBIAN: Final = {"bookworm": 36}
"""The minor version of the C library of a Debian."""


@pytest.fixture
def wheels() -> dict[str, Any]:
    """What the script defines."""
    return runpy.run_path(str(ROOT / ".ci/wheels.py"))


def test_a_platform_without_a_wheel_fails_and_is_named(
    wheels: dict[str, Any], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The other platform is asked all the same, each with the whole lock and its hashes."""
    asked: list[list[str]] = []

    def pip(words: list[str], **_: object) -> subprocess.CompletedProcess[bytes]:
        asked.append(words)
        return subprocess.CompletedProcess(words, int("manylinux2014_aarch64" in words))

    monkeypatch.setattr(subprocess, "run", pip)
    assert wheels["main"](ROOT) == 1
    assert re.findall(r"no.* wheel for (\S+);", capsys.readouterr().err) == ["linux/arm64"]
    assert len(asked) == 2
    for words in asked:
        assert {"--require-hashes", "--only-binary=:all:", str(ROOT / wheels["LOCK"])} <= set(words)


def test_it_asks_for_what_the_image_is_made_of() -> None:
    """The lock, Python and Debian of the Dockerfile, and the platforms that deploy/README.md publishes."""
    wheels = runpy.run_path(str(ROOT / ".ci/wheels.py"))
    dockerfile = (ROOT / "deploy/Dockerfile").read_text()
    bases = re.findall(r"^FROM python:(\d+\.\d+)\.\d+-slim-(\w+)", dockerfile, re.MULTILINE)
    assert {(version, DEBIAN[name]) for version, name in bases} == {(wheels["PYTHON"], wheels["GLIBC"])}
    assert f"full) lock={wheels['LOCK']} " in dockerfile
    published = re.findall(r"--platform (linux\S+)", (ROOT / "deploy/README.md").read_text())
    assert published
    assert {name for one in published for name in one.split(",")} == set(wheels["MACHINES"])


def test_a_release_runs_it() -> None:
    """Behind the check of digests."""
    recipe = (ROOT / "Makefile").read_text().partition("\nrelease-check:")[2].partition("\n\n")[0]
    assert recipe.index(".ci/images.py check") < recipe.index(".ci/wheels.py")
