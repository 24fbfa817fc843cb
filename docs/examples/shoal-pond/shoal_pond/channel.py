"""The channel: Pond as Shoal sees a platform."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import msgspec

from shoal.plugin import (
    Abilities,
    BuiltPlatform,
    ChannelBroken,
    ChatClosed,
    Cursor,
    HookAnswer,
    HookRequest,
    InboundMessage,
    Inlet,
    MarkupRefused,
    MaybeSent,
    NotAccepted,
    Piece,
    PlatformContext,
    Post,
    PostRefused,
    PostTarget,
    Rate,
    RemoteFile,
    RunMode,
    SettingsError,
    Throttled,
    cancel_all,
    for_channel,
    open_session,
    read_channel,
)
from shoal_pond.settings import PondSettings
from shoal_pond.wire import Event, is_signed, read_event, received, render


def make(given: PlatformContext) -> BuiltPlatform:
    """What the entry point names."""
    settings = read_channel(PondSettings, given.name, given.table)
    if settings.run == "webhook" and settings.secret is None:
        raise SettingsError(f"channels.{given.name}.secret is missing; the webhook believes only what it signs")
    return BuiltPlatform(Pond(given.name, settings, given.cursor), settings)


class Pond:
    """A bot on one Pond server."""

    def __init__(self, name: str, settings: PondSettings, cursor: Cursor) -> None:
        self.name = name
        self.run_mode: RunMode = settings.run or "exclusive"
        self.abilities = Abilities(
            run_modes=("exclusive", "webhook"),
            resend_guard=settings.offers,
            edit_every_s=0.2,
            typing_every_s=2.0,
            buttons=4,
            media=True,
            rates=(Rate("bot", 50.0, 50), Rate("chat", 20.0, 20), Rate("group", 5.0, 10)),
        )
        self._settings = settings
        self._cursor = cursor
        self._http: aiohttp.ClientSession | None = None

    async def open(self) -> None:
        self._http = self._http or open_session(
            for_channel(self._settings.proxy),
            base_url=self._settings.api,
            headers={"Authorization": f"Bearer {self._settings.token.reveal()}"},
            timeout=aiohttp.ClientTimeout(total=self._settings.timeout_s, sock_connect=self._settings.timeout_s / 2),
        )
        await self._call("GET", "/me")

    async def close(self) -> None:
        if self._http is not None:
            await self._http.close()

    # --- in

    async def listen(self, inlet: Inlet, until: asyncio.Event) -> None:
        """Ask for events, take them, and confirm them with the next question."""
        after = int(self._cursor.read() or b"0")
        while not until.is_set():
            asking = asyncio.create_task(self._ask(after))
            ended = asyncio.create_task(until.wait())
            try:
                await asyncio.wait({asking, ended}, return_when=asyncio.FIRST_COMPLETED)
                if not asking.done():
                    return
                for event in asking.result():
                    await self._take(event, inlet)
                    after = event.number
                await self._cursor.save(str(after).encode())
            finally:
                await cancel_all([asking, ended])

    async def _ask(self, after: int) -> list[Event]:
        wait_s = self._settings.poll_s
        query = {"after": str(after), "wait": str(wait_s)}
        answer = await self._call("GET", "/events", params=query, timeout_s=wait_s + self._settings.timeout_s)
        return msgspec.convert(answer["events"], list[Event])

    async def hook(self, request: HookRequest, inlet: Inlet) -> HookAnswer:
        if request.method == "GET":
            return HookAnswer(body=request.query.get("challenge", "").encode())
        assert self._settings.secret is not None
        signature, at = request.headers.get("x-pond-signature", ""), request.headers.get("x-pond-time", "")
        if not is_signed(self._settings.secret.reveal(), request.body, at, signature, now_s=time.time()):
            return HookAnswer(401)
        try:
            event = read_event(request.body)
        except msgspec.DecodeError:
            return HookAnswer(400)
        await self._take(event, inlet)
        return HookAnswer()

    async def _take(self, event: Event, inlet: Inlet) -> None:
        result = received(self.name, event)
        if event.kind == "delete":
            gone: InboundMessage = msgspec.structs.replace(result.message, id=event.of)
            await inlet.on_delete(gone)
        else:
            await inlet.take(result)

    async def fetch(self, file: RemoteFile) -> AsyncIterator[bytes]:
        assert self._http is not None
        try:
            async with self._http.get(f"/files/{file.handle}") as answer:
                if answer.status != 200:
                    raise PostRefused(f"status {answer.status} for a file")
                async for part in answer.content.iter_chunked(64 * 1024):
                    yield part
        except (aiohttp.ClientError, TimeoutError) as exc:
            raise NotAccepted(type(exc).__name__) from exc

    # --- out

    def render(self, markdown: str) -> list[Piece]:
        return render(markdown)

    async def send(self, post: Post) -> str:
        path = f"/chats/{post.target.chat_id}"
        if post.file is None:
            answer = await self._call("POST", f"{path}/messages", json=_body(post))
        else:
            query = {"name": post.file.name, "key": post.key}
            answer = await self._call("POST", f"{path}/files", params=query, data=post.file.data)
        return str(answer["id"])

    async def edit(self, id: str, post: Post) -> None:
        await self._call("PUT", f"/chats/{post.target.chat_id}/messages/{id}", json=_body(post))

    async def find(self, post: Post) -> str | None:
        query = {"key": post.key}
        answer = await self._call("GET", f"/chats/{post.target.chat_id}/messages", params=query, missing={"id": None})
        return None if answer["id"] is None else str(answer["id"])

    async def typing(self, target: PostTarget) -> None:
        await self._call("POST", f"/chats/{target.chat_id}/typing", json={})

    async def _call(
        self, method: str, path: str, *, missing: Any = None, timeout_s: float | None = None, **body: Any
    ) -> Any:
        """One call, one try; whatever goes wrong is one of the errors that Shoal knows."""
        assert self._http is not None
        timeout = aiohttp.ClientTimeout(total=timeout_s or self._settings.timeout_s)
        try:
            async with self._http.request(method, path, timeout=timeout, **body) as answer:
                if answer.status == 404 and missing is not None:
                    return missing
                if answer.status >= 400:
                    await _refuse(answer)
                return await answer.json()
        except (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError) as exc:
            raise NotAccepted("no connection") from exc
        except (aiohttp.ClientError, TimeoutError) as exc:
            raise MaybeSent(type(exc).__name__) from exc


def _body(post: Post) -> dict[str, Any]:
    assert post.piece is not None
    body: dict[str, Any] = {"text": post.text, "markup": not post.as_plain, "key": post.key}
    if post.reply_to is not None:
        body["reply_to"] = post.reply_to
    if post.buttons:
        body["buttons"] = [{"label": button.label, "says": button.says} for button in post.buttons]
    return body


async def _refuse(answer: aiohttp.ClientResponse) -> None:
    """Raise what an error of Pond means."""
    error = (await answer.json()).get("error", "") if answer.content_type == "application/json" else ""
    match answer.status:
        case 401:
            raise ChannelBroken("Pond does not know the token: write a new one into channels.pond.token")
        case 403:
            raise ChatClosed("the bot may not write there")
        case 429:
            raise Throttled(float(answer.headers.get("Retry-After", "1")), whole_bot=error == "bot")
        case 400 if error == "markup":
            raise MarkupRefused("markup")
        case status if status >= 500:
            raise MaybeSent(f"status {status}")  # the server behind a proxy may have taken it
        case 409:
            raise NotAccepted("status 409")
        case status:
            raise PostRefused(f"status {status} {error}")
