"""Files that people send and get, kept under the hash of their content and a suffix for their kind:
on a volume that gateways and workers share, or in a bucket. Everything here blocks: call it in a
thread."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
from typing import BinaryIO, Final

from shared.errors import BadInput
from shared.ids import FOLDER_NAME
from shared.log import logger
from shared.media.bucket import BucketFiles
from shared.media.disk import DiskFloor
from shared.media.files import MB, MediaFiles, MediaNotFound, MediaTooBig, StoredFile
from shared.media.kinds import ZIP, FileRejected, Kind, image_size, kind_of, why_not, zip_parts
from shared.media.reference import MediaRef, clean_name
from shared.media.volume import VolumeFiles
from shared.object_store import StoreAway
from shared.settings import MediaSettings

log = logger("files")


class MediaStore:
    """The files of all sessions. Creating the object touches nothing. Methods raise OSError when the
    volume or the bucket is unavailable."""

    def __init__(self, settings: MediaSettings, *, floor: DiskFloor | None = None) -> None:
        self._settings = settings
        self.file_bytes: Final = settings.file_mb * MB
        kind = BucketFiles if settings.store else VolumeFiles
        self._files: MediaFiles = kind(settings, floor or DiskFloor(settings.free_mb * MB))

    def upload(self, session: str) -> Upload:
        """Begin a file in pieces; leaving the block (`with`) deletes it unless it was finished."""
        return Upload(self, self._files, session)

    def put(self, session: str, data: bytes, name: str) -> MediaRef:
        """Keep a file. Raises BadInput (`file refused: …`) as `Upload.finish` does."""
        with self.upload(session) as upload:
            upload.write(data)
            return upload.finish(name)

    def size(self, session: str, ref: MediaRef) -> int:
        """Return the bytes kept under a reference. Raises MediaNotFound."""
        return self._find(session, ref).size_bytes

    def claim(self, session: str, ref: MediaRef) -> int:
        """Keep a file because a message names it, for `days` from now; return its bytes. Raises
        MediaNotFound."""
        size_bytes = self.size(session, ref)
        self._files.name(session, ref.file, size_bytes)
        return size_bytes

    def read(self, session: str, ref: MediaRef) -> bytes:
        """Return a file that a message names. Raises MediaNotFound."""
        found = self._find(session, ref)
        with self._open(session, ref) as file:
            # Its gateway did not claim it: it ran the release before this one, which claims
            # nothing.
            if not found.named:
                with contextlib.suppress(OSError):
                    self._files.name(session, ref.file, found.size_bytes)
            return file.read()

    def open(self, session: str, ref: MediaRef) -> BinaryIO:
        """Open the file for reading; the caller closes it. Raises MediaNotFound."""
        self._find(session, ref)
        return self._open(session, ref)

    def forget(self, folder: str, *, before_s: float) -> int:
        """Delete the files of a session, by the name of its folder, that are older than
        `before_s`, in seconds since 1970; return how many."""
        if not FOLDER_NAME.fullmatch(folder):
            raise ValueError(f"{folder!r} is the folder of no session; folder_name() makes them")
        return self._files.forget(folder, before_s)

    def expire(self) -> int:
        """Delete expired files everywhere, and count again what each person has; return how many
        were deleted."""
        return self._files.expire()

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
                    raise FileRejected(
                        f"it is a picture of {width:,} x {height:,} pixels; at most {limit} million are taken"
                    )
        except FileRejected as exc:
            raise BadInput("file_refused", f"file refused: {exc}") from None
        return kind

    def _find(self, session: str, ref: MediaRef) -> StoredFile:
        found = self._files.find(session, ref.file)
        if found is None:
            raise MediaNotFound
        return found

    def _open(self, session: str, ref: MediaRef) -> BinaryIO:
        try:
            return self._files.open(session, ref.file)
        except FileNotFoundError:
            raise MediaNotFound from None


class Upload:
    """One upload. Nothing is kept unless `finish` returns."""

    def __init__(self, store: MediaStore, files: MediaFiles, session: str) -> None:
        self._store = store
        self._files = files
        self._session = session
        self._hash = hashlib.sha256()
        self._size_bytes = 0
        self._part = files.begin(session)

    def __enter__(self) -> Upload:
        return self

    def __exit__(self, *_: object) -> None:
        self.discard()

    def discard(self) -> None:
        """Close it, and drop what was written, unless `finish` has kept it."""
        self._part.discard()

    def write(self, data: bytes) -> None:
        """Add a piece. Raises MediaTooBig as soon as the file is over its limit."""
        self._size_bytes += len(data)
        if self._size_bytes > self._store.file_bytes:
            raise MediaTooBig(f"it is larger than {self._store.file_bytes // MB} MB")
        self._hash.update(data)
        self._part.file.write(data)

    def finish(self, name: str, *, named: bool = True) -> MediaRef:
        """Check the file and keep it, whole or not at all; for an hour if no message names it yet
        (see `claim`). Raises BadInput (`file_refused`), and MediaTooBig when the session or its
        person would have too much."""
        self._part.file.flush()
        self._part.file.seek(0)
        data = self._part.file.read()
        kind = self._store.check(data)
        ref = MediaRef(self._hash.hexdigest(), kind.suffix, self._size_bytes, clean_name(name))
        self._files.keep(self._session, ref, self._part, data, named=named)
        return ref


async def check_store(settings: MediaSettings) -> None:
    """Look whether `media.store`, if it is set, can be written to. Raises SettingsError."""
    files = BucketFiles(settings, DiskFloor())
    if settings.store:
        try:
            await asyncio.to_thread(lambda: files.store.check(conditional=False))
        except StoreAway as exc:
            log.warning("media store away", error=str(exc), doing="starting all the same")
