"""Workspaces: the files that a session keeps, on a volume that every worker sees."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Concatenate, Final, ParamSpec, TypeVar

from shared.errors import ToolFailed
from worker.agent.tools.tool import FileEntry
from worker.guards.erasing import erase_folder
from worker.guards.folder import Quota, SessionFolder
from worker.guards.local import is_local
from worker.guards.openat import OWNER_ONLY, Access, explain_error
from worker.guards.paths import FOLDER_NAME, folder_name, split_path
from worker.guards.threads import FileThreads, StopSignal
from worker.guards.usage import WorkspaceUsage, disk_time_ns, measure_usage, restore_quota

FILE_LIMIT_BYTES: Final = 16 * 1024 * 1024
"""What is read of one file at most."""

WRITE_LIMIT_BYTES: Final = 2 * 1024 * 1024
"""What is written into one file at most."""

_AT_ONCE: Final = 2

P = ParamSpec("P")
T = TypeVar("T")


class Workspaces:
    """All workspaces of a process, below `root`. Making it touches nothing."""

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
        """Find out, once, whether they are on a disk of this machine: then a turn may ask without a
        thread whether something is there at all. Raises ToolFailed for a volume that does not
        answer."""
        self._local = await self._threads.run(lambda _: is_local(self._root))

    def workspace_of(self, session: str) -> Workspace:
        """The workspace of a session; it is made on the volume when something is first written."""
        folder = SessionFolder(self._root, folder_name(session), self._quota, self._access)
        return Workspace(folder, self._threads, local=self._local)

    async def erase_session(self, folder: str, *, before_s: float) -> int:
        """Delete what the session with this folder (`folder_name`) keeps, but for what changed
        since `before_s`, in seconds since 1970; how many files and folders went. Raises OSError,
        and ToolFailed for a volume that is away or slow: do it again then."""
        if not FOLDER_NAME.fullmatch(folder):
            raise ValueError(f"{folder!r} is the folder of no session; folder_name() makes them")
        return await self._threads.run(
            erase_folder, SessionFolder(self._root, folder, self._quota, self._access), before_s
        )

    def close(self) -> None:
        self._threads.close()


class Workspace:
    """The files of one session. What is awaited works in a thread, has a time limit, and raises
    ToolFailed, with a text that names no path of the machine, for what is not there, not allowed,
    or not answered in time.

    A session has a few threads at a time, so that many calls of one do not keep the others waiting.
    """

    def __init__(self, folder: SessionFolder, threads: FileThreads, *, local: bool = False) -> None:
        self.quota: Final = folder.quota

        self._folder = folder
        self._threads = threads
        self._turn = asyncio.Semaphore(_AT_ONCE)
        self._local = local

    @property
    def path(self) -> Path:
        """Where it is, or will be, on this machine; never shown to a model."""
        return self._folder.path

    def surely_without(self, name: str) -> bool:
        """Whether nothing of this name is at its top, said at once: False, too, where only a thread
        may look, as on a volume behind a network, which can hang."""
        return self._local and not self._folder.exists(name)

    async def create(self) -> Path:
        """Its path, after making it."""
        return await self._run(".", self._folder.create)

    async def read_file(self, path: str, limit_bytes: int = FILE_LIMIT_BYTES) -> bytes:
        return await self._run(path, self._folder.read_file, split_path(path), limit_bytes)

    async def write_file(
        self, path: str, data: bytes, *, was: bytes | None = None, limit_bytes: int = WRITE_LIMIT_BYTES
    ) -> None:
        """Write a whole file; folders on the way are made. With `was`, only if it still holds that,
        or holds `data` already, as after an attempt whose worker was lost."""
        parts = split_path(path)
        if not parts or path.strip().endswith(("/", "/.")):
            raise ToolFailed(f"{path!r} names a folder; name the file to write, such as 'notes/todo.md'")
        if len(data) > limit_bytes:
            raise ToolFailed(
                f"{path!r} would have {len(data):,} bytes; at most {limit_bytes:,} can be written. Use two files"
            )
        await self._run(path, self._folder.write_file, parts, data, was)

    async def list_entries(self) -> Sequence[FileEntry]:
        """Its files, and its folders with a `/` behind, in no order; without hidden ones, links and
        other odd ones."""
        return await self._run(".", self._folder.list_entries)

    async def measure(self) -> WorkspaceUsage:
        """What is in it, hidden and odd files included, as far as it takes to see that it is too
        much."""
        return await self._run(".", measure_usage, self.path, self.quota)

    async def disk_time_ns(self) -> int:
        """Now, by the clock of its disk, for `settled`."""
        return await self._run(".", disk_time_ns, self.path)

    async def restore_quota(self, quota: Quota, since_ns: int) -> int:
        """Bring it back within the quota by taking away the newest of what changed since. How many
        files went."""
        return await self._run(".", restore_quota, self.path, quota, since_ns)

    async def run_in_folder(self, work: Callable[[Path], T]) -> T:
        """`work` with the path of the folder, which may not be there, in one of the threads."""
        return await self._run(".", lambda _: work(self._folder.path))

    async def _run(
        self, path: str, work: Callable[Concatenate[StopSignal, P], T], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        async with self._turn:
            try:
                return await self._threads.run(work, *args, **kwargs)
            except OSError as exc:
                raise explain_error(path, exc) from None
