"""Discord's HTTP API, one try a call, every error as one that Shoal knows.

By aiohttp alone: the HTTP client of discord.py tries a call up to five times and waits out every 429 itself, which no
option ends, and here both are the gateway's business. Its other half, the WebSocket, is in `shard.py`.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections.abc import AsyncIterator, Sequence
from typing import Any, Final, TypeVar
from urllib.parse import quote, urlsplit

import aiohttp
import msgspec

from gateway.channels.discord.parse import Me, Room, Snowflake
from gateway.platform import (
    Button,
    ChannelBroken,
    ChatClosed,
    NotAccepted,
    NotDelivered,
    Place,
    Post,
    PostRefused,
    Throttled,
    Unclear,
)
from shared.version import VERSION

PAGE: Final = 100
"""So many messages come with one question for those of a chat."""

CUSTOM_ID_CHARS: Final = 100
LABEL_CHARS: Final = 80

_USER_AGENT: Final = f"DiscordBot (https://pypi.org/project/shoal/, {VERSION})"
_ANSWER_S: Final = 3.0
"""Discord waits so long for the answer to a press."""

_NO_EMBEDS: Final = 1 << 2
_THREADS: Final = (10, 11, 12)
_BUTTON, _ROW, _GREY = 2, 1, 2
_IN_ROW: Final = 5
_DEFERRED: Final = 6
_CLOSED: Final = {10003, 50001, 50007, 50013, 50278, 160005}
"""Unknown channel, no access, not to this person, no permission, no server in common, a locked thread."""

_NO_PERMISSION: Final = 50013
_NO_HISTORY: Final = 160002
_BLOCKED: Final = 40333
_LATE: Final = (504, 520, 521, 522, 524)
"""A proxy got no answer: what stands behind it may have done what was asked."""

_TOO_MANY_S: Final = 60.0

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
    """How many sessions may be begun: `remaining` until `reset_after` (ms) is over, `max_concurrency` in 5 s."""

    remaining: int
    reset_after: int
    max_concurrency: int = 1


class Entrance(msgspec.Struct, frozen=True):
    """Where the gateway is, how many shards Discord advises, and how many sessions may be begun there."""

    url: str
    shards: int
    session_start_limit: StartLimit


class Api:
    """One bot. `timeout_s` is for a whole call, `files_from` are the origins of files that may be fetched."""

    def __init__(self, name: str, token: str, base: str, *, files_from: Sequence[str], timeout_s: float) -> None:
        self._name = name
        self._base = base.rstrip("/")
        self._headers = {"Authorization": f"Bot {token}", "User-Agent": _USER_AGENT}
        self._files_from = {urlsplit(one)[:2] for one in files_from}
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
        """What a channel of a server is: a chat, or a thread of one. Raises NotDelivered, ChannelBroken."""
        try:
            found = _as(Channel, await self._call("GET", f"/channels/{channel_id}"))
        except (ChatClosed, PostRefused):
            return Room(channel_id)
        return Room(found.parent_id, channel_id) if found.type in _THREADS and found.parent_id else Room(channel_id)

    async def messages(self, channel_id: str, after: str) -> list[dict[str, Any]]:
        """At most PAGE messages of a chat, those that follow `after`, the oldest first. Raises NotDelivered."""
        path, query = f"/channels/{channel_id}/messages", {"after": after, "limit": PAGE}
        found = _as(list[dict[str, Any]], await self._call("GET", path, params=query))
        return sorted(found, key=lambda one: _as(Said, one).id.zfill(20))

    async def send(self, post: Post) -> str:
        """The id of what was sent. Raises NotDelivered."""
        where = f"/channels/{channel_of(post.place)}/messages"
        body = {**_body(post), "nonce": nonce(post.key), "enforce_nonce": True}
        if (answered := _answered(post)) is not None:
            body["message_reference"] = {"message_id": answered, "fail_if_not_exists": False}
        try:
            sent = await self._call("POST", where, post=post, **_packed(post, body))
        except PostRefused as refused:
            if answered is None or f"code {_NO_HISTORY}" not in refused.reason:
                raise
            del body["message_reference"]  # it may not read what was said before, so it cannot quote it either
            sent = await self._call("POST", where, post=post, **_packed(post, body))
        return _as(Said, sent).id

    async def edit(self, id: str, post: Post) -> None:
        """Raises NotDelivered."""
        body = {"components": [], **_body(post)}
        await self._call("PATCH", f"/channels/{channel_of(post.place)}/messages/{id}", json=body)

    async def typing(self, place: Place) -> None:
        await self._call("POST", f"/channels/{channel_of(place)}/typing")

    async def pressed(self, id: str, token: str) -> None:
        """Say that a press was heard. Raises NotDelivered; it may have been said before."""
        path = f"/interactions/{id}/{quote(token, safe='')}/callback"
        await self._call("POST", path, json={"type": _DEFERRED}, timeout=aiohttp.ClientTimeout(total=_ANSWER_S))

    async def fetch(self, url: str) -> AsyncIterator[bytes]:
        """The bytes of a file, from where Discord keeps files and from nowhere else. Raises NotDelivered."""
        if urlsplit(url)[:2] not in self._files_from:
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

    async def _call(self, method: str, path: str, *, post: Post | None = None, **more: Any) -> Any:
        """One call, one try. What it answers; None for nothing. Raises NotDelivered, ChannelBroken."""
        try:
            async with self._session().request(
                method, self._base + path, headers=self._headers, allow_redirects=False, **more
            ) as answer:
                if answer.status == 204:
                    return None
                told = _read(await answer.read())
                if answer.status != 200 and answer.status != 201:
                    raise self._error(answer, told, post)
                return told
        except (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError) as exc:
            raise NotAccepted("no connection") from exc
        except (aiohttp.ClientError, TimeoutError) as exc:
            raise Unclear(type(exc).__name__) from exc

    def _error(self, answer: aiohttp.ClientResponse, told: Any, post: Post | None) -> Exception:
        """What an error means. Errors of whatever stands before Discord are no JSON."""
        code = told.get("code", 0) if isinstance(told, dict) else None
        why = f"{answer.status}, code {code}" if code else str(answer.status)
        match answer.status:
            case 401:
                key = f"channels.{self._name}.token"
                return ChannelBroken(f"Discord does not know this bot: write the token of its page Bot into {key}")
            case 429:
                whole = code is None or told.get("global") is True or "X-RateLimit-Global" in answer.headers
                return Throttled(_retry_after_s(answer, told), whole_bot=whole)
            case status if code == _BLOCKED or (code is None and status < 500):
                return NotAccepted(f"{why}, not from Discord itself")
            case _ if code == _NO_PERMISSION and post is not None and post.file is not None:
                return PostRefused(f"{why}: perhaps it may not attach files there")
            case 400 | 403 | 404 if code in _CLOSED:
                return ChatClosed(f"{why}: the bot cannot write there")
            case status if status in _LATE:
                return Unclear(why)
            case status if status >= 500:
                return NotAccepted(why)
            case _:
                return PostRefused(why)


def channel_of(place: Place) -> str:
    """Where to write: a thread is a channel of its own."""
    return place.thread or place.chat_id


def nonce(key: str) -> str:
    """The key of a post, as Discord takes one: 25 characters at most."""
    return hashlib.blake2s(key.encode(), digest_size=12).hexdigest()


def _read(body: bytes) -> Any:
    try:
        return json.loads(body)
    except ValueError:
        return None


def _as(kind: type[T], told: Any) -> T:
    """An answer of this kind. Raises Unclear."""
    try:
        return msgspec.convert(told, kind)
    except msgspec.ValidationError as exc:
        raise Unclear("an answer that cannot be read") from exc


def _retry_after_s(answer: aiohttp.ClientResponse, told: Any) -> float:
    said = told.get("retry_after") if isinstance(told, dict) else None
    for value in (said, answer.headers.get("Retry-After")):
        with contextlib.suppress(TypeError, ValueError):
            return max(0.0, float(value or ""))
    return _TOO_MANY_S


def _answered(post: Post) -> str | None:
    """The message that a post is an answer to: without the time of an edit; a press is none."""
    id = (post.reply_to or "").partition("/")[0]
    return id if id.isdecimal() else None


def _body(post: Post) -> dict[str, Any]:
    body: dict[str, Any] = {"content": post.text, "allowed_mentions": {"parse": []}, "flags": _NO_EMBEDS}
    if post.buttons:
        body["components"] = _rows(post.buttons)
    return body


def _packed(post: Post, body: dict[str, Any]) -> dict[str, Any]:
    """A body, with the file of a post beside it."""
    if post.file is None:
        return {"json": body}
    form = aiohttp.FormData(quote_fields=False)  # Discord reads no escapes in `files[0]`
    listed = {**body, "attachments": [{"id": 0, "filename": post.file.name}]}
    form.add_field("payload_json", json.dumps(listed), content_type="application/json")
    form.add_field("files[0]", post.file.data, filename=post.file.name, content_type=post.file.media_type)
    return {"data": form}


def _rows(buttons: Sequence[Button]) -> list[dict[str, Any]]:
    made = []
    for number, button in enumerate(buttons):
        custom_id = f"{number}:{button.says}"
        if len(custom_id) > CUSTOM_ID_CHARS:
            custom_id = f"{number}:"
        label = button.label if len(button.label) <= LABEL_CHARS else button.label[: LABEL_CHARS - 1] + "…"
        made.append({"type": _BUTTON, "style": _GREY, "label": label, "custom_id": custom_id})
    rows = [made[at : at + _IN_ROW] for at in range(0, len(made), _IN_ROW)]
    return [{"type": _ROW, "components": row} for row in rows]
