"""The room of a workspace whose commands are another user's: measured while they run, open to the worker afterwards."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from shared.confinement import landlock
from shared.errors import ToolFailed
from shared.ids import folder_name
from tests.helpers.need import need
from tests.helpers.runner import RunnerProcess
from worker.agent.tools.tool import ToolContext
from worker.guards.folder import Quota
from worker.guards.openat import Access
from worker.guards.workspace import Workspaces
from worker.sandbox.command import CommandLimits, Sandbox, SandboxCommand
from worker.tools.exec import Exec, ExecArguments

pytestmark = pytest.mark.timeout(120)

MIB = 1024 * 1024
QUOTA = Quota(8 * MIB, 100)


class Held:
    """A turn that is never in doubt."""

    token = 1
    fence = "turn"
    folder = ""

    def mark_read(self) -> None:
        return

    async def until_doubtful(self) -> None:
        await asyncio.Event().wait()

    async def copies(self) -> Mapping[str, bytes]:
        return {}


@pytest.fixture
def runner() -> Iterator[RunnerProcess]:
    need("Landlock", found=landlock.abi() >= landlock.NEEDED_ABI, install="Linux 6.2 or newer with Landlock on")
    made = RunnerProcess()
    yield made
    made.close()


async def test_the_quota_holds_against_commands_of_a_runner(runner: RunnerProcess) -> None:
    """Also in folders that the worker cannot enter while the command runs, and in ones that lie too deep."""
    workspaces = Workspaces(runner.root, QUOTA, access=Access(runner.group))
    tool = Exec(await runner.ready(), workspaces, limits=CommandLimits(wall_s=60))
    context = ToolContext(session="web:ada/main", turn=3, call_id="c1", outside=Held())
    await tool.run(ExecArguments("echo old >old"), context)
    hidden = "mkdir -m 700 shut; for n in 1 2 3; do dd if=/dev/zero of=shut/$n bs=1M count=6; done; sleep 30"
    for line in (hidden, "for n in $(seq 300); do : >f$n; done; sleep 30", f"mkdir -p {'d/' * 60}; sleep 30"):
        with pytest.raises(ToolFailed, match=r"allowed|over its quota|measured"):
            await tool.run(ExecArguments(line), context)
        assert not (await workspaces.workspace_of("web:ada/main").measure()).over(QUOTA)
        assert "old" in await tool.run(ExecArguments("cat old"), context)


async def test_what_a_command_closes_is_open_to_the_worker_when_it_ended(runner: RunnerProcess) -> None:
    """`chmod 700`, also `chmod 0`: a worker of another user could neither read, nor measure, nor remove it."""
    sandbox: Sandbox = await runner.ready()
    line = "mkdir -m 700 a a/b; echo kept >a/b/c; chmod 600 a/b/c; chmod 0 a/b; ln -s /etc/passwd a/link; chmod 2700 a"
    finished = await sandbox.run(runner.command(line, session=folder_name("web:ada/main")))
    assert finished.code == 0, finished
    workspace = Workspaces(runner.root, QUOTA, access=Access(runner.group)).workspace_of("web:ada/main")
    for path, mode in (("a", 0o2770), ("a/b", 0o2770), ("a/b/c", 0o660)):
        info = (workspace.path / path).stat()
        assert (info.st_mode & 0o7777, info.st_gid) == (mode, runner.group), path
    assert await workspace.read_file("a/b/c") == b"kept\n"
    assert not (await workspace.measure()).unmeasurable


async def test_a_file_without_a_name_counts_as_memory(walled: Sandbox, folder: Path) -> None:
    """Deleted and still open, it is in no folder that could be measured (all tiers)."""
    line = 'for n in 3 4 5 6 7; do eval "exec $n>f"; rm f; head -c 40000000 /dev/zero >&$n; done; sleep 30'
    limits = CommandLimits(memory_bytes=100 * MIB, wall_s=60)
    finished = await walled.run(SandboxCommand(what=line, folder=str(folder), session=folder.name, limits=limits))
    assert finished.ended == "memory", finished


async def test_a_subagents_command_ends_nothing_of_its_turn(runner: RunnerProcess) -> None:
    """Another fence: an older token of the one is none of the other."""
    sandbox = await runner.ready()
    line = "touch {mine}; until [ -e {other} ]; do sleep 0.01; done"
    turn = runner.command(line.format(mine="a", other="b"), token=1, fence="turn:web:ada/main")
    child = runner.command(line.format(mine="b", other="a"), token=9, fence="sub:aaaaaaaa")
    assert [one.code for one in await asyncio.gather(sandbox.run(turn), sandbox.run(child))] == [0, 0]
