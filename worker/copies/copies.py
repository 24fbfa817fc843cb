"""Local copies of workspaces that live in an S3 store: fetched before work, written back after each
tool. Everything here blocks, except in `WorkspaceCopies`' coroutines."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import hashlib
import os
import secrets
import time
from collections.abc import AsyncIterator, Awaitable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final, TypeVar

import msgspec
from msgspec.structs import replace

from shared.errors import BadRecord, LeaseLost, TurnReleased
from shared.ids import folder_name
from shared.log import logger
from shared.object_store import ObjectStore, StoreAway
from shared.tasks import made
from worker.copies import local_copy
from worker.copies.manifest import VERSION, Entry, Index, Manifest, changes
from worker.guards.openat import OWNER_ONLY, Access, remove_tree
from worker.lease.lease import Lease

AWAY_S: Final = 5.0  # until a turn is tried again for which the store was away
TRIES: Final = 8
AT_ONCE: Final = 8  # objects
LEFT_OVER: Final = timedelta(hours=1)
"""Age of an object that no manifest names before it is deleted: no write back takes so long."""

DROP_EVERY_S: Final = 600.0
UNUSED_S: Final = 86_400.0
"""A copy that was unused for so long is deleted from this machine."""

T = TypeVar("T")

log = logger("worker")


class WorkspaceCopy:
    """The local copy of one workspace, in the folder `root/name`. Call its methods `locked()`."""

    def __init__(self, store: ObjectStore, root: Path, name: str, access: Access = OWNER_ONLY) -> None:
        self.folder: Final = root / name
        self._store = store
        self._access = access
        self._prefix = f"workspaces/{name}"
        self._key = f"{self._prefix}/manifest.json"
        self._own = root / ".copies"
        self._index_file = self._own / f"{name}.index"
        self._lock = self._own / f"{name}.lock"

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the copy against other threads and processes of this machine."""
        self._own.mkdir(mode=0o700, parents=True, exist_ok=True)
        with open(self._lock, "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield

    def fetch(self, *, alone: bool) -> None:
        """Make the copy the state in the store. `alone`: what the copy has more is what a crash left
        over, and goes; otherwise somebody is changing it just now, and their changes stay. Raises
        StoreAway, OSError, and BadRecord for a manifest of a newer release."""
        index = self._index()
        if self._store.changed(self._key, index.etag):
            self._show(index, keep=not alone)
        elif alone:
            self._restore(index)

    def keep(self, member: str, token: int) -> bool:
        """Write what has changed back, as one new state; return whether anything had. Raises
        LeaseLost when a later lease of `member` has written, StoreAway, and OSError."""
        write = secrets.token_hex(8)
        overwrite: Index | None = None
        for _ in range(TRIES):
            index = overwrite or self._index()
            entries, seen, blobs = self._look(index, write)
            if not changes(index.manifest.entries, entries):
                return False
            with ThreadPoolExecutor(AT_ONCE) as pool:
                list(pool.map(lambda one: self._store.put(f"{self._prefix}/blobs/{one[0]}", one[1]), blobs.items()))
            tokens = {**index.manifest.tokens, member: token}
            manifest = Manifest(VERSION, member, token, write, tokens, entries)
            etag = self._store.put_if(self._key, msgspec.json.encode(manifest), index.etag or None)
            if etag is None:
                latest, latest_etag = self._read()
                if latest.tokens.get(member, 0) > token:
                    raise LeaseLost(f"a later lease on {member!r} has written the workspace")
                if latest.id == write:  # ours was written, and its reply lost
                    etag = latest_etag
                elif latest.member == member:  # by a lease that was over: its state was not asked for
                    overwrite = Index(latest_etag, latest, {})
                    continue
                else:  # a subagent, or the turn that it works for: both have changed files
                    overwrite = None
                    self._show(index, keep=True)
                    continue
            self._save(Index(etag, manifest, seen))
            self._delete_blobs(index.manifest.blobs() - manifest.blobs())
            return True
        raise StoreAway("the workspace changes faster than it can be written back")

    def erase(self, before_s: float) -> int:
        """Delete what was written back before a time (seconds since 1970) in the store, and the copy;
        return how many files. Raises StoreAway and OSError."""
        for _ in range(TRIES):
            manifest, etag = self._read()
            left = {path: one for path, one in manifest.entries.items() if one.kept_s >= before_s}
            gone = len(manifest.entries) - len(left)
            latest = replace(manifest, entries=left, id="")
            if gone and not self._store.put_if(self._key, msgspec.json.encode(latest), etag):
                continue
            self._delete_blobs(manifest.blobs() - latest.blobs())
            self.sweep()
            return gone
        raise StoreAway("the workspace changes faster than it can be deleted")

    def sweep(self, age: timedelta = LEFT_OVER) -> int:
        """Delete objects that the manifest does not name and that are older than `age`."""
        named = self._read()[0].blobs()
        before = datetime.now(UTC) - age
        found = self._store.list(f"{self._prefix}/blobs")
        gone = [key for key, at in found if key.rpartition("/")[2] not in named and at <= before]
        self._store.delete(gone)
        return len(gone)

    def drop(self) -> None:
        """Delete the copy from this machine."""
        self._index_file.unlink(missing_ok=True)
        with contextlib.suppress(FileNotFoundError):
            remove_tree(self.folder)

    def _delete_blobs(self, names: set[str]) -> None:
        """Delete objects that the manifest does not name any more. Who reads by an older one then
        reads the newer one; who writes by it is refused, and writes its own again."""
        self._store.delete([f"{self._prefix}/blobs/{name}" for name in names])

    def _read(self) -> tuple[Manifest, str]:
        found = self._store.get(self._key)
        if found is None:
            return Manifest(), ""
        try:
            manifest = msgspec.json.decode(found[0], type=Manifest)
        except (msgspec.DecodeError, msgspec.ValidationError):
            raise BadRecord("bad_manifest", "the manifest of a workspace cannot be read") from None
        if manifest.version > VERSION:
            raise BadRecord("newer_manifest", "the manifest of a workspace is of a newer release")
        return manifest, found[1]

    def _show(self, index: Index, *, keep: bool) -> None:
        """Make the copy the latest state; with `keep`, all but what was changed in it stays so."""
        for _ in range(TRIES):
            latest, etag = self._read()
            on_disk, _, _ = self._look(index, "")
            wanted = changes(on_disk, latest.entries)
            if keep:
                mine = changes(index.manifest.entries, on_disk)
                wanted = {path: entry for path, entry in wanted.items() if path not in mine}
            try:
                seen = local_copy.apply(self.folder, wanted, self._blob, self._access)
            except FileNotFoundError:
                continue  # a newer state was written meanwhile
            kept = {path: status for path, status in index.seen.items() if path in latest.entries}
            self._save(Index(etag, latest, kept | seen))
            self.sweep()  # whoever wrote it may have died in doing so
            return
        raise StoreAway("an object that the manifest of a workspace names is missing")

    def _restore(self, index: Index) -> None:
        on_disk, seen, _ = self._look(index, "")
        if wanted := changes(on_disk, index.manifest.entries):
            try:
                seen |= local_copy.apply(self.folder, wanted, self._blob, self._access)
            except FileNotFoundError:
                self._show(index, keep=False)
                return
            self._save(replace(index, seen={path: one for path, one in seen.items() if path in index.manifest.entries}))

    def _look(self, index: Index, write: str) -> tuple[dict[str, Entry], dict[str, tuple[int, ...]], dict[str, bytes]]:
        """Return the entries of the files of the copy, their status, and the blobs that are new."""
        entries: dict[str, Entry] = {}
        seen: dict[str, tuple[int, ...]] = {}
        blobs: dict[str, bytes] = {}
        for path, info in local_copy.list_files(self.folder).items():
            known = index.manifest.entries.get(path)
            status = local_copy.seen(info)
            seen[path] = status
            if known is not None and index.seen.get(path) == status:
                entries[path] = known
                continue
            try:
                entry, data = local_copy.read_entry(self.folder, path, info)
            except FileNotFoundError:
                continue  # a command that still runs has deleted it
            if entry.kind == "file":
                digest = hashlib.sha256(data).hexdigest()
                old = known.blob if known is not None and known.kind == "file" else ""
                blob = old if old.startswith(f"{digest}-") else f"{digest}-{write}"
                entry = replace(entry, blob=blob)
                if blob != old:
                    blobs[blob] = data
            entries[path] = known if known is not None and entry.same_as(known) else replace(entry, kept_s=time.time())
        return entries, seen, blobs

    def _blob(self, name: str) -> bytes:
        found = self._store.get(f"{self._prefix}/blobs/{name}")
        if found is None:
            raise FileNotFoundError(name)
        return found[0]

    def _index(self) -> Index:
        try:
            return msgspec.json.decode(self._index_file.read_bytes(), type=Index)
        except (FileNotFoundError, msgspec.DecodeError, msgspec.ValidationError):
            return Index()

    def _save(self, index: Index) -> None:
        part = self._index_file.with_suffix(".part")
        part.write_bytes(msgspec.json.encode(index))
        os.replace(part, self._index_file)


class WorkspaceCopies:
    """The copies of one worker process below `root`."""

    def __init__(self, store: ObjectStore, root: Path, access: Access = OWNER_ONLY) -> None:
        self.store: Final = store
        self._root = root.absolute()
        self._access = access

    async def check(self) -> None:
        """Look whether the store does what Shoal needs. Raises SettingsError."""
        try:
            await asyncio.to_thread(self.store.check)
        except StoreAway as exc:
            log.warning("workspace store away", error=str(exc), doing="starting all the same")

    async def keep_dropping(self) -> None:
        """Delete unused copies, now and then, until cancelled."""
        while True:
            try:
                await asyncio.to_thread(self.drop_unused)
            except OSError as exc:
                log.warning("copies not deleted", error=type(exc).__name__)
            await asyncio.sleep(DROP_EVERY_S)

    @contextlib.asynccontextmanager
    async def in_use(self, session: str) -> AsyncIterator[None]:
        """Fetch the copy of a session, and hold it: nobody removes what is changed in it. Raises
        TurnReleased while the store is away."""
        name = folder_name(session)
        # Its lock would hold the copy for as long as this process lives.
        users = await self._call(made(asyncio.to_thread(self._begin, name), os.close))
        try:
            yield
        finally:
            os.close(users)

    async def keep(self, session: str, lease: Lease) -> None:
        """Write back what has changed in the copy of a session, while the lease holds. Raises
        LeaseLost; TurnReleased while the store is away."""
        await lease.allow()
        claim = lease.claim
        keeping = asyncio.to_thread(self._keep, folder_name(session), claim.member, int(claim.token))
        await self._call(keeping)

    def erase(self, folder: str, before_s: float) -> int:
        """Delete the files of a session as `/forget` does. Blocks. Raises OSError."""
        copy = self._copy(folder)
        with copy.locked():
            gone = copy.erase(before_s)
        if copy.folder.exists():
            os.close(self._begin(folder))
        return gone

    async def _call(self, working: Awaitable[T]) -> T:
        try:
            return await working
        except OSError as exc:
            log.warning("workspace store away", error=str(exc), doing="trying the turn again later")
            raise TurnReleased("store", delay_s=AWAY_S) from exc

    def _copy(self, name: str) -> WorkspaceCopy:
        return WorkspaceCopy(self.store, self._root, name, self._access)

    def _begin(self, name: str) -> int:
        """Fetch a copy; return a handle whose shared lock says that it is in use."""
        copy = self._copy(name)
        with copy.locked():
            users = os.open(self._root / ".copies" / f"{name}.users", os.O_RDWR | os.O_CREAT, 0o600)
            try:
                alone = _lock(users, fcntl.LOCK_EX)
                copy.fetch(alone=alone)
                os.utime(users)
                fcntl.flock(users, fcntl.LOCK_SH)
            except BaseException:
                os.close(users)
                raise
            return users

    def drop_unused(self, unused_s: float = UNUSED_S) -> int:
        """Delete copies that nobody has used for so long; return how many. Blocks. Raises OSError."""
        gone = 0
        for file in list((self._root / ".copies").glob("*.users")):
            if file.stat().st_mtime > time.time() - unused_s:
                continue
            copy = self._copy(file.stem)
            with copy.locked(), open(file, "r+") as users:
                if _lock(users.fileno(), fcntl.LOCK_EX):
                    copy.drop()
                    file.unlink()
                    gone += 1
        return gone

    def _keep(self, name: str, member: str, token: int) -> None:
        copy = self._copy(name)
        with copy.locked():
            copy.keep(member, token)


def _lock(handle: int, how: int) -> bool:
    try:
        fcntl.flock(handle, how | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
