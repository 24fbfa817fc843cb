"""Files that are read when they change, and only then."""

from __future__ import annotations

import os
from pathlib import Path

from tests.helpers.clock import HandClock
from worker.skills.skill_folder import LOOK_EVERY_S, CheckInterval, WatchedFile


class Reader:
    """Loads a file, counts how often, and keeps what it was told."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.reads = 0
        self.reports: list[str] = []
        self.watched = WatchedFile(path, self._load, lambda exc: self.reports.append(type(exc).__name__))

    def _load(self, path: Path) -> str:
        self.reads += 1
        text = path.read_text(encoding="utf-8")
        if text == "broken":
            raise ValueError("broken")
        return text

    def look(self) -> str | None:
        return self.watched.read_if_changed()


def test_a_file_is_read_once_until_it_changes(tmp_path: Path) -> None:
    """Also when its new content has the size and the time of the old one."""
    reader = Reader(tmp_path / "a")
    assert reader.look() is None
    reader.path.write_text("one")
    os.utime(reader.path, ns=(0, 0))
    assert [reader.look() for _ in range(5)] == ["one"] * 5
    assert reader.reads == 1
    other = tmp_path / "b"
    other.write_text("two")
    os.utime(other, ns=(0, 0))
    other.replace(reader.path)
    assert [reader.look() for _ in range(5)] == ["two"] * 5
    assert reader.reads == 2
    reader.path.unlink()
    assert reader.look() is None
    assert reader.reports == []


def test_a_broken_file_keeps_its_last_good_content_and_is_reported_once(tmp_path: Path) -> None:
    """It is read again only when it has changed again."""
    reader = Reader(tmp_path / "a")
    reader.path.write_text("good")
    assert reader.look() == "good"
    reader.path.write_text("broken")
    assert [reader.look() for _ in range(3)] == ["good"] * 3
    assert (reader.reads, reader.reports) == (2, ["ValueError"])
    reader.path.write_bytes(b"\xff\xfe!")
    assert reader.look() == "good"
    assert reader.reports == ["ValueError", "UnicodeDecodeError"]
    reader.path.write_text("mended")
    assert reader.look() == "mended"


def test_a_file_that_cannot_be_read_is_tried_again_and_reported_once(tmp_path: Path) -> None:
    """A folder that stands where the file was is such a thing for everybody, also for root."""
    reader = Reader(tmp_path / "a")
    reader.path.write_text("good")
    assert reader.look() == "good"
    reader.path.unlink()
    reader.path.mkdir()
    assert [reader.look() for _ in range(3)] == ["good"] * 3
    assert reader.reports == ["IsADirectoryError"]
    assert reader.reads == 4
    reader.path.rmdir()
    reader.path.write_text("back")
    assert reader.look() == "back"
    reader.path.unlink()
    reader.path.mkdir()
    assert reader.look() == "back"
    assert reader.reports == ["IsADirectoryError"] * 2


def test_a_look_is_due_once_a_second() -> None:
    """However many turns ask."""
    clock = HandClock()
    seldom = CheckInterval(clock)
    assert [seldom.due() for _ in range(3)] == [True, False, False]
    clock.at += LOOK_EVERY_S / 2
    assert not seldom.due()
    clock.at += LOOK_EVERY_S / 2
    assert [seldom.due() for _ in range(3)] == [True, False, False]
