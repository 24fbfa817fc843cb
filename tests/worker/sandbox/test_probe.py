"""The choice of a sandbox: one that does not isolate is not chosen."""

from __future__ import annotations

from pathlib import Path

import pytest

from shared.settings import Settings
from shared.settings.sections.tool_use import ToolsSettings, WorkspaceSettings
from worker.sandbox.bubblewrap import Bubblewrap
from worker.sandbox.command import Finished, Limiter, Sandbox, SandboxBroken, SandboxCommand
from worker.sandbox.probe import SandboxFinder, SandboxOff, choose_sandbox


class Fake:
    """A tier without walls: it reads what it likes, or answers as it likes."""

    tier = "fake"
    limited_by: Limiter = "census"

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self.closed = False

    async def run(self, command: SandboxCommand) -> Finished:
        if self.kind == "silent":
            return Finished(ended="exit", code=7)
        if self.kind == "broken":
            raise SandboxBroken("it is broken")
        folder = Path(command.folder)
        (folder / "ran").touch()
        canaries = [path.read_bytes() for path in folder.parent.glob("*/canary")]
        return Finished(ended="exit", code=7, output=b"".join(canaries) if self.kind == "open" else b"")

    async def close(self) -> None:
        self.closed = True


def settings(folder: Path, **tools: object) -> Settings:
    return Settings(workspace=WorkspaceSettings(root=folder.parent), tools=ToolsSettings(**tools))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("kind", "why"),
    [
        ("open", "could reach the files of another session"),
        ("silent", "could not write into its workspace"),
        ("broken", "it is broken"),
        ("deathless", "a test command ended by 'exit'"),
    ],
)
async def test_a_sandbox_that_does_not_hold_is_not_used(folder: Path, kind: str, why: str) -> None:
    """Only what was tried counts; what fails is closed again, and nothing of the trial is left."""
    fake = Fake(kind)

    async def make(_: Settings) -> Sandbox:
        return fake

    found = await choose_sandbox(settings(folder), [("fake", make)])
    assert isinstance(found, SandboxOff)
    assert why in found.reason
    assert fake.closed
    assert [path.name for path in folder.parent.iterdir()] == ["mine"]


async def test_the_first_tier_that_holds_is_chosen_and_reported(bubblewrap: Sandbox, folder: Path) -> None:
    """bubblewrap comes before a runner; presence says which."""
    offered: list[Sandbox] = []
    finder = SandboxFinder(settings(folder), offered.append)
    assert finder.details() == {"sandbox": "off"}
    await finder.find()
    assert finder.details() == {"sandbox": bubblewrap.tier, "sandbox.limited_by": bubblewrap.limited_by}
    assert [type(one) for one in offered] == [Bubblewrap]
    await finder.close()


async def test_exec_that_is_off_or_has_no_sandbox_is_not_offered(folder: Path) -> None:
    """Fail closed, with a reason on one line."""
    assert await choose_sandbox(settings(folder, exec=False)) == SandboxOff("tools.exec is false")
    found = await choose_sandbox(settings(folder), [])
    assert isinstance(found, SandboxOff)
