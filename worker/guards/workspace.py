"""Workspaces: the files of sessions, on a volume that all workers share."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Concatenate, Final, ParamSpec, TypeVar

from msgspec.structs import replace

from shared.errors import SettingsError, ToolFailed
from shared.ids import FOLDER_NAME, folder_name, person_of
from shared.media.disk import PersonUsage
from shared.settings import Settings
from worker.agent.tools.tool import FileEntry
from worker.guards.folder import GrantedFolder, Quota, SessionFolder
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
    """All workspaces below `root`, and the operator's `folders` by name, each with its path and
    whether it may be written. Creating this object touches no file."""

    def __init__(
        self,
        root: Path,
        quota: Quota | None = None,
        *,
        access: Access = OWNER_ONLY,
        threads: FileThreads | None = None,
        folders: Mapping[str, tuple[Path, bool]] | None = None,
    ) -> None:
        self._folders = folders or {}
        self._root = root.absolute()
        self._access = access
        self._quota = quota or Quota()
        self._people = PersonUsage(self._root, self._quota.person_bytes, self._measure)
        self._threads = threads or FileThreads()
        self._local = False
        self.erase_stored: Callable[[str, float], int] | None = None
        """Deletes the files of a session in a store that this folder only has copies of. Blocks."""

    async def detect_local_disk(self) -> None:
        """Detect once whether the workspaces are on a local disk: turns may then check on the event
        loop whether a name exists. Raises ToolFailed for a volume that does not answer."""
        self._local = await self._threads.run(lambda _: is_local(self._root))

    def workspace_of(self, session: str, named: str = "") -> Workspace:
        """Return the workspace of a session; the first write creates its folder. It is the `named`
        folder of the operator's instead, if that is still offered."""
        person = person_of(session)
        folder = SessionFolder(
            self._root, folder_name(session), self._quota, self._access, person=person, people=self._people
        )
        if granted := self._folders.get(named):
            folder = GrantedFolder(named, granted[0], folder, writable=granted[1])
        return Workspace(folder, self._threads, local=self._local)

    def sweep_usage(self) -> None:
        """Correct what people use, as far as a crash could have changed it. Blocks. Raises
        OSError."""
        self._people.sweep()

    async def erase_session(self, folder: str, *, before_s: float) -> int:
        """Delete the files of the session with this folder (`folder_name`), except those changed
        since `before_s` (seconds since 1970); return the number of deleted files and folders.
        Raises OSError, and ToolFailed for a volume that is unavailable or slow: repeat it then."""
        if not FOLDER_NAME.fullmatch(folder):
            raise ValueError(f"{folder!r} is not the folder of a session; folder_name() makes them")
        files = SessionFolder(self._root, folder, self._quota, self._access, people=self._people)
        if self.erase_stored is not None:
            return await asyncio.to_thread(self.erase_stored, folder, before_s)
        return await self._threads.run(erase_folder, files, before_s)

    def close(self) -> None:
        self._threads.close()

    def _measure(self, folder: str) -> int:
        with contextlib.suppress(FileNotFoundError):
            return measure_usage(StopSignal(), self._root / folder, self._quota).size_bytes
        return 0


class Workspace:
    """The files of one session. Every coroutine works in a thread with a time limit, and raises
    ToolFailed, with no path of the machine, for what is missing, not allowed, or late. A session
    uses at most two threads at a time, so that its calls do not block other sessions."""

    def __init__(self, folder: SessionFolder, threads: FileThreads, *, local: bool = False) -> None:
        self.quota: Final = folder.quota
        self.path: Final = folder.path  # may not exist yet; never shown to a model
        self.granted: Final = folder.granted
        self._folder = folder
        self._threads = threads
        self._turn = asyncio.Semaphore(_AT_ONCE)
        self._local = local

    def surely_without(self, name: str) -> bool:
        """Return at once whether the top of the workspace lacks this name. Also False where only a
        thread may look: a network volume can hang the event loop."""
        return self._local and not self._folder.own.exists(name)

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
            raise ToolFailed(f"{path!r} names a folder; name the file to write, such as 'notes/todo.md'")
        if len(data) > limit_bytes:
            raise ToolFailed(
                f"{path!r} would have {len(data):,} bytes; at most {limit_bytes:,} can be written. Use two files"
            )
        await self._run(path, self._folder.write_file, parts, data, was)

    async def list_entries(self) -> Sequence[FileEntry]:
        """Return files, and folders with a final `/`, in any order; no hidden and special ones."""
        return await self._run(".", self._folder.list_entries)

    async def measure(self) -> WorkspaceUsage:
        """Measure it with hidden and special files; stop early once it is over its quota. Count it
        with this size for its person."""
        return await self._run(".", self._measure)

    async def disk_time_ns(self) -> int:
        """Return the current time of its disk, for `restore_quota`."""
        # In a folder of the operator's nothing is deleted by its time, and none is written for it.
        return 0 if self.granted else await self._run(".", disk_time_ns, self.path)

    async def restore_quota(self, quota: Quota, since_ns: int, least_bytes: int) -> tuple[int, str]:
        """Delete the newest of what changed since until the quota holds, and the limits of person
        and disk, but leave `least_bytes`; return how many files, and what did not hold."""
        return await self._run(".", self._restore_quota, quota, since_ns, least_bytes)

    async def run_in_folder(self, work: Callable[[Path], T]) -> T:
        """Call `work` with the path of the session's own folder, which may not exist, in one of the
        threads."""
        return await self._run(".", lambda _: work(self._folder.own.path))

    def _measure(self, stop: StopSignal) -> WorkspaceUsage:
        if self.granted:  # no quota: only the disk must not get full
            full = self.quota.floor.size_bytes and self.quota.floor.room_bytes(self.path) < 0
            return WorkspaceUsage(0, 0, "the disk is almost full" if full else "")
        used = measure_usage(stop, self.path, self.quota)
        excess = self._folder.book(used.size_bytes)
        if self.quota.floor.size_bytes:
            excess = max(excess, -self.quota.floor.room_bytes(self.path))
        return replace(used, excess_bytes=min(excess, used.size_bytes))

    def _restore_quota(self, stop: StopSignal, quota: Quota, since_ns: int, least_bytes: int) -> tuple[int, str]:
        used = self._measure(stop)
        if self.granted:
            return 0, used.unmeasurable
        lowered = used.within(quota, least_bytes)
        gone = restore_quota(stop, self.path, lowered, since_ns)
        if gone:
            self._measure(stop)  # counts what is left for the person
        return gone, used.over(lowered)

    async def _run(
        self, path: str, work: Callable[Concatenate[StopSignal, P], T], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        async with self._turn:
            try:
                return await self._threads.run(work, *args, **kwargs)
            except OSError as exc:
                raise explain_error(path, exc) from None


def check_folders(settings: Settings) -> None:
    """Raise SettingsError for a folder of the operator's that this worker does not have, that lies
    in another (who works there could put a link in its place), or where Shoal's own files are."""
    folders = settings.workspace.folders
    own = (settings.data.dir, settings.workspace.root, settings.media.dir)
    for name, path in folders.items():
        key = f"workspace.folders.{name}"
        real = path.resolve()
        if not (path.is_dir() and os.access(path, os.R_OK | os.X_OK)):
            raise SettingsError(f"{key}: {str(path)!r} is no folder that this worker can read; every worker needs it")
        for other in (*own, *(one for called, one in folders.items() if called != name)):
            there = other.resolve()
            if real.is_relative_to(there) or there.is_relative_to(real):
                raise SettingsError(f"{key}: it lies in {str(other)!r}, or around it; name another folder")


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
