"""The Bot API through aiogram: one try a call, every error as one that Shoal knows."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Any, Final, TypeVar

import msgspec
from aiogram import Bot
from aiogram.client.session.aiohttp import AiohttpSession
from aiogram.client.telegram import TelegramAPIServer
from aiogram.exceptions import (
    AiogramError,
    TelegramBadRequest,
    TelegramConflictError,
    TelegramEntityTooLarge,
    TelegramForbiddenError,
    TelegramMigrateToChat,
    TelegramNetworkError,
    TelegramNotFound,
    TelegramRetryAfter,
    TelegramServerError,
    TelegramUnauthorizedError,
)
from aiogram.methods import TelegramMethod
from aiogram.types import (
    BufferedInputFile,
    InlineKeyboardButton,
    InlineKeyboardMarkup,
    LinkPreviewOptions,
    ReplyParameters,
)
from aiohttp import ClientConnectorError, ClientError, ConnectionTimeoutError

from gateway.channels.telegram.parse import ALLOWED_UPDATES, BY_NUMBER, Me, Update
from gateway.platform.protocol import (
    Button,
    ChannelBroken,
    ChatClosed,
    File,
    MarkupRefused,
    MaybeSent,
    NotAccepted,
    Post,
    PostRefused,
    Throttled,
)

CALLBACK_BYTES: Final = 64
"""What a press of a button can carry."""

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

T = TypeVar("T")


class AskUpdates(TelegramMethod[list[dict[str, Any]]]):
    """getUpdates, as it came: `parse.py` reads it."""

    __returning__ = list[dict[str, Any]]
    __api_method__ = "getUpdates"

    offset: int
    timeout: int
    allowed_updates: list[str]


class Api:
    """One bot. `timeout_s` is for a whole call."""

    def __init__(self, token: str, base: str, *, timeout_s: float) -> None:
        self._timeout_s = timeout_s
        self._bot = Bot(token, session=AiohttpSession(api=TelegramAPIServer.from_base(base), timeout=timeout_s))

    async def close(self) -> None:
        await self._bot.session.close()

    async def me(self) -> Me:
        """Who we are. Raises ChannelBroken for a wrong token."""
        user = await self._sure(self._bot.get_me())
        return Me(user.id, user.username or "")

    async def hear_by_webhook(self, url: str, secret: str) -> None:
        """Have Telegram call us."""
        await self._sure(
            self._bot.set_webhook(url, secret_token=secret, allowed_updates=list(ALLOWED_UPDATES), max_connections=40)
        )

    async def hear_by_asking(self) -> None:
        """Have Telegram wait for questions; nothing that it has for us is dropped."""
        await self._sure(self._bot.delete_webhook(drop_pending_updates=False))

    async def updates(self, after: int, wait_s: float) -> Sequence[Update]:
        """What came behind update `after`, which is confirmed by this question. Raises NotAccepted,
        ChannelBroken."""
        ask = AskUpdates(offset=after + 1, timeout=int(wait_s), allowed_updates=list(ALLOWED_UPDATES))
        found = await self._sure(self._bot(ask, request_timeout=int(wait_s + self._timeout_s)))
        return [update for one in found if (update := _read(one)) is not None]

    async def send(self, post: Post) -> str:
        """The id of what was sent. Raises NotDelivered."""
        message = await self._told(lambda chat: self._send(chat, post), post.target.chat_id)
        return str(message.message_id)

    async def edit(self, id: str, post: Post) -> None:
        """Raises NotDelivered."""

        async def change(chat: str) -> None:
            await self._bot.edit_message_text(
                post.text,
                chat_id=chat,
                message_id=int(id),
                parse_mode=None if post.as_plain else "HTML",
                link_preview_options=LinkPreviewOptions(is_disabled=True),
                reply_markup=_keyboard(post.buttons),
            )

        await self._told(change, post.target.chat_id)

    async def typing(self, chat: str, thread: str | None) -> None:
        await self._bot.send_chat_action(chat, "typing", message_thread_id=int(thread) if thread else None)

    async def pressed(self, id: str) -> None:
        """End the little clock on the button that somebody pressed."""
        with contextlib.suppress(AiogramError):
            await self._bot.answer_callback_query(id)

    async def fetch(self, handle: str) -> AsyncIterator[bytes]:
        """The bytes of a file. Raises NotDelivered."""
        found = await self._told(lambda _chat: self._bot.get_file(handle), "")
        url = self._bot.session.api.file_url(self._bot.token, found.file_path or "")
        try:
            async for part in self._bot.session.stream_content(url, timeout=int(self._timeout_s)):
                yield part
        except (ClientError, TimeoutError) as exc:
            raise NotAccepted(type(exc).__name__) from exc

    async def _send(self, chat: str, post: Post) -> Any:
        thread = int(post.target.thread) if post.target.thread else None
        reply = None
        if post.reply_to is not None and (number := post.reply_to.split("/")[1:2]) and number[0].isdecimal():
            reply = ReplyParameters(message_id=int(number[0]), allow_sending_without_reply=True)
        where: dict[str, Any] = {
            "message_thread_id": thread,
            "reply_parameters": reply,
            "reply_markup": _keyboard(post.buttons),
        }
        if post.file is not None:
            return await self._send_file(chat, post.file, where)
        return await self._bot.send_message(
            chat,
            post.text,
            parse_mode=None if post.as_plain else "HTML",
            link_preview_options=LinkPreviewOptions(is_disabled=True),
            **where,
        )

    async def _send_file(self, chat: str, file: File, where: dict[str, Any]) -> Any:
        data = BufferedInputFile(file.data, filename=file.name)
        if file.media_type in _PHOTOS and file.size_bytes <= _PHOTO_BYTES:
            return await self._bot.send_photo(chat, data, **where)
        return await self._bot.send_document(chat, data, **where)

    async def _told(self, call: Callable[[str], Awaitable[T]], chat: str) -> T:
        """A call into a chat; a group that has become a bigger one has another id."""
        try:
            try:
                return await call(chat)
            except TelegramMigrateToChat as moved:
                return await call(str(moved.migrate_to_chat_id))
        except TelegramRetryAfter as exc:
            raise Throttled(float(exc.retry_after)) from exc
        except TelegramUnauthorizedError as exc:
            raise _broken() from exc
        except TelegramForbiddenError as exc:
            raise ChatClosed("403: the bot was blocked or put out") from exc
        except TelegramBadRequest as exc:
            error = _refusal(exc.message)
            if error is None:
                return None  # type: ignore[return-value]  # an edit that changes nothing has succeeded
            raise error from exc
        except (TelegramEntityTooLarge, TelegramNotFound) as exc:
            raise PostRefused(f"{type(exc).__name__} of the Bot API") from exc
        except TelegramServerError as exc:
            raise NotAccepted("the Bot API is out of order") from exc
        except TelegramNetworkError as exc:
            raise _lost(exc) from exc
        except AiogramError as exc:
            raise MaybeSent(type(exc).__name__) from exc

    async def _sure(self, call: Awaitable[T]) -> T:
        """A call that may be made again, whatever became of it."""
        try:
            return await call
        except (TelegramUnauthorizedError, TelegramNotFound) as exc:
            raise _broken() from exc
        except TelegramConflictError as exc:
            raise NotAccepted("somebody else asks for this bot's messages") from exc
        except TelegramRetryAfter as exc:
            raise NotAccepted(f"too many requests; again in {exc.retry_after} s") from exc
        except AiogramError as exc:
            raise NotAccepted(type(exc).__name__) from exc


def _read(update: dict[str, Any]) -> Update | None:
    """None for one of a form that nobody knows: it must not stand in the way of those behind it."""
    try:
        return msgspec.convert(update, Update)
    except msgspec.ValidationError:
        number = update.get("update_id")
        return Update(number) if isinstance(number, int) else None


def _broken() -> ChannelBroken:
    return ChannelBroken(
        "Telegram does not know this bot: write the token that @BotFather shows into channels.telegram.token"
    )


def _refusal(message: str) -> Exception | None:
    """What a 400 means; None when what was asked for is already so. The text holds no word of ours
    but the tag's."""
    words = message.lower()
    if _SAME in words:
        return None
    if any(word in words for word in _UNREADABLE):
        return MarkupRefused("400: the markup cannot be read")
    if any(word in words for word in _NO_WAY_IN):
        return ChatClosed("400: the bot cannot write there")
    return PostRefused("400: refused by the Bot API")


def _lost(exc: TelegramNetworkError) -> Exception:
    """Whether a request that has no answer may have arrived."""
    if isinstance(exc.__cause__, ClientConnectorError | ConnectionTimeoutError):
        return NotAccepted("no connection")
    return MaybeSent("no answer")


def _keyboard(buttons: Sequence[Button]) -> InlineKeyboardMarkup | None:
    rows = []
    for number, button in enumerate(buttons):
        data = button.says
        if len(data.encode()) > CALLBACK_BYTES or data.startswith(BY_NUMBER):
            data = f"{BY_NUMBER}{number}"
        rows.append([InlineKeyboardButton(text=button.label, callback_data=data)])
    return InlineKeyboardMarkup(inline_keyboard=rows) if rows else None
