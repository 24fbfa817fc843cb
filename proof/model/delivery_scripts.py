"""The way out of one chat as data: `add` is what commit does with a reply, `come` what ingest does, the other scripts
are `out_<name>.lua` (`dead` is `out_refused.lua`).

An entry leaves the outbox by a script that ends it, always from the head; it may be several posts. `sending` is written
before the platform is called, with the token of the lease; what another lease left there is a send of which nobody
knows whether it arrived. A gateway stays with a chat while a turn is under way, and leaves when nothing more can come.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

from proof.model import delivery_state as phase
from proof.model.delivery_state import Chat, Claim, End, Entry
from proof.model.state import DUE, LATER, Lease

Offers = Literal["key", "look-up", "nothing"]


class Sizes(NamedTuple):
    """How big the world is. Everything else (time, deaths, pauses, lost answers, 429) is without limit."""

    offers: Offers
    gateways: int = 2
    entries: int = 2
    posts: int = 1  # of each entry
    talks: bool = False  # entries are replies to messages, and the turns between are attended
    claims: int = 2  # tasks at once, of all gateways together, that believe to deliver the chat
    claims_each: int = 1
    texts: tuple[str, ...] = (phase.GOOD,)  # what an entry's text may be
    blocks: bool = False  # the person may once block the bot, and take it back
    troubles: int = 0  # deaths, cuts and pauses past the lease, at most; 0 = without limit
    late: bool = False  # a call may leave although the lease has lapsed
    tail: bool = False  # Redis may once be set back to an earlier moment
    forgets: bool = False  # the platform may forget its keys


class Scripts:
    """Each takes Redis before, and gives its answer (-1 = the lease is lost) and Redis after."""

    def __init__(self, sizes: Sizes) -> None:
        self.sizes = sizes

    def add(self, r: Chat, text: str) -> Chat:
        return r._replace(added=r.added + 1, outbox=(*r.outbox, Entry(r.added + 1, text)), queue=r.queue or DUE)

    def come(self, r: Chat) -> Chat:
        return r._replace(came=r.came + 1, turn=True, queue=r.queue or DUE)

    def acquire(self, r: Chat, lease: Lease) -> Chat:
        """A chat with nothing to do is taken out of the queue instead."""
        if not (r.outbox or r.turn):
            return r._replace(queue=None, lease=None)
        return r._replace(queue=LATER, lease=lease)

    def leave(self, r: Chat, claim: Claim) -> tuple[int, Chat]:
        if not self.holds(r, claim, "leave"):
            return -1, r
        if not self.is_quiet(r, claim):
            return 0, r
        return 1, _written(r, claim)._replace(queue=None, lease=None)

    def is_quiet(self, r: Chat, claim: Claim) -> bool:
        """The part of leave that decides whether the chat stays in the outqueue."""
        return not (r.outbox or r.turn)

    def holds(self, r: Chat, claim: Claim, script: str) -> bool:
        """The guard of `script`."""
        return r.lease == Lease(claim.owner, claim.token)

    def renew(self, r: Chat, claim: Claim) -> tuple[int, Chat]:
        return (1, r._replace(queue=LATER)) if self.holds(r, claim, "renew") else (-1, r)

    def sending(self, r: Chat, claim: Claim) -> tuple[int, Chat]:
        """Also a renewal. Its own mark is an earlier call of this script, or a send that was refused for sure."""
        if not self.holds(r, claim, "sending"):
            return -1, r
        if not self.is_head(r, claim):
            return -1, r._replace(queue=DUE, lease=None)
        unknown = r.sending is not None and r.sending[1] != claim.token and self.sizes.offers != "look-up"
        mark = (claim.entry.n, claim.token, claim.post)
        return 1, self.count(_written(r, claim), unknown)._replace(queue=LATER, sending=mark)

    def is_head(self, r: Chat, claim: Claim) -> bool:
        """Whether it is this post's turn: not if the server lost that what is before it was sent."""
        return bool(r.outbox) and (r.outbox[0].n, r.done) == (claim.entry.n, claim.post)

    def count(self, r: Chat, unknown: bool) -> Chat:
        """The part of sending that counts an unknown send. Only that there was one matters where a key is at hand."""
        if self.sizes.offers == "key":
            return r._replace(unsure=int(unknown) or r.unsure)
        return r._replace(unsure=r.unsure + unknown, counted=r.counted + unknown)

    def sent(self, r: Chat, claim: Claim) -> tuple[int, Chat]:
        if self.is_last(claim):
            return self._end(r, claim, "sent", "delivered", 0)
        if not self.holds(r, claim, "sent"):
            return -1, r
        if claim.entry not in r.outbox or (r.outbox[0] == claim.entry and claim.post < r.done):
            return 1, r  # noted before, the answer was lost
        if not self.is_head(r, claim):
            return -1, r._replace(queue=DUE, lease=None)
        return 1, self.note_done(_written(r, claim))._replace(queue=LATER, sending=None)

    def is_last(self, claim: Claim) -> bool:
        """Whether the entry is delivered with this post."""
        return claim.post + 1 == self.sizes.posts

    def note_done(self, r: Chat) -> Chat:
        """The part of sent that tells a successor where to go on."""
        return r._replace(done=r.done + 1)

    def dead(self, r: Chat, claim: Claim, how: Literal["dead", "dropped"]) -> tuple[int, Chat]:
        """A text that is refused ends alone; with a chat that is refused goes all that waited when it was tried."""
        return self._end(r, claim, "dead", how, self.through(r, claim) if how == "dropped" else 0)

    def through(self, r: Chat, claim: Claim) -> int:
        """The last entry that goes with a chat that is refused."""
        return claim.last

    def _end(self, r: Chat, claim: Claim, script: str, how: str, through: int) -> tuple[int, Chat]:
        if claim.entry not in r.outbox:  # ended before, the answer was lost
            return (1 if self.holds(r, claim, script) else -1), r
        if not self.holds(r, claim, script):
            return -1, r
        if not (self.is_head(r, claim) or (script == "dead" and r.outbox[0] == claim.entry)):
            return -1, r._replace(queue=DUE, lease=None)
        r = _written(r, claim)
        gone = [entry.n for entry in r.outbox if entry.n == claim.entry.n or entry.n <= through]
        done = r.done + (how == "delivered")
        ends = tuple(End(n, how, *((r.unsure, done) if n == claim.entry.n else (0, 0))) for n in gone)
        r = r._replace(outbox=tuple(entry for entry in r.outbox if entry.n not in gone), ended=(*r.ended, *ends))
        return 1, r._replace(sending=None, unsure=0, done=0, queue=LATER)

    def later(self, r: Chat, claim: Claim, unknown: bool) -> tuple[int, Chat]:
        """429, drain, or no answer."""
        if not self.holds(r, claim, "later"):
            return -1, r
        keep = self.keeps_mark(r, claim, unknown)
        return 1, _written(r, claim)._replace(queue=LATER, lease=None, sending=r.sending if keep else None)

    def keeps_mark(self, r: Chat, claim: Claim, unknown: bool) -> bool:
        """Only one's own mark is taken back, and only when nothing can have been sent under it."""
        return unknown or (r.sending is not None and r.sending[1] != claim.token)


def _written(r: Chat, claim: Claim) -> Chat:
    """A guarded write was let through. Only the last acquisition may write."""
    held = r.lease is not None and r.lease.token == claim.token
    return r if held else r._replace(wrong="a write of a lease that was lost was accepted")
