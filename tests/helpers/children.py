"""Subagents for tests: a turn that spawned some, on a real server."""

from __future__ import annotations

from shared.ids import nonce
from shared.messages.effects import SpawnEffect
from shared.messages.inbound import InboundMessage, decode_inbound
from shared.messages.live import TurnEvent
from shared.messages.outbound import OutboundMessage
from shared.messages.subagent import SubagentTask
from shared.messages.transcript import EffectEntry
from shared.store import keys
from shared.store.client.redis_client import RedisClient
from shared.store.subagents.subagents import Subagents
from shared.store.turns.inbox import Inbox
from shared.store.turns.queue import UNCAPPED, Claim, LeaseQueue, SubagentCaps
from shared.store.turns.turn_writes import Turns
from tests.helpers.build import say

CHAT = "owner/a"
SESSION = f"web:{CHAT}"


def task(
    id: str, *, session: str = SESSION, turn: int = 1, wait: bool = False, text: str = "look it up"
) -> SubagentTask:
    return SubagentTask(id=id, session=session, turn=turn, call_id=f"c-{id}", task=text, label="search", wait=wait)


class Parent:
    """A turn that runs, and spawns."""

    def __init__(self, client: RedisClient, claim: Claim) -> None:
        self.client = client
        self.claim = claim
        self.steps = 0

    @classmethod
    async def begin(cls, client: RedisClient, *, chat: str = CHAT) -> Parent:
        await say(Inbox(client), chat=chat)
        claims = await LeaseQueue(client, "turns", owner=nonce(), lease_s=60.0).acquire(1)
        assert [claim.session for claim in claims] == [f"web:{chat}"]
        return cls(client, claims[0])

    async def spawn(self, *ids: str, wait: bool = False, per_turn: int = 100) -> None:
        assert self.claim.turn is not None
        for id in ids:
            self.steps += 1
            asked = task(id, session=self.claim.session, turn=self.claim.turn.n, wait=wait)
            entry = EffectEntry(call_id=asked.call_id, turn=asked.turn, kind="spawn", to=id)
            await Turns(self.client).append_step(
                self.claim, self.steps, entry, SpawnEffect(task=asked, per_turn=per_turn)
            )

    async def commit(self) -> None:
        assert self.claim.turn is not None
        n = self.claim.turn.n
        line = OutboundMessage(content="started", turn=n)
        await Turns(self.client).commit(self.claim, history=[], lines=[line], event=TurnEvent(n, "done"))


def jobs(client: RedisClient, *, caps: SubagentCaps = UNCAPPED, lease_s: float = 60.0) -> LeaseQueue:
    return LeaseQueue(client, "jobs", owner=nonce(), lease_s=lease_s, subagents=caps)


async def take(client: RedisClient, many: int = 10, *, caps: SubagentCaps = UNCAPPED) -> list[Claim]:
    """What of the jobs is due and may run."""
    return await jobs(client, caps=caps).acquire(many)


async def end(client: RedisClient, claim: Claim, result: str = "found") -> str:
    id = claim.member.removeprefix(keys.SUB_PREFIX)
    child = await Subagents(client).read_info(id)
    assert child is not None
    return await Subagents(client).finish(child.task, "ok", result, claim=claim, now_ms=1)


async def reports(client: RedisClient, session: str = SESSION) -> list[InboundMessage]:
    """The reports of subagents that wait in an inbox."""
    entries = await client.command("XRANGE", keys.inbox(session), "-", "+")
    found = [decode_inbound(fields[3]) for _, fields in entries]
    return [message for message in found if message.channel == "system"]
