"""What the rules of test_state_machine.py stand on: a server, three workers and what they believe, the oracle."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, ClassVar, Final, NamedTuple, TypeVar

import msgspec
import pytest
from hypothesis.stateful import RuleBasedStateMachine, precondition

from shared.errors import LeaseLost
from shared.ids import nonce
from shared.settings.sections.chats import POLICIES
from shared.store.client.redis_client import RedisClient
from shared.store.turns.inbox import Inbox, InboxLimits
from shared.store.turns.known_messages import Withdrawals
from shared.store.turns.queue import Claim, LeaseQueue
from shared.store.turns.turn_writes import Turns
from tests.shared.store.world import CHATS, INBOX_CAP, Chat, Dumps, World, contents

T = TypeVar("T")
RuleOf = TypeVar("RuleOf", bound=Callable[..., Any])

LEDGER_CAP_BYTES: Final = 250
LEASE_S: Final = 1000.0
"""So long that nothing lapses by itself: the rule `time_passes` moves the score instead of the clock."""


def when(wanted: Callable[[Chat], bool]) -> Callable[[RuleOf], RuleOf]:
    """A rule for a moment at which some chat is like this; `Stage.like` says which."""
    return precondition(lambda self: any(map(wanted, self.world.chats.values())))


believed = precondition(lambda self: any(self.held.values()))


class Held(NamedTuple):
    """What some task of a worker believes: it has this lease, and wrote so many steps."""

    claim: Claim
    steps: int


class Saved(NamedTuple):
    """All keys at some moment, and the oracle then."""

    dumps: Dumps
    world: World


class Stage(RuleBasedStateMachine):
    """Everything but the rules. A subclass says where the server is and which event loop runs."""

    url: ClassVar[str]
    runner: ClassVar[asyncio.Runner]

    def __init__(self) -> None:
        super().__init__()
        self.world = World()
        self.held: dict[str, list[Held]] = {name: [] for name in CHATS}
        self.saved: Saved | None = None
        self.newest = dict.fromkeys(CHATS, 0)  # token ever given, also before a lost tail
        self.clock_fell = False
        self.ids = 0
        self.run(self._open())

    async def _open(self) -> None:
        self.client = RedisClient(self.url)
        await self.client.command("FLUSHALL")
        limits = InboxLimits(cap=INBOX_CAP)
        self.inbox, self.turns = Inbox(self.client, limits), Turns(self.client, limits)
        self.inboxes = {
            busy: Inbox(self.client, msgspec.structs.replace(limits, busy=busy, merge_ms=0)) for busy in POLICIES
        }
        self.withdrawals = Withdrawals(self.client, limits)
        self.queues = [self.worker() for _ in range(3)]

    def worker(self) -> LeaseQueue:
        return LeaseQueue(self.client, "turns", owner=nonce(), lease_s=LEASE_S)

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return self.runner.run(work)

    def teardown(self) -> None:
        self.run(self.client.close())

    def like(self, wanted: Callable[[Chat], bool], chat: str) -> str:
        """`chat` if it is as wanted, else one that is."""
        return next(name for name in (chat, *CHATS) if wanted(self.world.chats[name]))

    def pick(self, chat: str, back: int) -> Held:
        """A claim on `chat`, or on another if there is none: the newest for `back` = 0.

        -1 is the newest in the name of a worker that was given the same token, as could happen if Redis lost its tail
        and its clock fell back: it has never held the lease.
        """
        held = self.held[chat] or self.held[next(name for name in CHATS if self.held[name])]
        if back < 0:
            return Held(msgspec.structs.replace(held[-1].claim, owner=nonce()), held[-1].steps)
        return held[-1 - back % len(held)]

    def check_handed_over(self, claim: Claim, *, lost: bool) -> None:
        """What acquire answered is what the oracle has, and the token is above all before it."""
        turn, chat = claim.turn, self.world.chats[claim.session]
        counts, token = chat.counts, int(claim.token)
        assert turn is not None
        assert (claim.owner_lost, turn.n, list(turn.ledger)) == (lost, chat.inbox[0], chat.ledger)
        crashes = counts.get("crashes", 0) + counts.get("spared", 0) // 3
        assert (turn.errors, turn.crashes) == (counts.get("errors", 0), crashes)
        stop = turn.n if counts.get("cut", 0) > turn.n else counts.get("stop", 0)
        assert (turn.stop, turn.attempt, len(turn.history)) == (stop, counts["tries"], chat.history)
        assert [number for number, _ in turn.joined] == chat.joined
        assert turn.joins_at_start == bool(not chat.joined and chat.joinable(at_start=True)) or chat.joined
        assert token > chat.token, "tokens grow, also when the clock fell back"
        assert token > self.newest[claim.session] or self.clock_fell, "tokens grow, also after a lost tail"
        chat.token = self.newest[claim.session] = token

    def attempt(self, claim: Claim, write: Callable[[], Awaitable[object]], again: bool) -> bool:
        """Write: who holds the lease must succeed (again too), who lost it is refused and changes nothing."""
        if self.world.chats[claim.session].lease == claim.lease_id:
            self.run(_awaited(write))
            if again:
                self.run(self.unchanged(write))
            return True
        with pytest.raises(LeaseLost):
            self.run(self.unchanged(write))
        return False

    async def unchanged(self, write: Callable[[], Awaitable[T]]) -> T:
        before = await contents(self.client)
        try:
            return await write()
        finally:
            assert await contents(self.client) == before

    def accepted(self, claim: Claim) -> Chat:
        chat = self.world.chats[claim.session]
        chat.tokens.append(int(claim.token))
        return chat


async def _awaited(write: Callable[[], Awaitable[T]]) -> T:
    return await write()
