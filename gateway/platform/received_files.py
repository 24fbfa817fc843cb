"""Files that people send: fetched in parts, kept in the media store, or refused with a reason."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from typing import Final

from gateway.platform.protocol import NotDelivered, Platform, RemoteFile
from shared.errors import BadInput
from shared.log import logger
from shared.media.disk import DISK_FULL, DiskFull
from shared.media.reference import clean_name
from shared.media.store import MediaStore, Upload
from shared.tasks import made

AT_ONCE: Final = 4
WITHIN_S: Final = 30.0  # limit for all files of one message together
PIECE_BYTES: Final = 256 * 1024
REFUSED: Final = "file refused: "

log = logger("files")


class ReceivedFiles:
    """Fetches the files of one channel's messages, at most four messages at a time."""

    def __init__(self, platform: Platform, store: MediaStore, *, per_message: int, within_s: float = WITHIN_S) -> None:
        self._platform = platform
        self._store = store
        self._per_message = per_message
        self._within_s = within_s
        self._slots = asyncio.Semaphore(AT_ONCE)

    async def fetch_all(self, session: str, files: Sequence[RemoteFile]) -> tuple[list[str], list[str]]:
        """Fetch files in order; return the references of those kept, and why others are not."""
        media = list[str]()
        refused = list[str]()
        async with self._slots:
            end_at = asyncio.get_running_loop().time() + self._within_s
            for nth, file in enumerate(files):
                name = clean_name(file.name)
                why = f"a message may have {self._per_message} files"
                if nth < self._per_message:
                    why = await self._fetch_one(session, file, name, end_at, media)
                if why:
                    refused.append(f"{name}: {why}")
                    log.info("file refused", channel=self._platform.name, why=why)
        return media, refused

    async def _fetch_one(self, session: str, file: RemoteFile, name: str, end_at: float, media: list[str]) -> str:
        """Fetch a file and append its reference to `media`; return '' or why it is refused."""
        limit = self._store.file_bytes
        if file.size_bytes is not None and file.size_bytes > limit:
            return f"it is larger than {limit // 1024 // 1024} MB"
        try:
            async with asyncio.timeout_at(end_at):
                media.append(await self._keep(session, self._platform.fetch(file), name))
        except BadInput as exc:
            return exc.message.removeprefix(REFUSED)
        except TimeoutError:
            return "it did not come in time; send it again"
        except NotDelivered as exc:
            log.warning("file not fetched", channel=self._platform.name, reason=exc.reason)
            return "it could not be fetched; send it again"
        except DiskFull:
            return DISK_FULL
        except OSError as exc:
            log.error("files unavailable", error=type(exc).__name__)
            return "files cannot be kept just now; send it again later"
        except Exception:  # whatever a library raises: the message itself is not lost for it
            log.exception("file failed", channel=self._platform.name)
            return "it could not be fetched"
        return ""

    async def _keep(self, session: str, parts: AsyncIterator[bytes], name: str) -> str:
        """Write a file piece by piece, in threads, and return its reference."""
        try:
            with await made(asyncio.to_thread(self._store.upload, session), Upload.discard) as upload:
                waiting = bytearray()
                async for part in parts:
                    waiting += part
                    if len(waiting) >= PIECE_BYTES:
                        await asyncio.to_thread(upload.write, bytes(waiting))
                        waiting.clear()
                await asyncio.to_thread(upload.write, bytes(waiting))
                return str(await asyncio.to_thread(upload.finish, name))
        finally:
            if isinstance(parts, AsyncGenerator):  # its connection is closed now, however this ends
                await parts.aclose()
