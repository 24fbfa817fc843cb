"""The end of stored files, as the jobs queue asks for it."""

from __future__ import annotations

import os
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from shared.errors import ToolFailed, TryLater
from shared.ids import folder_name
from shared.media.files import MediaNotFound
from shared.media.store import MediaStore
from shared.settings import MediaSettings
from worker.guards.workspace import Workspaces
from worker.jobs.sweep import expire_media, forget_media

SESSION = "web:owner/a"


class NoWorkspaces:
    """A volume with nothing on it; with `fault`, one that is away. `asked` are the folders to forget."""

    def __init__(self, fault: Exception | None = None) -> None:
        self.fault = fault
        self.asked: list[str] = []

    def sweep_usage(self) -> None:
        """There is nothing to correct."""

    async def erase_session(self, folder: str, *, before_s: float) -> int:
        self.asked.append(folder)
        if self.fault is not None:
            raise self.fault
        return 0


def context(store: Any, spaces: Any = None, *, asked: datetime | None = None, tries: int = 1) -> dict[str, Any]:
    deps = SimpleNamespace(media=store, workspaces=spaces or NoWorkspaces())
    return {"deps": deps, "enqueue_time": asked or datetime.now(UTC), "job_try": tries}


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
    with pytest.raises(MediaNotFound):
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
    spaces = NoWorkspaces()
    with pytest.raises(TryLater) as soon:
        await forget_media(context(Away(), spaces), folder_name(SESSION))
    assert spaces.asked == [folder_name(SESSION)], "the other volume is not waited for"
    with pytest.raises(TryLater) as later:
        await forget_media(context(Away(), tries=30), folder_name(SESSION))
    assert soon.value.wait_s <= 60 < later.value.wait_s <= 3600
    for fault in (OSError(5, "away"), ToolFailed("did not answer within 10 s")):
        with pytest.raises(TryLater):
            await forget_media(context(MediaStore(MediaSettings(dir=tmp_path)), NoWorkspaces(fault)), "0" * 40)
    await expire_media(context(Away()))


async def test_a_job_for_a_session_takes_its_workspace_away(tmp_path: Path) -> None:
    """Both volumes call the folder of a session by the same name."""
    spaces = Workspaces(tmp_path / "workspaces")
    workspace = spaces.workspace_of(SESSION)
    await workspace.write_file("notes/a.txt", b"mine")
    asked = datetime.now(UTC) + timedelta(seconds=5)
    await forget_media(context(MediaStore(MediaSettings(dir=tmp_path)), spaces, asked=asked), folder_name(SESSION))
    assert not workspace.path.exists()
    spaces.close()


async def test_old_files_are_swept(tmp_path: Path) -> None:
    """Everywhere."""
    store = MediaStore(MediaSettings(dir=tmp_path))
    store.put(SESSION, b"old", "a.txt")
    for path in tmp_path.rglob("*.txt"):
        os.utime(path, (0, 0))
    await expire_media(context(store))
    assert list(tmp_path.iterdir()) == []
