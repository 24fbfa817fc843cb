"""What there is in the model of the queue: Redis, workers and what they believe, and names that mean nothing."""

from __future__ import annotations

from typing import Final, NamedTuple

DUE: Final = "due"
LATER: Final = "later"
DEAD: Final = 0
"""The owner of a lease whose process is gone. Living workers are 1, 2, 3; they are alike."""


class Lease(NamedTuple):
    """A value in the leases hash."""

    owner: int
    token: int


class Redis(NamedTuple):
    """One session in Redis, between two scripts. A message is its number; times are only "has come" or "will come".

    Fields from `holder` on are not stored by Shoal: they know what really happened, so that it can be checked.
    """

    ids: tuple[int, ...] = ()  # of the messages 1, 2, ... as they were ingested
    inbox: tuple[int, ...] = ()
    queue: str | None = None
    lease: Lease | None = None
    token: int = 0
    ledger: tuple[int, ...] = ()  # step numbers
    errors: int = 0
    crashes: int = 0
    stop: int = 0
    joined: tuple[int, ...] = ()  # that joined the turn at the head
    withdrawn: tuple[int, ...] = ()
    ended: tuple[int, ...] = ()  # numbers, in the order of their commits (dead letters too)
    holder: int = 0  # serial of the acquisition that holds the session, 0 = nobody does
    blame: tuple[int, int] = (0, 0)  # errors and crashes of the head message itself
    asked: int = 0  # the message whose end a person asked for
    wrong: str = ""  # what should never have happened

    @property
    def done(self) -> int:
        """The number of the last turn that was committed."""
        return self.ended[-1] if self.ended else 0


class Claim(NamedTuple):
    """What one task of a worker believes: it holds the session. It may be wrong since long.

    `serial` is unique for ever, which tokens need not be (see `Sizes.clock_falls_back`).
    """

    serial: int
    owner: int
    token: int
    n: int
    steps: int
    stop_seen: bool = False  # to stop
    looked: int = -1  # what it read of the inbox outside of commit; only bugs use it


class State(NamedTuple):
    """Everything. `saved` is what a lost tail would set Redis back to; `lost` says that this has happened."""

    redis: Redis = Redis()
    claims: tuple[Claim, ...] = ()
    saved: Redis | None = None
    lost: bool = False


def canonical(state: State) -> State:
    """Serials and tokens become their ranks, workers get their names in the order of their claims."""
    redis, claims, saved, lost = state
    kept = (redis, saved) if saved is not None else (redis,)
    values = {0, *(claim.serial for claim in claims), *(claim.token for claim in claims)}
    for side in kept:
        values.add(side.holder)
        values.add(side.token)
        if side.lease is not None:
            values.add(side.lease.token)
    rank = {value: i for i, value in enumerate(sorted(values))}
    names = {DEAD: DEAD}
    for claim in claims:
        names.setdefault(claim.owner, len(names))
    for side in kept:
        if side.lease is not None:
            names.setdefault(side.lease.owner, len(names))
    return State(
        _renamed(redis, rank, names),
        tuple(
            Claim(rank[serial], names[owner], rank[token], n, steps, stop_seen, looked)
            for serial, owner, token, n, steps, stop_seen, looked in claims
        ),
        _renamed(saved, rank, names) if saved is not None else None,
        lost,
    )


def _renamed(redis: Redis, rank: dict[int, int], names: dict[int, int]) -> Redis:
    lease = redis.lease
    return redis._replace(
        token=rank[redis.token],
        holder=rank[redis.holder],
        lease=None if lease is None else Lease(names[lease.owner], rank[lease.token]),
    )
