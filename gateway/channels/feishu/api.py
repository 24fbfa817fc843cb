"""One app of Feishu: who it is, what it posts, what it looks up."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from typing import Final, TypeVar

import aiohttp
import msgspec

from gateway.channels.feishu import cards, sockets
from gateway.channels.feishu.calls import PART_BYTES, Answer, Calls
from gateway.channels.feishu.cards import Content, uuid
from gateway.channels.feishu.parse import MESSAGE_ID, Me
from gateway.channels.feishu.refusals import GONE, NO_TOPIC, Said, refusal
from gateway.platform.protocol import (
    ChannelBroken,
    ChatClosed,
    File,
    MaybeSent,
    NotAccepted,
    Post,
    PostRefused,
    PostTarget,
)

MESSAGES: Final = "/open-apis/im/v1/messages"
TEXT: Final = "text/"
"""Before the id of a message that is no card: it is changed by another call."""

_HANDLE: Final = re.compile(r"(om_[0-9A-Za-z_-]{1,120})/(image|file)/([0-9A-Za-z_-]{1,200})")


T = TypeVar("T", bound=msgspec.Struct)


class _Bot(msgspec.Struct, frozen=True):
    open_id: str = ""
    activate_status: int = 2


class _Sent(msgspec.Struct, frozen=True):
    message_id: str


class _Key(msgspec.Struct, frozen=True):
    image_key: str = ""
    file_key: str = ""


class From(msgspec.Struct, frozen=True):
    """Who sent it: a person's open_id, or an app's own id."""

    id: str | None = None


class Body(msgspec.Struct, frozen=True):
    """JSON, by its type."""

    content: str | None = None


class Item(msgspec.Struct, frozen=True):
    """A message, as it is looked up."""

    message_id: str = ""
    msg_type: str = ""
    root_id: str | None = None
    thread_id: str | None = None
    sender: From = From()
    body: Body = Body()


class _Items(msgspec.Struct, frozen=True):
    items: tuple[Item, ...] = ()


class _Chat(msgspec.Struct, frozen=True):
    chat_mode: str = "group"


class Api:
    """`server` has no slash at its end; `timeout_s` is for a whole call."""

    def __init__(self, app_id: str, secret: str, server: str, *, timeout_s: float) -> None:
        self._app = (app_id, secret, server)
        self._timeout_s = timeout_s
        self._opened: Calls | None = None

    @property
    def _calls(self) -> Calls:
        if self._opened is None:
            raise NotAccepted("the channel is not open")
        return self._opened

    async def open(self) -> Me:
        """Find out who we are. Raises ChannelBroken, NotAccepted, Throttled."""
        if self._opened is None:
            self._opened = Calls(*self._app, timeout_s=self._timeout_s)
        try:
            bot = _decoded((await self._calls.unseen("GET", "/open-apis/bot/v3/info")).bot, _Bot)
        except PostRefused as exc:
            raise ChannelBroken(
                f"the app has no bot ({exc.reason}): add one under Features, publish a version"
            ) from exc
        if not bot.open_id or bot.activate_status in (1, 5):
            raise ChannelBroken(
                "the app's bot is not active: publish a version of it, and let an administrator turn it on"
            )
        return Me(self._app[0], bot.open_id)

    async def close(self) -> None:
        if self._opened is not None:
            await self._opened.close()
            self._opened = None

    async def connect(self) -> sockets.Connection:
        """One long connection. Raises ChannelBroken, NotAccepted."""
        return await sockets.connect(self._calls)

    # --- out

    async def send(self, post: Post) -> str:
        """The id of what was posted. Raises NotDelivered, ChannelBroken."""
        if post.file is None:
            content = cards.shown(post)
            id = await self._say(post.target, content, uuid(post.key), post.reply_to)
            return TEXT + id if content.msg_type == "text" else id
        content = await self._uploaded(post.file) if cards.can_go(post.file) else cards.not_sent(post.file)
        if not post.buttons:
            return await self._say(post.target, content, uuid(post.key), post.reply_to)
        await self._say(post.target, content, uuid(f"{post.key}:file"), post.reply_to)
        below = cards.text(post) if post.as_plain else cards.below_a_file(post)
        return await self._say(post.target, below, uuid(post.key), None)

    async def edit(self, id: str, post: Post) -> None:
        """Raises NotDelivered, ChannelBroken."""
        is_text, id = id.startswith(TEXT), id.removeprefix(TEXT)
        content = cards.text(post) if is_text else cards.card(post)
        try:
            if is_text:
                await self._calls.call("PUT", f"{MESSAGES}/{id}", json=content)
            else:
                await self._calls.call("PATCH", f"{MESSAGES}/{id}", json={"content": content.content})
        except Said as said:
            if said.code in GONE or said.code in NO_TOPIC:  # of a change, the latter: so often, and no more
                raise PostRefused(f"{said.code}: it can be changed no more") from said
            raise refusal(said) from said

    async def _say(self, place: PostTarget, content: Content, key: str, reply_to: str | None) -> str:
        """In its topic, or as an answer, or into the chat; where a topic cannot be, or what is to
        be answered is gone, in the next best form."""
        body: dict[str, object] = {"msg_type": content.msg_type, "content": content.content, "uuid": key}
        answered = place.thread or (reply_to if reply_to and MESSAGE_ID.fullmatch(reply_to) else None)
        try:
            if answered is None:
                return await self._said("", body | {"receive_id": place.chat_id}, {"receive_id_type": "chat_id"})
            try:
                return await self._said(f"/{answered}/reply", body | {"reply_in_thread": place.thread is not None})
            except Said as said:
                if place.thread is not None and said.code in NO_TOPIC:
                    return await self._said(f"/{answered}/reply", body)
                if said.code not in GONE and not _names_no_message(said):
                    raise
                if place.thread is not None:
                    raise ChatClosed(f"{said.code}: what was asked is gone") from said
                return await self._said("", body | {"receive_id": place.chat_id}, {"receive_id_type": "chat_id"})
        except Said as said:
            raise refusal(said) from said

    async def _said(self, path: str, body: dict[str, object], params: dict[str, str] | None = None) -> str:
        answer = await self._calls.call("POST", MESSAGES + path, json=body, params=params)
        try:
            return _read(answer, _Sent).message_id
        except NotAccepted as exc:
            raise MaybeSent("an answer without an id") from exc

    async def _uploaded(self, file: File) -> Content:
        """The file there. Nobody sees it yet: whatever went wrong, it is surely not shown."""
        if cards.is_image(file):
            try:
                return cards.image(
                    _read(await self._upload("images", "image", file, image_type="message"), _Key).image_key
                )
            except PostRefused:
                kind = "stream"  # an image that Feishu cannot read is a file
        else:
            kind = cards.file_type(file)
        told = await self._upload("files", "file", file, file_type=kind, file_name=file.name)
        return cards.attached(kind, _read(told, _Key).file_key)

    async def _upload(self, path: str, part: str, file: File, **fields: str) -> Answer:
        def form() -> aiohttp.FormData:
            made = aiohttp.FormData(fields)
            made.add_field(part, file.data, filename=file.name, content_type=file.media_type)
            return made

        return await self._calls.unseen("POST", f"/open-apis/im/v1/{path}", form=form)

    # --- looked up

    async def items(self, message_id: str) -> tuple[Item, ...]:
        """A message, and those that were passed on with it. Raises NotDelivered, ChannelBroken."""
        return _read(await self._calls.unseen("GET", f"{MESSAGES}/{message_id}"), _Items).items

    async def is_group(self, chat_id: str) -> bool:
        """Raises NotDelivered, ChannelBroken."""
        answer = await self._calls.unseen("GET", f"/open-apis/im/v1/chats/{chat_id}")
        return _read(answer, _Chat).chat_mode != "p2p"

    async def fetch(self, handle: str) -> AsyncIterator[bytes]:
        """The bytes of a file of a person, in parts. Raises NotDelivered."""
        found = _HANDLE.fullmatch(handle)
        if found is None:
            raise PostRefused("the handle of a file has a strange form")
        try:
            path = f"{MESSAGES}/{found[1]}/resources/{found[3]}"
            async with self._calls.download(path, {"type": found[2]}) as answer:
                async for part in answer.content.iter_chunked(PART_BYTES):
                    yield part
        except Said as said:
            error = refusal(said)
            raise (error if isinstance(error, PostRefused) else NotAccepted(f"no file: {said}")) from said
        except (aiohttp.ClientError, TimeoutError, ChannelBroken, MaybeSent) as exc:
            raise NotAccepted(type(exc).__name__) from exc


def _names_no_message(said: Said) -> bool:
    return said.code == 230001 and "message_id" in said.msg


def _read(answer: Answer, kind: type[T]) -> T:
    return _decoded(answer.data, kind)


def _decoded(body: msgspec.Raw, kind: type[T]) -> T:
    """Raises NotAccepted when the form is another one."""
    try:
        return msgspec.json.decode(body, type=kind)
    except msgspec.DecodeError as exc:
        raise NotAccepted("an answer of no known form") from exc
