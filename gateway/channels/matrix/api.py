"""What Shoal asks of a homeserver, every error as one that Shoal knows."""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator, Awaitable, Mapping
from typing import Any, Final, TypeVar

import msgspec

from gateway.channels.matrix.http import Http, NoAnswer, Said, path_of
from gateway.channels.matrix.parse import known
from gateway.channels.matrix.wire import (
    KEY,
    MESSAGE,
    MXC,
    TYPES,
    Known,
    Members,
    Messages,
    Ours,
    Sent,
    Sync,
    Uploaded,
    Who,
    read_event,
    read_sync,
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
"""After a 429 that does not say."""

T = TypeVar("T")


class Api:
    """What we may ask as one user."""

    def __init__(self, http: Http) -> None:
        self._http = http

    async def close(self) -> None:
        await self._http.close()

    # --- asked as often as needed: raises NotAccepted, Throttled, ChannelBroken; PostRefused for a
    # firm no

    async def me(self) -> str:
        """Our user id."""
        try:
            return (await self._read(self._http.call("GET", path_of("account", "whoami")), Who)).user_id
        except PostRefused as exc:
            raise ChannelBroken(
                f"there is no homeserver ({exc.reason}): write its address into channels.matrix.homeserver"
            ) from exc

    async def sync(self, since: str, wait_s: float, timeout_s: float) -> Sync:
        """What came behind `since`. Without it: the point where news begin, and nothing of
        before."""
        room = {"account_data": _NOTHING, "ephemeral": _NOTHING, "state": _NOTHING}
        timeline = {"types": TYPES, "limit": BATCH if since else 0}
        only = {"presence": _NOTHING, "account_data": _NOTHING, "room": {**room, "timeline": timeline}}
        query = {"filter": msgspec.json.encode(only).decode(), "timeout": str(int(wait_s * 1000))}
        if since:
            query["since"] = since
        body = await self._sure(self._http.call("GET", path_of("sync"), query=query, timeout_s=wait_s + timeout_s))
        try:
            return read_sync(body)
        except (msgspec.DecodeError, RecursionError) as exc:
            raise NotAccepted("the homeserver's news cannot be read") from exc

    async def messages(self, room: str, before: str, after: str) -> Messages:
        """Up to PAGE events of a room between two points, newest first."""
        only = msgspec.json.encode({"types": TYPES}).decode()
        query = {"dir": "b", "from": before, "limit": str(PAGE), "filter": only, **({"to": after} if after else {})}
        call = self._http.call("GET", path_of("rooms", room, "messages"), query=query)
        return await self._read(call, Messages)

    async def event(self, room: str, id: str) -> Known | None:
        """What we need to know of one; None = we may not see it, or there is none."""
        try:
            body = await self._sure(self._http.call("GET", path_of("rooms", room, "event", id)))
        except PostRefused:
            return None
        event = read_event(body)
        return known(event) if event is not None else None

    async def members(self, room: str) -> dict[str, str]:
        """Who is in a room, with what they call themselves."""
        call = self._http.call("GET", path_of("rooms", room, "joined_members"))
        found = await self._read(call, Members)
        return {user: profile.display_name or "" for user, profile in found.joined.items()}

    async def join(self, room: str) -> None:
        await self._sure(self._http.call("POST", path_of("rooms", room, "join"), json={}))

    async def fetch(self, file: RemoteFile) -> AsyncIterator[bytes]:
        """The bytes of a file. Raises NotDelivered."""
        where = MXC.fullmatch(file.handle)
        if where is None:
            raise PostRefused("that is no address of a file")
        path = path_of("download", where[1], where[2]).replace("/client/v3/", "/client/v1/media/", 1)
        try:
            async for part in self._http.parts(path):
                yield part
        except (Said, NoAnswer) as exc:
            raise NotAccepted(str(exc)) from exc

    # --- posts

    async def send(self, post: Post) -> str:
        """The id of the event. With the same key it is there once, whoever of this device sends it.
        Raises NotDelivered."""
        content = await self._content(post)
        return await self._put(post, transaction(post.key), {**content, **_relation(post), KEY: transaction(post.key)})

    async def edit(self, id: str, post: Post) -> None:
        """Raises NotDelivered."""
        content = await self._content(post)
        whole = dict(content)
        whole |= {one: f"* {content[one]}" for one in ("body", "formatted_body") if one in content}
        whole |= {"m.new_content": content, "m.relates_to": {"rel_type": "m.replace", "event_id": id}}
        words = hashlib.sha256(msgspec.json.encode(content, order="sorted")).hexdigest()
        await self._put(post, transaction("edit", id, post.key, words), whole)

    async def find(self, post: Post, me: str) -> str | None:
        """A message of ours with this key, among our newest PAGE in the room. Raises
        NotDelivered."""
        only = msgspec.json.encode({"types": [MESSAGE], "senders": [me]}).decode()
        query = {"dir": "b", "limit": str(PAGE), "filter": only}
        call = self._http.call("GET", path_of("rooms", post.target.chat_id, "messages"), query=query)
        for one in (await self._read(call, Messages)).chunk:
            try:
                ours = msgspec.json.decode(one, type=Ours)
            except msgspec.DecodeError:
                continue
            if ours.content.key == transaction(post.key):
                return ours.event_id
        return None

    async def say(self, room: str, key: str, text: str) -> None:
        """A notice of the channel's own. Raises NotDelivered."""
        content = {"msgtype": "m.notice", "body": text, "m.mentions": {}}
        await self._told(
            self._http.call("PUT", path_of("rooms", room, "send", MESSAGE, transaction(key)), json=content)
        )

    async def typing(self, room: str, me: str) -> None:
        await self._told(
            self._http.call(
                "PUT", path_of("rooms", room, "typing", me), json={"typing": True, "timeout": TYPING_MS}, timeout_s=3.0
            )
        )

    async def _content(self, post: Post) -> dict[str, Any]:
        """`m.mentions` is empty: our words name nobody."""
        if post.file is not None:
            return await self._file(post.file)
        assert post.piece is not None
        content: dict[str, Any] = {"msgtype": "m.text", "body": post.piece.plain, "m.mentions": {}}
        if not post.as_plain:
            content |= {"format": "org.matrix.custom.html", "formatted_body": post.piece.text}
        return content

    async def _file(self, file: File) -> dict[str, Any]:
        try:
            body = await self._sure(
                self._http.call(
                    "POST",
                    "/_matrix/media/v3/upload",
                    query={"filename": file.name},
                    data=file.data,
                    media_type=file.media_type,
                )
            )
            uri = msgspec.json.decode(body, type=Uploaded).content_uri
        except msgspec.DecodeError as exc:
            raise NotAccepted("the homeserver says nothing of where it put a file") from exc
        return {
            "msgtype": _KINDS.get(file.media_type.partition("/")[0], "m.file"),
            "body": file.name,
            "filename": file.name,
            "url": uri,
            "info": {"mimetype": file.media_type, "size": file.size_bytes},
            "m.mentions": {},
        }

    async def _put(self, post: Post, transaction: str, content: Mapping[str, Any]) -> str:
        path = path_of("rooms", post.target.chat_id, "send", MESSAGE, transaction)
        body = await self._told(self._http.call("PUT", path, json=content))
        try:
            return msgspec.json.decode(body, type=Sent).event_id
        except msgspec.DecodeError as exc:
            raise MaybeSent("an answer that cannot be read") from exc

    async def _read(self, call: Awaitable[bytes], kind: type[T]) -> T:
        try:
            return msgspec.json.decode(await self._sure(call), type=kind)
        except msgspec.DecodeError as exc:
            raise NotAccepted("an answer that cannot be read") from exc

    async def _told(self, call: Awaitable[T]) -> T:
        """A call into a room."""
        try:
            return await call
        except NoAnswer as exc:
            raise (MaybeSent if exc.connected else NotAccepted)(str(exc)) from exc
        except Said as said:
            if said.status >= 500:
                raise MaybeSent(str(said)) from said  # a proxy says so, too, of what went through
            if said.code in _CLOSED:
                raise ChatClosed(f"{said}: the bot may not write in this room") from said
            raise _refusal(said) from said

    async def _sure(self, call: Awaitable[T]) -> T:
        """A call that may be made again, whatever became of it."""
        try:
            return await call
        except NoAnswer as exc:
            raise NotAccepted(str(exc)) from exc
        except Said as said:
            raise _refusal(said) from said


def transaction(*words: str) -> str:
    """The transaction id of a post: the same for every try."""
    return hashlib.sha256("\0".join(words).encode()).hexdigest()[:40]


def _refusal(said: Said) -> NotDelivered:
    if said.status == 429:
        return Throttled(said.retry_after_s or _RETRY_S, whole_bot=True)
    if said.status >= 500 or said.code == _FULL or said.status in (301, 302, 307, 308, 408):
        return NotAccepted(f"the homeserver is out of order: {said}")
    return PostRefused(f"refused by the homeserver: {said}")


def _relation(post: Post) -> dict[str, Any]:
    """A thread, an answer, or both. Where it answers nothing, clients without threads show it below
    the root."""
    thread, answers = post.target.thread, (post.reply_to or "").partition("|")[0]
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
