"""The site of the documentation is built strictly, and loads nothing from elsewhere."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from tests.helpers.manifests import tool
from tools.site.__main__ import build, pages, run_mkdocs, stage


def test_every_page_is_on_the_site_and_nothing_is_loaded_from_elsewhere(tmp_path: Path) -> None:
    """No fonts, scripts, styles or pictures of other hosts: a reader's visit is known to nobody else."""
    tool("mkdocs")
    build(tmp_path / "site")
    made = {file.relative_to(tmp_path / "site").as_posix(): file.read_text() for file in tmp_path.rglob("*.html")}
    expected = {re.sub(r"README\.md$", "index.md", page).removesuffix(".md") + ".html" for page in pages()}
    assert expected <= set(made)
    loaded = {
        url for text in made.values() for url in re.findall(r'<(?:script|link|img)[^>]*?(?:src|href)="([^"]+)"', text)
    }
    assert loaded
    assert [url for url in loaded if re.match(r"(?:https?:)?//", url)] == []


@pytest.mark.parametrize(
    ("page", "text", "says"),
    [
        ("docs/web.md", "[gone](gone.md)", "gone.md"),
        ("docs/web.md", "[no such heading](agent.md#no-such-heading)", "no-such-heading"),
        ("docs/web.md", "![gone](pictures/gone.png)", "gone.png"),
        ("docs/new.md", "# A page that nobody finds", "docs/new.md"),
    ],
)
def test_a_broken_link_and_a_page_outside_the_nav_fail(
    page: str, text: str, says: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """A reader would find out."""
    tool("mkdocs")
    stage(tmp_path / "work" / "pages")
    with (tmp_path / "work" / "pages" / page).open("a") as file:
        file.write(f"\n\n{text}\n")
    with pytest.raises(subprocess.CalledProcessError):
        run_mkdocs(tmp_path / "work", tmp_path / "site")
    assert says in capfd.readouterr().err
