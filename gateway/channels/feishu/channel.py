"""Feishu and Lark: one self-built app, over long connections or by a webhook, on any replica."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from functools import partial
from typing import Final, TypeVar

import msgspec
from msgspec.structs import replace

from gateway.channels.feishu.api import FeishuApi, Item
from gateway.channels.feishu.cipher import decrypt_body, is_same_secret, is_signed
from gateway.channels.feishu.contents import BOT_WORDS, OWN_WORDS, forwarded_text, quoted_text
from gateway.channels.feishu.listener import LongConnectionListener
from gateway.channels.feishu.parse import FeishuEventParser, FeishuIdentity, ParsedMessage, is_group
from gateway.channels.feishu.render import render_reply
from gateway.channels.feishu.settings import FeishuSettings, read_feishu
from gateway.channels.feishu.wire import (
    CardPressed,
    FeishuEvent,
    Message,
    MessageRecalled,
    MessageReceived,
    UrlCheck,
    read_event,
)
from gateway.channels.unsupported import cannot_find, cannot_type
from gateway.platform.access import EVERYBODY
from gateway.platform.protocol import (
    Abilities,
    ChannelBroken,
    HookAnswer,
    HookRequest,
    Inlet,
    InletVerdict,
    NotDelivered,
    PlatformMessage,
    Post,
    Rate,
    RemoteFile,
    RunMode,
)
from gateway.platform.registry import BuiltPlatform, PlatformContext
from gateway.text.quotes import Quote, is_strange, with_quote
from shared.clock import SYSTEM_CLOCK, Clock
from shared.log import logger
from shared.messages.inbound import InboundMessage
from shared.network.outgoing import for_channel

ABILITIES: Final = Abilities(
    run_modes=("socket", "webhook"),
    sockets=50,
    resend_guard="key",
    edit_every_s=1.0,
    buttons=10,
    media=True,
    threads=True,
    # Fifty a second and a thousand a minute of each call, new messages and changes apart; five
    # messages a second to one person, or into one group, there shared by all bots; five changes a
    # second of one card.
    rates=(
        Rate("bot", 30.0, 20, "posts"),
        Rate("bot", 15.0, 100, "posts"),
        Rate("chat", 3.0, 2, "posts"),
        Rate("bot", 30.0, 20, "edits"),
        Rate("bot", 15.0, 100, "edits"),
        Rate("chat", 3.0, 2, "edits"),
    ),
)

MAX_KNOWN: Final = 10_000
"""Limit for remembered chats and posts per process."""

MAX_ANSWERED: Final = 500
"""Limit for remembered messages that others answered."""

CHECK_BYTES: Final = 4096
"""An unsigned body is read only for the address check, which is short."""

T = TypeVar("T")

log = logger("feishu")


def make(given: PlatformContext) -> BuiltPlatform:
    """Build the platform from its settings. Raises SettingsError."""
    settings = read_feishu(given.name, given.table)
    return BuiltPlatform(FeishuChannel(given.name, settings), settings)


class FeishuChannel:
    """A Feishu or Lark app."""

    abilities = ABILITIES
    render = staticmethod(render_reply)
    find = staticmethod(cannot_find)
    typing = staticmethod(cannot_type)

    def __init__(self, name: str, settings: FeishuSettings, *, clock: Clock = SYSTEM_CLOCK) -> None:
        self.name = name
        self.run_mode: RunMode = settings.run or "socket"
        self._settings = settings
        self._clock = clock
        secret = settings.app_secret.reveal()
        self._api = FeishuApi(
            settings.app_id,
            secret,
            settings.server,
            timeout_s=settings.timeout_s,
            outgoing=for_channel(settings.proxy),
        )
        self._parser = FeishuEventParser(name, FeishuIdentity(settings.app_id), settings.threads)
        self._groups: dict[str, bool] = {}
        self._own_messages: dict[str, bool] = {}
        self._topics: dict[str, str] = {}
        self._answered: dict[str, Item | None] = {}

    def fetch(self, file: RemoteFile) -> AsyncIterator[bytes]:
        """Yield the bytes of a file that a person sent. Raises NotDelivered."""
        return self._api.fetch(file)

    async def close(self) -> None:
        await self._api.close()

    async def edit(self, id: str, post: Post) -> None:
        """Replace a message with a post. Raises NotDelivered."""
        await self._api.edit(id, post)

    async def open(self) -> None:
        self._parser = replace(self._parser, me=await self._api.open())

    async def listen(self, inlet: Inlet, until: asyncio.Event) -> None:
        accept = partial(self._accept_event, inlet=inlet)
        await LongConnectionListener(self._api.connect, accept).run(until)

    async def hook(self, request: HookRequest, inlet: Inlet) -> HookAnswer:
        assert self._settings.encrypt_key is not None
        assert self._settings.verification_token is not None
        key = self._settings.encrypt_key.reveal()
        now_s = self._clock.now_ms() / 1000
        signed = is_signed(key, request.headers, request.body, now_s=now_s)
        if not signed and len(request.body) > CHECK_BYTES:
            return HookAnswer(401)
        try:
            event = read_event(decrypt_body(key, request.body))
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return HookAnswer(400 if signed else 401)
        header = event.header if isinstance(event, FeishuEvent) else event
        token = header.token if header is not None else None
        if not is_same_secret(token or "", self._settings.verification_token.reveal()):
            return HookAnswer(401)
        if isinstance(event, UrlCheck):  # Feishu signs everything but this
            return _json_reply(msgspec.json.encode({"challenge": event.challenge}))
        if not signed:
            return HookAnswer(401)
        toast = await self._accept_event(event, inlet) if isinstance(event, FeishuEvent) else None
        return _json_reply(toast or b"{}")

    async def _accept_event(self, event: FeishuEvent, inlet: Inlet) -> bytes | None:
        """Pass an event to the inlet, and return the toast for a pressed button."""
        now_ms = self._clock.now_ms()
        match event.event:
            case MessageReceived(message) as received:
                _remember(self._groups, message.chat_id, is_group(message.chat_type))
                parsed = self._parser.parse_message(event.header, received, now_ms=now_ms)
                if parsed is not None:
                    await inlet.take(await self._complete_message(parsed))
            case MessageRecalled() as recalled:
                await self._accept_recall(recalled, inlet, now_ms)
            case CardPressed() as pressed:
                press = self._parser.parse_press(event.header, pressed, now_ms=now_ms)
                return _toast(press, await inlet.take(press)) if press is not None else b"{}"
        return None

    async def _complete_message(self, parsed: ParsedMessage) -> PlatformMessage:
        """Look up what an event does not contain. If that fails, the message stays as it is."""
        message = parsed.message
        inbound = parsed.message.message
        if message.own or message.from_bot:
            return message
        try:
            is_read = self._is_group_read(inbound.chat_id)
            if message.group and not message.addressed and parsed.parent and is_read:
                message = replace(message, addressed=await self._is_own_message(parsed.parent))
            if parsed.parent and message.addressed and (is_read or not message.group):
                message = await self._add_quote(message, parsed.parent)
            if parsed.is_forward and (message.addressed or is_read):
                items = await self._api.get_items(inbound.id)
                parts = [
                    (one.sender.id or "", one.msg_type, one.body.content or "")
                    for one in items
                    if one.message_id != inbound.id
                ]
                if text := forwarded_text(parts):
                    message = replace(message, message=replace(inbound, content=text))
        except (NotDelivered, ChannelBroken) as exc:
            log.warning("message not looked up", channel=self.name, reason=str(exc))
        return message

    async def _add_quote(self, message: PlatformMessage, parent: str) -> PlatformMessage:
        """Return the message below the one that it answers; the first one of a topic, which every
        message there may answer, is quoted once."""
        inbound = message.message
        ours = self._settings.app_id
        if inbound.thread == parent:
            if self._topics.get(parent, inbound.id) != inbound.id:
                return message
            _remember(self._topics, parent, inbound.id)
        answered = await self._answered_message(parent)
        if answered is None:
            return message
        author = answered.sender.id or ""
        kind = answered.msg_type
        familiar = (author == ours and kind in BOT_WORDS) or (author == inbound.sender_id and kind in OWN_WORDS)
        text = quoted_text(kind, answered.body.content or "")
        quote = Quote(text, "the bot" if author == ours else author, familiar)
        whole = replace(inbound, content=with_quote(inbound.content, quote))
        return replace(message, message=whole, forwarded=message.forwarded or is_strange(quote))

    def _is_group_read(self, chat: str) -> bool:
        """Return whether messages there are worth a look-up."""
        listed = self._settings.allow_groups
        return self._settings.groups != "off" and (chat in listed or EVERYBODY in listed)

    async def _is_own_message(self, message_id: str) -> bool:
        if message_id not in self._own_messages:
            answered = await self._answered_message(message_id)
            is_ours = answered is not None and answered.sender.id == self._settings.app_id
            _remember(self._own_messages, message_id, is_ours)
        return self._own_messages[message_id]

    async def _answered_message(self, message_id: str) -> Item | None:
        if message_id not in self._answered:
            items = await self._api.get_items(message_id)
            if len(self._answered) >= MAX_ANSWERED:
                self._answered.clear()
            self._answered[message_id] = items[0] if items else None
        return self._answered[message_id]

    async def _accept_recall(self, recalled: MessageRecalled, inlet: Inlet, now_ms: int) -> None:
        """Report a recalled message; look up its topic, and whether its chat is a group."""
        try:
            found = next(iter(await self._api.get_items(recalled.message_id)), None)
            if recalled.chat_id not in self._groups:
                group = await self._api.is_group(recalled.chat_id)
                _remember(self._groups, recalled.chat_id, group)
        except (NotDelivered, ChannelBroken) as exc:
            log.warning("recall not accepted", channel=self.name, reason=str(exc))
            return
        message = Message(recalled.message_id, recalled.chat_id)
        if found is not None:
            message = replace(message, root_id=found.root_id, thread_id=found.thread_id)
        await inlet.on_delete(
            InboundMessage(
                channel=self.name,
                chat_id=recalled.chat_id,
                sender_id="",
                id=recalled.message_id,
                content="",
                timestamp=now_ms,
                thread=self._parser.thread_id(message, group=self._groups[recalled.chat_id]),
            )
        )

    async def send(self, post: Post) -> str:
        id = await self._api.send(post)
        _remember(self._own_messages, id.rpartition("/")[2], True)
        return id


def _remember(known: dict[str, T], id: str, value: T) -> None:
    if len(known) >= MAX_KNOWN:
        known.clear()
    known[id] = value


def _toast(message: PlatformMessage, verdict: InletVerdict) -> bytes:
    """Return a line that is shown for a moment."""
    well = verdict in ("taken", "command", "duplicate")
    content = f"✓ {message.message.content[:60]}" if well else "✗"
    toast = {"type": "success" if well else "error", "content": content}
    return msgspec.json.encode({"toast": toast})


def _json_reply(body: bytes) -> HookAnswer:
    return HookAnswer(body=body, media_type="application/json; charset=utf-8")
