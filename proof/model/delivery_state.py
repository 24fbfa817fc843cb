"""What there is in the model of delivery: a chat in Redis, its platform, gateways and what they believe."""

from __future__ import annotations

from typing import Final, NamedTuple

from proof.model.state import DEAD, Lease

READY: Final = "ready"  # it knows the head of the outbox and has written nothing
RICH: Final = "rich"  # `sending` is written, the call is ahead
PLAIN: Final = "plain"  # the same, without markup
TOOK: Final = "took"  # the platform has it
BUSY: Final = "429"
MARKUP: Final = "400"
REFUSED: Final = "400 to plain text"
BARRED: Final = "403"
CUT: Final = "no answer"
IDLE: Final = "idle"  # nothing waits; it shows how the turn goes on

GOOD: Final = "good"
BAD_MARKUP: Final = "bad markup"
BAD: Final = "bad"


class Entry(NamedTuple):
    """A message in the outbox, and what the platform thinks of its text."""

    n: int
    text: str


NOTHING: Final = Entry(0, "")


class End(NamedTuple):
    """What became of an entry: 'delivered', 'dead' or 'dropped'. `unsure` counts the sends of which nobody knows,
    `done` the posts that were known to be there."""

    n: int
    how: str
    unsure: int
    done: int


class Chat(NamedTuple):
    """One chat in Redis, between two scripts. `counted` and `wrong` are not stored: they are for the checks."""

    added: int = 0
    outbox: tuple[Entry, ...] = ()
    queue: str | None = None
    lease: Lease | None = None
    sending: tuple[int, int, int] | None = None  # entry, token that wrote it, post; Shoal stores the owner too
    done: int = 0  # posts of the head entry that are there
    unsure: int = 0  # unknown sends of the head entry
    came: int = 0  # messages of the person
    turn: bool = False  # the inbox is not empty
    ended: tuple[End, ...] = ()
    counted: int = 0  # unknown sends of all entries
    wrong: str = ""


class Platform(NamedTuple):
    """What really happened. No fault of ours sets it back."""

    shown: tuple[tuple[int, int], ...] = ()  # entries and their posts, as the person sees them
    barred: int = 0  # 0 not yet, 1 the person has blocked the bot, 2 not any more
    refused: int = 0  # entries up to this one were waiting when the platform last said 403
    forgot: bool = False  # the keys of what it has
    wrong: str = ""


class Claim(NamedTuple):
    """What one task of a gateway believes: it delivers this chat. It may be wrong since long. Tokens are unique."""

    owner: int
    token: int
    entry: Entry = NOTHING
    post: int = 0
    phase: str = READY
    doubt: bool = False  # another lease left `sending` behind for this entry
    last: int = 0  # the end of the outbox when `sending` was written


class State(NamedTuple):
    """Everything. `saved` is what a lost tail would set Redis back to; `lost` says that this has happened."""

    chat: Chat = Chat()
    platform: Platform = Platform()
    claims: tuple[Claim, ...] = ()
    troubles: int = 0  # deaths, cuts and pauses past the lease, if they are counted
    saved: Chat | None = None
    lost: bool = False


def canonical(state: State) -> State:
    """Only whether two tokens are the same matters, so claims come in an order of their own and get new names."""
    sides = (state.chat,) if state.saved is None else (state.chat, state.saved)

    def order(claim: Claim) -> tuple[object, ...]:
        held = [side.lease is not None and side.lease.token == claim.token for side in sides]
        wrote = [side.sending is not None and side.sending[1] == claim.token for side in sides]
        return (held, wrote, claim.entry, claim.post, claim.phase, claim.doubt, claim.last, claim.owner)

    claims = sorted(state.claims, key=order) if len(state.claims) > 1 else state.claims
    tokens: dict[int, int] = {}
    names = {DEAD: DEAD}
    for claim in claims:
        tokens[claim.token] = len(tokens) + 1
        names.setdefault(claim.owner, len(names))
    for side in sides:
        if side.lease is not None:
            tokens.setdefault(side.lease.token, len(tokens) + 1)
            names.setdefault(side.lease.owner, len(names))
    return state._replace(
        chat=_renamed(state.chat, tokens, names),
        claims=tuple(claim._replace(owner=names[claim.owner], token=tokens[claim.token]) for claim in claims),
        saved=None if state.saved is None else _renamed(state.saved, tokens, names),
    )


def _renamed(chat: Chat, tokens: dict[int, int], names: dict[int, int]) -> Chat:
    """A mark of nobody who could still come back gets the token 0."""
    lease, sending = chat.lease, chat.sending
    return chat._replace(
        lease=None if lease is None else Lease(names[lease.owner], tokens[lease.token]),
        sending=None if sending is None else (sending[0], tokens.get(sending[1], 0), sending[2]),
    )
