"""Feishu and Lark: one self-built app, over long connections or by a webhook, on any replica."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Final

import msgspec

from gateway.channels.feishu.api import Api
from gateway.channels.feishu.cipher import opened
from gateway.channels.feishu.contents import forwarded
from gateway.channels.feishu.listener import Listener
from gateway.channels.feishu.parse import Asked, Hearing, Me, is_group
from gateway.channels.feishu.render import render
from gateway.channels.feishu.settings import FeishuSettings, read_feishu
from gateway.channels.feishu.signature import is_signed, same
from gateway.channels.feishu.wire import Check, Header, Message, Pressed, Recalled, Received, Told, read_event
from gateway.platform.access import EVERYBODY
from gateway.platform.protocol import (
    Abilities,
    ChannelBroken,
    HookAnswer,
    HookRequest,
    Inlet,
    InletVerdict,
    NotDelivered,
    Piece,
    PlatformMessage,
    Post,
    PostTarget,
    Rate,
    RemoteFile,
    RunMode,
)
from gateway.platform.registry import BuiltPlatform, PlatformContext
from shared.clock import SYSTEM_CLOCK, Clock
from shared.log import logger
from shared.messages.inbound import InboundMessage

ABILITIES: Final = Abilities(
    run_modes=("socket", "webhook"),
    sockets=50,
    resend_guard="key",
    edit_every_s=1.0,
    buttons=10,
    media=True,
    threads=True,
    # Fifty a second and a thousand a minute of each call, new messages and changes apart; five messages a second to one
    # person, or into one group, there shared by all bots; five changes a second of one card.
    rates=(
        Rate("bot", 30.0, 20, "posts"),
        Rate("bot", 15.0, 100, "posts"),
        Rate("chat", 3.0, 2, "posts"),
        Rate("bot", 30.0, 20, "edits"),
        Rate("bot", 15.0, 100, "edits"),
        Rate("chat", 3.0, 2, "edits"),
    ),
)

KNOWN: Final = 10_000
"""So many chats and posts are remembered by a process."""

CHECK_BYTES: Final = 4096
"""What is not signed is read only for the check of the address, which is short."""

log = logger("feishu")


def make(given: PlatformContext) -> BuiltPlatform:
    """The platform of these settings. Raises SettingsError."""
    settings = read_feishu(given.name, given.table)
    return BuiltPlatform(Feishu(given.name, settings), settings)


class Feishu:
    """An app of Feishu or Lark."""

    abilities = ABILITIES

    def __init__(self, name: str, settings: FeishuSettings, *, clock: Clock = SYSTEM_CLOCK) -> None:
        self.name = name
        self.run_mode: RunMode = settings.run or "socket"
        self._settings = settings
        self._clock = clock
        secret = settings.app_secret.reveal()
        self._api = Api(settings.app_id, secret, settings.server, timeout_s=settings.timeout_s)
        self._hearing = Hearing(name, Me(settings.app_id), threads=settings.threads)
        self._groups: dict[str, bool] = {}
        self._ours: dict[str, bool] = {}

    async def open(self) -> None:
        self._hearing = Hearing(self.name, await self._api.open(), threads=self._settings.threads)

    async def close(self) -> None:
        await self._api.close()

    # --- in

    async def listen(self, inlet: Inlet, until: asyncio.Event) -> None:
        async def take(told: Told) -> bytes | None:
            return await self._take(told, inlet)

        await Listener(self._api.connect, take).listen(until)

    async def hook(self, request: HookRequest, inlet: Inlet) -> HookAnswer:
        assert self._settings.encrypt_key is not None
        assert self._settings.verification_token is not None
        key, now_s = self._settings.encrypt_key.reveal(), self._clock.now_ms() / 1000
        signed = is_signed(key, request.headers, request.body, now_s=now_s)
        if not signed and len(request.body) > CHECK_BYTES:
            return HookAnswer(401)
        try:
            told = read_event(opened(key, request.body))
        except (msgspec.DecodeError, RecursionError):
            return HookAnswer(400 if signed else 401)
        token = told.token if isinstance(told, Check) else _header(told).token
        if not same(token or "", self._settings.verification_token.reveal()):
            return HookAnswer(401)
        if isinstance(told, Check):  # Feishu signs everything but this
            return _json(msgspec.json.encode({"challenge": told.challenge}))
        if not signed:
            return HookAnswer(401)
        return _json((await self._take(told, inlet) if isinstance(told, Told) else None) or b"{}")

    async def _take(self, told: Told, inlet: Inlet) -> bytes | None:
        """What who pressed a button is shown."""
        now_ms = self._clock.now_ms()
        match told.event:
            case Received() as received:
                _keep(self._groups, received.message.chat_id, is_group(received.message.chat_type))
                asked = self._hearing.heard(told.header, received, now_ms=now_ms)
                if asked is not None:
                    await inlet.take(await self._looked_up(asked))
                return None
            case Recalled() as recalled:
                await self._recalled(recalled, inlet, now_ms)
                return None
            case Pressed() as pressed:
                heard = self._hearing.pressed(told.header, pressed, now_ms=now_ms)
                return _toast(heard, await inlet.take(heard)) if heard is not None else b"{}"

    async def _looked_up(self, asked: Asked) -> PlatformMessage:
        """With what an event does not tell. What cannot be looked up stays as it was told."""
        heard, message = asked.heard, asked.heard.message
        if heard.own or heard.from_bot:
            return heard
        try:
            if heard.group and not heard.addressed and asked.parent and self._listens_in(message.chat_id):
                heard = msgspec.structs.replace(heard, addressed=await self._is_ours(asked.parent))
            if asked.is_forward and (heard.addressed or self._listens_in(message.chat_id)):
                items = [one for one in await self._api.items(message.id) if one.message_id != message.id]
                text = forwarded([(one.sender.id or "", one.msg_type, one.body.content or "") for one in items])
                if text:
                    heard = msgspec.structs.replace(heard, message=msgspec.structs.replace(message, content=text))
        except (NotDelivered, ChannelBroken) as exc:
            log.warning("message not looked up", channel=self.name, reason=str(exc))
        return heard

    def _listens_in(self, chat: str) -> bool:
        """Whether it is worth a call to know more of what is said there."""
        listed = self._settings.allow_groups
        return self._settings.groups != "off" and (chat in listed or EVERYBODY in listed)

    async def _is_ours(self, message_id: str) -> bool:
        if message_id not in self._ours:
            items = await self._api.items(message_id)
            sender = items[0].sender.id if items else None
            _keep(self._ours, message_id, sender == self._settings.app_id)
        return self._ours[message_id]

    async def _recalled(self, recalled: Recalled, inlet: Inlet, now_ms: int) -> None:
        """Where it stood is not told: its topic is looked up, and whether its chat is a group."""
        try:
            found = next(iter(await self._api.items(recalled.message_id)), None)
            if recalled.chat_id not in self._groups:
                _keep(self._groups, recalled.chat_id, await self._api.is_group(recalled.chat_id))
        except (NotDelivered, ChannelBroken) as exc:
            log.warning("message not taken back", channel=self.name, reason=str(exc))
            return
        message = Message(
            recalled.message_id,
            recalled.chat_id,
            root_id=found.root_id if found is not None else None,
            thread_id=found.thread_id if found is not None else None,
        )
        await inlet.on_delete(
            InboundMessage(
                channel=self.name,
                chat_id=recalled.chat_id,
                sender_id="",
                id=recalled.message_id,
                content="",
                timestamp=now_ms,
                thread=self._hearing.thread_of(message, group=self._groups[recalled.chat_id]),
            )
        )

    def fetch(self, file: RemoteFile) -> AsyncIterator[bytes]:
        return self._api.fetch(file.handle)

    # --- out

    def render(self, markdown: str) -> list[Piece]:
        return render(markdown)

    async def send(self, post: Post) -> str:
        id = await self._api.send(post)
        _keep(self._ours, id.rpartition("/")[2], True)
        return id

    async def edit(self, id: str, post: Post) -> None:
        await self._api.edit(id, post)

    async def find(self, post: Post) -> str | None:
        return None  # the same key is not shown twice

    async def typing(self, target: PostTarget) -> None:
        """Feishu has no such sign for bots."""


def _header(told: Told | Header | None) -> Header:
    return told.header if isinstance(told, Told) else told or Header("")


def _keep(known: dict[str, bool], id: str, value: bool) -> None:
    if len(known) >= KNOWN:
        known.clear()
    known[id] = value


def _toast(heard: PlatformMessage, taken: InletVerdict) -> bytes:
    """A line that is shown for a moment."""
    well = taken in ("taken", "command", "duplicate")
    content = f"✓ {heard.message.content[:60]}" if well else "✗"
    return msgspec.json.encode({"toast": {"type": "success" if well else "error", "content": content}})


def _json(body: bytes) -> HookAnswer:
    return HookAnswer(body=body, media_type="application/json; charset=utf-8")
