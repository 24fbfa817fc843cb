"""Workspaces: the files of sessions, on a volume that all workers share."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Concatenate, Final, ParamSpec, TypeVar

from shared.errors import ToolFailed
from shared.ids import FOLDER_NAME, folder_name
from worker.agent.tools.tool import FileEntry
from worker.guards.folder import Quota, SessionFolder
from worker.guards.openat import OWNER_ONLY, Access, explain_error
from worker.guards.paths import split_path
from worker.guards.threads import FileThreads, StopSignal
from worker.guards.usage import WorkspaceUsage, disk_time_ns, erase_folder, measure_usage, restore_quota

# Limit for reading one file.
FILE_LIMIT_BYTES: Final = 16 * 1024 * 1024
# Limit for writing one file.
WRITE_LIMIT_BYTES: Final = 2 * 1024 * 1024
# File systems that do not depend on another machine.
LOCAL: Final = frozenset(("bcachefs", "btrfs", "ext2", "ext3", "ext4", "f2fs", "overlay", "tmpfs", "xfs", "zfs"))
_MOUNTS: Final = Path("/proc/self/mountinfo")
_AT_ONCE: Final = 2

P = ParamSpec("P")
T = TypeVar("T")


class Workspaces:
    """All workspaces below `root`. Creating this object touches no file."""

    def __init__(
        self,
        root: Path,
        quota: Quota | None = None,
        *,
        access: Access = OWNER_ONLY,
        threads: FileThreads | None = None,
    ) -> None:
        self._root = root.absolute()
        self._access = access
        self._quota = quota or Quota()
        self._threads = threads or FileThreads()
        self._local = False

    async def detect_local_disk(self) -> None:
        """Detect once whether the workspaces are on a local disk: turns may then check on the event
        loop whether a name exists. Raises ToolFailed for a volume that does not answer."""
        self._local = await self._threads.run(lambda _: is_local(self._root))

    def workspace_of(self, session: str) -> Workspace:
        """Return the workspace of a session; the first write creates its folder."""
        folder = SessionFolder(self._root, folder_name(session), self._quota, self._access)
        return Workspace(folder, self._threads, local=self._local)

    async def erase_session(self, folder: str, *, before_s: float) -> int:
        """Delete the files of the session with this folder (`folder_name`), except those changed
        since `before_s` (seconds since 1970); return the number of deleted files and folders.
        Raises OSError, and ToolFailed for a volume that is unavailable or slow: repeat it then."""
        if not FOLDER_NAME.fullmatch(folder):
            raise ValueError(f"{folder!r} is not the folder of a session; folder_name() makes them")
        files = SessionFolder(self._root, folder, self._quota, self._access)
        return await self._threads.run(erase_folder, files, before_s)

    def close(self) -> None:
        self._threads.close()


class Workspace:
    """The files of one session. Every coroutine works in a thread with a time limit, and raises
    ToolFailed, with no path of the machine, for what is missing, not allowed, or late. A session
    uses at most two threads at a time, so that its calls do not block other sessions."""

    def __init__(self, folder: SessionFolder, threads: FileThreads, *, local: bool = False) -> None:
        self.quota: Final = folder.quota
        self.path: Final = folder.path  # may not exist yet; never shown to a model
        self._folder = folder
        self._threads = threads
        self._turn = asyncio.Semaphore(_AT_ONCE)
        self._local = local

    def surely_without(self, name: str) -> bool:
        """Return at once whether the top of the workspace lacks this name. Also False where only a
        thread may look: a network volume can hang the event loop."""
        return self._local and not self._folder.exists(name)

    async def create(self) -> Path:
        return await self._run(".", self._folder.create)

    async def read_file(self, path: str, limit_bytes: int = FILE_LIMIT_BYTES) -> bytes:
        return await self._run(path, self._folder.read_file, split_path(path), limit_bytes)

    async def write_file(
        self, path: str, data: bytes, *, was: bytes | None = None, limit_bytes: int = WRITE_LIMIT_BYTES
    ) -> None:
        """Write a whole file, creating its folders. With `was`, write only if it still holds that,
        or already holds `data`, as after an attempt whose worker crashed."""
        parts = split_path(path)
        if not parts or path.strip().endswith(("/", "/.")):
            advice = "name the file to write, such as 'notes/todo.md'"
            raise ToolFailed(f"{path!r} names a folder; {advice}")
        if len(data) > limit_bytes:
            most = f"at most {limit_bytes:,} can be written. Use two files"
            raise ToolFailed(f"{path!r} would have {len(data):,} bytes; {most}")
        await self._run(path, self._folder.write_file, parts, data, was)

    async def list_entries(self) -> Sequence[FileEntry]:
        """Return files, and folders with a final `/`, in any order; no hidden and special ones."""
        return await self._run(".", self._folder.list_entries)

    async def measure(self) -> WorkspaceUsage:
        """Measure it with hidden and special files; stop early once it is over its quota."""
        return await self._run(".", measure_usage, self.path, self.quota)

    async def disk_time_ns(self) -> int:
        """Return the current time of its disk, for `restore_quota`."""
        return await self._run(".", disk_time_ns, self.path)

    async def restore_quota(self, quota: Quota, since_ns: int) -> int:
        """Delete the newest of what changed since until the quota holds; return how many files."""
        return await self._run(".", restore_quota, self.path, quota, since_ns)

    async def run_in_folder(self, work: Callable[[Path], T]) -> T:
        """Call `work` with the path of the folder, which may not exist, in one of the threads."""
        return await self._run(".", lambda _: work(self._folder.path))

    async def _run(
        self, path: str, work: Callable[Concatenate[StopSignal, P], T], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        async with self._turn:
            try:
                return await self._threads.run(work, *args, **kwargs)
            except OSError as exc:
                raise explain_error(path, exc) from None


def is_local(folder: Path, mounts: Path = _MOUNTS) -> bool:
    """Return whether the folder is, or will be once created, on a local disk. False if that is
    unknown, as on systems without such a list of mounts. Blocking."""
    for at in (folder, *folder.parents):
        with contextlib.suppress(OSError):
            return file_system(os.stat(at).st_dev, mounts.read_text()) in LOCAL
        if os.path.lexists(at):
            return False  # it exists, but stat failed: a dead volume
    return False


def file_system(device: int, mounts: str) -> str:
    """Return the type of the file system on a device; `""` if the list of mounts lacks it. A line
    is `36 35 98:0 /root /where options optional… - kind source options` (proc(5))."""
    number = f"{os.major(device)}:{os.minor(device)}"
    for line in mounts.splitlines():
        before, _, behind = line.partition(" - ")
        if before.split()[2:3] == [number]:
            return behind.split(" ", 1)[0]
    return ""
