"""Any sequence of what can happen on the way out, on the real scripts and a real server, against a small oracle.

After every step all that Redis has of two chats is compared with the oracle (out_world.py). The everyday run is the
same each time; the long one is

    python -m pytest tests/shared/store/test_deliveries_machine.py --hypothesis-profile=long
"""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, ClassVar, Final, NamedTuple, TypeVar

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test

from shared.ids import nonce
from shared.store import keys
from shared.store.client.redis_client import RedisClient
from shared.store.delivery.deliveries import Cleared, DeliveryQueue, LeasedChat
from tests.helpers.clock import HandClock
from tests.helpers.platform_chat import CHANNEL, PlatformChat
from tests.shared.store.out_world import CHATS, SESSIONS, Chat, check, look
from tests.shared.store.world import Dumps, contents, dump, restore

T = TypeVar("T")

LONG: Final = settings.get_current_profile_name() == "long"
EVERYDAY: Final = settings(
    max_examples=200, stateful_step_count=50, deadline=None, derandomize=True, database=None, print_blob=True
)
LEASE_S: Final = 1000.0
"""So long that nothing lapses by itself: the rule `time_passes` moves the score instead of the clock."""

chats = st.sampled_from(CHATS)
owners = st.sampled_from([0, 0, 1, 2])
back = st.sampled_from([0, 0, 0, 0, 1, 1, 2, 4, -1])
"""Which of the claims on a chat writes: 0 = the newest, most of the others are lost; -1 = one that never was."""

WRITES: Final = (
    "send", "send", "send", "post", "post", "last", "last", "last", "nothing", "refused", "too late", "closed", "drain",
    "put off", "cut", "leave", "leave", "leave though running", "meant", "bubble", "look",
)  # fmt: skip
writes = st.lists(st.sampled_from(WRITES), min_size=1, max_size=4)


class Held(NamedTuple):
    """What a task of a gateway believes: it has this chat, and is at this post."""

    delivery: LeasedChat
    gateway: DeliveryQueue
    seq: int
    part: int

    @property
    def lease(self) -> str:
        return f"{self.gateway.owner}:{self.delivery.token}"


def when(wanted: Callable[[Chat], bool]) -> Callable[[T], T]:
    return precondition(lambda self: any(map(wanted, self.world.values())))  # type: ignore[return-value]


class Gateways(RuleBasedStateMachine):
    """Everything that happens between two chats and three gateways. A subclass says where the server is."""

    url: ClassVar[str]
    runner: ClassVar[asyncio.Runner]

    def __init__(self) -> None:
        super().__init__()
        self.world = {name: Chat() for name in CHATS}
        self.held: dict[str, list[Held]] = {name: [] for name in CHATS}
        self.saved: tuple[Dumps, dict[str, Chat]] | None = None
        self.token = 0
        self.client = RedisClient(self.url)
        self.run(self.client.command("FLUSHALL"))
        self.chats = {name: PlatformChat(self.client, name) for name in CHATS}
        self.gateways = [self.gateway() for _ in range(3)]

    def gateway(self) -> DeliveryQueue:
        self.clock = HandClock()
        return DeliveryQueue(self.client, CHANNEL, lease_s=LEASE_S, resend_guard="nothing", clock=self.clock)

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return self.runner.run(work)

    def teardown(self) -> None:
        self.run(self.client.close())

    def like(self, wanted: Callable[[Chat], bool], chat: str) -> str:
        return next(name for name in (chat, *CHATS) if wanted(self.world[name]))

    # --- what comes ---

    @rule(chat=chats, lines=st.sampled_from([1, 1, 2, 3, 0]), whole=st.sampled_from([True, True, False]))
    def a_conversation_goes_on(self, chat: str, lines: int, whole: bool) -> None:
        """A person writes, or what was written is answered; or both."""
        now = self.world[chat]
        if not now.turn:
            self.run(self.chats[chat].ask())
            now.ask()
            if not whole:
                return
        self.run(self.chats[chat].answer(*(f"line {n}" for n in range(lines))))
        now.answer(lines)

    # --- gateways ---

    @when(Chat.is_due)
    @rule(owner=owners, count=st.integers(1, 2), announced=st.sampled_from([True, True, True, False]))
    def a_gateway_acquires(self, owner: int, count: int, announced: bool) -> None:
        """Whatever it hears of it: the answer may be lost."""
        self._acquire(owner, count, announced)

    @when(Chat.is_due)
    @rule(owner=owners, writes=writes, again=st.booleans())
    def a_gateway_acquires_and_goes_on(self, owner: int, writes: list[str], again: bool) -> None:
        """At once, or most runs would not come far."""
        for name in self._acquire(owner, 1, announced=True):
            for what in writes:
                self._go_on(name, self.held[name][-1], what, again)

    @when(Chat.is_leased)
    @rule(chat=chats, owner=owners, writes=writes)
    def a_gateway_is_late_and_another_goes_on(self, chat: str, owner: int, writes: list[str]) -> None:
        """In the middle of a send, say."""
        name = self.like(Chat.is_leased, chat)
        if self.held[name]:
            self._go_on(name, self.held[name][-1], "send", again=False)
        self.run(self.client.command("ZADD", keys.outqueue(CHANNEL), 1, SESSIONS[name]))
        self.world[name].queue = "due"
        if name in self._acquire(owner, 2, announced=True):
            for what in writes:
                self._go_on(name, self.held[name][-1], what, again=False)

    def _acquire(self, owner: int, count: int, announced: bool) -> list[str]:
        gateway = self.gateways[owner]
        self.clock.at += LEASE_S
        due = {name for name, chat in self.world.items() if chat.is_due()}
        for at, name in enumerate(sorted(due), start=1):
            # Two that became due in one ms go by their names, others by time: here always by names, or a run would
            # depend on how fast the machine is, and Hypothesis calls that flaky.
            self.run(self.client.command("ZADD", keys.outqueue(CHANNEL), "XX", at, SESSIONS[name]))
        ready = {name for name in due if self.world[name].outbox or self.world[name].turn}
        found, wait_s = self.run(gateway.acquire(count))
        assert len(found) == min(count, len(ready)), "a place stays free only when nothing is due"
        assert (wait_s == 0) <= (len(due) > count)
        leased = []
        for delivery in found:
            name = delivery.session.partition(":")[2]
            chat, token = self.world[name], int(delivery.token)
            assert name in due, "what is not due was acquired"
            assert delivery.owner_lost is (chat.lease is not None)
            held = Held(delivery, gateway, chat.outbox[0] if chat.outbox else 0, chat.done)
            self._check_handed_over(delivery, chat, held.lease)
            assert token > self.token, "tokens grow, also when the clock fell back"
            self.token = token
            assert chat.acquire(held.lease)
            if announced:
                self.held[name].append(held)
            leased.append(name)
        for name in due - ready:
            if len(found) < count or not self._is_queued(name):
                self.world[name].leave()
        return leased

    def _is_queued(self, name: str) -> bool:
        return self.run(self.client.command("ZSCORE", keys.outqueue(CHANNEL), SESSIONS[name])) is not None

    def _check_handed_over(self, handed: LeasedChat, chat: Chat, lease: str) -> None:
        assert [entry.seq for entry in handed.pending] == chat.outbox[:4]
        assert (handed.part, handed.unclear) == (chat.done if chat.outbox else 0, chat.unclear(lease))
        assert (handed.closed, handed.tries, handed.running is not None) == (chat.closed, chat.tries, chat.turn)
        assert (handed.streamed_message is not None) is bool(chat.streamed)
        assert handed.pending_stream == ((1, chat.doubtful.partition(" ")[2]) if chat.doubtful else None)

    @when(Chat.is_leased)
    @rule(owner=owners)
    def a_gateway_renews(self, owner: int) -> None:
        gateway = self.gateways[owner]
        mine = {name: held for name in CHATS for held in self.held[name][-3:] if held.gateway is gateway}
        kept = {name for name, held in mine.items() if self.world[name].lease == held.lease}
        lost = self.run(gateway.renew([held.delivery for held in mine.values()]))
        assert lost == {SESSIONS[name] for name in mine.keys() - kept}
        for name in kept:
            self.world[name].queue = "later"

    @when(Chat.is_leased)
    @rule(owner=owners)
    def a_gateway_dies(self, owner: int) -> None:
        """What it believed is still tried later: the dead may only have slept."""
        self.gateways[owner] = self.gateway()

    @when(Chat.is_later)
    @rule(chat=chats)
    def time_passes(self, chat: str) -> None:
        """A delay is over, or a lease."""
        name = self.like(Chat.is_later, chat)
        self.run(self.client.command("ZADD", keys.outqueue(CHANNEL), 1, SESSIONS[name]))
        self.world[name].queue = "due"

    @precondition(lambda self: self.token > 0)
    @rule()
    def the_clock_falls_back(self) -> None:
        """By an hour, compared with the last token."""
        self.token += 3_600_000_000
        self.run(self.client.command("SET", keys.outtoken(CHANNEL), self.token))

    # --- what a gateway writes; each is tried by those who lost the lease, too ---

    @precondition(lambda self: any(self.held.values()))
    @rule(chat=chats, back=back, what=st.sampled_from(WRITES), again=st.booleans())
    def a_task_goes_on(self, chat: str, back: int, what: str, again: bool) -> None:
        """`again`: the answer was lost, so it is sent once more."""
        name = chat if self.held[chat] else next(name for name in CHATS if self.held[name])
        all_held = self.held[name]
        if back >= 0:
            self._go_on(name, all_held[-1 - back % len(all_held)], what, again)
            return
        twin = self.gateway()
        twin.owner = nonce()
        self._go_on(name, all_held[-1]._replace(gateway=twin), what, again, keep=False)

    def _go_on(self, name: str, held: Held, what: str, again: bool, *, keep: bool = True) -> None:
        chat, write = self.world[name], self._write(held, what)
        if chat.lease != held.lease:
            self._check_refused(what, self.run(self._unchanged(write)))
            return
        chat.tokens.append(int(held.delivery.token))
        expected = self._expect(chat, held, what)
        assert self.run(_awaited(write)) == expected, what
        if again:
            self._again(name, held, what, write)
        if keep and what in ("look", "post", "last", "nothing", "refused", "too late", "closed"):
            now = held._replace(seq=chat.outbox[0] if chat.outbox else 0, part=chat.done)
            self.held[name][self.held[name].index(held)] = now

    def _again(self, name: str, held: Held, what: str, write: Callable[[], Awaitable[object]]) -> None:
        chat = self.world[name]
        if chat.lease != held.lease:
            self._check_refused(what, self.run(self._unchanged(write)))
        elif what not in ("leave", "leave though running"):
            expected = self._expect(chat, held, what)
            assert self.run(_awaited(write)) == expected, f"{what} again"

    def _write(self, held: Held, what: str) -> Callable[[], Awaitable[object]]:
        gateway, delivery, seq, part = held.gateway, held.delivery, held.seq, held.part
        id = f"{seq}.{part}"
        return {
            "send": lambda: gateway.begin_post(delivery, seq, part),
            "post": lambda: gateway.finish_post(delivery, seq, part, last=False, id=id),
            "last": lambda: gateway.finish_post(delivery, seq, part, last=True, id=id),
            "nothing": lambda: gateway.finish_post(delivery, seq, part, last=True),
            "refused": lambda: gateway.give_up_line(delivery, seq, "no"),
            "too late": lambda: gateway.give_up_line(delivery, seq, "old", too_late=True),
            "closed": lambda: gateway.give_up_line(delivery, seq, "403", drop_all=True),
            "drain": lambda: gateway.requeue(delivery, 0, unclear=False, counts=False),
            "put off": lambda: gateway.requeue(delivery, LEASE_S, unclear=False),
            "cut": lambda: gateway.requeue(delivery, LEASE_S, unclear=True),
            "leave": lambda: gateway.release_quiet(delivery),
            "leave though running": lambda: gateway.release_quiet(delivery, though_running=True),
            "meant": lambda: gateway.reserve_call(delivery, pending_stream=(1, f"key {id}")),
            "bubble": lambda: gateway.save_streamed_message(delivery, 1, id),
            "look": lambda: self._looked(gateway, delivery),
        }[what]

    @staticmethod
    async def _looked(gateway: DeliveryQueue, delivery: LeasedChat) -> object:
        found = await gateway.read_chat(delivery)
        return found and (found.part, found.unclear, found.closed, found.tries, len(found.pending))

    def _expect(self, chat: Chat, held: Held, what: str) -> object:
        """What must be answered; the oracle goes on."""
        seq, part, lease = held.seq, held.part, held.lease
        match what:
            case "send":
                unclear = chat.sending(seq, part, lease, asked=False)
                return None if unclear is None else Cleared(unclear)
            case "post" | "last" | "nothing":
                id = "" if what == "nothing" else f"{seq}.{part}"
                return chat.post(seq, part, last=what != "post", id=id)
            case "refused" | "too late" | "closed":
                reason = {"refused": "undeliverable", "too late": "too_late", "closed": "chat_closed"}[what]
                return chat.refuse(seq, lease, reason) >= 0
            case "drain" | "put off" | "cut":
                chat.put_off(lease, unclear=what == "cut", counts=what != "drain", later=what != "drain")
                return None
            case "leave" | "leave though running":
                if chat.outbox or (chat.turn and what == "leave"):
                    return False
                chat.leave()
                return True
            case "meant":
                chat.doubtful = f"1 key {seq}.{part}"
                return 0.0
            case "bubble":
                chat.streamed, chat.doubtful = f"1 {seq}.{part}", ""
                return True
            case _:
                return chat.done, chat.unclear(lease), chat.closed, chat.tries, min(4, len(chat.outbox))

    @staticmethod
    def _check_refused(what: str, answer: object) -> None:
        lost: object = True if what.startswith("leave") else None if what in ("send", "look") else False
        lost = LEASE_S if what == "meant" else lost
        assert answer == (None if what in ("drain", "put off", "cut") else lost), what

    async def _unchanged(self, write: Callable[[], Awaitable[T]]) -> T:
        before = await contents(self.client)
        try:
            return await write()
        finally:
            assert await contents(self.client) == before

    # --- a lost tail ---

    @precondition(lambda self: any(self.held.values()))
    @rule()
    def redis_is_saved_or_loses_what_followed(self) -> None:
        if self.saved is None:
            self.saved = self.run(dump(self.client)), copy.deepcopy(self.world)
        else:
            dumps, self.world = self.saved
            self.run(restore(self.client, dumps))
            self.saved, self.token = None, 0

    # --- what must hold after each step ---

    @invariant()
    def redis_is_as_the_oracle_says(self) -> None:
        found = self.run(look(self.client))
        assert found == self.world
        self.run(check(self.client, found, self.world))


async def _awaited(write: Callable[[], Awaitable[T]]) -> T:
    return await write()


@pytest.mark.slow
@pytest.mark.timeout(0 if LONG else 600)  # a failure is made small before it is shown, which takes minutes
def test_every_sequence_of_events_keeps_redis_as_the_oracle_says(redis_url: str) -> None:
    """I1, I3, I5, I8 of the way out: nothing lost, in order, fenced, no debris, after each step of any sequence."""
    with asyncio.Runner() as loop:

        class Here(Gateways):
            url = redis_url
            runner = loop

        run_state_machine_as_test(Here, settings=settings() if LONG else EVERYDAY)
