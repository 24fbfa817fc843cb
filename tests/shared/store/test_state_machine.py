"""Any sequence of what can happen to two sessions, on the real scripts and a real server, against a small oracle.

After every step all that is in Redis is compared with the oracle (world.py), and the invariants of the fault catalogue
are read from Redis alone. The everyday run is the same each time; the long one (20,000 times 100 steps, random) is

    python -m pytest tests/shared/store/test_state_machine.py --hypothesis-profile=long
"""

from __future__ import annotations

import asyncio
import copy
from typing import Final

import msgspec
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import invariant, precondition, rule, run_state_machine_as_test

from shared.errors import LeaseLost, Refused, TurnLimited, TurnStopped
from shared.messages.codec import encode
from shared.messages.live import TurnEvent
from shared.messages.outbound import OutboundKind, OutboundMessage
from shared.messages.schedule import BACKGROUND
from shared.messages.transcript import AssistantEntry
from shared.settings.sections.chats import Busy
from shared.store import keys
from shared.store.turns.queue import Claim
from shared.store.turns.turn_writes import DeadLetter, JoinedMessages
from tests.helpers.build import message, say
from tests.shared.store.stage import LEASE_S, LEDGER_CAP_BYTES, Held, Saved, Stage, believed, when
from tests.shared.store.world import CHATS, INBOX_CAP, Chat, check, dump, look, restore

LONG: Final = settings.get_current_profile_name() == "long"
EVERYDAY: Final = settings(
    max_examples=200, stateful_step_count=50, deadline=None, derandomize=True, database=None, print_blob=True
)

chats = st.sampled_from(CHATS)
policies = st.sampled_from(("queue", "steer", "steer", "steer", "merge", "merge", "interrupt", "reject"))
owners = st.sampled_from([0, 0, 0, 1, 2])
back = st.sampled_from([0, 0, 0, 0, 1, 1, 2, 4, -1])
"""Which of the claims on a chat writes: 0 = the newest, most of the others are lost; -1 = see `Stage.pick`."""

KINDS: Final[dict[str, OutboundKind]] = {"answer": "reply", "stopped": "stopped", "dead letter": "apology"}
GIVEN_BACK: Final = {
    "drain": (False, ""),
    "back-off": (True, ""),
    "error": (True, "errors"),
    "isolated": (False, "isolated"),
    "away": (True, "away"),
}
"""Whether it is due later, and what is noted."""

WRITES: Final = ("step", "take", "take", "answer", *KINDS, *GIVEN_BACK)


class Sessions(Stage):
    """Everything that happens between two chats and three workers."""

    # --- the way in ---

    @when(Chat.has_room)
    @rule(chat=chats, known=st.sampled_from([None, None, 0, 1, 7]), busy=policies)
    def a_message_arrives(self, chat: str, known: int | None, busy: Busy) -> None:
        """A new one, or one that was delivered before."""
        ids = list(self.world.chats[chat].answers)
        self.ids += 1
        self._say(chat, f"m{self.ids}" if known is None or not ids else ids[known % len(ids)], busy)

    def _say(self, name: str, id: str, busy: Busy) -> None:
        chat, inbox = self.world.chats[name], self.inboxes[busy]
        known, waiting = chat.answers.get(id), len(chat.inbox)
        if known is None and waiting == INBOX_CAP and not chat.rejects(busy):
            with pytest.raises(Refused, match="already wait"):
                self.run(say(inbox, chat=name.removeprefix("web:"), id=id))
            return
        answer = self.run(say(inbox, chat=name.removeprefix("web:"), id=id))
        if known is None:
            ended = busy == "interrupt" and bool(chat.inbox) and chat.lease is None
            moved = chat.behind and chat.queue == "due" and not chat.rejects(busy)
            self.world.wake = self.world.wake or chat.queue is None or ended or moved
            chat.queue = chat.queue or "due"
            chat.ingest(id, busy)
        assert (answer.turn, answer.seq) == chat.answers[id]
        assert (answer.duplicate, answer.rejected) == (known is not None, known is None and answer.turn == 0)
        if answer.turn or answer.duplicate:
            assert answer.ahead == (chat.ahead_of(answer.turn) if answer.turn else 0)

    @when(Chat.has_room)
    @rule(chat=chats, known=st.sampled_from([False, False, False, True]))
    def a_tick_comes(self, chat: str, known: bool) -> None:
        """No person waits for it: it waits in the background, unless one does already."""
        name = self.like(Chat.has_room, chat)
        now = self.world.chats[name]
        ids = [id for id in now.answers if id.startswith("tick")]
        known = known and bool(ids)
        self.ids += not known
        id = ids[0] if known else f"tick{self.ids}"
        tick = msgspec.structs.replace(message(chat=name.removeprefix("web:"), id=id), metadata={BACKGROUND: "1"})
        answer = self.run(self.inbox.ingest(tick, internal=True))
        if not known:
            self.world.wake = self.world.wake or now.queue is None
            now.queue = now.queue or "due"
            now.tick(id)
        assert (answer.turn, answer.duplicate) == (now.answers[id][0], known)

    @when(Chat.has_log)
    @rule(chat=chats, which=st.sampled_from([0, 0, 0, 1, 2, -1, -2]))
    def a_message_is_withdrawn(self, chat: str, which: int) -> None:
        """It waits, a turn has begun with it, or that is over: taken or withdrawn, never both."""
        name = self.like(Chat.has_log, chat)
        now = self.world.chats[name]
        ids = list(now.answers)
        id = ids[which] if -len(ids) <= which < len(ids) else ids[0]
        at_head = bool(now.inbox) and now.answers[id][0] == now.inbox[0]
        expected = now.withdraw(id)
        if expected == "withdrawn" and at_head and now.inbox:
            self.world.wake = True
        assert self.run(self.withdrawals.withdraw("web", name.removeprefix("web:"), id)) == expected

    @when(Chat.may_be_stopped)
    @rule(chat=chats, which=st.sampled_from([None, 0, 0, -1]))
    def somebody_says_stop(self, chat: str, which: int | None) -> None:
        """Of whatever is at the head, or of a turn by its number, which may be over."""
        name = self.like(Chat.may_be_stopped, chat)
        now = self.world.chats[name]
        turn = None if which is None else now.inbox[0] + which
        assert self.run(self.inbox.stop(name, turn)) == (now.inbox[0] if which != -1 else None)
        if which != -1:
            now.counts["stop"] = now.inbox[0]
            if now.lease is None:
                now.queue, now.behind, self.world.wake = "due", False, True

    # --- leases ---

    @when(Chat.is_due)
    @rule(owner=owners, count=st.integers(1, 2), grace=st.booleans(), replied=st.sampled_from([True] * 3 + [False]))
    def a_worker_acquires(self, owner: int, count: int, grace: bool, replied: bool) -> None:
        """Whatever it hears of it: the answer may be lost."""
        self._acquire(owner, count, grace, replied)

    @when(Chat.is_due)
    @rule(owner=owners, what=st.sampled_from(WRITES), again=st.booleans())
    def a_worker_acquires_and_goes_on(self, owner: int, what: str, again: bool) -> None:
        """Both at once, or most runs would not come far."""
        for name in self._acquire(owner, 1, grace=False, replied=True):
            self._go_on(self.held[name][-1], what, again)

    @when(Chat.is_due)
    @rule(owner=owners, busy=policies, more=st.integers(1, 2), what=st.sampled_from(WRITES), again=st.booleans())
    def people_keep_typing_while_a_turn_begins(self, owner: int, busy: Busy, more: int, what: str, again: bool) -> None:
        """What comes joins, if it may, before the turn goes on."""
        for name in self._acquire(owner, 1, grace=False, replied=True):
            for _ in range(more):
                self.ids += 1
                self._say(name, f"m{self.ids}", busy)
            self._go_on(self.held[name][-1], "take", again)
            self._go_on(self.held[name][-1], what, again)

    def _acquire(self, owner: int, count: int, grace: bool, replied: bool) -> list[str]:
        due = {name for name, chat in self.world.chats.items() if chat.queue == "due"}
        due -= {name for name in due if grace and self.world.chats[name].lease and self.world.chats[name].late}
        self.run(self._by_names())
        claims = {claim.session: claim for claim in self.run(self.queues[owner].acquire(count, grace=grace))}
        assert set(claims) <= due, "what is not due was acquired"
        assert len(claims) == min(count, len(due)), "a slot stays free only when nothing is due"
        acquired = []
        for name, claim in claims.items():
            chat = self.world.chats[name]
            lost = chat.lease is not None
            chat.acquire(claim.lease_id)
            self.check_handed_over(claim, lost=lost)
            if replied:
                self.held[name].append(Held(claim, len(chat.ledger)))
            acquired.append(name)
        left = any(map(Chat.is_due, self.world.chats.values()))
        self.world.wake = self.world.wake or (bool(acquired) and left)
        return acquired

    @when(Chat.is_leased)
    @rule(owner=owners, what=st.sampled_from(["renews", "renews", "reclaims", "dies"]))
    def a_worker_minds_its_leases(self, owner: int, what: str) -> None:
        {"renews": self._renew, "reclaims": self._reclaim, "dies": self._die}[what](owner)

    async def _by_names(self) -> None:
        """What came due in one ms is served in the order of names, other things in that of time. Here all go by names:
        the same steps shall make the same order each time, however fast the machine is."""
        seconds, _ = await self.client.command("TIME")
        for at, name in enumerate(CHATS, start=1):
            chat = self.world.chats[name]
            queue = keys.queue(keys.BACKGROUND if chat.behind else "turns")
            score = int(seconds) * 1000 - len(CHATS) + at if chat.lease and chat.late else at
            if chat.is_due():
                await self.client.command("ZADD", queue, "XX", score, keys.turn(name))

    def _renew(self, owner: int) -> None:
        queue = self.queues[owner]
        claims = [held.claim for name in CHATS for held in self.held[name][-3:] if held.claim.owner == queue.owner]
        expected = [self._answer(claim) for claim in claims]
        assert self.run(queue.renew(claims)) == expected
        for claim, answer in zip(claims, expected, strict=True):
            if answer is not None:
                self.accepted(claim).queue = "later"

    def _answer(self, claim: Claim) -> int | None:
        chat = self.world.chats[claim.session]
        return chat.counts.get("stop", 0) if chat.lease == claim.lease_id else None

    def _reclaim(self, owner: int) -> None:
        queue = self.queues[owner]
        known = [held.claim for held in (*self.held[CHATS[0]], *self.held[CHATS[1]])]
        leases = {claim.lease_id for claim in known}
        mine = [chat for chat in self.world.chats.values() if (chat.lease or "").startswith(queue.owner)]
        unknown = [chat for chat in mine if chat.lease not in leases]
        assert self.run(queue.release_unknown(known)) == len(unknown)
        for chat in unknown:
            chat.release(later=False, count="")
            self.world.wake = True

    def _die(self, owner: int) -> None:
        """Its guardian gives back what it had. What it believed is still tried later: the dead may only have slept."""
        queue = self.queues[owner]
        for name, chat in self.world.chats.items():
            holder, _, token = (chat.lease or "").partition(":")
            if holder == queue.owner:
                self.run(queue.release(Claim(keys.turn(name), holder, token, 0, False, None), count="crashes"))
                chat.release(later=False, count="crashes")
                self.world.wake = True
        self.queues[owner] = self.worker()

    @when(Chat.is_later)
    @rule(chat=chats, long=st.booleans())
    def time_passes(self, chat: str, long: bool) -> None:
        """A delay is over, or a lease: for long, or so shortly that a worker in grace leaves it to its owner."""
        name = self.like(Chat.is_later, chat)
        seconds, _ = self.run(self.client.command("TIME"))
        queue = keys.queue(keys.BACKGROUND if self.world.chats[name].behind else "turns")
        self.run(self.client.command("ZADD", queue, 1 if long else int(seconds) * 1000, keys.turn(name)))
        self.world.chats[name].queue, self.world.chats[name].late = "due", not long

    @when(Chat.is_leased)
    @rule(chat=chats)
    def the_clock_falls_back(self, chat: str) -> None:
        """By an hour, compared with the last token."""
        name = self.like(Chat.is_leased, chat)
        self.world.chats[name].token += 3_600_000_000
        self.run(self.client.command("HSET", keys.session(name), "token", self.world.chats[name].token))
        self.clock_fell = True

    @precondition(lambda self: self.world.wake)
    @rule()
    def an_idle_worker_wakes(self) -> None:
        assert self.run(self.client.command("LPOP", keys.wake("turns"))) is not None
        self.world.wake = False

    # --- writes of a turn; each is tried by those who lost the lease, too ---

    @believed
    @rule(chat=chats, back=back, what=st.sampled_from(WRITES), again=st.booleans())
    def a_task_goes_on(self, chat: str, back: int, what: str, again: bool) -> None:
        """`again`: the answer was lost, so it is sent once more."""
        self._go_on(self.pick(chat, back), what, again)

    def _go_on(self, held: Held, what: str, again: bool) -> None:
        if what == "step":
            self._write_step(held, again)
        elif what == "take":
            self._take(held, again)
        elif what in GIVEN_BACK:
            self._give_back(held.claim, again, *GIVEN_BACK[what])
        else:
            self._commit(held.claim, KINDS[what], again)

    def _write_step(self, held: Held, again: bool) -> None:
        name = held.claim.session
        now = self.world.chats[name]
        claim, step = held.claim, held.steps + 1
        entry = AssistantEntry(content=f"step {step} of {claim.token}", turn=1)
        if now.lease == claim.lease_id and len(now.ledger) < held.steps:
            # A lost tail took steps that this worker remembers: the next one would leave a hole.
            with pytest.raises(LeaseLost):
                self.run(self.turns.append_step(claim, step, entry))
            now.release(later=False, count="")
            now.behind = False
            self.world.wake = True
            return
        size = sum(map(len, now.ledger)) + len(encode(entry))
        if now.lease == claim.lease_id and len(now.ledger) < step and size > LEDGER_CAP_BYTES:
            with pytest.raises(TurnLimited):
                self.run(self.unchanged(lambda: self.turns.append_step(claim, step, entry)))
        elif self.attempt(claim, lambda: self.turns.append_step(claim, step, entry), again):
            self.held[name][self.held[name].index(held)] = Held(claim, step)
            if len(now.ledger) < step:
                self.accepted(claim).write_step(encode(entry))

    def _take(self, held: Held, again: bool) -> None:
        """A border of the turn: what waits right behind it and was marked for it joins."""
        claim, step, now = held.claim, held.steps + 1, self.world.chats[held.claim.session]

        async def take() -> JoinedMessages | None:
            return await self.turns.join_waiting(claim, step, at_start=step == 1)

        if now.lease == claim.lease_id and len(now.ledger) < held.steps:
            with pytest.raises(LeaseLost):
                self.run(take())
            now.release(later=False, count="")
            now.behind = False
            self.world.wake = True
            return
        if now.lease == claim.lease_id and len(now.ledger) > held.steps:
            return  # after a lost tail and a clock that fell, one token was given twice: its twin wrote this step
        if now.lease == claim.lease_id and now.is_stopped():
            with pytest.raises(TurnStopped):
                self.run(self.unchanged(take))
            return
        if now.lease != claim.lease_id:
            with pytest.raises(LeaseLost):
                self.run(self.unchanged(take))
            return
        row, joined = now.joinable(at_start=step == 1), self.run(take())
        if joined is None:
            assert not row or sum(map(len, now.ledger)) + 30 > LEDGER_CAP_BYTES
            return
        assert ([number for number, _ in joined.records], list(joined.entry.messages)) == (row, row)
        [last] = self.run(self.client.command("XREVRANGE", keys.ledger(claim.session), "+", "-", "COUNT", 1))
        self.accepted(claim).ledger.append(last[1][1])
        now.joined += row
        self.held[claim.session][self.held[claim.session].index(held)] = Held(claim, step)
        if again:
            assert self.run(self.unchanged(take)) == joined

    def _commit(self, claim: Claim, kind: OutboundKind, again: bool) -> None:
        turn, now = claim.turn, self.world.chats[claim.session]
        assert turn is not None
        dead = DeadLetter("planted", turn.record) if kind == "apology" else None
        ended = (turn.n, *now.joined)
        line = OutboundMessage(content="x", turn=turn.n, kind=kind, in_reply_to=tuple(map(str, ended)))
        entry = AssistantEntry(content="x", turn=turn.n)

        async def commit() -> bool:
            done = await self.turns.commit(
                claim, history=[entry], lines=[line], event=TurnEvent(turn.n, "done"), dead=dead
            )
            return done.first

        if now.counts.get("done", 0) >= turn.n:
            assert self.run(self.unchanged(commit)) is False
        elif self.attempt(claim, commit, False):
            self.accepted(claim).commit(turn.n, kind)
            self.world.dead += [(claim.member, n) for n in ended] if dead else []
            self.world.wake = self.world.wake or bool(now.inbox)
            if again:
                assert self.run(self.unchanged(commit)) is False

    def _give_back(self, claim: Claim, again: bool, later: bool, count: str) -> None:
        async def release() -> None:
            await self.queues[0].release(claim, delay_s=LEASE_S if later else 0, count=count)

        if self.attempt(claim, release, False):
            self.accepted(claim).release(later=later, count=count)
            self.world.wake = self.world.wake or not later
            if again:
                assert not self.attempt(claim, release, False)

    # --- a lost tail ---

    @believed
    @rule()
    def redis_is_saved_or_loses_what_followed(self) -> None:
        if self.saved is None:
            self.saved = Saved(self.run(dump(self.client)), copy.deepcopy(self.world))
        else:
            self.run(restore(self.client, self.saved.dumps))
            self.world, self.saved = self.saved.world, None

    # --- what must hold after each step ---

    @invariant()
    def redis_is_as_the_oracle_says(self) -> None:
        found = self.run(look(self.client))
        assert found == self.world
        self.run(check(self.client, found, self.world))


@pytest.mark.slow
@pytest.mark.timeout(0 if LONG else 600)  # a failure is made small before it is shown, which takes minutes
def test_every_sequence_of_events_keeps_redis_as_the_oracle_says(
    redis_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """I1, I3, I5, I8: nothing lost, in order, fenced, no debris, after each step of any sequence."""
    monkeypatch.setattr("shared.store.turns.turn_writes.LEDGER_CAP_BYTES", LEDGER_CAP_BYTES)
    with asyncio.Runner() as loop:

        class Here(Sessions):
            url = redis_url
            runner = loop

        run_state_machine_as_test(Here, settings=settings() if LONG else EVERYDAY)
