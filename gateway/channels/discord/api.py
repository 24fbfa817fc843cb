"""Client of Discord's HTTP API, one try per call, every failure mapped to an error of the platform
protocol (docs.discord.com/developers/topics/opcodes-and-status-codes).

It uses plain aiohttp: the HTTP client of discord.py tries a call up to five times and waits out
every 429 itself, which no option turns off; here both are the gateway's decision. The WebSocket is
in `shard.py`.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any, Final, TypeVar
from urllib.parse import quote

import aiohttp
import msgspec

from gateway.channels.discord.parse import ConversationInfo
from gateway.channels.discord.render import edit_form, new_message_form, target_channel
from gateway.channels.discord.wire import DiscordIdentity, Snowflake
from gateway.channels.http import PlatformHttp
from gateway.platform.protocol import (
    ChannelBroken,
    ChatClosed,
    MaybeSent,
    NotAccepted,
    NotDelivered,
    Post,
    PostRefused,
    PostTarget,
    RemoteFile,
    Throttled,
)
from shared.network.outgoing import Outgoing
from shared.version import VERSION

PAGE: Final = 100  # messages per page of a channel's history
_USER_AGENT: Final = f"DiscordBot (Shoal, {VERSION})"
_ANSWER_S: Final = 3.0  # Discord waits this long for the response to an interaction
_THREADS: Final = (10, 11, 12)
_DEFERRED: Final = 6
_CLOSED: Final = {10003, 50001, 50007, 50013, 50278, 160005}
"""Unknown channel, no access, cannot message this user, no permission, no common server, locked."""

_NO_PERMISSION: Final = 50013
_NO_HISTORY: Final = 160002
_BLOCKED: Final = 40333
_TOO_MANY_S: Final = 60.0
T = TypeVar("T")


class MayNotReply(PostRefused):
    """The bot may not read the history, so it cannot quote; the post alone may succeed."""


class _ChannelInfo(msgspec.Struct, frozen=True):
    type: int
    parent_id: Snowflake | None = None  # of a thread: its channel


class _CreatedMessage(msgspec.Struct, frozen=True):
    id: Snowflake


class _SessionStartLimit(msgspec.Struct, frozen=True):
    remaining: int
    reset_after: int  # ms
    max_concurrency: int = 1  # per 5 s


class GatewayInfo(msgspec.Struct, frozen=True):
    """The gateway's address, the recommended number of shards, and the session quota."""

    url: str
    shards: int
    session_start_limit: _SessionStartLimit


class DiscordApi:
    """A client for one bot. `timeout_s` limits a whole call; `files_from` are the URL prefixes from
    which files may be fetched. Methods raise NotDelivered and ChannelBroken."""

    def __init__(
        self,
        name: str,
        token: str,
        base: str,
        *,
        files_from: Sequence[str],
        timeout_s: float,
        outgoing: Outgoing | None = None,
    ) -> None:
        self._name = name
        self._headers = {"Authorization": f"Bot {token}", "User-Agent": _USER_AGENT}
        self._files_from = tuple(f"{one.rstrip('/')}/" for one in files_from)
        # Without a limit: how many calls there are at once is decided elsewhere.
        connect_s = timeout_s / 2
        self._http = PlatformHttp(
            base,
            timeout_s=timeout_s,
            connect_s=connect_s,
            connections=0,
            outgoing=outgoing,
        )
        self.close = self._http.close

    async def identify(self) -> DiscordIdentity:
        """Return who the bot is. Raises ChannelBroken for a wrong token, NotAccepted."""
        try:
            return _convert_reply(DiscordIdentity, await self._call("GET", "/users/@me"))
        except NotDelivered as exc:
            raise NotAccepted(exc.reason) from exc

    async def gateway_info(self) -> GatewayInfo:
        """Return the gateway's address and quota."""
        return _convert_reply(GatewayInfo, await self._call("GET", "/gateway/bot"))

    async def connect(self, url: str) -> aiohttp.ClientWebSocketResponse:
        """Open a WebSocket. Raises aiohttp.ClientError, TimeoutError."""
        headers = {"User-Agent": _USER_AGENT}
        timeout = aiohttp.ClientWSTimeout(ws_close=1.0)
        return await self._http.session.ws_connect(
            url, headers=headers, timeout=timeout, autoclose=False, max_msg_size=0
        )

    async def get_conversation(self, channel_id: str) -> ConversationInfo:
        """Return whether a server channel is a chat or a thread of one."""
        with contextlib.suppress(ChatClosed, PostRefused):
            found = _convert_reply(_ChannelInfo, await self._call("GET", f"/channels/{channel_id}"))
            if found.type in _THREADS and found.parent_id:
                return ConversationInfo(found.parent_id, channel_id)
        return ConversationInfo(channel_id)

    async def get_messages(self, channel_id: str, after: str) -> list[dict[str, Any]]:
        """Return at most PAGE messages of a channel after the id `after`, oldest first."""
        path = f"/channels/{channel_id}/messages"
        query = {"after": after, "limit": PAGE}
        found = _convert_reply(list[dict[str, Any]], await self._call("GET", path, params=query))
        return sorted(found, key=lambda one: _convert_reply(_CreatedMessage, one).id.zfill(20))

    async def send(self, post: Post) -> str:
        """Send a post and return its id."""
        form = new_message_form(post)
        try:
            return await self._send(post, form)
        except MayNotReply:
            # Posting without the quote beats not posting at all.
            if form.pop("message_reference", None) is None:
                raise
            return await self._send(post, form)

    async def _send(self, post: Post, form: dict[str, Any]) -> str:
        path = f"/channels/{target_channel(post.target)}/messages"
        file = post.file
        if file is None:
            return _convert_reply(_CreatedMessage, await self._call("POST", path, json=form)).id
        parts = aiohttp.FormData(quote_fields=False)  # Discord reads no escapes in `files[0]`
        parts.add_field("payload_json", json.dumps(form), content_type="application/json")
        parts.add_field("files[0]", file.data, filename=file.name, content_type=file.media_type)
        return _convert_reply(_CreatedMessage, await self._call("POST", path, data=parts, with_file=True)).id

    async def edit(self, id: str, post: Post) -> None:
        """Replace a message with a post."""
        path = f"/channels/{target_channel(post.target)}/messages/{id}"
        await self._call("PATCH", path, json=edit_form(post))

    async def typing(self, place: PostTarget) -> None:
        await self._call("POST", f"/channels/{target_channel(place)}/typing")

    async def confirm_press(self, id: str, token: str) -> None:
        """Acknowledge an interaction; it may have been acknowledged before."""
        path = f"/interactions/{id}/{quote(token, safe='')}/callback"
        timeout = aiohttp.ClientTimeout(total=_ANSWER_S)
        await self._call("POST", path, json={"type": _DEFERRED}, timeout=timeout)

    async def fetch(self, file: RemoteFile) -> AsyncIterator[bytes]:
        """Yield the bytes of a file, only from the hosts where Discord keeps files."""
        url = file.handle
        if not url.startswith(self._files_from):
            raise PostRefused(f"a file is not at an address of channels.{self._name}.files_from")
        try:
            async with self._http.session.get(url, allow_redirects=False) as answer:
                if answer.status != 200:
                    raise PostRefused(f"status {answer.status} for a file")
                async for part in answer.content.iter_chunked(64 * 1024):
                    yield part
        except (aiohttp.ClientError, TimeoutError, ValueError) as exc:
            raise NotAccepted(type(exc).__name__) from exc

    async def _call(self, method: str, path: str, *, with_file: bool = False, **more: Any) -> Any:
        """Make one call, one try, and return its decoded body, None if it has none."""
        answer, body = await self._http.request(method, path, headers=self._headers, **more)
        if answer.status == 204:
            return None
        reply = None
        with contextlib.suppress(ValueError):
            reply = json.loads(body)
        if answer.status not in (200, 201):
            raise map_error(self._name, answer.status, answer.headers, reply, with_file=with_file)
        return reply


def _convert_reply(kind: type[T], reply: Any) -> T:
    try:
        return msgspec.convert(reply, kind)
    except msgspec.ValidationError as exc:
        raise MaybeSent("an answer that cannot be read") from exc


def map_error(name: str, status: int, headers: Mapping[str, str], reply: Any, *, with_file: bool) -> Exception:
    """Map an error of the channel `name`. `reply` is None if something before Discord answered."""
    code = reply.get("code", 0) if isinstance(reply, dict) else None
    why = f"{status}, code {code}" if code else str(status)
    match status:
        case 401:
            return ChannelBroken(
                f"Discord does not know this bot: write the token of its page Bot into channels.{name}.token"
            )
        case 429:
            whole_bot = code is None or reply.get("global") is True or "X-RateLimit-Global" in headers
            return Throttled(_retry_after_s(headers, reply), whole_bot=whole_bot)
        case _ if status >= 500:
            return MaybeSent(why)  # the server behind a proxy may have done it
        case _ if code is None or code == _BLOCKED:
            return NotAccepted(why)
        case _ if code == _NO_PERMISSION and with_file:
            return PostRefused(f"{why}: perhaps it may not attach files there")
        case 400 | 403 | 404 if code in _CLOSED:
            return ChatClosed(f"{why}: the bot cannot write there")
        case _ if code == _NO_HISTORY:
            return MayNotReply(why)
        case _:
            return PostRefused(why)


def _retry_after_s(headers: Mapping[str, str], reply: Any) -> float:
    in_body = reply.get("retry_after") if isinstance(reply, dict) else None
    for value in (in_body, headers.get("Retry-After")):
        if value is not None:
            with contextlib.suppress(TypeError, ValueError):
                return max(0.0, float(value))
    return _TOO_MANY_S
