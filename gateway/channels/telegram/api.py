"""Client of the Bot API on aiogram: one try per call, every failure mapped to the protocol's."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Any, Final, TypeVar

import msgspec
from aiogram import Bot, exceptions, types
from aiogram.client.session.aiohttp import AiohttpSession
from aiogram.client.telegram import TelegramAPIServer
from aiogram.methods import TelegramMethod
from aiohttp import ClientError, ClientSession

from gateway.channels.http import NOT_CONNECTED
from gateway.channels.telegram.parse import ALLOWED_UPDATES, BY_NUMBER, TelegramIdentity
from gateway.channels.telegram.wire import Update
from gateway.platform.nulls import convert
from gateway.platform.protocol import (
    Button,
    ChannelBroken,
    ChatClosed,
    MarkupRefused,
    MaybeSent,
    NotAccepted,
    Post,
    PostRefused,
    PostTarget,
    RemoteFile,
    Throttled,
)
from shared.network.http_client import open_session
from shared.network.outgoing import Outgoing
from shared.version import VERSION

CALLBACK_BYTES: Final = 64  # largest payload of an inline button, in bytes
_PHOTO_BYTES: Final = 10_000_000
_PHOTOS: Final = ("image/jpeg", "image/png", "image/webp")
_UNREADABLE: Final = ("can't parse entities", "unsupported start tag", "can't find end")
_NO_WAY_IN: Final = (
    "chat not found",
    "not enough rights",
    "have no rights",
    "chat_write_forbidden",
    "chat_restricted",
    "peer_id_invalid",
    "topic_closed",
    "message thread not found",
    "need administrator rights",
)
_SAME: Final = "message is not modified"
_UNKNOWN_BOT: Final = (
    "Telegram does not know this bot: write the token that @BotFather shows into channels.telegram.token"
)

T = TypeVar("T")


class GetUpdates(TelegramMethod[list[dict[str, Any]]]):
    """The getUpdates call, returning raw dicts: `parse.py` decodes them."""

    __returning__ = list[dict[str, Any]]
    __api_method__ = "getUpdates"

    offset: int
    timeout: int
    allowed_updates: list[str]


class _BotSession(AiohttpSession):
    """aiogram's session over one of ours, which goes out as the operator says."""

    def __init__(self, base: str, outgoing: Outgoing | None, timeout_s: float) -> None:
        super().__init__(api=TelegramAPIServer.from_base(base), timeout=timeout_s)
        self._outgoing = outgoing

    async def create_session(self) -> ClientSession:
        if self._session is None or self._session.closed:
            self._session = open_session(self._outgoing, headers={"User-Agent": f"shoal/{VERSION}"})
        return self._session

    async def close(self) -> None:
        # aiogram waits a quarter of a second more, for TLS connections that aiohttp itself now
        # waits for.
        if self._session is not None:
            await self._session.close()


class TelegramApi:
    """A client for one bot; `timeout_s` limits a call. It raises NotDelivered, ChannelBroken."""

    def __init__(
        self,
        token: str,
        base: str,
        *,
        timeout_s: float,
        outgoing: Outgoing | None = None,
    ) -> None:
        self._timeout_s = timeout_s
        self._bot = Bot(token, session=_BotSession(base, outgoing, timeout_s))

    async def close(self) -> None:
        await self._bot.session.close()

    async def identify(self) -> TelegramIdentity:
        """Return who the bot is. Raises ChannelBroken for an invalid token."""
        user = await self._call_repeatable(self._bot.get_me())
        return TelegramIdentity(user.id, user.username or "")

    async def set_webhook(self, url: str, secret: str) -> None:
        """Register our webhook with Telegram."""
        updates = list(ALLOWED_UPDATES)
        await self._call_repeatable(
            self._bot.set_webhook(url, secret_token=secret, allowed_updates=updates, max_connections=40)
        )

    async def delete_webhook(self) -> None:
        """Switch Telegram to long polling. Pending updates are kept."""
        await self._call_repeatable(self._bot.delete_webhook(drop_pending_updates=False))

    async def get_updates(self, after: int, wait_s: float) -> Sequence[Update]:
        """Return the updates after `after`; asking confirms those up to it."""
        ask = GetUpdates(offset=after + 1, timeout=int(wait_s), allowed_updates=list(ALLOWED_UPDATES))
        # The HTTP timeout must outlast the long poll, or every quiet poll would look like a lost
        # connection.
        found = await self._call_repeatable(self._bot(ask, request_timeout=int(wait_s + self._timeout_s)))
        return [update for one in found if (update := _convert_update(one)) is not None]

    async def send(self, post: Post) -> str:
        """Send a post and return the message's id."""
        message = await self._call_chat(lambda chat: self._send(chat, post), post.target.chat_id)
        return str(message.message_id)

    async def edit(self, id: str, post: Post) -> None:
        """Replace a message with a post."""

        async def change(chat: str) -> None:
            await self._bot.edit_message_text(
                chat_id=chat, message_id=int(id), reply_markup=_keyboard(post.buttons), **_text(post)
            )

        await self._call_chat(change, post.target.chat_id)

    async def typing(self, target: PostTarget) -> None:
        thread = int(target.thread) if target.thread else None
        await self._bot.send_chat_action(target.chat_id, "typing", message_thread_id=thread)

    async def confirm_press(self, id: str) -> None:
        """Stop the spinner on a pressed button."""
        with contextlib.suppress(exceptions.AiogramError):
            await self._bot.answer_callback_query(id)

    async def fetch(self, file: RemoteFile) -> AsyncIterator[bytes]:
        """Yield the bytes of a file."""
        found = await self._call_chat(lambda _chat: self._bot.get_file(file.handle), "")
        url = self._bot.session.api.file_url(self._bot.token, found.file_path or "")
        try:
            async for part in self._bot.session.stream_content(url, timeout=int(self._timeout_s)):
                yield part
        except (ClientError, TimeoutError) as exc:
            raise NotAccepted(type(exc).__name__) from exc

    async def _send(self, chat: str, post: Post) -> Any:
        reply = None
        answered = f"{post.reply_to}/".split("/")[1]  # of <chat>/<message>; a press has none
        if answered.isdecimal():
            reply = types.ReplyParameters(message_id=int(answered), allow_sending_without_reply=True)
        where: dict[str, Any] = {
            "message_thread_id": int(post.target.thread) if post.target.thread else None,
            "reply_parameters": reply,
            "reply_markup": _keyboard(post.buttons),
        }
        if (file := post.file) is None:
            return await self._bot.send_message(chat, **_text(post), **where)
        data = types.BufferedInputFile(file.data, filename=file.name)
        if file.media_type in _PHOTOS and file.size_bytes <= _PHOTO_BYTES:
            return await self._bot.send_photo(chat, data, **where)
        if file.is_voice_note:
            return await self._bot.send_voice(chat, data, **where)
        return await self._bot.send_document(chat, data, **where)

    async def _call_chat(self, call: Callable[[str], Awaitable[T]], chat: str) -> T:
        """Run a call into a chat. A group that became a supergroup has a new id: retry there."""
        try:
            try:
                return await call(chat)
            except exceptions.TelegramMigrateToChat as moved:
                return await call(str(moved.migrate_to_chat_id))
        except exceptions.AiogramError as exc:
            if isinstance(exc, exceptions.TelegramBadRequest) and _SAME in exc.message.lower():
                return None  # type: ignore[return-value]  # an edit that changes nothing has succeeded
            raise _map_error(exc) from exc

    async def _call_repeatable(self, call: Awaitable[T]) -> T:
        """Run a call that is safe to repeat, so an unclear outcome counts as a failure."""
        try:
            return await call
        except (exceptions.TelegramUnauthorizedError, exceptions.TelegramNotFound) as exc:
            raise ChannelBroken(_UNKNOWN_BOT) from exc
        except exceptions.TelegramConflictError as exc:
            raise NotAccepted("somebody else asks for this bot's messages") from exc
        except exceptions.TelegramRetryAfter as exc:
            raise NotAccepted(f"too many requests; again in {exc.retry_after} s") from exc
        except exceptions.AiogramError as exc:
            raise NotAccepted(type(exc).__name__) from exc


def _convert_update(update: dict[str, Any]) -> Update | None:
    """Return the update; an unreadable one is empty, or None, and cannot block those after it."""
    try:
        return convert(update, Update)
    except msgspec.ValidationError:
        number = update.get("update_id")
        return Update(number) if isinstance(number, int) else None


def _map_error(exc: exceptions.AiogramError) -> Exception:
    """Return the error that a failed call into a chat stands for, without Telegram's text."""
    match exc:
        case exceptions.TelegramRetryAfter():
            return Throttled(float(exc.retry_after))
        case exceptions.TelegramUnauthorizedError():
            return ChannelBroken(_UNKNOWN_BOT)
        case exceptions.TelegramForbiddenError():
            return ChatClosed("403: the bot was blocked or put out")
        case exceptions.TelegramBadRequest():
            words = exc.message.lower()
            if any(word in words for word in _UNREADABLE):
                return MarkupRefused("400: the markup cannot be read")
            if any(word in words for word in _NO_WAY_IN):
                return ChatClosed("400: the bot cannot write there")
            return PostRefused("400: refused by the Bot API")
        case exceptions.TelegramEntityTooLarge() | exceptions.TelegramNotFound():
            return PostRefused(f"{type(exc).__name__} of the Bot API")
        case exceptions.TelegramServerError():
            # A proxy of the Bot API says so, too, of what went through.
            return MaybeSent("the Bot API is out of order")
        case exceptions.TelegramNetworkError():
            # Without a connection the request cannot have arrived.
            arrived = not isinstance(exc.__cause__, NOT_CONNECTED)
            return MaybeSent("no answer") if arrived else NotAccepted("no connection")
        case _:
            return MaybeSent(type(exc).__name__)


def _text(post: Post) -> dict[str, Any]:
    """Return the arguments that a new message and an edit share."""
    mode = None if post.as_plain else "HTML"
    preview = types.LinkPreviewOptions(is_disabled=True)
    return {"text": post.text, "parse_mode": mode, "link_preview_options": preview}


def _keyboard(buttons: Sequence[Button]) -> types.InlineKeyboardMarkup | None:
    rows = []
    for number, button in enumerate(buttons):
        data = button.says
        if len(data.encode()) > CALLBACK_BYTES or data.startswith(BY_NUMBER):
            data = f"{BY_NUMBER}{number}"
        rows.append([types.InlineKeyboardButton(text=button.label, callback_data=data)])
    return types.InlineKeyboardMarkup(inline_keyboard=rows) if rows else None
