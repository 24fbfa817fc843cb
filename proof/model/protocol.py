"""The queue of one session as data: each method named like a script does what `shared/store/lua/<script>.lua` does.

`steps` is the world around the scripts: any worker may do anything it believes in at any time (so every pause longer
than the lease is covered), answers get lost and calls are sent again, processes die, leases lapse, once Redis loses
its tail. A seeded bug (bugs.py) overrides one method.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal, NamedTuple

from proof.model.state import DEAD, DUE, LATER, Claim, Lease, Redis, State, canonical

Outcome = Literal["answered", "stopped", "dead"]


class Sizes(NamedTuple):
    """How big the world is. Everything else (time, lapses, crashes, retries, stops) is without limit."""

    workers: int = 2
    messages: int = 2
    claims: int = 3  # tasks at once, of all workers together, that believe to hold the session
    claims_each: int = 2
    ledger: int = 1  # steps of a turn
    errors: int = 2  # tries before a dead letter
    crashes: int = 2  # without progress, before a dead letter; 0 = they are not counted
    stops: bool = True  # a person may say /stop
    joins: bool = False  # what waits may join a turn, or be withdrawn
    tail: bool = False  # Redis may once be set back to an earlier moment
    clock_falls_back: bool = False  # and its clock with it, so that tokens repeat


class Queue:
    """The protocol as it is."""

    def __init__(self, sizes: Sizes | None = None) -> None:
        self.sizes = sizes or Sizes()

    # --- scripts: Redis before -> answer, Redis after ---

    def ingest(self, r: Redis, id: int) -> Redis:
        if id in r.ids:
            return r
        n = len(r.ids) + 1
        return r._replace(ids=(*r.ids, id), inbox=(*r.inbox, n), queue=r.queue or DUE)

    def acquire(self, r: Redis, owner: int, token: int) -> Redis:
        if not r.inbox:
            return r._replace(queue=None, lease=None, ledger=())
        crashes = min(r.crashes + (r.lease is not None), self.sizes.crashes)
        return r._replace(queue=LATER, lease=Lease(owner, token), token=token, crashes=crashes)

    def holds(self, r: Redis, claim: Claim, script: str) -> bool:
        """The guard of `script`."""
        return r.lease == Lease(claim.owner, claim.token)

    def renew(self, r: Redis, claim: Claim) -> tuple[int, Redis]:
        if not self.holds(r, claim, "renew"):
            return -1, r
        return r.stop, _written(r, claim)._replace(queue=LATER if r.queue else None)

    def ledger(self, r: Redis, claim: Claim, step: int) -> tuple[int, Redis]:
        if not self.holds(r, claim, "ledger"):
            return -1, r
        if len(r.ledger) >= step:
            return 0, r
        if self.gap(r, step):
            return -1, r._replace(lease=None, queue=DUE, holder=0)
        if r.ledger and r.ledger[-1] >= step:
            return -1, r._replace(wrong="the ledger refuses a step that is new: a stream's ids only grow")
        return 1, _written(r, claim)._replace(ledger=(*r.ledger, step), crashes=0, blame=(r.blame[0], 0))

    def gap(self, r: Redis, step: int) -> bool:
        """Whether steps before this one are missing: the server lost them, and a successor begins where it stands."""
        return len(r.ledger) < step - 1

    def commit(self, r: Redis, claim: Claim, outcome: Outcome) -> tuple[int, Redis]:
        if r.done >= claim.n:
            return 0, r
        if not self.holds(r, claim, "commit"):
            return -1, r
        r = self._judged(_written(r, claim), outcome)
        r = r._replace(inbox=self.left(r, claim), ended=(*r.ended, claim.n, *r.joined), ledger=(), lease=None)
        r = self.forget(r._replace(joined=()), claim)
        r = r._replace(queue=DUE if self.more_waits(r, claim) else None)
        return 1, r._replace(holder=0, blame=(0, 0), asked=0)

    def left(self, r: Redis, claim: Claim) -> tuple[int, ...]:
        """The part of commit that lets go of what was answered."""
        return tuple(n for n in r.inbox if n != claim.n and n not in r.joined)

    def take(self, r: Redis, claim: Claim, step: int) -> tuple[int, Redis]:
        if not self.holds(r, claim, "take"):
            return -1, r
        if len(r.ledger) >= step:
            return 0, r
        if self.gap(r, step):
            return -1, r._replace(lease=None, queue=DUE, holder=0)
        if self.heeds(r, claim):
            return -2, r
        row = tuple(n for n in r.inbox if n > max((claim.n, *r.joined)))
        if not row:
            return 0, r
        if r.asked == claim.n:
            r = r._replace(wrong="a message was stopped that nobody meant")
        return 1, _written(r, claim)._replace(ledger=(*r.ledger, step), joined=(*r.joined, *row))

    def heeds(self, r: Redis, claim: Claim) -> bool:
        """The part of take that asks whether the turn was told to stop."""
        return r.stop == claim.n

    def withdraw(self, r: Redis, n: int) -> Redis:
        at_head = n == r.inbox[0]
        if self.begun(r, n) or (at_head and (r.lease is not None or r.ledger)):
            return r
        inbox = tuple(other for other in r.inbox if other != n)
        r = r._replace(inbox=inbox, withdrawn=(*r.withdrawn, n), stop=0 if r.stop == n else r.stop)
        if not at_head:
            return r
        return r._replace(errors=0, crashes=0, blame=(0, 0), asked=0, queue=DUE if inbox else None)

    def begun(self, r: Redis, n: int) -> bool:
        """The part of withdraw that asks whether a turn was joined."""
        return n in r.joined

    def forget(self, r: Redis, claim: Claim) -> Redis:
        """The part of commit that lets the next message begin with a clean sheet."""
        return r._replace(errors=0, crashes=0, stop=0 if r.stop == claim.n else r.stop)

    def more_waits(self, r: Redis, claim: Claim) -> bool:
        """The part of commit that decides whether the session stays in the queue."""
        return bool(r.inbox)

    def release(self, r: Redis, claim: Claim, count: str = "") -> tuple[int, Redis]:
        if not self.holds(r, claim, "release"):
            return -1, r
        errors, crashes = r.blame
        r = _written(r, claim)._replace(lease=None, queue=LATER, holder=0)
        if count == "errors":
            return 1, r._replace(errors=r.errors + 1, blame=(errors + 1, crashes))
        return 1, r

    def give_back(self, r: Redis) -> Redis:
        """The guardian of a worker that died: a release that counts a crash."""
        crashes, blamed = min(r.crashes + 1, self.sizes.crashes), min(r.blame[1] + 1, self.sizes.crashes)
        return r._replace(lease=None, queue=DUE, crashes=crashes, holder=0, blame=(r.blame[0], blamed))

    def stop(self, r: Redis) -> Redis:
        if not r.inbox:
            return r
        return r._replace(stop=r.inbox[0], asked=r.inbox[0], queue=DUE if r.lease is None else r.queue)

    def means(self, stop: int, n: int) -> bool:
        """How a worker reads a stop flag: is it me?"""
        return stop == n

    # --- the world ---

    def start(self) -> State:
        return State()

    def steps(self, s: State) -> Iterator[tuple[str, State]]:
        r, sizes = s.redis, self.sizes
        accepted = len(set(r.ids))
        for id in range(1, min(accepted + 1, sizes.messages) + 1):
            name = f"message {id} is delivered{' again' if id <= accepted else ''}"
            yield name, s._replace(redis=self.ingest(r, id))
        if r.inbox and sizes.stops:
            yield f"/stop for message {r.inbox[0]}", s._replace(redis=self.stop(r))
        for n in r.inbox if sizes.joins else ():
            if (after := self.withdraw(r, n)) is not r:
                yield f"message {n} is withdrawn", s._replace(redis=after)
        if r.queue == LATER:
            yield "its time comes" if r.lease is None else "the lease lapses", s._replace(redis=r._replace(queue=DUE))
        if r.queue == DUE:
            yield from self._take(s)
        for i, claim in enumerate(s.claims):
            yield from self._work(s, i, claim)
        yield from self._trouble(s)

    def _take(self, s: State) -> Iterator[tuple[str, State]]:
        """A worker in grace would leave a lapsed lease alone, which is one of the things that can happen here."""
        r, owners = s.redis, [claim.owner for claim in s.claims]
        serial = self._new(s)
        for owner in self._workers(s):
            if owners.count(owner) == self.sizes.claims_each:
                continue
            for token in self._tokens(s, serial):
                after = self.acquire(r, owner, token)
                if after.lease != Lease(owner, token):
                    yield f"{_name(owner)} acquires nothing", s._replace(redis=after)
                    continue
                after = self._granted(after, r, serial)
                yield f"{_name(owner)} acquires, answer lost", s._replace(redis=after)
                if len(owners) < self.sizes.claims:
                    claim = Claim(serial, owner, token, after.inbox[0], len(after.ledger))
                    updated, after = self._describe(after, claim, after.stop)
                    yield f"{_name(owner)} acquires {claim.n}", s._replace(redis=after, claims=(*s.claims, updated))

    def _work(self, s: State, i: int, claim: Claim) -> Iterator[tuple[str, State]]:
        r, who = s.redis, f"{_name(claim.owner)} ({claim.n})"
        stop, after = self.renew(r, claim)
        updated, after = self._describe(after, claim, stop)
        yield f"{who} renews{': refused' if stop < 0 else ''}", _with(s, after, i, None if stop < 0 else updated)
        yield from _sent(s, f"{who} gives back", i, *self.release(r, claim), None)
        if r.errors + 1 < self.sizes.errors:
            yield from _sent(s, f"{who} fails, to be tried again", i, *self.release(r, claim, "errors"), None)
        else:
            yield from _sent(s, f"{who} fails, dead letter", i, *self.commit(r, claim, "dead"), None)
        if r.crashes >= self.sizes.crashes > 0:
            yield from _sent(s, f"{who} dead letter after crashes", i, *self.commit(r, claim, "dead"), None)
            return
        outcome: Outcome = "stopped" if claim.stop_seen else "answered"
        yield from _sent(s, f"{who} commits, {outcome}", i, *self.commit(r, claim, outcome), None)
        if claim.steps < self.sizes.ledger and self.sizes.joins:
            yield from self._join(s, i, claim)
        if claim.steps < self.sizes.ledger:
            step = claim.steps + 1
            yield from _sent(
                s, f"{who} writes step {step}", i, *self.ledger(r, claim, step), claim._replace(steps=step)
            )

    def _join(self, s: State, i: int, claim: Claim) -> Iterator[tuple[str, State]]:
        name, step = f"{_name(claim.owner)} ({claim.n}) lets others join as step {claim.steps + 1}", claim.steps + 1
        answer, after = self.take(s.redis, claim, step)
        if answer == -2:
            updated, after = self._describe(after, claim, s.redis.stop)
            yield f"{name}: told to stop", _with(s, after, i, updated)
        elif answer or len(s.redis.ledger) >= step:
            yield from _sent(s, name, i, answer, after, claim._replace(steps=step))

    def _trouble(self, s: State) -> Iterator[tuple[str, State]]:
        r = s.redis
        for owner in {claim.owner for claim in s.claims} | {r.lease.owner if r.lease else DEAD} - {DEAD}:
            yield f"{_name(owner)} dies", _died(s, owner)
        if r.lease is not None and r.lease.owner == DEAD:
            yield "the guardian gives the lease back", s._replace(redis=self.give_back(r))
        elif r.lease is not None and all(r.lease != Lease(claim.owner, claim.token) for claim in s.claims):
            yield f"{_name(r.lease.owner)} reclaims", s._replace(redis=r._replace(lease=None, queue=DUE, holder=0))
        if self.sizes.tail and not s.lost:
            if s.saved is None:
                yield "what follows is not yet on disk", s._replace(saved=r)
            else:
                yield "Redis loses its tail", s._replace(redis=s.saved, saved=None, lost=True)

    def _workers(self, s: State) -> list[int]:
        """Those that are somebody already, and one of the others, who are all alike."""
        seen = {claim.owner for claim in s.claims}
        seen |= {side.lease.owner for side in (s.redis, s.saved) if side is not None and side.lease is not None}
        new = min(set(range(1, self.sizes.workers + 2)) - seen)
        return sorted(seen - {DEAD}) + ([new] if new <= self.sizes.workers else [])

    def _new(self, s: State) -> int:
        sides = [side for side in (s.redis, s.saved) if side is not None]
        return 1 + max([side.token for side in sides] + [claim.serial for claim in s.claims])

    def _tokens(self, s: State, serial: int) -> list[int]:
        """The server's time in µs is new for ever, unless it fell back too: then any lost token may come again."""
        if self.sizes.clock_falls_back and s.lost:
            return sorted({serial} | {claim.token for claim in s.claims if claim.token > s.redis.token})
        return [serial]

    def _granted(self, after: Redis, before: Redis, serial: int) -> Redis:
        crashes = min(before.blame[1] + (before.lease is not None), self.sizes.crashes)
        return after._replace(holder=serial, blame=(before.blame[0], crashes))

    def _describe(self, r: Redis, claim: Claim, stop: int) -> tuple[Claim, Redis]:
        if claim.stop_seen or stop <= 0 or not self.means(stop, claim.n):
            return claim, r
        updated = claim._replace(stop_seen=True)
        return updated, r if r.asked == claim.n else r._replace(wrong="a turn was told to stop that nobody meant")

    def _judged(self, r: Redis, outcome: Outcome) -> Redis:
        errors, crashes = r.blame
        if outcome == "dead" and errors + 1 < self.sizes.errors and crashes < self.sizes.crashes:
            return r._replace(wrong="a message was put aside for what others did")
        return r

    # --- what must hold ---

    canonical = staticmethod(canonical)

    def problem(self, s: State) -> str:
        r = s.redis
        if r.wrong:
            return r.wrong
        if any(a >= b for a, b in zip(r.ended, r.ended[1:], strict=False)):
            return "turns were not committed in the order of ingest"
        if not set(r.joined) <= set(r.inbox):
            return "a message that joined a turn is gone before its end"
        if sorted((*r.ended, *r.inbox, *r.withdrawn)) != list(range(1, len(r.ids) + 1)):
            return "a message is lost or there twice"
        if len({r.ids[n - 1] for n in r.ended}) < len(r.ended):
            return "one message was answered twice"
        if r.inbox and r.queue is None:
            return "messages wait and the session is not in the queue"
        if (r.errors, r.crashes) != r.blame:
            return "errors or crashes were counted for another message"
        if not r.inbox and (r.queue or r.lease or r.ledger or r.errors or r.crashes or r.stop or r.joined):
            return "an idle session leaves something behind"
        if r.lease is not None and r.queue is None:
            return "a lease without its entry in the queue"
        if r.ledger != tuple(range(1, len(r.ledger) + 1)):
            return "the ledger has a hole"
        return ""

    def settled(self, s: State) -> bool:
        r = s.redis
        over = len(set(r.ended)) + len(r.withdrawn)
        return len(set(r.ids)) == self.sizes.messages == over and not r.inbox and r.queue is None

    def show(self, s: State) -> str:
        r = s.redis
        lease = "-" if r.lease is None else f"{_name(r.lease.owner)}:{r.lease.token}"
        claims = " ".join(f"{_name(c.owner)}:{c.token}({c.n})" for c in s.claims)
        return (
            f"inbox {list(r.inbox)} {r.queue or 'idle'} lease {lease} ended {list(r.ended)} | believe: {claims or '-'}"
        )


def _written(r: Redis, claim: Claim) -> Redis:
    """A guarded write was let through. Only the last acquisition may write, so spans of two never overlap and no
    token is lower than one before it."""
    return r if r.holder == claim.serial else r._replace(wrong="a write of a lease that was lost was accepted")


def _sent(s: State, name: str, i: int, answer: int, after: Redis, then: Claim | None) -> Iterator[tuple[str, State]]:
    """A call whose answer arrives (a refusal ends the claim), and the same whose answer is lost, to be sent again."""
    yield f"{name}{': refused' if answer < 0 else ''}", _with(s, after, i, None if answer < 0 else then)
    if after is not s.redis:
        yield f"{name}, answer lost", s._replace(redis=after)


def _with(s: State, r: Redis, i: int, claim: Claim | None) -> State:
    return s._replace(redis=r, claims=s.claims[:i] + ((claim,) if claim else ()) + s.claims[i + 1 :])


def _died(s: State, owner: int) -> State:
    """Its tasks are gone; the leases it had carry a name that nobody has any more."""
    return State(
        _orphaned(s.redis, owner),
        tuple(claim for claim in s.claims if claim.owner != owner),
        None if s.saved is None else _orphaned(s.saved, owner),
        s.lost,
    )


def _orphaned(r: Redis, owner: int) -> Redis:
    lease = r.lease
    return r if lease is None or lease.owner != owner else r._replace(lease=Lease(DEAD, lease.token))


def _name(owner: int) -> str:
    return "-ABCDEFG"[owner]
