"""Two chats on a platform as they must be in Redis, and as they are: the oracle of test_deliveries_machine.py."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, Literal, NamedTuple

from shared.store import keys
from shared.store.client.redis_client import RedisClient
from tests.helpers.platform_chat import CHANNEL

CHATS: Final = ("a", "b")
SESSIONS: Final = {name: f"{CHANNEL}:{name}" for name in CHATS}
QUIET_KINDS: Final = {"session", "seen", "said", "out", "outtoken", "outboxes", "wake", "dead", "served"}
STREAMED: Final = {b"bubble", b"meant", b"shown"}


class Mark(NamedTuple):
    """A post that may be on its way, the newest line then, and under which lease."""

    seq: int
    part: int
    newest: int
    lease: str


class End(NamedTuple):
    """What became of a line: `sent`, or the reason of its dead letter, and how often it may be there all the same."""

    seq: int
    how: str
    unsure: int = 0


@dataclass
class Chat:
    """One chat. `turn`: its inbox is not empty. What is not compared: the newest token and those of accepted writes."""

    added: int = 0
    outbox: list[int] = field(default_factory=list)
    turn: bool = False
    queue: Literal["due", "later"] | None = None
    lease: str | None = None
    mark: Mark | None = None
    done: int = 0
    unsure: int = 0
    tries: int = 0
    streamed: str = ""
    doubtful: str = ""
    closed: bool = False
    dead: list[End] = field(default_factory=list)
    sent: list[int] = field(default_factory=list, compare=False)
    tokens: list[int] = field(default_factory=list, compare=False)

    def is_due(self) -> bool:
        return self.queue == "due"

    def is_later(self) -> bool:
        return self.queue == "later"

    def is_leased(self) -> bool:
        return self.lease is not None

    def attend(self) -> None:
        self.queue = self.queue or "due"

    def ask(self) -> None:
        self.turn, self.closed = True, False
        self.attend()

    def answer(self, lines: int) -> None:
        self.turn = False
        for _ in range(lines):
            self.added += 1
            self.outbox.append(self.added)
            self.attend()

    def unclear(self, lease: str) -> bool:
        return self.mark is not None and self.mark.lease != lease

    def standing(self, seq: int, part: int) -> int:
        """0 = this post is the next, -1 it was ended before, 1 it is not its turn."""
        if not self.outbox or seq < self.outbox[0]:
            return -1
        if seq > self.outbox[0]:
            return 1
        return (part > self.done) - (part < self.done)

    def let_go(self, *, later: bool = False) -> None:
        self.queue, self.lease = "later" if later else "due", None

    def acquire(self, lease: str) -> bool:
        """Whether it is handed over."""
        if not (self.outbox or self.turn):
            self.leave()
            return False
        self.queue, self.lease = "later", lease
        return True

    def leave(self) -> None:
        self.queue, self.lease, self.tries = None, None, 0
        if not self.turn:
            self.streamed = self.doubtful = ""

    def sending(self, seq: int, part: int, lease: str, *, asked: bool) -> bool | None:
        """Whether it is unclear; None = the lease is given up."""
        if self.standing(seq, part) != 0:
            self.let_go()
            return None
        unclear = self.unclear(lease) and not asked
        self.unsure += unclear
        self.mark, self.queue = Mark(seq, part, self.outbox[-1], lease), "later"
        return unclear

    def post(self, seq: int, part: int, *, last: bool, id: str) -> bool:
        """The platform has it. False = the lease is given up."""
        standing = self.standing(seq, part)
        if standing > 0:
            self.let_go()
            return False
        self.queue = "later"
        if standing == 0:
            if id:
                self.closed = False
                self.streamed = "" if self.streamed.partition(" ")[2] == id else self.streamed
            if last:
                self.sent.append(seq)
                self.end(seq)
            else:
                self.mark, self.tries, self.done = None, 0, part + 1
        return True

    def refuse(self, seq: int, lease: str, reason: str) -> int:
        """How many lines go. -1 = the lease is given up."""
        standing = self.standing(seq, self.done)
        if standing > 0:
            self.let_go()
            return -1
        self.queue = "later"
        if standing < 0:
            return 0
        mine = self.mark is not None and self.mark.lease == lease
        through = self.mark.newest if self.mark and mine and reason == "chat_closed" else seq
        gone = [one for one in self.outbox if one <= through]
        unsure = self.unsure + self.unclear(lease)
        self.dead += [End(one, reason, unsure if one == seq else 0) for one in gone]
        self.end(through)
        self.closed = self.closed or reason == "chat_closed"
        return len(gone)

    def end(self, through: int) -> None:
        self.outbox = [one for one in self.outbox if one > through]
        self.mark, self.done, self.unsure, self.tries = None, 0, 0, 0

    def put_off(self, lease: str, *, unclear: bool, counts: bool, later: bool) -> None:
        if not unclear and not self.unclear(lease):
            self.mark = None
        self.tries += counts
        self.let_go(later=later)


async def look(client: RedisClient) -> dict[str, Chat]:
    """The chats as they are in Redis."""
    ask: list[tuple[str | int, ...]] = [("TIME",), ("XRANGE", keys.DEAD, "-", "+")]
    for session in SESSIONS.values():
        ask += [
            ("HGET", keys.session(session), "log"),
            ("XRANGE", keys.outbox(session), "-", "+"),
            ("EXISTS", keys.inbox(session)),
            ("ZSCORE", keys.outqueue(CHANNEL), session),
            ("HGET", keys.outleases(CHANNEL), session),
            ("HGETALL", keys.out(session)),
            ("ZSCORE", keys.outwaits(CHANNEL), session),
        ]
    (seconds, micros), dead, *rest = await client.pipeline(ask)
    now = int(seconds) * 1000 + int(micros) // 1000
    letters = [dict(zip(flat[::2], flat[1::2], strict=True)) for _, flat in dead]
    found = {}
    for i, (name, session) in enumerate(SESSIONS.items()):
        added, outbox, inbox, score, lease, flat, waits = rest[7 * i : 7 * i + 7]
        state = {key.decode(): value.decode() for key, value in zip(flat[::2], flat[1::2], strict=True)}
        lines = [int(id.split(b"-")[0]) for id, _ in outbox]
        assert (waits is not None) == bool(lines), "what waits is told of"
        assert not lines or waits == outbox[0][1][3], "for as long as its oldest line waits"
        mark = state.get("sending", "").split()
        line, _, done = state.get("done", "").partition(" ")
        assert not line or int(line) == lines[0], "what is done is of the first line"
        found[name] = Chat(
            added=int(added or 0),
            outbox=lines,
            turn=bool(inbox),
            queue=None if score is None else "due" if float(score) <= now else "later",
            lease=None if lease is None else lease.decode(),
            mark=Mark(int(mark[0]), int(mark[1]), int(mark[2]), mark[3]) if mark else None,
            done=int(done or 0),
            unsure=int(state.get("unsure", 0)),
            tries=int(state.get("tries", 0)),
            streamed=state.get("bubble", ""),
            doubtful=state.get("meant", ""),
            closed="closed" in state,
            dead=[
                End(int(one[b"n"]), one[b"reason"].decode(), int(one[b"unsure"]))
                for one in letters
                if one[b"member"].decode() == f"out:{session}"
            ],
        )
    return found


async def check(client: RedisClient, found: dict[str, Chat], expected: dict[str, Chat]) -> None:
    """The invariants of the fault catalogue, read from Redis; from the oracle only what cannot be read there."""
    for name, chat in found.items():
        sent, tokens = expected[name].sent, expected[name].tokens
        ended = [*sent, *(end.seq for end in chat.dead), *chat.outbox]
        assert sorted(ended) == list(range(1, chat.added + 1)), "I1: a line is delivered, a dead letter, or it waits"
        assert sent == sorted(sent), "I3: in order"
        assert tokens == sorted(tokens), "I5: no accepted write of an older token"
        assert not chat.outbox or chat.queue, "what waits is in the outqueue"
        assert chat.queue or not chat.lease, "nobody holds what is not in it"
        assert chat.mark is None or (chat.mark.seq, chat.mark.part) == (chat.outbox[0], chat.done)
    if all(chat.queue is None and not chat.turn for chat in found.values()):
        names = {one.decode() for one in await client.command("KEYS", "*")} - {keys.CLOCKS}
        assert {one.split(":")[2] for one in names} <= QUIET_KINDS, "I8: debris"
        for session in SESSIONS.values():
            left = set(await client.command("HKEYS", keys.out(session)))
            assert left <= {b"closed", *STREAMED}, "I8: debris of a chat"
            # A gateway that left while the turn ran left these for the next one; the turn ended without a line.
            assert not left & STREAMED or await client.command("PTTL", keys.out(session)) > 0, "I8: debris for ever"
