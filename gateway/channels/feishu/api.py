"""Client for one Feishu app: identity, posting, and look-ups."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from typing import Any, Final, TypeVar

import aiohttp
import msgspec

from gateway.channels.feishu import cards
from gateway.channels.feishu.calls import FeishuCalls
from gateway.channels.feishu.cards import MessageContent, post_uuid
from gateway.channels.feishu.connection import LongConnection, open_connection
from gateway.channels.feishu.parse import MESSAGE_ID, FeishuIdentity
from gateway.channels.feishu.refusals import GONE, NO_TOPIC, FeishuError, map_error
from gateway.platform.protocol import (
    ChannelBroken,
    ChatClosed,
    File,
    MaybeSent,
    NotAccepted,
    Post,
    PostRefused,
    PostTarget,
    RemoteFile,
)
from shared.network.outgoing import Outgoing

MESSAGES: Final = "/open-apis/im/v1/messages"
TEXT: Final = "text/"
"""Prefix of the id of a text message: it is edited by another call than a card."""

_HANDLE: Final = re.compile(r"(om_[0-9A-Za-z_-]{1,120})/(image|file)/([0-9A-Za-z_-]{1,200})")

T = TypeVar("T", bound=msgspec.Struct)


class _Bot(msgspec.Struct, frozen=True):
    open_id: str = ""
    activate_status: int = 2


class _Sender(msgspec.Struct, frozen=True):
    id: str | None = None  # a person's open_id, or an app's id


class _Body(msgspec.Struct, frozen=True):
    content: str | None = None  # JSON of a form for each type


class Item(msgspec.Struct, frozen=True):
    """A message, as a look-up returns it."""

    message_id: str = ""
    msg_type: str = ""
    root_id: str | None = None
    thread_id: str | None = None
    sender: _Sender = _Sender()
    body: _Body = _Body()


class _Data(msgspec.Struct, frozen=True):  # of all replies
    message_id: str = ""
    image_key: str = ""
    file_key: str = ""
    items: tuple[Item, ...] = ()
    chat_mode: str = "group"


class FeishuApi:
    """A client for one app. `server` has no trailing slash; `timeout_s` limits a whole call."""

    def __init__(
        self,
        app_id: str,
        secret: str,
        server: str,
        *,
        timeout_s: float,
        outgoing: Outgoing | None = None,
    ) -> None:
        self._app_id = app_id
        self._calls = FeishuCalls(app_id, secret, server, timeout_s=timeout_s, outgoing=outgoing)
        self.close = self._calls.http.close

    async def open(self) -> FeishuIdentity:
        """Return who the bot is. Raises ChannelBroken, NotAccepted, Throttled."""
        try:
            reply = await self._calls.call_invisible("GET", "/open-apis/bot/v3/info")
            bot = _decode(reply.bot, _Bot)
        except PostRefused as exc:
            raise ChannelBroken(
                f"the app has no bot ({exc.reason}): add one under Features, publish a version"
            ) from exc
        if not bot.open_id or bot.activate_status in (1, 5):
            raise ChannelBroken(
                "the app's bot is not active: publish a version of it, and let an administrator turn it on"
            )
        return FeishuIdentity(self._app_id, bot.open_id)

    async def connect(self) -> LongConnection:
        """Open one long connection. Raises ChannelBroken, NotAccepted."""
        return await open_connection(self._calls)

    # --- out

    async def send(self, post: Post) -> str:
        """Send a post and return its id. Raises NotDelivered, ChannelBroken."""
        words = cards.text_content(post) if post.as_plain else cards.card_content(post)
        if post.file is None:
            id = await self._place(post.target, words, post_uuid(post.key), post.reply_to)
            return TEXT + id if post.as_plain else id
        if 0 < len(post.file.data) <= cards.FILE_BYTES:
            content = await self._upload_file(post.file)
        else:
            content = cards.unsupported_note(post.file)
        if not post.buttons:
            return await self._place(post.target, content, post_uuid(post.key), post.reply_to)
        await self._place(post.target, content, post_uuid(f"{post.key}:file"), post.reply_to)
        return await self._place(post.target, words, post_uuid(post.key), None)

    async def edit(self, id: str, post: Post) -> None:
        """Replace a message with a post. Raises NotDelivered, ChannelBroken."""
        try:
            if id.startswith(TEXT):
                path = f"{MESSAGES}/{id.removeprefix(TEXT)}"
                await self._calls.call("PUT", path, json=cards.text_content(post))
            else:
                content = cards.card_content(post).content
                await self._calls.call("PATCH", f"{MESSAGES}/{id}", json={"content": content})
        except FeishuError as error:
            if error.code in GONE | NO_TOPIC:  # of a change, the latter: so often, and no more
                raise PostRefused(f"{error.code}: it can be changed no more") from error
            raise map_error(error) from error

    async def _place(self, place: PostTarget, content: MessageContent, key: str, reply_to: str | None) -> str:
        """Post into the topic, as a reply, or into the chat: in the best form that is possible."""
        body: dict[str, object] = {"msg_type": content.msg_type, "content": content.content, "uuid": key}
        answered = place.thread
        in_topic = place.thread is not None
        if answered is None and reply_to and MESSAGE_ID.fullmatch(reply_to):
            answered = reply_to
        try:
            if answered is not None:
                reply = f"/{answered}/reply"
                try:
                    return await self._post(reply, body | {"reply_in_thread": in_topic})
                except FeishuError as error:
                    if in_topic and error.code in NO_TOPIC:
                        return await self._post(reply, body)
                    is_unknown = error.code == 230001 and "message_id" in error.msg
                    if error.code not in GONE and not is_unknown:
                        raise
                    if in_topic:
                        raise ChatClosed(f"{error.code}: what was asked is gone") from error
            body["receive_id"] = place.chat_id
            return await self._post("", body, receive_id_type="chat_id")
        except FeishuError as error:
            raise map_error(error) from error

    async def _post(self, path: str, body: dict[str, object], **params: str) -> str:
        answer = await self._calls.call("POST", MESSAGES + path, json=body, params=params)
        try:
            if id := _decode(answer.data, _Data).message_id:
                return id
        except NotAccepted as exc:
            raise MaybeSent("an answer without an id") from exc
        raise MaybeSent("an answer without an id")

    async def _upload_file(self, file: File) -> MessageContent:
        """Upload a file and return its content. Nobody sees it yet, so a failure is certain."""
        kind = cards.file_type(file)
        if cards.is_image(file):
            try:
                data = await self._upload_form("images", "image", file, image_type="message")
                return cards.key_content("image", data.image_key)
            except PostRefused:
                kind = "stream"  # an image that Feishu cannot read is a file
        data = await self._upload_form("files", "file", file, file_type=kind, file_name=file.name)
        return cards.key_content(kind, data.file_key)

    async def _upload_form(self, path: str, part: str, file: File, **fields: str) -> _Data:
        def form() -> aiohttp.FormData:
            made = aiohttp.FormData(fields)
            made.add_field(part, file.data, filename=file.name, content_type=file.media_type)
            return made

        return await self._look_up("POST", f"/open-apis/im/v1/{path}", form=form)

    # --- looked up

    async def get_items(self, message_id: str) -> tuple[Item, ...]:
        """Return a message, and those forwarded with it. Raises NotDelivered, ChannelBroken."""
        return (await self._look_up("GET", f"{MESSAGES}/{message_id}")).items

    async def is_group(self, chat_id: str) -> bool:
        """Return whether a chat is a group. Raises NotDelivered, ChannelBroken."""
        chat = await self._look_up("GET", f"/open-apis/im/v1/chats/{chat_id}")
        return chat.chat_mode != "p2p"

    async def _look_up(self, method: str, path: str, **more: Any) -> _Data:
        return _decode((await self._calls.call_invisible(method, path, **more)).data, _Data)

    async def fetch(self, file: RemoteFile) -> AsyncIterator[bytes]:
        """Yield the bytes of a file that a person sent. Raises NotDelivered."""
        found = _HANDLE.fullmatch(file.handle)
        if found is None:
            raise PostRefused("the handle of a file has a strange form")
        path = f"{MESSAGES}/{found[1]}/resources/{found[3]}"
        try:
            async for part in self._calls.download(path, {"type": found[2]}):
                yield part
        except FeishuError as refused:
            error = map_error(refused)
            gone = isinstance(error, PostRefused)
            raise (error if gone else NotAccepted(f"no file: {refused}")) from refused
        except (ChannelBroken, MaybeSent) as exc:
            raise NotAccepted(type(exc).__name__) from exc


def _decode(body: msgspec.Raw, kind: type[T]) -> T:
    """Decode a body. Raises NotAccepted if it has another form."""
    try:
        return msgspec.json.decode(body, type=kind)
    except msgspec.DecodeError as exc:
        raise NotAccepted("an answer of no known form") from exc
