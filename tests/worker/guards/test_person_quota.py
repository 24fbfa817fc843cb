"""What the workspaces of one person have together, and what must stay free of their volume."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from shared.errors import ToolFailed
from shared.ids import folder_name
from shared.media.disk import DiskFloor
from worker.guards.folder import Quota
from worker.guards.usage import WorkspaceUsage
from worker.guards.workspace import Workspaces

KB = 1024
QUOTA = Quota(400 * KB, person_bytes=1000 * KB)


@pytest.fixture
def spaces(tmp_path: Path) -> Iterator[Workspaces]:
    made = Workspaces(tmp_path, QUOTA)
    yield made
    made.close()


async def write(spaces: Workspaces, session: str, kb: int, name: str = "a.txt") -> bool:
    """Write a file; False if the person has too much."""
    try:
        await spaces.workspace_of(session).write_file(name, b"x" * kb * KB)
    except ToolFailed as exc:
        return "the workspaces of all chats of this person would have more than 1,024,000 bytes" not in str(exc)
    return True


async def test_chats_buy_no_space(spaces: Workspaces) -> None:
    """Neither of the page nor over HTTP; what makes a file smaller is always allowed."""
    for n in range(3):
        assert await write(spaces, f"web:ann/{n}", 300)
    assert not await write(spaces, "web:ann/3", 300)
    assert not await write(spaces, "api:ann/~1", 300)
    assert await write(spaces, "web:eve/0", 300)
    assert await write(spaces, "api:ann/x", 100)
    assert not await write(spaces, "web:ann/0", 350)
    assert await write(spaces, "web:ann/0", 200)
    assert await write(spaces, "web:ann/3", 100)


async def test_writers_at_once_stay_within_the_limit_together(spaces: Workspaces, tmp_path: Path) -> None:
    """Of several workers, too."""
    workers = [spaces, Workspaces(tmp_path, QUOTA)]
    written = await asyncio.gather(*(write(workers[n % 2], f"web:ann/{n}", 150) for n in range(12)))
    assert sum(written) <= 6
    assert sum(path.stat().st_size for path in tmp_path.rglob("a.txt")) <= 1000 * KB
    workers[1].close()


async def test_forgetting_a_chat_gives_its_space_back(spaces: Workspaces) -> None:
    """At once, without a sweep."""
    for n in range(3):
        assert await write(spaces, f"web:ann/{n}", 300)
    await spaces.erase_session(folder_name("web:ann/0"), before_s=2**33)
    assert await write(spaces, "web:ann/3", 300)


async def test_what_a_command_wrote_is_counted_where_it_is_measured(spaces: Workspaces) -> None:
    """So that another chat of the person cannot use it as well; a sweep finds what a killed worker had not measured."""
    for n in range(3):
        assert await write(spaces, f"web:ann/{n}", 250)
    workspace = spaces.workspace_of("web:ann/0")
    (workspace.path / "by-command").write_bytes(b"x" * 350 * KB)
    used = await workspace.measure()
    assert used.excess_bytes == pytest.approx(100 * KB, abs=16 * KB)
    assert not await write(spaces, "web:ann/3", 10)
    (workspace.path / "by-command").unlink()
    spaces.sweep_usage()
    assert await write(spaces, "web:ann/3", 10)


def test_the_excess_lowers_what_a_command_may_keep_but_not_what_was_there() -> None:
    """A command that makes room may run to its end."""
    used = WorkspaceUsage(300, 5, excess_bytes=100)
    assert used.within(Quota(1000)).size_bytes == 200
    assert used.within(Quota(1000), 250).size_bytes == 250
    assert "disk is almost full" in used.over(used.within(Quota(1000), 250))
    assert used.over(used.within(Quota(1000), 300)) == ""
    assert WorkspaceUsage(300, 5).within(Quota(200), 100).size_bytes == 200


async def test_a_full_disk_is_not_written_to(tmp_path: Path) -> None:
    """With a text that the model can pass on; what is there can be read."""
    spaces = Workspaces(tmp_path, Quota(floor=DiskFloor(2**62, 1.0)))
    with pytest.raises(ToolFailed, match=r"'a\.txt' is not written: the disk of the workspaces is full"):
        await spaces.workspace_of("web:ann/0").write_file("a.txt", b"mine")
    assert list(tmp_path.iterdir()) == []
    normal = Workspaces(tmp_path)
    await normal.workspace_of("web:ann/0").write_file("a.txt", b"mine")
    assert await spaces.workspace_of("web:ann/0").read_file("a.txt") == b"mine"
    used = await spaces.workspace_of("web:ann/0").measure()
    assert used.excess_bytes == used.size_bytes
    spaces.close()
    normal.close()
