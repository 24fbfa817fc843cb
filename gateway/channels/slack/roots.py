"""The first message of a thread, looked up once for the first reply that is for us: the thread's
conversation begins with the reply and would not have it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from gateway.channels.slack.parse import SlackEventParser
from gateway.channels.slack.wire import Message
from gateway.platform.protocol import ChannelBroken, NotDelivered, PlatformMessage
from shared.log import logger

MAX_THREADS = 10_000
"""Limit for remembered threads of a process."""

log = logger("slack")

Lookup = Callable[[str, str], Awaitable[Message | None]]
"""Returns the first message of a thread, given its channel and its ts."""


class ThreadRoots:
    """The threads of one process whose first message was looked up."""

    def __init__(self, look_up: Lookup) -> None:
        self._look_up = look_up
        self._first_replies: dict[tuple[str, str], str] = {}

    async def complete(self, reply: PlatformMessage, parser: SlackEventParser) -> PlatformMessage:
        """Return a reply below the first message of its thread. If that cannot be read, such as
        without the scope for it, the reply stays as it is."""
        chat = reply.message.chat_id
        thread = reply.message.thread
        id = reply.replaces or reply.message.id
        if not thread or id.endswith(f"/{thread}") or reply.own or reply.from_bot or not reply.addressed:
            return reply
        # The same reply may come again, or edited.
        if self._first_replies.get((chat, thread), id) != id:
            return reply
        try:
            root = await self._look_up(chat, thread)
        except (NotDelivered, ChannelBroken) as exc:
            log.info("thread not looked up", channel=parser.channel, reason=str(exc))
            root = None
        if len(self._first_replies) >= MAX_THREADS:
            self._first_replies.clear()
        self._first_replies[chat, thread] = id
        return parser.quote_root(root, reply) if root is not None else reply
