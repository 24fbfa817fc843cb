"""Schedules for tests, and what became of them."""

from __future__ import annotations

from shared.messages.inbound import InboundMessage, decode_inbound
from shared.messages.live import TurnEvent
from shared.messages.outbound import OutboundMessage
from shared.messages.schedule import EveryPlan, Misfire, Plan, Schedule
from shared.store import keys
from shared.store.client.redis_client import RedisClient
from shared.store.turns.inbox import TURNS
from shared.store.turns.queue import LeaseQueue
from shared.store.turns.turn_writes import Turns

MINUTE = 60_000


def schedule(
    id: str = "aa", *, chat: str = "owner/a", plan: Plan | None = None, misfire: Misfire = "skip", text: str = "look"
) -> Schedule:
    """One of a chat of `owner` in the web."""
    return Schedule(
        id=id,
        channel="web",
        chat_id=chat,
        owner="owner",
        text=text,
        plan=plan or EveryPlan(MINUTE, 0),
        misfire=misfire,
    )


async def server_ms(client: RedisClient) -> int:
    """The server's clock."""
    seconds, micros = await client.command("TIME")
    return int(seconds) * 1000 + int(micros) // 1000


async def inbox(client: RedisClient, chat: str = "owner/a") -> list[InboundMessage]:
    """What waits in a chat."""
    entries = await client.command("XRANGE", keys.inbox(f"web:{chat}"), "-", "+")
    return [decode_inbound(fields[3]) for _, fields in entries]


async def answer_all(client: RedisClient, *, owner: str = "hand") -> list[InboundMessage]:
    """Answer whatever is due, as a worker would; what it was, in that order."""
    queue, turns = LeaseQueue(client, TURNS, owner=owner, lease_s=15), Turns(client)
    answered = []
    while claims := await queue.acquire(100):
        for claim in claims:
            assert claim.turn is not None
            message = decode_inbound(claim.turn.record)
            n = claim.turn.n
            line = OutboundMessage(content="done", turn=n, in_reply_to=(message.id,))
            await turns.commit(claim, history=[], lines=[line], event=TurnEvent(n, "done"))
            answered.append(message)
    await queue.close()
    return answered


async def left(client: RedisClient) -> list[str]:
    """Every key that has to do with schedules."""
    return sorted(key.decode() for key in await client.command("KEYS", "shoal:{0ax}:cron*"))
