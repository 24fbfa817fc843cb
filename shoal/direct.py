"""Asks Shoal from Python: one message in, its answer out, through the inbox as every message."""

from __future__ import annotations

import asyncio
import contextlib
import uuid
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final, Literal

from shared.chatlog.follower import ChatFollower
from shared.chatlog.turn_reader import TurnReader
from shared.clock import SYSTEM_CLOCK
from shared.errors import BadInput, RedisAway, ShoalError
from shared.ids import session_id, split_session
from shared.log import configure_guest
from shared.messages.inbound import InboundMessage
from shared.messages.live import DeltaEvent, LiveEvent
from shared.messages.outbound import UserLine
from shared.settings import Settings, redis_url
from shared.settings.trust import load_trusted
from shared.store.client.redis_client import RedisClient
from shared.store.delivery.fanout import Fanout
from shared.store.delivery.outbox import Outbox
from shared.store.turns.inbox import Inbox, InboxLimits
from shared.tasks import cancel_all

if TYPE_CHECKING:
    from gateway.ingress.commands import CommandRunner
    from worker.agent.hook import AgentHook
    from worker.agent.tools.tool import Tool

SENDER: Final = "user"
OWN_CHANNEL: Final = "cli"
"""Its chats are the caller's own; those of other channels are some person's."""

TIMEOUT_S: Final = 900.0
LOOK_EVERY_S: Final = 5.0  # pub/sub may lose events, so the log is read after this time without one
STORE_PATIENCE_S: Final = 10.0  # a message that cannot be stored is retried for this time
OnDelta = Callable[[DeltaEvent], object]

_ENDS: Final = ("reply", "stopped", "apology", "command")  # kinds of lines that answer a message


class NotAnswered(ShoalError):
    """The message will get no answer; `text` is what the chat got instead. `kind` is `apology`: it
    could not be answered; `stopped`: a person stopped it, `text` is the answer until then;
    `dropped`: the conversation was ended or forgotten before its turn came."""

    def __init__(self, kind: Literal["apology", "stopped", "dropped"], text: str, message_id: str) -> None:
        super().__init__(f"message {message_id!r} got no answer ({kind}); say it again if it still matters")
        self.kind = kind
        self.text = text
        self.message_id = message_id


class AnswerLate(ShoalError, TimeoutError):
    """The message is durable and will be answered in its chat, but not within `timeout_s`."""

    def __init__(self, message_id: str, timeout_s: float) -> None:
        super().__init__(f"message {message_id!r} has no answer after {timeout_s:g} s; its chat will have it later")
        self.message_id = message_id


async def process_direct(
    content: str,
    session_key: str = "cli:direct",
    channel: str | None = None,
    chat_id: str | None = None,
    *,
    settings: Settings | None = None,
    client: RedisClient | None = None,
    timeout_s: float = TIMEOUT_S,
    on_delta: OnDelta | None = None,
    strict: bool = False,
    worker: bool = False,
    tools: Sequence[Tool] = (),
    hooks: Sequence[AgentHook] = (),
) -> str:
    """Send a message to a chat, and return the text of its answer. Calls on one session are
    answered in order.

    `session_key` is `channel:chat_id`, or a thread of it, `channel:chat_id#thread`. It alone is
    enough; a `channel` and a `chat_id` that are given must agree with it. A `/command` is answered
    in the caller's own chats, those of channel `cli`. `on_delta` gets the growing answer; an event
    that is `full` replaces the text before it. Without a `client` one is made from `settings`, by
    default those of the folder, which must be trusted as for `shoal` commands, and the environment.

    With `worker`, `tools` or `hooks` this process answers, by a `local_worker` for this call alone.
    A message that gets no reply returns `""`, or raises NotAnswered if `strict`. Raises BadInput,
    Refused, RedisAway or SettingsError when the message was not accepted, and AnswerLate."""
    configure_guest()
    message = _message(content, session_key, channel, chat_id)
    settings = settings or load_trusted()
    async with contextlib.AsyncExitStack() as stack:
        if worker or tools or hooks:
            from shoal.own_worker import local_worker

            await stack.enter_async_context(local_worker(tools=tools, hooks=hooks, settings=settings))
        if client is None:
            client = RedisClient(redis_url(settings), name="shoal-direct", copies=settings.redis.copies)
            stack.push_async_callback(client.close)
        try:
            return await _ask(client, message, settings, on_delta, timeout_s)
        except NotAnswered:
            if strict:
                raise
            return ""


def _message(content: str, session_key: str, channel: str | None, chat_id: str | None) -> InboundMessage:
    if not content.strip():
        raise BadInput("empty", "the message has no text")
    of_channel, of_chat = split_session(session_key)
    channel = of_channel if channel is None else channel
    chat_id = of_chat.partition("#")[0] if chat_id is None else chat_id
    if not (channel and chat_id):
        raise BadInput("bad_session", f"session_key {session_key!r} is not of channel and chat; write 'cli:direct'")
    thread = of_chat.removeprefix(f"{chat_id}#") if of_chat.startswith(f"{chat_id}#") else None
    if of_channel != channel or (of_chat != chat_id and not thread):
        raise BadInput(
            "bad_session",
            f"session_key {session_key!r} is not of channel {channel!r} and chat_id {chat_id!r}: that would be "
            f"{session_id(channel, chat_id)!r}; make the three agree",
        )
    return InboundMessage(
        channel=channel,
        chat_id=chat_id,
        sender_id=SENDER,
        id=str(uuid.uuid4()),
        content=content,
        timestamp=SYSTEM_CLOCK.now_ms(),
        metadata={} if channel == OWN_CHANNEL else {"outside": "1"},
        thread=thread,
    )


class _DirectReader(TurnReader):
    """Keeps the deltas, also those that come before the turn is known."""

    def __init__(self, id: str, after: int) -> None:
        super().__init__(id, after)
        self.deltas: list[DeltaEvent] = []

    def on_event(self, event: LiveEvent) -> None:
        super().on_event(event)
        if isinstance(event, DeltaEvent):
            self.deltas.append(event)


async def _ask(
    client: RedisClient, message: InboundMessage, settings: Settings, on_delta: OnDelta | None, timeout_s: float
) -> str:
    outbox = Outbox(client)
    session = message.session
    after = 0
    with contextlib.suppress(RedisAway):  # then the whole log is read
        after = (await outbox.position(session)).last_seq
    reader = _DirectReader(message.id, after)
    follower = ChatFollower(outbox, lambda gap: Fanout(client, on_gap=gap), silence_s=LOOK_EVERY_S)
    following = asyncio.create_task(follower.run(), name="direct")
    try:
        with contextlib.suppress(TimeoutError):  # then the inbox raises what is wrong
            async with asyncio.timeout(LOOK_EVERY_S):
                # Followed before the message exists, so that none of its events is missed.
                await follower.follow(session, reader)
        number = reader.number = await _ingest(client, message, settings)
        try:
            async with asyncio.timeout(timeout_s) as limit:
                while True:
                    deltas = reader.deltas
                    reader.deltas = []
                    for delta in deltas:
                        if on_delta is not None and delta.turn == number:
                            on_delta(delta)
                    if reader.end is not None or reader.lost:
                        return _answer_text(reader, message.id)
                    reader.changed.clear()
                    await reader.changed.wait()
        except TimeoutError:
            if not limit.expired():
                raise
            raise AnswerLate(message.id, timeout_s) from None
    finally:
        follower.unfollow(session, reader)
        await cancel_all([following])


async def _ingest(client: RedisClient, message: InboundMessage, settings: Settings) -> int:
    """Put a message into the inbox, or answer a command. Return its number, 0 for a command."""
    line = UserLine(id=message.id, text=message.content, at=message.timestamp)
    limits = InboxLimits.of(settings)
    # What a program writes into a person's chat may be anybody's text: `/yes` in it is no consent.
    if message.channel == OWN_CHANNEL and message.content.lstrip().startswith("/"):
        commands = _commands(client, limits, settings)
        if (found := commands.find(message.content)) is not None:
            await commands.run(message, *found, show=line, principal=None, retry_for_s=STORE_PATIENCE_S)
            return 0
    inbox = Inbox(client, limits)
    accepted = await inbox.ingest(message, log_line=line, internal=True, retry_for_s=STORE_PATIENCE_S)
    return accepted.turn


def _commands(client: RedisClient, limits: InboxLimits, settings: Settings) -> CommandRunner:
    # Imported here: messages without a slash need nothing of a gateway.
    from gateway.commands.registry import build_commands, plugin_commands
    from gateway.ingress.approvals import ApprovalDesk
    from gateway.ingress.commands import CommandRunner
    from shared.store.access.audit import Audit
    from shared.store.turns.approvals import Approvals

    commands = build_commands(settings, client, plugin_commands(settings.plugins))
    desk = ApprovalDesk(Approvals(client, limits), Audit(client), SYSTEM_CLOCK)
    return CommandRunner(client, commands, limits, desk, SYSTEM_CLOCK)


def _answer_text(reader: TurnReader, message_id: str) -> str:
    """Return the text of the line that answers the message. One without a word ends a turn in which
    the agent spoke by its message tool: then it is what was said. An apology for a record that
    cannot be read knows only its turn: then it is the last line of the turn."""
    ends = [line for line in reader.lines if line.kind in _ENDS and not line.sent_by_tool]
    answer = reader.end or (ends[-1] if ends else None)
    if answer is None or answer.kind not in _ENDS:
        raise NotAnswered("dropped", "", message_id)
    if answer.kind in ("apology", "stopped"):
        raise NotAnswered(answer.kind, answer.content, message_id)
    sent_texts = [line.content for line in reader.lines if line.sent_by_tool]
    return answer.content or "\n\n".join(filter(None, sent_texts))
