"""Mistakes that are easily made, each as a small change of the protocol. The model is worth what it finds of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

from proof.model.protocol import Outcome, Queue, Sizes
from proof.model.state import LATER, Claim, Redis, State


class EmptyReadEarly(Queue):
    """Whether the inbox is empty is read before commit, and commit believes it."""

    def _work(self, s: State, i: int, claim: Claim) -> Iterator[tuple[str, State]]:
        looked = claim._replace(looked=len(s.redis.inbox))
        yield (
            f"a worker reads that {looked.looked} wait",
            s._replace(claims=(*s.claims[:i], looked, *s.claims[i + 1 :])),
        )
        yield from super()._work(s, i, claim)

    def more_waits(self, r: Redis, claim: Claim) -> bool:
        return claim.looked > 1 if claim.looked >= 0 else super().more_waits(r, claim)


class NoGuard(Queue):
    """One script does not ask whether the lease is held."""

    script = ""

    def holds(self, r: Redis, claim: Claim, script: str) -> bool:
        return script == self.script or super().holds(r, claim, script)


class NoGuardInCommit(NoGuard):
    """A worker ends a turn that is not its own any more."""

    script = "commit"


class NoGuardInLedger(NoGuard):
    """A worker writes into the turn of its successor."""

    script = "ledger"


class NoGuardInRelease(NoGuard):
    """A worker gives back what its successor holds."""

    script = "release"


class NoGuardInRenew(NoGuard):
    """A worker renews what it does not hold, and goes on."""

    script = "renew"


class OwnerWithoutToken(Queue):
    """The guard compares the owner only: a worker's old task passes for its new one."""

    def holds(self, r: Redis, claim: Claim, script: str) -> bool:
        return r.lease is not None and r.lease.owner == claim.owner


class TokenWithoutOwner(Queue):
    """The guard compares the token only: after a lost tail it may be given a second time."""

    def holds(self, r: Redis, claim: Claim, script: str) -> bool:
        return r.lease is not None and r.lease.token == claim.token


class AttemptsOfTheSession(Queue):
    """Errors and crashes are counted for the session: the next message pays for the one before."""

    def forget(self, r: Redis, claim: Claim) -> Redis:
        return r._replace(stop=0 if r.stop == claim.n else r.stop)


class DeadLetterLeavesTheRest(Queue):
    """A dead letter ends the message, but nobody puts the session back into the queue for the next."""

    def commit(self, r: Redis, claim: Claim, outcome: Outcome) -> tuple[int, Redis]:
        answer, after = super().commit(r, claim, outcome)
        return answer, after._replace(queue=None) if answer == 1 and outcome == "dead" else after


class NoDedupe(Queue):
    """A message that is delivered again is a message."""

    def ingest(self, r: Redis, id: int) -> Redis:
        return super().ingest(r._replace(ids=()), id)._replace(ids=(*r.ids, id), inbox=(*r.inbox, len(r.ids) + 1))


class StopWithoutName(Queue):
    """The stop flag says "stop", not whom. Whoever was stopped takes it down."""

    def means(self, stop: int, n: int) -> bool:
        return stop > 0

    def forget(self, r: Redis, claim: Claim) -> Redis:
        return super().forget(r, claim)._replace(stop=0 if claim.stop_seen or not r.inbox else r.stop)


class NotQueuedAgain(Queue):
    """Commit takes the session out of the queue though more messages wait."""

    def more_waits(self, r: Redis, claim: Claim) -> bool:
        return False


class LedgerStays(Queue):
    """Commit does not end the ledger: the next turn begins with the steps of the one before."""

    def commit(self, r: Redis, claim: Claim, outcome: Outcome) -> tuple[int, Redis]:
        answer, after = super().commit(r, claim, outcome)
        return answer, after._replace(ledger=r.ledger) if answer == 1 else after


class PoisonPassedOver(Queue):
    """What crashed too often is left alone for ever instead of becoming a dead letter."""

    def acquire(self, r: Redis, owner: int, token: int) -> Redis:
        after = super().acquire(r, owner, token)
        return r._replace(queue=LATER) if after.crashes == self.sizes.crashes else after


class LedgerWithGaps(Queue):
    """A step is written whatever stands before it, also when the server lost the last ones."""

    def gap(self, r: Redis, step: int) -> bool:
        return False


class NoGuardInTake(NoGuard):
    """A worker lets messages join the turn of its successor."""

    script = "take"


class JoinsDespiteStop(Queue):
    """What waits joins a turn that was told to stop, before its worker hears of it."""

    def heeds(self, r: Redis, claim: Claim) -> bool:
        return False


class WithdrawnAndJoined(Queue):
    """A message that has joined a turn can still be withdrawn."""

    def begun(self, r: Redis, n: int) -> bool:
        return False


class JoinedAnsweredAgain(Queue):
    """Commit lets go of the first message only: what joined it makes a second turn."""

    def left(self, r: Redis, claim: Claim) -> tuple[int, ...]:
        return tuple(n for n in r.inbox if n != claim.n)


class Seeded(NamedTuple):
    """A bug, the world in which it shows, what it must be found by and in how many steps at most."""

    queue: Callable[[Sizes], Queue]
    problem: str
    steps: int
    sizes: Sizes = Sizes(claims=2)


STALE: Final = "a write of a lease that was lost was accepted"
JOINS: Final = Sizes(claims=2, claims_each=1, joins=True)
CLOCK: Final = Sizes(
    workers=2, claims=2, claims_each=1, ledger=0, errors=1, crashes=0, stops=False, tail=True, clock_falls_back=True
)

SEEDED: Final = {
    seeded.queue.__name__: seeded
    for seeded in (
        Seeded(EmptyReadEarly, "messages wait and the session is not in the queue", 5),
        Seeded(NoGuardInCommit, STALE, 5),
        Seeded(NoGuardInLedger, STALE, 5),
        Seeded(NoGuardInRelease, STALE, 5),
        Seeded(NoGuardInRenew, STALE, 5),
        Seeded(OwnerWithoutToken, STALE, 5),
        Seeded(TokenWithoutOwner, STALE, 6, CLOCK),
        Seeded(AttemptsOfTheSession, "errors or crashes were counted for another message", 5),
        Seeded(DeadLetterLeavesTheRest, "messages wait and the session is not in the queue", 7),
        Seeded(NoDedupe, "one message was answered twice", 6),
        Seeded(StopWithoutName, "a turn was told to stop that nobody meant", 6),
        Seeded(NotQueuedAgain, "messages wait and the session is not in the queue", 4),
        Seeded(LedgerStays, "an idle session leaves something behind", 4),
        Seeded(NoGuardInTake, STALE, 6, JOINS),
        Seeded(JoinsDespiteStop, "a message was stopped that nobody meant", 5, JOINS),
        Seeded(WithdrawnAndJoined, "a message that joined a turn is gone before its end", 5, JOINS),
        Seeded(JoinedAnsweredAgain, "a message is lost or there twice", 5, JOINS),
        Seeded(PoisonPassedOver, "stuck: nothing that can happen leads to everything answered", 9),
    )
}
