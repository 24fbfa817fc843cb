"""The sandbox of this machine: tiers are tried in order, by really running commands."""

from __future__ import annotations

import asyncio
import os
import secrets
import shutil
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Final

import msgspec

from shared.ids import folder_name
from shared.log import logger
from shared.settings import Settings
from shared.store.fleet.presence import LIMITED_BY, WHY_OFF
from shared.tasks import completed
from worker.guards.addresses import WebPolicy
from worker.guards.openat import OWNER_ONLY, Access
from worker.sandbox.command import CommandLimits, Ending, Sandbox, SandboxBroken, SandboxCommand

PROBE_S: Final = 30.0
RETRY_S: Final = 30.0
WHY_CHARS: Final = 600
_KILL_AFTER_S: Final = 0.05

log = logger("sandbox")


class SandboxOff(msgspec.Struct, frozen=True):
    """No sandbox: nothing is run. `reason` says why and what to do, on one line."""

    reason: str


# Names, and functions that open a tier or raise SandboxBroken with what is missing.
Tiers = Sequence[tuple[str, Callable[[Settings], Awaitable[Sandbox]]]]


async def open_bubblewrap(settings: Settings) -> Sandbox:
    """Open bubblewrap: Linux with user namespaces that ordinary users may create."""
    from worker.sandbox.bubblewrap import Bubblewrap

    return await Bubblewrap.find(WebPolicy.from_settings(settings.tools.web_allow))


async def open_runner(settings: Settings) -> Sandbox:
    """Open a connection to the runner process that listens on the socket `tools.exec_runner`."""
    if not settings.tools.exec_runner:
        raise SandboxBroken("tools.exec_runner is not set")
    from worker.sandbox.runner.client import RunnerSandbox

    runner = RunnerSandbox(settings.tools.exec_runner)
    await runner.ping()
    return runner


TIERS: Final[Tiers] = (("bubblewrap", open_bubblewrap), ("runner", open_runner))


class SandboxFinder:
    """Finds the sandbox of a worker, and retries while a runner may still come up. Calls `on_found`
    once there is one; a worker without one works too."""

    def __init__(self, settings: Settings, on_found: Callable[[Sandbox], None], tiers: Tiers = TIERS) -> None:
        self._settings = settings
        self._on_found = on_found
        self._tiers = tiers
        self.first_try_done = asyncio.Event()  # set when it is known whether there is a sandbox
        self._sandbox: Sandbox | SandboxOff | None = None

    async def find(self) -> None:
        self._sandbox = await choose_sandbox(self._settings, self._tiers)
        if not isinstance(self._sandbox, SandboxOff):
            self._on_found(self._sandbox)
        self.first_try_done.set()

    async def keep_trying(self) -> None:
        """Try all tiers, every RETRY_S until there is a sandbox if a runner is configured."""
        if self._sandbox is None:  # a spare has looked before it became a worker
            await self.find()
        tools = self._settings.tools
        while tools.exec and tools.exec_runner and isinstance(self._sandbox, SandboxOff):
            await asyncio.sleep(RETRY_S)
            await self.find()

    def details(self) -> dict[str, str]:
        """Return the tier, or `off` and the reason, for the presence record."""
        match self._sandbox:
            case None:
                return {"sandbox": "off"}
            case SandboxOff(reason):
                return {"sandbox": "off", WHY_OFF: reason[:WHY_CHARS]}
            case sandbox:
                return {"sandbox": sandbox.tier, LIMITED_BY: sandbox.limited_by}

    async def close(self) -> None:
        if self._sandbox is not None and not isinstance(self._sandbox, SandboxOff):
            await self._sandbox.close()


async def choose_sandbox(settings: Settings, tiers: Tiers = TIERS) -> Sandbox | SandboxOff:
    """Return and log the first tier that runs a command and confines it, or why none does."""
    if not settings.tools.exec:
        off = SandboxOff("tools.exec is false")
        log.info("sandbox off", reason=off.reason)
        return off
    reasons: list[str] = []
    root = settings.workspace.root.absolute()
    access = Access(settings.workspace.group)
    for name, open_tier in tiers:
        try:
            async with asyncio.timeout(PROBE_S):
                sandbox = await open_tier(settings)
                try:
                    await prove_isolation(sandbox, root, access, network=settings.tools.exec_network)
                except BaseException:
                    await sandbox.close()
                    raise
                log.info("sandbox ready", tier=sandbox.tier, limited_by=sandbox.limited_by)
                return sandbox
        except SandboxBroken as exc:
            reasons.append(f"{name}: {exc}")
        except TimeoutError:
            reasons.append(f"{name}: no answer within {PROBE_S:g} s")
    off = SandboxOff(f"no sandbox on this worker ({'; '.join(reasons)}); docs/sandbox.md says how to get one")
    log.warning("sandbox missing", doing="not offering exec", reason=off.reason)
    return off


async def prove_isolation(sandbox: Sandbox, root: Path, access: Access = OWNER_ONLY, *, network: bool = False) -> None:
    """Run commands next to a canary, as two sessions lie next to each other. Raises SandboxBroken
    unless they ran, could neither read nor write the canary, and were killed in time. With
    `network` the tier must be able to give them one."""
    session, other = (folder_name(f"probe:{secrets.token_hex(8)}") for _ in range(2))
    canary = secrets.token_hex(16)
    creating = asyncio.to_thread(_create_canary, root, access, session, other, canary)
    try:
        try:
            await completed(asyncio.ensure_future(creating))
        except OSError as exc:
            why = "workspace.root cannot be written"
            if access.group is not None:
                why += f", or this user is not in workspace.group {access.group}"
            raise SandboxBroken(f"{why} ({exc.strerror})") from None
        paths = [f"../{other}", str(root / other)]
        line = "; ".join(f"cat '{path}/canary'; echo x >'{path}/written'" for path in paths)
        line = f"echo ran >ran; {{ {line}; }}; exit 7"
        output = await _run_probe(sandbox, root / session, line, PROBE_S, "exit", network=network)
        if canary.encode() in output or (root / other / "written").exists():
            raise SandboxBroken("a command could reach the files of another session")
        if not (root / session / "ran").exists():
            raise SandboxBroken("a command could not write into its workspace")
        await _run_probe(sandbox, root / session, "sleep 60", _KILL_AFTER_S, "wall")
    finally:
        # Both in one call: a thread that was started also ends when this is cancelled again.
        await asyncio.to_thread(_remove_folders, root / session, root / other)


def _remove_folders(*folders: Path) -> None:
    for folder in folders:
        shutil.rmtree(folder, ignore_errors=True)


async def _run_probe(
    sandbox: Sandbox, folder: Path, line: str, wall_s: float, expected: Ending, *, network: bool = False
) -> bytes:
    limits = CommandLimits(wall_s=wall_s)
    command = SandboxCommand(what=line, folder=str(folder), session=folder.name, network=network, limits=limits)
    finished = await sandbox.run(command)
    if finished.ended != expected or (expected == "exit" and finished.code != 7):
        raise SandboxBroken(f"a test command ended by {finished.ended!r} with {finished.code}")
    return finished.output


def _create_canary(root: Path, access: Access, session: str, other: str, canary: str) -> None:
    root.mkdir(mode=access.folder, parents=True, exist_ok=True)
    _grant_access(root, access)
    for name in (session, other):
        (root / name).mkdir(mode=0o700)
        _grant_access(root / name, access)
        # Open to everyone, canary included: file permissions would otherwise stop the command, and
        # the probe must test the sandbox alone.
        (root / name).chmod(0o777)
    (root / other / "canary").write_text(canary)
    os.chmod(root / other / "canary", 0o644)


def _grant_access(folder: Path, access: Access) -> None:
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        access.grant(handle)
    finally:
        os.close(handle)
