"""Files of the web chat: upload, download, and their frames."""

from __future__ import annotations

import asyncio
import contextlib
import math
import os
import re
from collections import defaultdict
from collections.abc import Sequence
from functools import partial
from http import HTTPStatus
from typing import BinaryIO, Final
from urllib.parse import quote, unquote

import msgspec
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from gateway.channels.web.http.auth import Login, Principals, origin_allowed
from gateway.channels.web.http.rates import PrincipalRates
from gateway.channels.web.http.responses import content_length, problem, read_rest
from shared.clock import SYSTEM_CLOCK, Clock
from shared.errors import BadInput, Refused
from shared.ids import session_id
from shared.log import logger
from shared.media.disk import DISK_FULL, DiskFull
from shared.media.files import MediaNotFound, MediaTooBig
from shared.media.kinds import KINDS
from shared.media.reference import MediaRef, clean_name, read_file_name, read_reference
from shared.media.store import MediaStore, Upload
from shared.messages.web import MediaFrame
from shared.tasks import made

CHANNEL: Final = "web"
NAME_HEADER: Final = "shoal-file-name"
AT_ONCE: Final = 16
AT_ONCE_EACH: Final = 4  # uploads of one principal at once: slow ones delay only this principal
WITHIN_S: Final = 120.0
BURST: Final = 40
PER_S: Final = 2.0
PIECE_BYTES: Final = 256 * 1024
LINGER_BYTES: Final = 16 * 1024 * 1024
LINGER_S: Final = 2.0

CLOSE: Final = {"Connection": "close"}
HEADERS: Final = {
    "Content-Security-Policy": "default-src 'none'; sandbox",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "private, no-store",
}
"""Stricter than those of every response: an uploaded file must never run as a page of ours."""

_CHAT: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")

log = logger("web")


def media_frames(chat: str, media: Sequence[str]) -> tuple[MediaFrame, ...]:
    """Return the frames of a line's files; invalid references are left out."""
    frames = []
    for one in media:
        with contextlib.suppress(BadInput):
            frames.append(media_frame(chat, read_reference(one)))
    return tuple(frames)


def media_frame(chat: str, ref: MediaRef) -> MediaFrame:
    """Return the frame of one file."""
    kind = ref.kind
    path = f"/media/{chat}/{ref.file}?name={quote(ref.name, safe='')}"
    return MediaFrame(str(ref), path, ref.name, kind.media_type, ref.size_bytes, kind.about, kind.is_image)


class MediaRouter:
    """Routes for the files of a principal's chats; files of other principals are not found."""

    def __init__(
        self,
        store: MediaStore,
        principals: Principals,
        *,
        allowed_origins: tuple[str, ...] = (),
        within_s: float = WITHIN_S,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self._store = store
        self.file_bytes = store.file_bytes
        self._principals = principals
        self._allowed_origins = allowed_origins
        self._within_s = within_s
        self._slots = asyncio.Semaphore(AT_ONCE)
        self._rates = PrincipalRates(burst=BURST, per_s=PER_S, clock=clock)
        own_slots = partial(asyncio.Semaphore, AT_ONCE_EACH)
        self._own_slots = defaultdict[str, asyncio.Semaphore](own_slots)

    async def upload(self, request: Request) -> Response:
        """Handle `POST /media/{chat}`: the body is the file; its name is in a header."""
        login = self._login(request)
        if isinstance(login, Response):
            return login
        answer = await self._upload(request, login)
        if answer.status_code >= HTTPStatus.BAD_REQUEST:
            log.info("file refused", principal=login.principal, status=answer.status_code)
        return answer

    async def _upload(self, request: Request, login: Login) -> Response:
        chat = request.path_params["chat"]
        if not _CHAT.fullmatch(chat):
            return problem(404)
        if (wait_s := self._rates.try_acquire(login.principal)) > 0:
            retry = {"Retry-After": f"{max(1, round(wait_s))}"}
            return problem(429, "too many files at once", retry)
        if (content_length(request) or 0) > self.file_bytes:
            await _read_on(request)
            limit_mb = self.file_bytes // 1024 // 1024
            return problem(413, f"file refused: it is larger than {limit_mb} MB", CLOSE)
        name = unquote(request.headers.get(NAME_HEADER, ""), errors="replace")
        try:
            async with asyncio.timeout(self._within_s), self._own_slots[login.principal], self._slots:
                ref = await self._store_body(request, _session(login.principal, chat), clean_name(name))
        except MediaTooBig as exc:
            await _read_on(request)
            return problem(413, exc.message, CLOSE)
        except BadInput as exc:
            return problem(415, exc.message)
        except TimeoutError:
            return problem(408, "the file did not come in time", CLOSE)
        except ClientDisconnect:
            return problem(400)
        except DiskFull:
            log.error("disk almost full", doing="refusing files", fix="the runbook's ShoalDiskFull")
            await _read_on(request)
            return problem(507, f"file refused: {DISK_FULL}", CLOSE)
        except OSError as exc:
            log.error("media store unavailable", error=type(exc).__name__)
            return problem(503, "files cannot be kept just now", {"Retry-After": "5"})
        log.info("file stored", kind=ref.suffix, bytes=ref.size_bytes)
        body = msgspec.json.encode(media_frame(chat, ref))
        return Response(body, 201, {"Cache-Control": "no-store"}, "application/json")

    async def download(self, request: Request) -> Response:
        """Handle `GET /media/{chat}/{file}`."""
        login = self._login(request)
        if isinstance(login, Response):
            return login
        found = read_file_name(request.path_params["file"])
        chat = request.path_params["chat"]
        if found is None or not _CHAT.fullmatch(chat):
            return problem(404)
        ref = MediaRef(*found, 0, clean_name(request.query_params.get("name", "")))
        return await self.send(_session(login.principal, chat), ref)

    async def send(self, session: str, ref: MediaRef) -> Response:
        """Return the file of a session."""
        try:
            file = await made(asyncio.to_thread(self._store.open, session, ref), lambda file: file.close())
        except MediaNotFound:
            return problem(404, "this file is not there any more")
        except OSError as exc:
            log.error("media store unavailable", error=type(exc).__name__)
            return problem(503, "files cannot be read just now", {"Retry-After": "5"})
        kind = KINDS[ref.suffix]
        disposition = f"attachment; filename*=UTF-8''{quote(ref.name, safe='')}"
        # Only pictures have a type that a browser shows, and only in an <img> of the page.
        media_type = kind.media_type if kind.is_image else "application/octet-stream"
        return _FileResponse(file, {**HEADERS, "Content-Disposition": disposition}, media_type)

    async def check_references(self, session: str, media: Sequence[str], limit: int) -> tuple[str, ...]:
        """Claim the files of a message in the store, and return their references. Raises BadInput
        (`bad_media`) for a file of another session, and for too many files."""
        if len(media) > limit:
            reason = f"the message has {len(media)} files; at most {limit} are taken"
            raise BadInput("bad_media", reason)
        refs = [read_reference(one) for one in dict.fromkeys(media)]
        return tuple([str(await self._claim(session, ref)) for ref in refs])

    async def _claim(self, session: str, ref: MediaRef) -> MediaRef:
        try:
            size_bytes = await asyncio.to_thread(self._store.claim, session, ref)
        except MediaNotFound:
            reason = f"the file {ref.name!r} is not there any more; attach it again"
        except OSError:
            reason = "files cannot be read just now; try again in a moment"
        else:
            return msgspec.structs.replace(ref, size_bytes=size_bytes)
        raise BadInput("bad_media", reason)

    async def _store_body(self, request: Request, session: str, name: str) -> MediaRef:
        """Write the body in pieces, each in a thread."""
        with await made(asyncio.to_thread(self._store.upload, session), Upload.discard) as upload:
            waiting = bytearray()
            async for piece in request.stream():
                waiting += piece
                if len(waiting) >= PIECE_BYTES:
                    await asyncio.to_thread(upload.write, bytes(waiting))
                    waiting.clear()
            await asyncio.to_thread(upload.write, bytes(waiting))
            return await asyncio.to_thread(partial(upload.finish, named=False), name)

    def _login(self, request: Request) -> Login | Response:
        if not origin_allowed(request.headers, self._allowed_origins):
            return problem(403, "pages of this origin may not do that; web.allowed_origins names those that may")
        try:
            login = self._principals.bearer(request)
        except Refused as refused:
            return problem(429, refused.message, {"Retry-After": f"{math.ceil(refused.retry_after_s)}"})
        return login or problem(401, "a valid token is needed", {"WWW-Authenticate": "Bearer"})


class _FileResponse(Response):
    """A response that sends a file in pieces, so that a slow client costs one piece of memory."""

    def __init__(self, file: BinaryIO, headers: dict[str, str], media_type: str) -> None:
        size_bytes = os.fstat(file.fileno()).st_size
        super().__init__(None, 200, {**headers, "Content-Length": f"{size_bytes}"}, media_type)
        self._file = file

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        with self._file as file:
            await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
            while piece := await asyncio.to_thread(file.read, PIECE_BYTES):
                await send({"type": "http.response.body", "body": piece, "more_body": True})
            await send({"type": "http.response.body", "body": b"", "more_body": False})


def _session(principal: str, chat: str) -> str:
    return session_id(CHANNEL, f"{principal}/{chat}")


async def _read_on(request: Request) -> None:
    # RuntimeError: the body was read to its end before the file was refused.
    with contextlib.suppress(ClientDisconnect, RuntimeError):
        await read_rest(request.stream(), LINGER_BYTES, LINGER_S)
