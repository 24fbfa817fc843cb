"""Client of a homeserver, every failure mapped to an error of the platform protocol."""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator, Mapping
from typing import Any, Final

import msgspec

from gateway.channels.http import repeatable
from gateway.channels.matrix.http import MatrixError, MatrixHttp, client_path
from gateway.channels.matrix.parse import summarize_event
from gateway.channels.matrix.wire import (
    KEY,
    MESSAGE,
    MXC,
    TYPES,
    EventSummary,
    Reply,
    Sync,
    read_event,
    read_events,
)
from gateway.platform.protocol import (
    ChannelBroken,
    ChatClosed,
    File,
    MaybeSent,
    NotAccepted,
    NotDelivered,
    Post,
    PostRefused,
    PostTarget,
    RemoteFile,
    Throttled,
)

TYPING_MS: Final = 10_000
BATCH: Final = 50
PAGE: Final = 100

_NOTHING: Final[Mapping[str, Any]] = {"types": []}
_KINDS: Final = {"image": "m.image", "audio": "m.audio", "video": "m.video"}
_CLOSED: Final = ("M_FORBIDDEN", "M_NOT_FOUND", "M_GUEST_ACCESS_FORBIDDEN")
_FULL: Final = "M_RESOURCE_LIMIT_EXCEEDED"
_RETRY_S: Final = 5.0
"""Wait after a 429 that does not say how long."""


class MatrixApi:
    """The calls of one user, `me` once it is open."""

    def __init__(self, http: MatrixHttp) -> None:
        self.me = ""
        self.close = http.close
        self._http = http

    async def open(self) -> None:
        """Find out our user id. Raises NotAccepted, ChannelBroken."""
        try:
            self.me = (await self._read("account", "whoami")).user_id
        except PostRefused as exc:
            raise ChannelBroken(
                f"there is no homeserver ({exc.reason}): write its address into channels.matrix.homeserver"
            ) from exc
        except NotDelivered as exc:
            raise NotAccepted(exc.reason) from exc
        if not self.me:
            raise NotAccepted("an answer that cannot be read")

    # --- asked as often as needed: raises NotAccepted, Throttled, ChannelBroken; PostRefused for a
    # firm no

    async def sync(self, since: str, wait_s: float, timeout_s: float) -> Sync:
        """Return the news after `since`; without it only the current point, nothing from before."""
        room = {"account_data": _NOTHING, "ephemeral": _NOTHING, "state": _NOTHING}
        timeline = {"types": TYPES, "limit": BATCH if since else 0}
        only = {"presence": _NOTHING, "account_data": _NOTHING, "room": {**room, "timeline": timeline}}
        query = {"filter": msgspec.json.encode(only).decode(), "timeout": str(int(wait_s * 1000))}
        if since:
            query["since"] = since
        body = await self._ask("GET", client_path("sync"), query=query, timeout_s=wait_s + timeout_s)
        try:
            return msgspec.json.decode(body, type=Sync)
        except (msgspec.DecodeError, RecursionError) as exc:
            raise NotAccepted("the homeserver's news cannot be read") from exc

    async def get_messages(self, room: str, before: str, after: str) -> Reply:
        """Return up to PAGE events of a room between two points, newest first."""
        points = {"from": before, **({"to": after} if after else {})}
        return await self._read_page(room, {"types": TYPES}, points)

    async def get_event(self, room: str, id: str) -> EventSummary | None:
        """Return a summary of an event; None if it does not exist or is not visible to us."""
        try:
            body = await self._ask("GET", client_path("rooms", room, "event", id))
        except PostRefused:
            return None
        event = read_event(body)
        return summarize_event(event) if event is not None else None

    async def get_members(self, room: str) -> dict[str, str]:
        """Return the members of a room with their display names."""
        found = await self._read("rooms", room, "joined_members")
        return {user: profile.display_name or "" for user, profile in found.joined.items()}

    async def join_room(self, room: str) -> None:
        await self._ask("POST", client_path("rooms", room, "join"), json={})

    async def fetch(self, file: RemoteFile) -> AsyncIterator[bytes]:
        """Yield the bytes of a file. Raises NotDelivered."""
        where = MXC.fullmatch(file.handle)
        if where is None:
            raise PostRefused("that is not the address of a file")
        path = client_path("download", where[1], where[2])
        path = path.replace("/client/v3/", "/client/v1/media/", 1)
        try:
            async for part in self._http.stream(path):
                yield part
        except MatrixError as exc:
            raise NotAccepted(str(exc)) from exc

    # --- posts

    async def send(self, post: Post) -> str:
        """Send a post, for a device once however often, and return the event's id. Raises
        NotDelivered."""
        key = transaction_id(post.key)
        content = {**await self._event_content(post), **_reply_relation(post), KEY: key}
        return await self._send_event(post, key, content)

    async def edit(self, id: str, post: Post) -> None:
        """Replace a message with a post. Raises NotDelivered."""
        content = await self._event_content(post)
        whole = dict(content)
        whole |= {one: f"* {content[one]}" for one in ("body", "formatted_body") if one in content}
        whole |= {"m.new_content": content, "m.relates_to": {"rel_type": "m.replace", "event_id": id}}
        words = hashlib.sha256(msgspec.json.encode(content, order="sorted")).hexdigest()
        await self._send_event(post, transaction_id("edit", id, post.key, words), whole)

    async def find_post(self, post: Post) -> str | None:
        """Return our message with this key among our newest PAGE there. Raises NotDelivered."""
        only = {"types": [MESSAGE], "senders": [self.me]}
        page = await self._read_page(post.target.chat_id, only, {})
        for event in read_events(page.chunk):
            if event.content.key == transaction_id(post.key):
                return event.event_id
        return None

    async def send_notice(self, room: str, key: str, text: str) -> None:
        """Post a notice of the channel itself. Raises NotDelivered."""
        content = {"msgtype": "m.notice", "body": text, "m.mentions": {}}
        await self._put("rooms", room, "send", MESSAGE, transaction_id(key), json=content)

    async def typing(self, target: PostTarget) -> None:
        """Show for a few seconds that an answer is under way. Raises NotDelivered."""
        typing = {"typing": True, "timeout": TYPING_MS}
        await self._put("rooms", target.chat_id, "typing", self.me, json=typing, timeout_s=3.0)

    async def _event_content(self, post: Post) -> dict[str, Any]:
        """Return an event's content; the empty `m.mentions` keeps it from mentioning anyone."""
        if post.file is not None:
            return await self._file_content(post.file)
        assert post.piece is not None
        content: dict[str, Any] = {"msgtype": "m.text", "body": post.piece.plain, "m.mentions": {}}
        if not post.as_plain:
            content |= {"format": "org.matrix.custom.html", "formatted_body": post.piece.text}
        return content

    async def _file_content(self, file: File) -> dict[str, Any]:
        body = await self._ask(
            "POST",
            "/_matrix/media/v3/upload",
            query={"filename": file.name},
            data=file.data,
            media_type=file.media_type,
        )
        uri = _decode(body).content_uri
        if not uri:
            raise NotAccepted("the homeserver says nothing of where it put a file")
        return {
            "msgtype": _KINDS.get(file.media_type.partition("/")[0], "m.file"),
            "body": file.name,
            "filename": file.name,
            "url": uri,
            "info": {"mimetype": file.media_type, "size": file.size_bytes},
            "m.mentions": {},
        }

    async def _send_event(self, post: Post, transaction: str, content: Mapping[str, Any]) -> str:
        body = await self._put("rooms", post.target.chat_id, "send", MESSAGE, transaction, json=content)
        try:
            if id := _decode(body).event_id:
                return id
        except NotAccepted as exc:
            raise MaybeSent(exc.reason) from exc
        raise MaybeSent("an answer that cannot be read")

    async def _put(self, *path: str, **more: Any) -> bytes:
        try:
            return await self._http.call("PUT", client_path(*path), **more)
        except MatrixError as error:
            if error.status >= 500:
                raise MaybeSent(str(error)) from error  # a proxy says so, too, of what went through
            if error.code in _CLOSED:
                raise ChatClosed(f"{error}: the bot may not write in this room") from error
            raise _map_error(error) from error

    async def _read(self, *path: str, query: Mapping[str, str] | None = None) -> Reply:
        return _decode(await self._ask("GET", client_path(*path), query=query))

    async def _read_page(self, room: str, only: Mapping[str, Any], points: Mapping[str, str]) -> Reply:
        query = {"dir": "b", "limit": str(PAGE), "filter": msgspec.json.encode(only).decode()}
        return await self._read("rooms", room, "messages", query={**query, **points})

    async def _ask(self, method: str, path: str, **more: Any) -> bytes:
        """Run a call that is safe to repeat, so an unclear outcome counts as a failure."""
        try:
            return await repeatable(self._http.call(method, path, **more))
        except MatrixError as error:
            raise _map_error(error) from error


def transaction_id(*words: str) -> str:
    """Return the transaction id of a post, equal for every try."""
    return hashlib.sha256("\0".join(words).encode()).hexdigest()[:40]


def _decode(body: bytes) -> Reply:
    try:
        return msgspec.json.decode(body, type=Reply)
    except msgspec.DecodeError as exc:
        raise NotAccepted("an answer that cannot be read") from exc


def _map_error(error: MatrixError) -> NotDelivered:
    if error.status == 429:
        return Throttled(error.retry_after_s or _RETRY_S, whole_bot=True)
    if error.status >= 500 or error.code == _FULL or error.status in (301, 302, 307, 308, 408):
        return NotAccepted(f"the homeserver is out of order: {error}")
    return PostRefused(f"refused by the homeserver: {error}")


def _reply_relation(post: Post) -> dict[str, Any]:
    """Return the relation to a thread, and to a message, for clients without threads the root."""
    thread = post.target.thread
    answers = (post.reply_to or "").partition("|")[0]
    if not thread:
        return {"m.relates_to": {"m.in_reply_to": {"event_id": answers}}} if answers else {}
    return {
        "m.relates_to": {
            "rel_type": "m.thread",
            "event_id": thread,
            "is_falling_back": not answers,
            "m.in_reply_to": {"event_id": answers or thread},
        }
    }
