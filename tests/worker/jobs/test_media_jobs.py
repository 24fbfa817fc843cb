"""The end of stored files, as the jobs queue asks for it."""

from __future__ import annotations

import os
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from shared.errors import TryLater
from shared.media.store import MediaStore, NoSuchMedia, folder_name
from shared.settings import MediaSettings
from worker.jobs.media import expire_media, forget_media

SESSION = "web:owner/a"


def context(store: Any, *, asked: datetime | None = None) -> dict[str, Any]:
    return {"deps": SimpleNamespace(media=store), "enqueue_time": asked or datetime.now(UTC)}


async def test_the_files_of_a_forgotten_session_go_and_later_ones_stay(tmp_path: Path) -> None:
    """The job may come late: what was sent after the person said `/forget` is not what they meant."""
    store = MediaStore(MediaSettings(dir=tmp_path))
    before = store.put(SESSION, b"before", "a.txt")
    for path in tmp_path.rglob("*.txt"):
        os.utime(path, (path.stat().st_mtime - 10,) * 2)
    asked = datetime.now(UTC) - timedelta(seconds=5)
    after = store.put(SESSION, b"after", "b.txt")
    await forget_media(context(store, asked=asked), folder_name(SESSION))
    assert store.read(SESSION, after) == b"after"
    with pytest.raises(NoSuchMedia):
        store.read(SESSION, before)
    await forget_media(context(store), folder_name("web:owner/nothing"))


class Away:
    """A volume that does not answer."""

    def forget(self, folder: str, *, before_s: float) -> int:
        raise OSError(5, "away")

    def expire(self) -> int:
        raise OSError(5, "away")


async def test_a_volume_that_is_away_is_tried_again(tmp_path: Path) -> None:
    """The job asks for another time; the sweep has its next hour."""
    with pytest.raises(TryLater):
        await forget_media(context(Away()), folder_name(SESSION))
    await expire_media(context(Away()))


async def test_old_files_are_swept(tmp_path: Path) -> None:
    """Everywhere."""
    store = MediaStore(MediaSettings(dir=tmp_path))
    store.put(SESSION, b"old", "a.txt")
    for path in tmp_path.rglob("*.txt"):
        os.utime(path, (0, 0))
    await expire_media(context(store))
    assert list(tmp_path.iterdir()) == []
