"""ARCHITECTURE.md and its pages name files that exist, and stay short."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "ARCHITECTURE.md", *sorted((ROOT / "docs/architecture").glob("*.md"))]
NAMED = re.compile(r"`((?:console|docs|gateway|proof|shared|shoal|tests|worker)/[\w./*<>-]*)`")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_file_that_a_page_names_exists(page: Path) -> None:
    """A reader who follows a path finds it; `*` and `<name>` stand for anything."""
    text = page.read_text()
    missing = [name for name in NAMED.findall(text) if not any(ROOT.glob(re.sub(r"<\w+>", "*", name).rstrip("/")))]
    assert missing == []
    links = [link.partition("#")[0] for link in re.findall(r"\]\(([^)]+)\)", text) if "://" not in link]
    assert [link for link in links if link and not (page.parent / link).exists()] == []


@pytest.mark.parametrize("page", PAGES[1:], ids=lambda page: page.name)
def test_a_page_on_one_subject_is_read_in_two_minutes(page: Path) -> None:
    """At most 300 words, with a drawing or a table first."""
    text = page.read_text()
    assert len(text.split()) <= 300
    assert text.split("\n\n")[1].startswith(("```", "|"))


def test_the_glossary_can_be_learnt() -> None:
    """At most 60 terms."""
    glossary = (ROOT / "ARCHITECTURE.md").read_text().partition("## Glossary")[2].partition("\n## ")[0]
    assert 40 <= len(re.findall(r"^\| (?!term|---)", glossary, re.MULTILINE)) <= 60
