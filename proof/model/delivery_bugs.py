"""Mistakes that are easily made on the way out, each as a small change of the protocol."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Literal, NamedTuple

from proof.model import delivery_state as phase
from proof.model.delivery import Delivery
from proof.model.delivery_scripts import Sizes
from proof.model.delivery_state import Chat, Claim
from proof.model.state import LATER


class SendingAfterTheSend(Delivery):
    """`sending` is written when the platform has answered."""

    def sending(self, r: Chat, claim: Claim) -> tuple[int, Chat]:
        answer, after = super().sending(r, claim)
        return answer, after._replace(sending=r.sending)


class NoGuard(Delivery):
    """One script does not ask whether the lease is held."""

    script = ""

    def holds(self, r: Chat, claim: Claim, script: str) -> bool:
        return script == self.script or super().holds(r, claim, script)


class NoGuardInSending(NoGuard):
    """A gateway that slept past its lease sends beside its successor."""

    script = "sending"


class NoGuardInSent(NoGuard):
    """A gateway ends an entry that its successor is sending."""

    script = "sent"


class NoGuardInDead(NoGuard):
    """A gateway gives up an entry that its successor is sending."""

    script = "dead"


class NoGuardInLeave(NoGuard):
    """A gateway takes what its successor holds out of the outqueue."""

    script = "leave"


class NoGuardInLater(NoGuard):
    """A gateway puts off what its successor holds."""

    script = "later"


class OwnerWithoutToken(Delivery):
    """The guard compares the owner only: a gateway's old task passes for its new one."""

    def holds(self, r: Chat, claim: Claim, script: str) -> bool:
        return r.lease is not None and r.lease.owner == claim.owner


class UnknownIsDelivered(Delivery):
    """An unknown send is taken for one that arrived."""

    def believes(self, claim: Claim, r: Chat) -> Claim:
        claim = super().believes(claim, r)
        return claim._replace(phase=phase.TOOK) if claim.doubt else claim


class UnknownIsNotSent(Delivery):
    """An unknown send is taken for one that did not arrive, though the platform could be asked."""

    def looks_up(self, claim: Claim) -> bool:
        return False


class CutIsRefused(Delivery):
    """An answer that did not come is taken for a no."""

    def is_unknown(self, claim: Claim) -> bool:
        return False


class PutOffForgets(Delivery):
    """A gateway that puts a chat off wipes out the mark of one before it."""

    def keeps_mark(self, r: Chat, claim: Claim, unknown: bool) -> bool:
        return unknown


class UnknownNotCounted(Delivery):
    """What is sent again is not counted."""

    def count(self, r: Chat, unknown: bool) -> Chat:
        return r


class OwnMarkCounted(Delivery):
    """A call of out_sending that is made again takes its own mark for that of a dead gateway."""

    def count(self, r: Chat, unknown: bool) -> Chat:
        return super().count(r, r.sending is not None)


class BusyMovesOn(Delivery):
    """429: the next entry is tried meanwhile."""

    def later(self, r: Chat, claim: Claim, unknown: bool) -> tuple[int, Chat]:
        answer, after = super().later(r, claim, unknown)
        if answer < 0 or claim.phase != phase.BUSY:
            return answer, after
        return answer, after._replace(outbox=(*after.outbox[1:], after.outbox[0]))


class RefusedTextBlocksTheChat(Delivery):
    """400 to plain text: it is tried again, for ever."""

    def dead(self, r: Chat, claim: Claim, how: Literal["dead", "dropped"]) -> tuple[int, Chat]:
        return self.later(r, claim, unknown=False) if how == "dead" else super().dead(r, claim, how)


class BarredLeavesTheRest(Delivery):
    """403: the entry is dropped and the chat left alone, with what waits behind."""

    def through(self, r: Chat, claim: Claim) -> int:
        return claim.entry.n

    def dead(self, r: Chat, claim: Claim, how: Literal["dead", "dropped"]) -> tuple[int, Chat]:
        answer, after = super().dead(r, claim, how)
        return answer, after._replace(queue=None, lease=None) if how == "dropped" and answer > 0 else after


class BarredTakesLaterOnes(Delivery):
    """403: what was added since the call goes with the rest, though the person may have taken the block back."""

    def through(self, r: Chat, claim: Claim) -> int:
        return r.added


class AddedButNotDue(Delivery):
    """A reply is added, and nobody puts the chat into the outqueue."""

    def add(self, r: Chat, text: str) -> Chat:
        return super().add(r, text)._replace(queue=r.queue)


class QuietReadEarly(Delivery):
    """Whether nothing waits is decided by what was read before."""

    def is_quiet(self, r: Chat, claim: Claim) -> bool:
        return True


class LeavesARunningTurn(Delivery):
    """A gateway leaves when all is sent, though a turn is under way that could be streamed."""

    def is_quiet(self, r: Chat, claim: Claim) -> bool:
        return not r.outbox


class PostsForgotten(Delivery):
    """Nobody notes how many posts of an entry are there: a successor begins with the first."""

    def note_done(self, r: Chat) -> Chat:
        return r

    def is_head(self, r: Chat, claim: Claim) -> bool:
        return bool(r.outbox) and r.outbox[0].n == claim.entry.n

    def is_last(self, claim: Claim) -> bool:
        return claim.post + 1 == self.sizes.posts


class DeliveredWithOnePost(Delivery):
    """An entry ends with its first post."""

    def is_last(self, claim: Claim) -> bool:
        return True


class MarkStays(Delivery):
    """The end of an entry does not end its mark: the next one seems to be sent already."""

    def sent(self, r: Chat, claim: Claim) -> tuple[int, Chat]:
        answer, after = super().sent(r, claim)
        return answer, after._replace(sending=r.sending) if answer > 0 else after


class BusyKeepsTheLease(Delivery):
    """429 leaves the lease in place: for whoever comes next the send is unknown, though it was refused."""

    def later(self, r: Chat, claim: Claim, unknown: bool) -> tuple[int, Chat]:
        answer, after = super().later(r, claim, unknown)
        return answer, r._replace(queue=LATER) if answer > 0 and claim.phase == phase.BUSY else after


class AnyEntry(Delivery):
    """Nobody asks whether the entry is the head: after a lost tail it may not be."""

    def is_head(self, r: Chat, claim: Claim) -> bool:
        return True


class Seeded(NamedTuple):
    """A bug, the world in which it shows, what it must be found by and in how many steps at most."""

    delivery: Callable[[Sizes], Delivery]
    problem: str
    steps: int
    sizes: Sizes


TWICE: Final = "an entry was sent twice"
UNCOUNTED: Final = "a second send was not counted"
OVERCOUNTED: Final = "more unknown sends were counted than there were troubles"
OUT_OF_ORDER: Final = "a send out of the order of the outbox"
STALE: Final = "a write of a lease that was lost was accepted"
NOT_DUE: Final = "entries wait and the chat is not in the outqueue"

LOOK_UP: Final = Sizes("look-up")
NOTHING: Final = Sizes("nothing", troubles=2)
BLOCKS: Final = Sizes("look-up", blocks=True)
TALKS: Final = Sizes("look-up", talks=True)
POSTS: Final = Sizes("look-up", posts=2)
TEXTS: Final = Sizes("look-up", texts=(phase.GOOD, phase.BAD_MARKUP, phase.BAD))

SEEDED: Final = {
    seeded.delivery.__name__: seeded
    for seeded in (
        Seeded(SendingAfterTheSend, TWICE, 8, LOOK_UP),
        Seeded(NoGuardInSending, STALE, 5, LOOK_UP),
        Seeded(NoGuardInSent, STALE, 7, LOOK_UP),
        Seeded(NoGuardInDead, STALE, 9, TEXTS),
        Seeded(NoGuardInLeave, STALE, 5, TALKS),
        Seeded(NoGuardInLater, STALE, 4, LOOK_UP),
        Seeded(OwnerWithoutToken, STALE, 5, LOOK_UP._replace(claims_each=2)),
        Seeded(UnknownIsDelivered, "an entry counts as delivered and was never sent", 6, LOOK_UP),
        Seeded(UnknownIsNotSent, TWICE, 8, LOOK_UP),
        Seeded(CutIsRefused, TWICE, 9, LOOK_UP),
        Seeded(PutOffForgets, TWICE, 11, LOOK_UP),
        Seeded(UnknownNotCounted, UNCOUNTED, 8, NOTHING),
        Seeded(OwnMarkCounted, OVERCOUNTED, 4, NOTHING),
        Seeded(BusyMovesOn, OUT_OF_ORDER, 13, LOOK_UP),
        Seeded(RefusedTextBlocksTheChat, "stuck: nothing that can happen leads to everything answered", 1, TEXTS),
        Seeded(BarredLeavesTheRest, NOT_DUE, 7, BLOCKS),
        Seeded(BarredTakesLaterOnes, "an entry was dropped that was never refused", 7, BLOCKS),
        Seeded(AddedButNotDue, NOT_DUE, 1, LOOK_UP),
        Seeded(QuietReadEarly, NOT_DUE, 7, LOOK_UP),
        Seeded(LeavesARunningTurn, "a turn is under way and nobody is to attend it", 3, TALKS),
        Seeded(PostsForgotten, TWICE, 7, POSTS),
        Seeded(DeliveredWithOnePost, "an entry counts as delivered and was never sent", 5, POSTS),
        Seeded(MarkStays, "a quiet chat leaves something behind", 5, LOOK_UP),
        Seeded(BusyKeepsTheLease, OVERCOUNTED, 8, NOTHING),
        Seeded(AnyEntry, "an entry that is not the head is being sent", 9, Sizes("key", tail=True)),
    )
}
