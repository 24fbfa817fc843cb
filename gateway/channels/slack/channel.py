"""Slack: one app in one workspace, by Socket Mode
(docs.slack.dev/apis/events-api/using-socket-mode) or by a webhook, on any replica. An event is
acknowledged after it was accepted; Slack repeats what is not.

The SDK's own client reconnects forever even with a revoked token, handles the messages of one chat
in parallel, and drops a connection before it has the next; slack-bolt builds on it. Here the next
one is opened while the old one is read: Slack announces a few seconds ahead that it closes it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial
from typing import Final

from msgspec.structs import replace

from gateway.channels.slack.api import SlackApi, SocketModeConnection
from gateway.channels.slack.parse import SlackEventParser, conversation_id
from gateway.channels.slack.render import render_reply
from gateway.channels.slack.roots import ThreadRoots
from gateway.channels.slack.settings import SlackSettings, read_slack
from gateway.channels.slack.wire import (
    Envelope,
    EventCallback,
    SlackEvent,
    SlackIdentity,
    UnreadablePayload,
    UrlVerification,
    is_signed,
    read_call,
    read_envelope,
    read_payload,
)
from gateway.channels.sockets import HOLD_S, SocketEvents
from gateway.channels.unsupported import cannot_type
from gateway.platform.protocol import (
    Abilities,
    ChannelBroken,
    HookAnswer,
    HookRequest,
    Inlet,
    NotAccepted,
    PlatformMessage,
    Post,
    Rate,
    RemoteFile,
    RunMode,
)
from gateway.platform.registry import BuiltPlatform, PlatformContext
from shared.clock import SYSTEM_CLOCK, Clock
from shared.log import logger
from shared.network.outgoing import for_channel

ABILITIES: Final = Abilities(
    run_modes=("socket", "webhook"),
    sockets=10,
    resend_guard="look-up",
    edit_every_s=1.5,
    buttons=25,
    media=True,
    threads=True,
    # One message a second in a channel, bursts for a moment, some hundred a minute in all; apart
    # from that fifty edits a minute in all (docs.slack.dev/apis/web-api/rate-limits, "Posting
    # messages"; chat.update is of Tier 3).
    rates=(Rate("bot", 4.0, 20, "posts"), Rate("chat", 1.0, 4, "posts"), Rate("bot", 0.75, 5, "edits")),
)

log = logger("slack")


def make(given: PlatformContext) -> BuiltPlatform:
    """Build the platform from its settings. Raises SettingsError."""
    settings = read_slack(given.name, given.table)
    return BuiltPlatform(SlackChannel(given.name, settings), settings)


class SlackChannel:
    """A Slack bot."""

    abilities = ABILITIES
    render = staticmethod(render_reply)
    typing = staticmethod(cannot_type)

    def __init__(self, name: str, settings: SlackSettings, *, clock: Clock = SYSTEM_CLOCK) -> None:
        self.name = name
        self.run_mode: RunMode = settings.run or "socket"
        self._settings = settings
        self._clock = clock
        app_token = settings.app_token.reveal() if settings.app_token is not None else ""
        self._api = api = SlackApi(
            settings.token.reveal(),
            settings.api,
            app_token=app_token,
            timeout_s=settings.timeout_s,
            outgoing=for_channel(settings.proxy),
        )
        self._roots = ThreadRoots(api.get_root)
        nobody = SlackIdentity("", "", "")
        self._parser = SlackEventParser(name, nobody, settings.threads, settings.command)

    def fetch(self, file: RemoteFile) -> AsyncIterator[bytes]:
        """Yield the bytes of a file that a person sent. Raises NotDelivered."""
        return self._api.fetch(file)

    async def close(self) -> None:
        await self._api.close()

    async def send(self, post: Post) -> str:
        """Send a post and return its id. Raises NotDelivered."""
        return await self._api.send(post)

    async def edit(self, id: str, post: Post) -> None:
        """Replace a message with a post. Raises NotDelivered."""
        await self._api.edit(id, post)

    async def find(self, post: Post) -> str | None:
        """Return the id of a post that an earlier try showed, or None. Raises NotDelivered."""
        return await self._api.find_post(post)

    async def open(self) -> None:
        self._parser = replace(self._parser, me=await self._api.open())

    async def listen(self, inlet: Inlet, until: asyncio.Event) -> None:
        accept = partial(self._accept_event, inlet=inlet)
        await SocketModeListener(self._api.connect, accept).run(until)

    async def hook(self, request: HookRequest, inlet: Inlet) -> HookAnswer:
        assert self._settings.signing_secret is not None
        secret = self._settings.signing_secret.reveal()
        now_s = self._clock.now_ms() / 1000
        if not is_signed(secret, request.headers, request.body, now_s=now_s):
            return HookAnswer(401)
        try:
            event = read_call(request.headers.get("content-type", ""), request.body)
        except UnreadablePayload as exc:
            log.warning("call not understood", why=str(exc))
            return HookAnswer(400)
        if isinstance(event, UrlVerification):
            return HookAnswer(body=event.word.encode())
        if event is not None:
            await self._accept_event(event, inlet)
        return HookAnswer()

    async def _accept_event(self, event: SlackEvent, inlet: Inlet) -> None:
        parsed = self._parser.parse_event(event, now_ms=self._clock.now_ms())
        if isinstance(parsed, PlatformMessage):
            if isinstance(event, EventCallback):
                parsed = await self._roots.complete(parsed, self._parser)
            await inlet.take(parsed)
        elif parsed is not None:
            await inlet.on_delete(parsed)


class SocketModeListener:
    """One run of listening: it ends on request or when the connection is lost."""

    def __init__(
        self,
        connect: Callable[[], Awaitable[SocketModeConnection]],
        accept: Callable[[SlackEvent], Awaitable[None]],
        hold_s: float = HOLD_S,
    ) -> None:
        self._accept = accept
        self._hold_s = hold_s
        self._events = SocketEvents("Slack", connect, self._read_envelopes)
        self.run = self._events.run

    async def _read_envelopes(self, socket: SocketModeConnection) -> None:
        """Start handling every envelope of a connection, until it ends."""
        while (frame := await socket.receive()) is not None:
            try:
                envelope = read_envelope(frame)
            except UnreadablePayload as exc:
                log.warning("frame not understood", why=str(exc))
                continue
            if envelope.type == "disconnect":
                self._on_disconnect(envelope.reason)
            elif envelope.envelope_id:
                await self._events.start(partial(self._handle_envelope, socket, envelope))

    def _on_disconnect(self, reason: str) -> None:
        match reason:
            case "link_disabled":
                raise ChannelBroken("Socket Mode is off: turn it on in the settings of the Slack app")
            case "too_many_websockets":
                raise NotAccepted("Slack has ten sockets of this app already")
            case _:  # warning, refresh_requested
                self._events.refresh()

    async def _handle_envelope(self, socket: SocketModeConnection, envelope: Envelope) -> None:
        event = None
        try:
            event = read_payload(envelope)
        except UnreadablePayload as exc:
            log.warning("event not understood", kind=envelope.type, why=str(exc))
        if event is not None:
            chat = conversation_id(event)
            accept = partial(self._accept, event)
            await self._events.accept(chat, accept, self._hold_s)
        # Also for one that could not be read: repeating it would not help.
        await socket.acknowledge(envelope.envelope_id)
