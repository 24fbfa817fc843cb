"""Build the site of the documentation: `make docs`, or `python -m tools.site FOLDER`.

Pages stay where GitHub and editors show them. They are copied, with the files that they link to, into a folder of the
same shape, from which MkDocs builds. A warning, such as a broken link or a page outside the nav, is a failure.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]
CONFIG: Final = Path(__file__).with_name("mkdocs.yml")
MKDOCS: Final = ROOT / ".venv" / "tools" / "bin" / "mkdocs"
PAGES: Final = ("*.md", "deploy/*.md", "docs/**/*.md")
_LINK: Final = re.compile(r"\[(?P<text>[^\]]*)\]\((?P<target>[^)#\s:]+)\)")


def pages() -> list[str]:
    """Return every page, by its path in the repository."""
    found = {file.relative_to(ROOT).as_posix() for pattern in PAGES for file in ROOT.glob(pattern)}
    return sorted(found)


def stage(folder: Path) -> None:
    """Copy the pages into a folder, and each file that one of them links to."""
    for page in pages():
        text = (ROOT / page).read_text(encoding="utf-8")
        for file in _linked_files(page, text):
            _copy(file, folder)
        target = folder / page
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(_LINK.sub(partial(_without_folder, page), text), encoding="utf-8")
    _copy("docs/pictures/shoal.svg", folder)


def build(site: Path) -> None:
    """Build the site into a folder. Raises CalledProcessError for a warning or an error."""
    with tempfile.TemporaryDirectory() as name:
        work = Path(name)
        stage(work / "pages")
        run_mkdocs(work, site)


def run_mkdocs(work: Path, site: Path) -> None:
    """Build the pages that are staged in `work`. Raises CalledProcessError for a warning or an error."""
    shutil.copy(CONFIG, work / "mkdocs.yml")
    config = str(work / "mkdocs.yml")
    target = str(site.absolute())
    # Not with --quiet: a warning that is not printed is not counted. The variable silences advice on its successor.
    command = [str(MKDOCS), "build", "--strict", "--config-file", config, "--site-dir", target]
    subprocess.run(command, check=True, env={**os.environ, "NO_MKDOCS_2_WARNING": "1"})


def _linked_files(page: str, text: str) -> Iterator[str]:
    for link in _LINK.finditer(text):
        path = _target(page, link["target"])
        if path.suffix != ".md" and path.is_file():
            yield path.relative_to(ROOT).as_posix()


def _without_folder(page: str, link: re.Match[str]) -> str:
    """Return a link as it is; one to a folder, which a site cannot show, as its text or its README."""
    path = _target(page, link["target"])
    if not path.is_dir():
        return link[0]
    return (
        f"[{link['text']}]({link['target'].rstrip('/')}/README.md)" if (path / "README.md").exists() else link["text"]
    )


def _target(page: str, target: str) -> Path:
    return Path(os.path.normpath(ROOT / Path(page).parent / target))


def _copy(file: str, folder: Path) -> None:
    target = folder / file
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy(ROOT / file, target)


if __name__ == "__main__":
    build(Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / ".venv" / "site")
