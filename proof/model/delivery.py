"""Delivery in its world. `steps` is what can happen: gateways pause, die and lose answers anywhere, the platform
accepts, refuses, or does not answer.

A call is made only while the lease is safely held: out_sending renews it, the clock is asked right before the call, and
the call has a deadline inside the lease. `Sizes.late` is a world where a pause falls between clock and call.
"""

from __future__ import annotations

from collections.abc import Iterator

from proof.model import delivery_state as phase
from proof.model.delivery_scripts import Scripts
from proof.model.delivery_state import Chat, Claim, Platform, State, canonical
from proof.model.state import DEAD, DUE, LATER, Lease


class Delivery(Scripts):
    """The protocol as it is."""

    # --- the gateway, where it decides ---

    def believes(self, claim: Claim, r: Chat) -> Claim:
        """It begins with a post: was another one sending it? Without any it waits."""
        if not r.outbox:
            return Claim(claim.owner, claim.token, phase=phase.IDLE)
        doubt = r.sending is not None and r.sending[1] != claim.token
        return Claim(claim.owner, claim.token, r.outbox[0], r.done, phase.READY, doubt)

    def looks_up(self, claim: Claim) -> bool:
        """Whether it asks the platform before it sends."""
        return claim.doubt and self.sizes.offers == "look-up"

    def is_unknown(self, claim: Claim) -> bool:
        """Whether something may have been sent under its mark."""
        return claim.phase == phase.CUT

    # --- the world ---

    def start(self) -> State:
        return State()

    def steps(self, s: State) -> Iterator[tuple[str, State]]:
        r, sizes, platform = s.chat, self.sizes, s.platform
        if sizes.talks and r.came < sizes.entries and not r.turn:
            yield "a message comes", s._replace(chat=self.come(r))
        if sizes.talks and r.turn:
            yield "a turn ends without a word", s._replace(chat=r._replace(turn=False))
        if r.added < sizes.entries and r.turn == sizes.talks:
            for text in sizes.texts:
                yield f"a reply is added ({text})", s._replace(chat=self.add(r, text)._replace(turn=False))
        if sizes.blocks and platform.barred < 2:
            name = "the person takes it back" if platform.barred else "the person blocks the bot"
            yield name, s._replace(platform=platform._replace(barred=platform.barred + 1))
        if sizes.forgets and platform.shown and not platform.forgot:
            yield "the platform forgets its keys", s._replace(platform=platform._replace(forgot=True))
        if r.queue == LATER:
            paused = r.lease is not None and any(claim.token == r.lease.token for claim in s.claims)
            then = s._replace(chat=r._replace(queue=DUE))
            name = "its time comes" if r.lease is None else "the lease lapses"
            yield from ((name, after) for after in (self._trouble(then) if paused else (then,)))
        if r.queue == DUE:
            yield from self._take(s)
        for i, claim in enumerate(s.claims):
            yield from self._work(s, i, claim)
        yield from self._lose(s)

    def _take(self, s: State) -> Iterator[tuple[str, State]]:
        owners, tokens = [claim.owner for claim in s.claims], [claim.token for claim in s.claims]
        sides = [side for side in (s.chat, s.saved) if side is not None]
        tokens += [side.lease.token for side in sides if side.lease] + [
            side.sending[1] for side in sides if side.sending
        ]
        seen = {*owners, *(side.lease.owner for side in sides if side.lease)} - {DEAD}
        new = min(set(range(1, self.sizes.gateways + 2)) - seen)
        for owner in sorted(seen) + ([new] if new <= self.sizes.gateways else []):
            if owners.count(owner) == self.sizes.claims_each:
                continue
            lease = Lease(owner, max(tokens, default=0) + 1)
            after = self.acquire(s.chat, lease)
            yield f"{_name(owner)} acquires, answer lost", s._replace(chat=after)
            if len(owners) < self.sizes.claims and after.lease == lease:
                claim = self.believes(Claim(owner, lease.token), after)
                doubt = ", in doubt" if claim.doubt else ""
                yield f"{_name(owner)} acquires{doubt}", s._replace(chat=after, claims=(*s.claims, claim))

    def _work(self, s: State, i: int, claim: Claim) -> Iterator[tuple[str, State]]:
        r, n, who = s.chat, claim.entry.n, f"{_name(claim.owner)} ({claim.entry.n})"
        yield from self._describe(s, f"{who} renews", i, *self.renew(r, claim), claim)
        if claim.phase == phase.IDLE:
            if self.holds(r, claim, "look") and r.outbox:
                yield f"{who} looks", _with(s, i, self.believes(claim, r))
            yield from self._describe(s, f"{who} leaves", i, *self.leave(r, claim), claim)
        elif claim.phase == phase.READY and self.looks_up(claim):
            there = (n, claim.post) in s.platform.shown
            found = claim._replace(doubt=False, phase=phase.TOOK if there else phase.READY)
            yield f"{who} looks it up: {'there' if found.phase == phase.TOOK else 'not there'}", _with(s, i, found)
        elif claim.phase in (phase.READY, phase.MARKUP):
            then = claim._replace(
                phase=phase.RICH if claim.phase == phase.READY else phase.PLAIN,
                last=r.outbox[-1].n if self.sizes.blocks and r.outbox else 0,
            )
            yield from self._describe(s, f"{who} writes sending", i, *self.sending(r, claim), then)
        elif claim.phase in (phase.RICH, phase.PLAIN):
            yield from self._call(s, i, claim)
        if claim.phase == phase.TOOK:
            yield from self._describe(s, f"{who} sent", i, *self.sent(r, claim), None)
        elif claim.phase == phase.REFUSED:
            yield from self._describe(s, f"{who} dead letter", i, *self.dead(r, claim, "dead"), None)
        elif claim.phase == phase.BARRED:
            yield from self._describe(s, f"{who} drops all", i, *self.dead(r, claim, "dropped"), None)
        else:
            yield from self._put_off(s, f"{who} puts off", i, claim)

    def _put_off(self, s: State, name: str, i: int, claim: Claim) -> Iterator[tuple[str, State]]:
        """Whatever the answer, the task is over; without one it asks again, and does nothing else any more."""
        answer, after = self.later(s.chat, claim, self.is_unknown(claim))
        yield f"{name}{': refused' if answer < 0 else ''}", _with(s, i, None)._replace(chat=after)
        if answer > 0:
            yield f"{name}, answer lost", _with(s, i, claim._replace(phase=phase.CUT))._replace(chat=after)

    def _call(self, s: State, i: int, claim: Claim) -> Iterator[tuple[str, State]]:
        """The platform is called. What it says, and that its answer does not arrive."""
        r, name, entry = s.chat, f"{_name(claim.owner)} calls ({claim.entry.n})", claim.entry
        held = r.lease is not None and r.lease.token == claim.token and r.queue == LATER
        if not (held or self.sizes.late or s.lost):
            return
        after, answer = s.platform, phase.TOOK
        if s.platform.barred == 1:
            after, answer = after._replace(refused=r.added), phase.BARRED
        elif entry.text == phase.BAD or (entry.text == phase.BAD_MARKUP and claim.phase == phase.RICH):
            answer = phase.MARKUP if claim.phase == phase.RICH else phase.REFUSED
        else:
            after = self._show(after, r, entry.n, claim.post)
        yield f"{name}: {answer}", _with(s, i, claim._replace(phase=answer))._replace(platform=after)
        yield f"{name}: 429", _with(s, i, claim._replace(phase=phase.BUSY))
        cut = _with(s, i, claim._replace(phase=phase.CUT))
        for there in {s.platform, after}:
            arrived = "it has it" if there.shown != s.platform.shown else "nothing arrived"
            yield from ((f"{name}, cut: {arrived}", state) for state in self._trouble(cut._replace(platform=there)))

    def _show(self, platform: Platform, r: Chat, n: int, post: int) -> Platform:
        """The platform takes a post of entry `n`."""
        shown, offers = platform.shown, self.sizes.offers
        if offers == "key" and (n, post) in shown and not platform.forgot:
            return platform
        wrong = "a send out of the order of the outbox" if shown and (n, post) < shown[-1] else ""
        unsure = r.unsure if r.outbox and r.outbox[0].n == n else sum(end.unsure for end in r.ended if end.n == n)
        if shown.count((n, post)) > (unsure if offers == "nothing" else 0):
            wrong = "an entry was sent twice" if offers != "nothing" else "a second send was not counted"
        return platform._replace(shown=(*shown, (n, post)), wrong=wrong)

    def _describe(
        self, s: State, name: str, i: int, answer: int, after: Chat, then: Claim | None
    ) -> Iterator[tuple[str, State]]:
        """A script whose answer arrives (a refusal ends the task), and the same with the answer lost, to be called
        again. Without `then` the task goes on with the next post, if one waits."""
        if answer < 0:
            yield f"{name}: refused", _with(s, i, None)._replace(chat=after)
            return
        if after.lease is None:
            then = None
        elif then is None:
            then = self.believes(s.claims[i], after)
        yield name, _with(s, i, then)._replace(chat=after)
        if after != s.chat:
            yield f"{name}, answer lost", s._replace(chat=after)

    def _lose(self, s: State) -> Iterator[tuple[str, State]]:
        r = s.chat
        for owner in sorted({claim.owner for claim in s.claims} | {r.lease.owner if r.lease else DEAD} - {DEAD}):
            yield from ((f"{_name(owner)} dies", state) for state in self._trouble(_died(s, owner)))
        if r.lease is not None and r.lease.owner != DEAD and all(r.lease.token != c.token for c in s.claims):
            yield f"{_name(r.lease.owner)} reclaims", s._replace(chat=r._replace(lease=None, queue=DUE))
        if self.sizes.tail and not s.lost:
            if s.saved is None:
                yield "what follows is not yet on disk", s._replace(saved=r)
            else:
                lost = s._replace(chat=s.saved, saved=None, lost=True)
                yield from (("Redis loses its tail", state) for state in self._trouble(lost))

    def _trouble(self, s: State) -> Iterator[State]:
        """`s`, if that much may go wrong."""
        if not self.sizes.troubles:
            yield s
        elif s.troubles < self.sizes.troubles:
            yield s._replace(troubles=s.troubles + 1)

    # --- what must hold ---

    canonical = staticmethod(canonical)

    def problem(self, s: State) -> str:
        r, platform = s.chat, s.platform
        if r.wrong or platform.wrong:
            return r.wrong or platform.wrong
        if sorted([*(end.n for end in r.ended), *(entry.n for entry in r.outbox)]) != list(range(1, r.added + 1)):
            return "an entry is lost or ended twice"
        if r.outbox and r.queue is None:
            return "entries wait and the chat is not in the outqueue"
        if r.turn and r.queue is None:
            return "a turn is under way and nobody is to attend it"
        if (not r.outbox and (r.sending or r.unsure or r.done)) or (r.queue is None and r.lease):
            return "a quiet chat leaves something behind"
        if r.sending and (r.sending[0], r.sending[2]) != (r.outbox[0].n, r.done):
            return "an entry that is not the head is being sent"
        for end in r.ended:
            shown = [post for n, post in platform.shown if n == end.n]
            if end.how == "delivered" and {*shown} != {*range(self.sizes.posts)}:
                return "an entry counts as delivered and was never sent"
            if end.how != "delivered" and max(shown, default=-1) >= end.done and not end.unsure:
                return "an entry was put aside and yet delivered"
            if end.how == "dropped" and end.n > platform.refused:
                return "an entry was dropped that was never refused"
        if r.counted > s.troubles and self.sizes.troubles:
            return "more unknown sends were counted than there were troubles"
        return ""

    def settled(self, s: State) -> bool:
        sentence = s.chat.came if self.sizes.talks else s.chat.added
        return sentence == self.sizes.entries and not s.chat.outbox and s.chat.queue is None

    def show(self, s: State) -> str:
        r = s.chat
        lease = "-" if r.lease is None else f"{_name(r.lease.owner)}:{r.lease.token}"
        ended = " ".join(f"{end.n}:{end.how}{'?' * end.unsure}" for end in r.ended)
        claims = " ".join(f"{_name(c.owner)}:{c.token}({c.entry.n} {c.phase})" for c in s.claims)
        return (
            f"outbox {[entry.n for entry in r.outbox]} {r.queue or 'idle'} lease {lease} sending {r.sending or '-'}"
            f" ended {ended or '-'} shown {s.platform.shown} | believe: {claims or '-'}"
        )


def _with(s: State, i: int, claim: Claim | None) -> State:
    return s._replace(claims=s.claims[:i] + ((claim,) if claim else ()) + s.claims[i + 1 :])


def _died(s: State, owner: int) -> State:
    """Its tasks are gone; the leases it had carry a name that nobody has any more."""
    return s._replace(
        chat=_orphaned(s.chat, owner),
        claims=tuple(claim for claim in s.claims if claim.owner != owner),
        saved=None if s.saved is None else _orphaned(s.saved, owner),
    )


def _orphaned(r: Chat, owner: int) -> Chat:
    return r if r.lease is None or r.lease.owner != owner else r._replace(lease=Lease(DEAD, r.lease.token))


def _name(owner: int) -> str:
    return "-ABCDEFG"[owner]
