"""What docs/channels.md says is so: settings, files, errors, and a page for every platform."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from gateway.platform import protocol as seam
from gateway.platform.access import AccessSettings
from gateway.platform.registry import PLATFORMS
from shared import metrics
from shared.settings import Settings

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docs" / "channels.md").read_text()


def rows(head: str) -> list[list[str]]:
    """The rows of the tables whose first column has this head."""
    found = []
    for block in re.findall(r"(?:^\|.*\|\n)+", TEXT, re.MULTILINE):
        first, _, *lines = [[cell.strip() for cell in line.strip("|\n").split("|")] for line in block.splitlines()]
        if first[0] == head:
            found += lines
    return found


def spans(text: str) -> list[str]:
    return re.findall(r"`([^`\n]+)`", text)


def test_settings_are_named_with_their_defaults() -> None:
    """Those of all channels together exist, and hold without a file; those of each are known to every channel."""
    result: dict[str, str] = {}
    own: set[str] = set()
    for names, default, _ in rows("key"):
        if "." not in names:
            own |= set(spans(names))
            continue
        values = [value.strip() for value in default.split(",")]
        result |= dict(zip(spans(names), values, strict=True))
    settings = Settings()
    for key, value in result.items():
        section, _, name = key.partition(".")
        message = getattr(getattr(settings, section), name)
        shown = (
            str(message).lower()
            if isinstance(message, bool)
            else f"{message:g}"
            if isinstance(message, float)
            else str(message)
        )
        assert shown == value, key
    for section in ("hooks", "delivery"):
        keys = {f"{section}.{key}" for key in getattr(settings, section).__struct_fields__}
        assert keys - result.keys() == set()
    assert {*AccessSettings.__struct_fields__, "busy"} == own


def test_every_link_leads_to_a_file() -> None:
    """Nobody is sent nowhere."""
    links = re.findall(r"\]\((?!https?:)([^)#\s]+)", TEXT)
    assert [link for link in links if not (ROOT / "docs" / link).exists()] == []


def test_every_error_of_a_platform_is_reported() -> None:
    """And what Python calls them."""
    kinds = [
        name
        for name, kind in vars(seam).items()
        if isinstance(kind, type) and issubclass(kind, Exception) and kind.__module__ == seam.__name__
    ]
    named = set(spans(TEXT))
    assert set(kinds) - named == {"NotDelivered"}  # what the others have in common


def test_every_metric_that_is_named_exists() -> None:
    """By its name on the page of metrics."""
    known = metrics.render()[0].decode()
    for name in spans(TEXT):
        if name.startswith("shoal_") and "/" not in name:
            assert f"# TYPE {name}" in known, name


def test_the_files_of_the_example_are_reported() -> None:
    """All of them."""
    example = ROOT / "docs" / "examples" / "shoal-pond"
    files = {
        path.relative_to(example).as_posix()
        for path in example.rglob("*")
        if path.is_file() and path.suffix in (".py", ".toml") and path.name != "__init__.py"
    }
    assert {spans(row[0])[0] for row in rows("file")} == files


@pytest.mark.parametrize("name", sorted(PLATFORMS))
def test_every_platform_has_the_files_of_the_checklist(name: str) -> None:
    """Its code, page, manifests, fake and bench, and the tests that the checklist names."""
    checklist = "".join("".join(row) for row in rows("step"))
    paths = [path.replace("<name>", name) for path in spans(checklist) if "/" in path]
    assert f"docs/channels/{name}.md" in paths
    assert [path for path in paths if not (ROOT / path).exists()] == []
