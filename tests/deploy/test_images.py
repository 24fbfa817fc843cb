"""Images of a release are named by their digest. No registry is asked here: a fake `docker` is."""

from __future__ import annotations

import runpy
import shutil
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
DIGEST = f"sha256:{'0123456789abcdef' * 4}"


@pytest.fixture
def images() -> dict[str, Any]:
    """What the script defines."""
    return runpy.run_path(str(ROOT / ".ci/images.py"))


@pytest.fixture
def checkout(images: dict[str, Any], tmp_path: Path) -> Path:
    for name in images["FILES"]:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    return tmp_path


def test_a_release_with_an_image_by_tag_alone_fails(
    images: dict[str, Any], checkout: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each is named: the base twice, those of Compose, and those of the production overlay."""
    assert images["main"]("check", checkout) == 1
    named = [line.partition(" has no digest")[0].rpartition(": ")[2] for line in capsys.readouterr().err.splitlines()]
    assert [name.rpartition(":")[0] for name in named] == [
        "python", "python", "valkey/valkey", "prom/prometheus", "grafana/grafana",
        "registry.example.org/shoal", "valkey/valkey", "rclone/rclone",
    ]  # fmt: skip


def test_what_is_pinned_passes_and_stays(images: dict[str, Any], checkout: Path) -> None:
    """The tag stays readable before the digest; a second time changes nothing."""
    for name in images["FILES"]:
        text = images["pinned"]((checkout / name).read_text(), lambda _: DIGEST)
        (checkout / name).write_text(text)
        assert images["pinned"](text, lambda image: pytest.fail(image)) == text
    assert images["main"]("check", checkout) == 0
    assert f"FROM python:3.11.14-slim-bookworm@{DIGEST} AS packages" in (checkout / "deploy/Dockerfile").read_text()
    overlay = (checkout / "k8s/overlays/production/kustomization.yaml").read_text()
    assert f"    newTag: 9.1.2\n    digest: {DIGEST}\n" in overlay


def test_what_the_registry_says_must_be_a_digest(
    images: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An error message that is printed with exit code 0 is none."""

    def run(asked: list[str], **_: object) -> Any:
        assert asked[-1] == "python:3"

        class Result:
            stdout = answer

        return Result

    monkeypatch.setattr("subprocess.run", run)
    answer = f"{DIGEST}\n"
    assert images["digest_of"]("python:3") == DIGEST
    answer = "not found\n"
    with pytest.raises(SystemExit, match="no digest"):
        images["digest_of"]("python:3")
