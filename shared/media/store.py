"""Files that people send and get: one folder a session, on a volume that gateways and workers
share.

A file is kept under the hash of its content and a suffix for its kind. Its existence is the only
state, so nothing has to be kept in step with the store. Everything here blocks: call it in a
thread."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import secrets
import time
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO, Final

from shared.errors import BadInput
from shared.ids import FOLDER_NAME, folder_name
from shared.media.kinds import ZIP, FileRejected, Kind, image_size, kind_of, why_not, zip_parts
from shared.media.reference import MediaRef, clean_name
from shared.settings import MediaSettings

DAY_S: Final = 86_400.0
# Seconds after which an unfinished upload is deleted.
PART_S: Final = 3600.0
# Free space without which no upload begins: the store of messages may be on the same disk.
KEEP_FREE_BYTES: Final = 256 * 1024 * 1024
_PART: Final = ".part-"
_CREATE: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
_READ: Final = os.O_RDONLY | os.O_NOFOLLOW
_SHARED: Final = 0o020
_MB: Final = 1024 * 1024
_TRIES: Final = 5


class MediaNotFound(Exception):
    """The file never belonged to this session, has expired, or the session was forgotten."""


class MediaTooBig(BadInput):
    """A file is over a limit; the text has the number."""

    def __init__(self, message: str) -> None:
        super().__init__("file_too_big", f"file refused: {message}")


class MediaStore:
    """The media volume. Creating the object touches nothing. Methods raise OSError when the volume
    is unavailable. Files are readable by their owner alone, and by the group where the folder of
    `media.dir` is group-writable, as on a volume that processes of several users share."""

    def __init__(self, settings: MediaSettings, *, keep_free_bytes: int = KEEP_FREE_BYTES) -> None:
        self._root = settings.dir.absolute()
        self._settings = settings
        self.file_bytes: Final = settings.file_mb * _MB
        self._keep_free_bytes = keep_free_bytes

    def upload(self, session: str) -> Upload:
        """Begin a file in pieces; leaving the block (`with`) deletes it unless it was finished."""
        return Upload(self, session)

    def put(self, session: str, data: bytes, name: str) -> MediaRef:
        """Keep a file. Raises BadInput (`file refused: …`) as `Upload.finish` does."""
        with self.upload(session) as upload:
            upload.write(data)
            return upload.finish(name)

    def size(self, session: str, ref: MediaRef) -> int:
        """Return the bytes kept under a reference. Raises MediaNotFound."""
        try:
            info = os.stat(self._folder(session) / ref.file, follow_symlinks=False)
        except FileNotFoundError:
            raise MediaNotFound from None
        if self._is_over(info.st_mtime):
            raise MediaNotFound
        return info.st_size

    def read(self, session: str, ref: MediaRef) -> bytes:
        with self.open(session, ref) as file:
            return file.read()

    def open(self, session: str, ref: MediaRef) -> BinaryIO:
        """Open the file for reading; the caller closes it. Raises MediaNotFound."""
        self.size(session, ref)
        try:
            return open(os.open(self._folder(session) / ref.file, _READ), "rb")
        except FileNotFoundError:
            raise MediaNotFound from None

    def forget(self, folder: str, *, before_s: float) -> int:
        """Delete the files of a session, by the name of its folder, that are older than
        `before_s`, in seconds since 1970; return how many."""
        if not FOLDER_NAME.fullmatch(folder):
            raise ValueError(f"{folder!r} is the folder of no session; folder_name() makes them")
        return _remove(self._root / folder[:2] / folder, lambda _, changed_s: changed_s < before_s)

    def expire(self) -> int:
        """Delete expired files everywhere; return how many."""

        def is_done(name: str, changed_s: float) -> bool:
            abandoned = name.startswith(_PART) and changed_s < time.time() - PART_S
            return abandoned or self._is_over(changed_s)

        gone = 0
        for shard in _inside(self._root):
            for folder in _inside(shard):
                gone += _remove(folder, is_done)
            _drop_if_empty(shard)
        return gone

    def used_bytes(self, session: str) -> int:
        used = 0
        for entry in _entries(self._folder(session)):
            with contextlib.suppress(FileNotFoundError):
                used += entry.stat(follow_symlinks=False).st_size
        return used

    def check(self, data: bytes) -> Kind:
        """Recognise a file. Raises BadInput (`file_refused`) for one that is not accepted."""
        try:
            names = zip_parts(data) if data.startswith(ZIP) else frozenset[bytes]()
            kind = kind_of(data, names)
            if kind is None:
                raise FileRejected(why_not(data))
            if kind.is_image:
                width, height = image_size(kind.suffix, data)
                limit = self._settings.megapixels
                if width * height > limit * 1_000_000:
                    size = f"{width:,} x {height:,} pixels"
                    most = f"at most {limit} million are taken"
                    raise FileRejected(f"it is a picture of {size}; {most}")
        except FileRejected as exc:
            raise BadInput("file_refused", f"file refused: {exc}") from None
        return kind

    def _is_over(self, changed_s: float) -> bool:
        return changed_s < time.time() - self._settings.days * DAY_S

    def _create(self, session: str) -> tuple[int, Path]:
        self._root.mkdir(mode=0o700, parents=True, exist_ok=True)
        space = os.statvfs(self._root)
        if space.f_bavail * space.f_frsize < self._keep_free_bytes:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(self._root))
        # The permissions of the folder decide whether the group may read.
        shared = self._root.stat().st_mode & _SHARED
        folder = self._folder(session)
        part = folder / f"{_PART}{secrets.token_hex(8)}"
        for tries in range(_TRIES, 0, -1):
            for made in (folder.parent, folder):
                with contextlib.suppress(FileExistsError, FileNotFoundError):
                    made.mkdir(mode=0o700)
                    made.chmod(0o770 if shared else 0o700)
            try:
                handle = os.open(part, _CREATE, 0o600)
                break
            except FileNotFoundError:  # a sweep has just taken the empty folder away
                if tries == 1:
                    raise
        os.fchmod(handle, 0o660 if shared else 0o600)
        return handle, part

    def _folder(self, session: str) -> Path:
        name = folder_name(session)
        return self._root / name[:2] / name


class Upload:
    """One upload. Nothing is kept unless `finish` returns."""

    def __init__(self, store: MediaStore, session: str) -> None:
        self._store = store
        self._session = session
        self._hash = hashlib.sha256()
        self._size_bytes = 0
        handle, self._part = store._create(session)
        self._file = os.fdopen(handle, "wb")

    def __enter__(self) -> Upload:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()
        with contextlib.suppress(FileNotFoundError):
            self._part.unlink()

    def write(self, data: bytes) -> None:
        """Add a piece. Raises MediaTooBig as soon as the file is over its limit."""
        self._size_bytes += len(data)
        if self._size_bytes > self._store.file_bytes:
            raise MediaTooBig(f"it is larger than {self._store.file_bytes // _MB} MB")
        self._hash.update(data)
        self._file.write(data)

    def finish(self, name: str) -> MediaRef:
        """Check the file and keep it, whole or not at all. Raises BadInput (`file_refused`), and
        MediaTooBig when the session would have too much."""
        self._file.flush()
        kind = self._store.check(self._part.read_bytes())
        limit_mb = self._store._settings.session_mb
        if self._store.used_bytes(self._session) > limit_mb * _MB:  # this one is counted already
            why = f"this chat would have more than {limit_mb} MB of files"
            raise MediaTooBig(f"{why}; old ones go by themselves")
        # Durable before it has its name: no reference points to a file that a power cut emptied.
        os.fsync(self._file.fileno())
        ref = MediaRef(self._hash.hexdigest(), kind.suffix, self._size_bytes, clean_name(name))
        os.replace(self._part, self._part.parent / ref.file)
        return ref


def _entries(folder: Path) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as found:
            return list(found)
    except (FileNotFoundError, NotADirectoryError):
        return []


def _inside(folder: Path) -> list[Path]:
    return [Path(one.path) for one in _entries(folder) if one.is_dir(follow_symlinks=False)]


def _remove(folder: Path, which: Callable[[str, float], bool]) -> int:
    """Delete files for which `which(name, time of change in s)` is true, and an empty folder."""
    gone = 0
    for entry in _entries(folder):
        with contextlib.suppress(FileNotFoundError):
            if which(entry.name, entry.stat(follow_symlinks=False).st_mtime):
                os.unlink(entry.path)
                gone += 1
    _drop_if_empty(folder)
    return gone


def _drop_if_empty(folder: Path) -> None:
    with contextlib.suppress(OSError):
        folder.rmdir()
