"""Discord's HTTP API, one try a call, every error as one that Shoal knows.

By aiohttp alone: the HTTP client of discord.py tries a call up to five times and waits out every
429 itself, which no option ends, and here both are the gateway's business. Its other half, the
WebSocket, is in `shard.py`.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Sequence
from typing import Any, Final, TypeVar
from urllib.parse import quote

import aiohttp
import msgspec

from gateway.channels.discord.forms import channel_of, edit_form, new_form
from gateway.channels.discord.parse import Me, Room
from gateway.channels.discord.refusals import MayNotQuote, refusal
from gateway.channels.discord.wire import Snowflake
from gateway.platform.protocol import (
    ChatClosed,
    MaybeSent,
    NotAccepted,
    NotDelivered,
    Post,
    PostRefused,
    PostTarget,
)
from shared.version import VERSION

PAGE: Final = 100
"""So many messages come with one question for those of a chat."""

_USER_AGENT: Final = f"DiscordBot (Shoal, {VERSION})"
_ANSWER_S: Final = 3.0
"""Discord waits so long for the answer to a press."""

_THREADS: Final = (10, 11, 12)
_DEFERRED: Final = 6
T = TypeVar("T")


class Self(msgspec.Struct, frozen=True):
    """Us."""

    id: Snowflake
    username: str


class Channel(msgspec.Struct, frozen=True):
    """A channel of a server, perhaps a thread; which one it is of."""

    type: int
    parent_id: Snowflake | None = None


class Said(msgspec.Struct, frozen=True):
    """A message of ours."""

    id: Snowflake


class StartLimit(msgspec.Struct, frozen=True):
    """How many sessions may be begun: `remaining` until `reset_after` (ms) is over,
    `max_concurrency` in 5 s."""

    remaining: int
    reset_after: int
    max_concurrency: int = 1


class Entrance(msgspec.Struct, frozen=True):
    """Where the gateway is, how many shards Discord advises, and how many sessions may be begun
    there."""

    url: str
    shards: int
    session_start_limit: StartLimit


class Api:
    """One bot. `timeout_s` is for a whole call, `files_from` is how addresses of files begin that
    may be fetched."""

    def __init__(self, name: str, token: str, base: str, *, files_from: Sequence[str], timeout_s: float) -> None:
        self._name = name
        self._base = base.rstrip("/")
        self._headers = {"Authorization": f"Bot {token}", "User-Agent": _USER_AGENT}
        self._files_from = tuple(f"{one.rstrip('/')}/" for one in files_from)
        self._timeout = aiohttp.ClientTimeout(total=timeout_s, sock_connect=timeout_s / 2)
        self._http: aiohttp.ClientSession | None = None

    async def close(self) -> None:
        if self._http is not None:
            await self._http.close()

    async def me(self) -> Me:
        """Who we are. Raises ChannelBroken for a wrong token, NotAccepted."""
        try:
            user = _as(Self, await self._call("GET", "/users/@me"))
        except NotDelivered as exc:
            raise NotAccepted(exc.reason) from exc
        return Me(user.id, user.username)

    async def entrance(self) -> Entrance:
        """The way to the gateway. Raises NotDelivered, ChannelBroken."""
        return _as(Entrance, await self._call("GET", "/gateway/bot"))

    async def connect(self, url: str) -> aiohttp.ClientWebSocketResponse:
        """A WebSocket. Raises aiohttp.ClientError, TimeoutError."""
        return await self._session().ws_connect(
            url,
            headers={"User-Agent": _USER_AGENT},
            timeout=aiohttp.ClientWSTimeout(ws_close=1.0),
            autoclose=False,
            max_msg_size=0,
        )

    async def room(self, channel_id: str) -> Room:
        """What a channel of a server is: a chat, or a thread of one. Raises NotDelivered,
        ChannelBroken."""
        try:
            found = _as(Channel, await self._call("GET", f"/channels/{channel_id}"))
        except (ChatClosed, PostRefused):
            return Room(channel_id)
        return Room(found.parent_id, channel_id) if found.type in _THREADS and found.parent_id else Room(channel_id)

    async def messages(self, channel_id: str, after: str) -> list[dict[str, Any]]:
        """At most PAGE messages of a chat, those that follow `after`, the oldest first. Raises
        NotDelivered."""
        path, query = f"/channels/{channel_id}/messages", {"after": after, "limit": PAGE}
        found = _as(list[dict[str, Any]], await self._call("GET", path, params=query))
        return sorted(found, key=lambda one: _as(Said, one).id.zfill(20))

    async def send(self, post: Post) -> str:
        """The id of what was sent. Raises NotDelivered."""
        form = new_form(post)
        try:
            return await self._send(post, form)
        except MayNotQuote:
            if form.pop("message_reference", None) is None:
                raise
            return await self._send(post, form)

    async def _send(self, post: Post, form: dict[str, Any]) -> str:
        path, file = f"/channels/{channel_of(post.target)}/messages", post.file
        if file is None:
            return _as(Said, await self._call("POST", path, json=form)).id
        parts = aiohttp.FormData(quote_fields=False)  # Discord reads no escapes in `files[0]`
        parts.add_field("payload_json", json.dumps(form), content_type="application/json")
        parts.add_field("files[0]", file.data, filename=file.name, content_type=file.media_type)
        return _as(Said, await self._call("POST", path, data=parts, with_file=True)).id

    async def edit(self, id: str, post: Post) -> None:
        """Raises NotDelivered."""
        await self._call("PATCH", f"/channels/{channel_of(post.target)}/messages/{id}", json=edit_form(post))

    async def typing(self, place: PostTarget) -> None:
        await self._call("POST", f"/channels/{channel_of(place)}/typing")

    async def pressed(self, id: str, token: str) -> None:
        """Say that a press was heard. Raises NotDelivered; it may have been said before."""
        path = f"/interactions/{id}/{quote(token, safe='')}/callback"
        await self._call("POST", path, json={"type": _DEFERRED}, timeout=aiohttp.ClientTimeout(total=_ANSWER_S))

    async def fetch(self, url: str) -> AsyncIterator[bytes]:
        """The bytes of a file, from where Discord keeps files and from nowhere else. Raises
        NotDelivered."""
        if not url.startswith(self._files_from):
            raise PostRefused(f"a file is not at an address of channels.{self._name}.files_from")
        try:
            async with self._session().get(url, allow_redirects=False) as answer:
                if answer.status != 200:
                    raise PostRefused(f"status {answer.status} for a file")
                async for part in answer.content.iter_chunked(64 * 1024):
                    yield part
        except (aiohttp.ClientError, TimeoutError, ValueError) as exc:
            raise NotAccepted(type(exc).__name__) from exc

    def _session(self) -> aiohttp.ClientSession:
        if self._http is None:
            self._http = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=0),  # how many calls there are at once is decided elsewhere
                timeout=self._timeout,
                cookie_jar=aiohttp.DummyCookieJar(),
            )
        return self._http

    async def _call(self, method: str, path: str, *, with_file: bool = False, **more: Any) -> Any:
        """One call, one try. What it answers; None for nothing. Raises NotDelivered,
        ChannelBroken."""
        try:
            async with self._session().request(
                method, self._base + path, headers=self._headers, allow_redirects=False, **more
            ) as answer:
                if answer.status == 204:
                    return None
                told = _read(await answer.read())
                if answer.status != 200 and answer.status != 201:
                    raise refusal(self._name, answer.status, answer.headers, told, with_file=with_file)
                return told
        except (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError) as exc:
            raise NotAccepted("no connection") from exc
        except (aiohttp.ClientError, TimeoutError) as exc:
            raise MaybeSent(type(exc).__name__) from exc


def _read(body: bytes) -> Any:
    try:
        return json.loads(body)
    except ValueError:
        return None


def _as(kind: type[T], told: Any) -> T:
    """An answer of this kind. Raises MaybeSent."""
    try:
        return msgspec.convert(told, kind)
    except msgspec.ValidationError as exc:
        raise MaybeSent("an answer that cannot be read") from exc
