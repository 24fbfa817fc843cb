"""A real runner beside a test: another user where the test is root, and workspaces that both may use."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path
from typing import Any

from tests.helpers.pod import PROFILE, UID
from tests.helpers.processes import Process
from tests.helpers.wait import eventually
from worker.guards.folder import Quota, SessionFolder
from worker.guards.openat import Access
from worker.guards.threads import StopSignal
from worker.sandbox.command import CommandLimits, SandboxBroken, SandboxCommand
from worker.sandbox.runner.client import RunnerSandbox

GROUP = 4242
AS_ROOT = os.geteuid() == 0


class RunnerProcess:
    """`python -m worker runner`, as user 1001 when the tests are root. With `profile` also under a pod's filter."""

    def __init__(self, *, profile: bool = False, **settings: str) -> None:
        self.top = Path(tempfile.mkdtemp(prefix="shoal-runner-"))  # not pytest's own: no other user gets in there
        self.top.chmod(0o755)
        self.root = self.top / "workspaces"
        self.scratch = self.top / "scratch"
        self.socket = self.top / "socket" / "runner.sock"
        self._profile = profile
        self.group = GROUP if AS_ROOT else os.getgid()
        self.uid = UID if AS_ROOT else os.getuid()
        for folder in (self.scratch, self.socket.parent):
            folder.mkdir(0o770)
            if AS_ROOT:
                os.chown(folder, UID, self.group)
                folder.chmod(0o2770)  # as a volume with an fsGroup
        self.settings = settings
        self.process = self.start()

    def environment(self) -> dict[str, str]:
        """What the runner reads."""
        given = {
            "RUNNER__SOCKET": str(self.socket),
            "RUNNER__SCRATCH": str(self.scratch),
            "RUNNER__WORKER_UID": str(os.getuid()),
            "WORKSPACE__ROOT": str(self.root),
            **self.settings,
        }
        return {f"SHOAL_{key}": value for key, value in given.items()}

    def start(self) -> Process:
        """Start it (again)."""
        profile = ["--profile", str(PROFILE)] if self._profile else []
        words = ["--groups", str(self.group), *profile, "worker.sandbox.runner.main"]
        self.process = Process("tests.helpers.pod", *words, env=self.environment(), log=self.top / "runner.log")
        return self.process

    async def ready(self) -> RunnerSandbox:
        """Its client, once it answers."""
        sandbox = RunnerSandbox(self.socket)
        await eventually(lambda: self._answers(sandbox), 30, what="a runner that answers")
        return sandbox

    async def _answers(self, sandbox: RunnerSandbox) -> bool:
        assert self.process.alive, self.process.log
        try:
            return bool(await sandbox.ping())
        except SandboxBroken:
            return False

    def workspace(self, session: str = "session") -> Path:
        """The workspace of a session, made as a worker makes it."""
        return SessionFolder(self.root, session, Quota(), Access(self.group)).create(StopSignal())

    def command(
        self,
        what: str | tuple[str, ...],
        *,
        session: str = "session",
        token: int = 1,
        limits: CommandLimits | None = None,
        **more: Any,
    ) -> SandboxCommand:
        """A command in the workspace of a session."""
        return SandboxCommand(
            what=what,
            folder=str(self.workspace(session)),
            session=session,
            token=token,
            limits=limits or CommandLimits(),
            **more,
        )

    def close(self) -> None:
        """End it, and forget its files."""
        if self.process.alive:
            self.process.kill_group()
        shutil.rmtree(self.top, ignore_errors=True)
