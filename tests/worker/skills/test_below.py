"""No path leads out of a folder, and no odd file blocks."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from worker.skills.below import names_below, read_below


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "secret").write_text("canary")
    inside = tmp_path / "box"
    (inside / "sub").mkdir(parents=True)
    (inside / "a.txt").write_text("a")
    (inside / "sub" / "b.txt").write_text("b\r\nb")
    (inside / "link").symlink_to("a.txt")
    (inside / "sublink").symlink_to("sub")
    (inside / "out").symlink_to("../secret")
    (inside / "loop").symlink_to("loop")
    os.mkfifo(inside / "fifo")
    os.link(tmp_path / "secret", inside / "hard")
    return inside


def test_plain_files_are_read(folder: Path) -> None:
    """With one kind of line end."""
    for links in (True, False):
        assert read_below(folder, "a.txt", links=links) == "a"
        assert read_below(folder, "sub/b.txt", links=links) == "b\nb"


def test_links_are_followed_only_inside_and_only_where_asked(folder: Path) -> None:
    """A mounted ConfigMap is made of links; a folder that an agent writes must have none."""
    assert read_below(folder, "link", links=True) == "a"
    assert read_below(folder, "sublink/b.txt", links=True) == "b\nb"
    for path in ("link", "sublink/b.txt", "hard", "out"):
        with pytest.raises(OSError):
            read_below(folder, path, links=False)
    with pytest.raises(ValueError, match="leads out"):
        read_below(folder, "out", links=True)


@pytest.mark.parametrize(
    "path", ["", ".", "..", "../secret", "sub/../a.txt", "/etc/passwd", "a.txt/", "\0", "sub//b.txt"]
)
@pytest.mark.parametrize("links", [True, False])
def test_paths_that_are_not_plain_lead_nowhere(folder: Path, path: str, links: bool) -> None:
    """They are not even looked up."""
    with pytest.raises(ValueError, match="leads out"):
        read_below(folder, path, links=links)


@pytest.mark.parametrize("path", ["sub", "fifo", "loop", "nothing", "a.txt/b", "x" * 300])
@pytest.mark.parametrize("links", [True, False])
def test_what_is_no_plain_file_is_refused_at_once(folder: Path, path: str, links: bool) -> None:
    """Nobody waits for the other end of a FIFO."""
    with pytest.raises(OSError):
        read_below(folder, path, links=links)


def test_the_size_has_a_limit_and_bytes_must_be_text(folder: Path) -> None:
    """In bytes, exactly."""
    (folder / "big").write_text("x" * 11)
    assert read_below(folder, "big", links=False, limit_bytes=11) == "x" * 11
    with pytest.raises(ValueError, match="more than 10 bytes"):
        read_below(folder, "big", links=False, limit_bytes=10)
    (folder / "picture").write_bytes(b"\xff")
    with pytest.raises(UnicodeDecodeError):
        read_below(folder, "picture", links=False)


def test_a_folder_that_is_swapped_for_a_link_never_leads_out(tmp_path: Path) -> None:
    """Between a check and the opening there is no gap: each step is opened without following links."""
    secret, box = tmp_path / "outside", tmp_path / "box"
    for folder, text in ((secret, "canary"), (box / "real", "mine")):
        folder.mkdir(parents=True)
        (folder / "SKILL.md").write_text(text)
    (box / "fake").symlink_to(secret)
    (box / "skill").symlink_to("real")
    ended = threading.Event()

    def swap() -> None:
        while not ended.is_set():
            for target in ("real", "fake"):
                os.rename(box / target, box / "held")
                (box / "skill").unlink(missing_ok=True)
                os.rename(box / "held", box / "skill")
                os.rename(box / "skill", box / target)

    swapper = threading.Thread(target=swap)
    swapper.start()
    try:
        seen = set()
        for _ in range(3000):
            try:
                seen.add(read_below(box, "skill/SKILL.md", links=False))
            except OSError:
                seen.add("refused")
    finally:
        ended.set()
        swapper.join()
    assert "canary" not in seen
    assert "refused" in seen


def test_names_are_those_of_plain_files(folder: Path) -> None:
    """Hidden ones, FIFOs and links to nothing are left out; so is a folder that is not there."""
    (folder / ".hidden").write_text("x")
    assert names_below(folder, links=False) == ["a.txt", "hard", "sub/b.txt"]
    assert names_below(folder, links=True) == [
        "a.txt", "hard", "link", "out", "sub/b.txt", "sublink/b.txt",
    ]  # fmt: skip
    assert names_below(folder, "sub/", links=False) == ["b.txt"]
    for inside in ("nothing/", "sublink/", "a.txt/", "fifo/"):
        assert names_below(folder, inside, links=False) == []
    assert names_below(folder / "nothing", links=True) == []


def test_names_of_a_folder_without_end_come_to_an_end(tmp_path: Path) -> None:
    """A link to its own folder, and very many files."""
    (tmp_path / "self").symlink_to(".")
    for n in range(150):
        (tmp_path / f"{n:03}").write_text("")
    assert len(names_below(tmp_path, links=True)) == 100
