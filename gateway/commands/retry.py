"""`/retry`: answer the newest message again, or another one in its place."""

from __future__ import annotations

from typing import Final

from gateway.commands.command import CommandAnswer, CommandContext
from shared.store.client.redis_client import RedisClient
from shared.store.sessions.last_turn import read_last_turn

NOTHING: Final = "There is no message of yours to answer again in this conversation."
BUSY: Final = "I am still at work here. `/stop` ends that; then `/retry` answers again."
OTHERS: Final = "The newest message here is somebody else's; only they can have it answered again."


async def answer_retry(client: RedisClient, context: CommandContext) -> CommandAnswer | str:
    """Replace the newest turn of the conversation; the argument is its new text."""
    message = context.message
    state = context.state
    if state.waiting or state.turn:
        return BUSY
    last = await read_last_turn(client, message.session)
    if last is None:
        return NOTHING
    if last.sender_id not in ("", message.sender_id):
        return OTHERS
    if not (text := context.argument or last.text) and not last.media:
        return NOTHING
    return CommandAnswer(text, change="retry", again=last)
