"""Wake-ups as data: several sessions, workers with one slot each, and a list that holds at most one token.

Work that a script made due must never wait for the poll of once a second: a token or a worker that is about to look
must be there. (A worker that dies with the token in its hand is what the poll is for; that is not in here.)
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

IDLE: Final = "idle"
ANNOUNCED: Final = "announced"  # due because a script made it so
QUIET: Final = "quiet"  # due because its time came, or a lease lapsed; the poll finds it
LEASED: Final = "leased"
LATER: Final = "later"
MOST: Final = 2  # messages that wait in a session


class Session(NamedTuple):
    """Where its entry is, and how many messages wait."""

    phase: str = IDLE
    waiting: int = 0


class Fleet(NamedTuple):
    """All sessions (alike), the token, and how many workers sleep in BLPOP, are about to look, or are busy."""

    sessions: tuple[Session, ...]
    asleep: int
    awake: int = 0
    busy: int = 0
    token: bool = False


class Wakes:
    """The rules as they are. A seeded bug leaves one script out of `wakes`."""

    def __init__(self, sessions: int = 3, workers: int = 3, *, silent: str = "") -> None:
        self._start = Fleet((Session(),) * sessions, workers)
        self._silent = silent

    def start(self) -> Fleet:
        return self._start

    def canonical(self, fleet: Fleet) -> Fleet:
        return fleet._replace(sessions=tuple(sorted(fleet.sessions)))

    def steps(self, fleet: Fleet) -> Iterator[tuple[str, Fleet]]:
        for i, (phase, waiting) in enumerate(fleet.sessions):
            if waiting < MOST:
                after = _put(fleet, i, Session(ANNOUNCED if phase == IDLE else phase, waiting + 1))
                yield f"a message for session {i}", self._wake("ingest", after) if phase == IDLE else after
            if phase in (LATER, LEASED):
                yield f"time passes for session {i}", _put(fleet, i, Session(QUIET, waiting))
            if phase == LATER:
                yield f"/stop for session {i}", self._wake("stop", _put(fleet, i, Session(ANNOUNCED, waiting)))
            if phase in (ANNOUNCED, QUIET) and fleet.awake:
                yield f"a worker acquires session {i}", self._acquire(_put(fleet, i, Session(LEASED, waiting)))
            if phase == LEASED and fleet.busy:
                yield from self._end(f"session {i}", fleet, i, waiting)
        if fleet.busy > sum(session.phase == LEASED for session in fleet.sessions):
            yield from _free("a worker finds its lease lost", fleet)
        if fleet.token and fleet.asleep:
            yield (
                "BLPOP hands the token out",
                fleet._replace(token=False, asleep=fleet.asleep - 1, awake=fleet.awake + 1),
            )
        if fleet.asleep:
            yield "a worker looks on its own", fleet._replace(asleep=fleet.asleep - 1, awake=fleet.awake + 1)
        if fleet.awake and not _due(fleet):
            yield "a worker finds nothing", fleet._replace(awake=fleet.awake - 1, asleep=fleet.asleep + 1)

    def problem(self, fleet: Fleet) -> str:
        announced = any(session.phase == ANNOUNCED for session in fleet.sessions)
        if announced and not fleet.token and not fleet.awake:
            return "due work waits and nobody was woken"
        if any((session.phase == IDLE) != (session.waiting == 0) for session in fleet.sessions):
            return "an idle session has messages, or one without any is queued"
        return ""

    def settled(self, fleet: Fleet) -> bool:
        return all(session.phase == IDLE for session in fleet.sessions)

    def show(self, fleet: Fleet) -> str:
        sessions = " ".join(f"{phase}({waiting})" for phase, waiting in fleet.sessions)
        return f"{sessions} | asleep {fleet.asleep} awake {fleet.awake} busy {fleet.busy} token {int(fleet.token)}"

    def _acquire(self, after: Fleet) -> Fleet:
        after = after._replace(awake=after.awake - 1, busy=after.busy + 1)
        return self._wake("acquire", after) if _due(after) else after

    def _end(self, name: str, fleet: Fleet, i: int, waiting: int) -> Iterator[tuple[str, Fleet]]:
        committed = _put(fleet, i, Session(ANNOUNCED if waiting > 1 else IDLE, waiting - 1))
        yield from _free(f"{name} is committed", self._wake("commit", committed) if waiting > 1 else committed)
        released = _put(fleet, i, Session(ANNOUNCED, waiting))
        yield from _free(f"{name} is released", self._wake("release", released))
        yield from _free(f"{name} is put off", _put(fleet, i, Session(LATER, waiting)))

    def _wake(self, script: str, after: Fleet) -> Fleet:
        return after if script == self._silent else after._replace(token=True)


def _free(name: str, fleet: Fleet) -> Iterator[tuple[str, Fleet]]:
    """A worker that ended its work looks for more, unless it drains (its successor comes up when it likes)."""
    fleet = fleet._replace(busy=fleet.busy - 1)
    yield name, fleet._replace(awake=fleet.awake + 1)
    yield f"{name}, its worker drains", fleet._replace(asleep=fleet.asleep + 1)


def _put(fleet: Fleet, i: int, session: Session) -> Fleet:
    return fleet._replace(sessions=(*fleet.sessions[:i], session, *fleet.sessions[i + 1 :]))


def _due(fleet: Fleet) -> bool:
    return any(session.phase in (ANNOUNCED, QUIET) for session in fleet.sessions)
