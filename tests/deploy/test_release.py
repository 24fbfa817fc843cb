"""A release has one number, wherever it stands, and its changes are told in one form."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import yaml  # type: ignore[import-untyped]

from shared.version import VERSION

ROOT = Path(__file__).parents[2]
KINDS = ("Upgrade notes", "Added", "Changed", "Fixed", "For people who work on Shoal")


def test_every_place_names_the_same_release() -> None:
    """The package, the chart and its image, the overlays, and the example of Compose's settings."""
    chart, values = (yaml.safe_load((ROOT / "k8s" / name).read_text()) for name in ("Chart.yaml", "values.yaml"))
    [example] = re.findall(r"^#SHOAL_IMAGE=shoal:(.+)$", (ROOT / "deploy/env.example").read_text(), re.MULTILINE)
    found = {
        "pyproject.toml": tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"],
        "the chart": chart["version"],
        "what the chart installs": chart["appVersion"],
        "its image": values["images"]["shoal"]["tag"],
        "deploy/env.example": example,
    }
    for name in ("dev", "production"):
        overlay = yaml.safe_load((ROOT / "k8s/overlays" / name / "kustomization.yaml").read_text())
        [found[f"the overlay {name}"]] = [image["newTag"] for image in overlay["images"] if image["name"] == "shoal"]
    assert found == dict.fromkeys(found, VERSION)


def test_the_changelog_has_a_form() -> None:
    """Releases stand newest first, below what is not released, each with its kinds of changes in their order: what an
    operator must do comes first."""
    text = (ROOT / "CHANGELOG.md").read_text()
    releases = re.split(r"^## ", text, flags=re.MULTILINE)[1:]
    heads = [release.partition("\n")[0] for release in releases]
    assert heads[0] == "Unreleased"
    assert re.fullmatch(rf"{re.escape(VERSION)} - \d{{4}}-\d\d-\d\d", heads[1])
    for release in releases:
        kinds = re.findall(r"^### (.+)$", release, re.MULTILINE)
        assert kinds == [kind for kind in KINDS if kind in kinds]
