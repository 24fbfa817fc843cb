"""The pictures of README and docs can be taken anew, and are small enough for a page."""

from __future__ import annotations

from pathlib import Path

import pytest
from PIL import Image

from tests.e2e.pictures import FOLDER, KILL, take

pytestmark = pytest.mark.usefixtures("browser")

FILM_BYTES, PICTURE_BYTES = 1_500_000, 150_000


def sizes(folder: Path) -> dict[str, tuple[int, int]]:
    """Width and height of each picture."""
    found = {}
    for file in (*folder.glob("*.png"), *folder.glob("*.gif")):
        with Image.open(file) as picture:
            found[file.name] = picture.size
    return found


async def test_every_picture_shows_the_page_of_today(tmp_path: Path) -> None:
    """By the script that made those of the repository: a button that is gone fails here, not in front of a reader."""
    await take(tmp_path)
    assert sizes(tmp_path) == sizes(FOLDER)
    for folder in (tmp_path, FOLDER):
        with Image.open(folder / KILL) as film:
            assert getattr(film, "n_frames", 1) > 30
        wrong = [
            file
            for file in folder.iterdir()
            if file.stat().st_size > (FILM_BYTES if file.name == KILL else PICTURE_BYTES)
        ]
        assert wrong == []
