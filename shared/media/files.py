"""The seam between a MediaStore and what keeps its files: a volume, or a bucket."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import BinaryIO, Final, Protocol

import msgspec

from shared.errors import BadInput
from shared.media.reference import MediaRef
from shared.settings import MediaSettings

MB: Final = 1024 * 1024
DAY_S: Final = 86_400.0
PART_S: Final = 3600.0
"""Seconds after which an unfinished upload is deleted."""

UNNAMED_S: Final = 3600.0
"""Seconds after which a file is deleted that no message has named."""


class MediaNotFound(Exception):
    """The file never belonged to this session, has expired, or the session was forgotten."""


class MediaTooBig(BadInput):
    """A file is over a limit; the text has the number."""

    def __init__(self, message: str) -> None:
        super().__init__("file_too_big", f"file refused: {message}")


class StoredFile(msgspec.Struct, frozen=True):
    """A stored file. `named`: a message names it, and it stays for `media.days`."""

    size_bytes: int
    named: bool


class Part(msgspec.Struct, frozen=True):
    """A file on a disk here that is being uploaded; one without a path goes when it is closed."""

    file: BinaryIO
    path: Path | None = None

    def discard(self) -> None:
        self.file.close()
        if self.path is not None:
            with contextlib.suppress(FileNotFoundError):
                self.path.unlink()


class MediaFiles(Protocol):
    """Files of sessions, each under the hash of its content. Methods block, and raise OSError when
    the place is unavailable."""

    def begin(self, session: str) -> Part:
        """Open a part to write into. Raises MediaTooBig when the person has too much, DiskFull."""

    def keep(self, session: str, ref: MediaRef, part: Part, data: bytes, *, named: bool) -> None:
        """Keep a finished part, which has `data`. Raises MediaTooBig when the session or its person
        would have too much."""

    def find(self, session: str, file: str) -> StoredFile | None:
        """Look for a file that has not expired."""

    def name(self, session: str, file: str, size_bytes: int) -> None:
        """Keep a file for `media.days` from now, because a message names it."""

    def open(self, session: str, file: str) -> BinaryIO:
        """Open a file on a disk here. Raises FileNotFoundError."""

    def forget(self, folder: str, before_s: float) -> int:
        """Delete the files of a session that are older; return how many."""

    def expire(self) -> int:
        """Delete expired files and parts everywhere; return how many."""


def chat_has_too_much(settings: MediaSettings) -> MediaTooBig:
    """Return the error for a session at its limit."""
    return MediaTooBig(f"this chat would have more than {settings.session_mb} MB of files; old ones go by themselves")


def person_has_too_much(settings: MediaSettings) -> MediaTooBig:
    """Return the error for a person at their limit."""
    return MediaTooBig(
        f"all chats of this person would have more than {settings.person_mb} MB of files; "
        f"what no message names goes within two hours, the rest after {settings.days} days"
    )
