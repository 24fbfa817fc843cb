"""Every tier that this machine may have, for tests that all of them must pass."""

from __future__ import annotations

import os
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from shared.confinement import landlock
from tests.helpers import pod
from tests.helpers.need import need
from tests.helpers.runner import RunnerProcess
from worker.sandbox.bubblewrap import Bubblewrap
from worker.sandbox.command import Sandbox, SandboxBroken

TIERS = ("bubblewrap", "runner")


async def tier(name: str) -> Sandbox:
    """The named tier, or a skip that says what it needs."""
    assert name == "bubblewrap"
    try:
        return await Bubblewrap.find()
    except SandboxBroken as exc:
        need("bubblewrap", found=False, install=f"it does not start here: {exc}")
        raise


class PodRunner(NamedTuple):
    """A runner under a pod's conditions, as another user where the tests are root. Its root is a link, which leads to
    the workspaces of one test after the other."""

    process: RunnerProcess
    root: Path


@pytest.fixture(scope="module")
def pod_runner() -> Iterator[PodRunner]:
    """One for all tests of a file: whatever a command tried, the next one finds the runner as it was."""
    need("Landlock", found=landlock.abi() >= landlock.NEEDED_ABI, install="Linux 6.2 or newer with Landlock on")
    need("libseccomp2", found=pod.library() is not None)
    with tempfile.TemporaryDirectory(prefix="shoal-") as top:
        Path(top).chmod(0o711)
        root = Path(top) / "workspaces"
        root.symlink_to(top)
        process = RunnerProcess(profile=True, WORKSPACE__ROOT=str(root))
        yield PodRunner(process, root)
        process.close()


@pytest.fixture(params=TIERS)
async def walled(request: pytest.FixtureRequest, folder: Path) -> AsyncIterator[Sandbox]:
    """A sandbox of each tier."""
    if request.param == "runner":
        runner: PodRunner = request.getfixturevalue("pod_runner")
        runner.root.unlink()
        runner.root.symlink_to(folder.parent)
        os.chown(folder, -1, runner.process.group)
        folder.chmod(0o2770)
        sandbox = await runner.process.ready()
        yield sandbox
        await sandbox.close()
        return
    made = await tier(request.param)
    yield made
    await made.close()


@pytest.fixture
async def bubblewrap() -> AsyncIterator[Sandbox]:
    """The tier that most machines have, for tests of what is the same on all tiers."""
    made = await tier("bubblewrap")
    yield made
    await made.close()


@pytest.fixture
def folder() -> Iterator[Path]:
    """A workspace, in a folder with those of others; a way leads there for a sandbox of another user, too."""
    with tempfile.TemporaryDirectory(prefix="shoal-") as top:
        Path(top).chmod(0o711)
        made = Path(top) / "workspaces" / "mine"
        made.mkdir(parents=True, mode=0o755)
        made.chmod(0o700)
        yield made
