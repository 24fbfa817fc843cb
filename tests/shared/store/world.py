"""Two sessions as they must be in Redis, and as they are: the oracle of test_state_machine.py."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, Literal

from shared.messages.outbound import UserLine, decode_line
from shared.settings.sections.chats import Busy
from shared.store import keys
from shared.store.client.redis_client import RedisClient
from shared.store.turns.known_messages import WithdrawalOutcome

INBOX_CAP: Final = 3
CHATS: Final = ("web:owner/a", "web:owner/b")
Dumps = dict[bytes, tuple[bytes, int]]
"""Key -> its content and its time to live in ms (0 = for ever)."""

IDLE_KINDS: Final = {"session", "history", "outbox"}
IDLE_FIELDS: Final = {b"n", b"log", b"token", b"done", b"history", b"kept", b"title", b"titled", b"tries", b"place"} | {
    b"acked",
    b"created",
    b"updated",
}
COUNTS: Final = ("n", "done", "errors", "crashes", "spared", "tries", "stop", "away", "cut", "person")
ENDS: Final = ("reply", "stopped", "apology")


@dataclass
class Chat:
    """One session. What is not compared: what ingest said, the newest token, those of accepted writes, and whether its
    time has only just come."""

    inbox: list[int] = field(default_factory=list)
    queue: Literal["due", "later"] | None = None
    lease: str | None = None
    ledger: list[bytes] = field(default_factory=list)
    counts: dict[str, int] = field(default_factory=dict)
    lines: list[tuple[str, str]] = field(default_factory=list)  # kind, and what it belongs to
    history: int = 0
    joined: list[int] = field(default_factory=list)  # by the turn of the first message in the inbox
    marks: dict[int, str] = field(default_factory=dict)  # of those in the inbox that may join a turn
    ticks: set[int] = field(default_factory=set)  # those in the inbox that no person waits for
    behind: bool = False  # in the queue of the background
    cutting: set[int] = field(default_factory=set, compare=False)  # those that interrupted
    withdrawn: set[str] = field(default_factory=set, compare=False)
    answers: dict[str, tuple[int, int]] = field(default_factory=dict, compare=False)
    token: int = field(default=0, compare=False)
    tokens: list[int] = field(default_factory=list, compare=False)
    late: bool = field(default=False, compare=False)

    def has_room(self) -> bool:
        return len(self.inbox) < INBOX_CAP

    def has_log(self) -> bool:
        return bool(self.answers)

    def is_due(self) -> bool:
        return self.queue == "due"

    def is_later(self) -> bool:
        return self.queue == "later"

    def is_leased(self) -> bool:
        return self.lease is not None

    def may_be_stopped(self) -> bool:
        return bool(self.inbox) and self.counts.get("stop") != self.inbox[0]

    def count(self, name: str) -> None:
        self.counts[name] = self.counts.get(name, 0) + 1

    def count_crash(self) -> None:
        """A worker died. From the second crash on the work runs isolated, and it says a third as much."""
        self.count("spared" if self.counts.get("crashes", 0) >= 2 else "crashes")

    def line_up(self) -> None:
        """Where it waits with this head; a person behind a tick waits for that, too."""
        head = self.inbox[0] if self.inbox else 0
        self.behind = head in self.ticks and self.counts.get("person", 0) <= head

    def tick(self, id: str) -> None:
        """A message that no person waits for. It is no line of the log."""
        self.count("n")
        n = self.counts["n"]
        self.behind = self.behind or not self.inbox
        self.inbox.append(n)
        self.ticks.add(n)
        self.answers[id] = (n, 0)

    def ingest(self, id: str, busy: Busy = "queue") -> None:
        self.lines.append(("said", id))
        if self.rejects(busy):
            self.lines.append(("notice", id))
            self.answers[id] = (0, len(self.lines) - 1)
            return
        self.count("n")
        n = self.counts["n"]
        if self.inbox:
            self.counts["person"], self.behind = n, False
        if busy == "interrupt" and self.inbox:
            self.cutting.add(n)
            self.counts.update(cut=n, stop=self.inbox[0])
            self.queue = self.queue if self.lease else "due"  # a lease that has lapsed is due already
        if busy in ("steer", "merge"):
            self.marks[n] = busy
        self.inbox.append(n)
        self.answers[id] = (n, len(self.lines))

    def rejects(self, busy: Busy) -> bool:
        """A person is not refused because of ticks."""
        return busy == "reject" and any(n not in self.ticks for n in self.inbox)

    def ahead_of(self, n: int) -> int:
        return 0 if n in self.joined else sum(other < n and other not in self.joined for other in self.inbox)

    def is_stopped(self) -> bool:
        return self.counts.get("stop") == self.inbox[0] or self.counts.get("cut", 0) > self.inbox[0]

    def joinable(self, *, at_start: bool) -> list[int]:
        """The row right behind the turn that joins it."""
        head, last = self.inbox[0], max([self.inbox[0], *self.joined])
        row = []
        for n in self.inbox:
            mark = self.marks.get(n)
            if n > last and not (mark == "steer" or (at_start and mark and mark == self.marks.get(head))):
                break
            if n > last:
                row.append(n)
        return row

    def withdraw(self, id: str) -> WithdrawalOutcome:
        n, seq = self.answers.get(id, (0, 0))
        if id in self.withdrawn:
            return "withdrawn"
        if n == 0:
            return "unknown"
        if n not in self.inbox:
            return "over"
        at_head = n == self.inbox[0]
        if n in self.joined or (at_head and (self.lease or self.ledger)):
            return "answering"
        self.inbox.remove(n)
        self.marks.pop(n, None)
        self.ticks.discard(n)
        self.withdrawn.add(id)
        self.answers[id] = (0, seq)
        self.lines.append(("withdrawn", id))
        gone: tuple[str, ...] = ("errors", "crashes", "spared", "tries", "away") if at_head else ()
        gone += ("stop",) if self.counts.get("stop") == n else ()
        gone += () if self.inbox else ("cut", "person")
        self.counts = {name: value for name, value in self.counts.items() if name not in gone}
        self.cutting.discard(n)
        if self.counts.get("cut") == n:
            del self.counts["cut"]
            if older := self.cutting.intersection(self.inbox):
                self.counts["cut"] = max(older)
        if at_head:
            self.queue = "due" if self.inbox else None
            self.line_up()
        return "withdrawn"

    def acquire(self, lease: str) -> None:
        if self.lease is not None:
            self.count_crash()
        self.count("tries")
        self.queue, self.lease, self.behind = "later", lease, False

    def write_step(self, record: bytes) -> None:
        self.ledger.append(record)
        for name in ("crashes", "spared"):
            self.counts.pop(name, None)

    def release(self, *, later: bool, count: str) -> None:
        self.queue, self.lease = "later" if later else "due", None
        self.line_up()
        if count == "away":
            self.counts["away"] = 1
        elif count == "crashes":
            self.count_crash()
        elif count:
            self.count("crashes" if count == "isolated" else count)

    def commit(self, n: int, kind: str) -> None:
        ended = [n, *self.joined]
        self.inbox = [other for other in self.inbox if other not in ended]
        self.marks = {other: mark for other, mark in self.marks.items() if other not in ended}
        self.ticks.difference_update(ended)
        self.ledger, self.lease, self.joined = [], None, []
        self.queue = "due" if self.inbox else None
        self.lines.append((kind, ",".join(map(str, ended))))
        self.history += 1
        self.counts = {
            name: value
            for name, value in self.counts.items()
            if name in ("n", "done") or (name == "stop" and value != n) or (name in ("cut", "person") and self.inbox)
        }
        self.line_up()
        self.counts["done"] = ended[-1]


@dataclass
class World:
    """Everything that the scripts keep."""

    chats: dict[str, Chat] = field(default_factory=lambda: {name: Chat() for name in CHATS})
    dead: list[tuple[str, int]] = field(default_factory=list)  # member, number
    wake: bool = False


async def look(client: RedisClient) -> World:
    """The world as it is in Redis."""
    ask: list[list[str | int]] = [["TIME"], ["XRANGE", keys.DEAD, "-", "+"], ["LLEN", keys.wake("turns")]]
    for name in CHATS:
        ask += [
            ["XRANGE", keys.inbox(name), "-", "+"],
            ["ZSCORE", keys.queue("turns"), keys.turn(name)],
            ["HGET", keys.leases("turns"), keys.turn(name)],
            ["XRANGE", keys.ledger(name), "-", "+"],
            ["HGETALL", keys.session(name)],
            ["XRANGE", keys.outbox(name), "-", "+"],
            ["LLEN", keys.history(name)],
            ["ZSCORE", keys.queue(keys.BACKGROUND), keys.turn(name)],
        ]
    (seconds, micros), dead, tokens, *rest = await client.pipeline(ask)
    now = int(seconds) * 1000 + int(micros) // 1000
    assert tokens <= 1, "more than one wake token"
    found = World({}, [(fields[1].decode(), int(fields[3])) for _, fields in dead], bool(tokens))
    for i, name in enumerate(CHATS):
        inbox, score, lease, ledger, flat, log, history, behind = rest[8 * i : 8 * i + 8]
        assert score is None or behind is None, "a session is in one queue at a time"
        assert lease is None or behind is None, "what runs is among the turns"
        score = score or behind
        fields = dict(zip(flat[::2], flat[1::2], strict=True))
        assert _numbers(ledger) == list(range(1, len(ledger) + 1)), "the ledger has a hole"
        assert int(fields.get(b"ledger", 0)) == sum(len(entry[1][1]) for entry in ledger), "bytes of the ledger"
        assert _numbers(log) == list(range(1, len(log) + 1)), "lines of a log are numbered without a gap"
        found.chats[name] = Chat(
            inbox=_numbers(inbox),
            queue=None if score is None else "due" if float(score) <= now else "later",
            lease=None if lease is None else lease.decode(),
            ledger=[entry[1][1] for entry in ledger],
            counts={
                key: 1 if key == "away" else int(fields[key.encode()])
                for key in COUNTS
                if fields.get(key.encode(), b"0") != b"0"
            },
            lines=[_line(entry[1][1]) for entry in log],
            history=history,
            joined=[int(number) for number in fields.get(b"taken", b"").split()[1:]],
            marks={int(id.split(b"-")[0]): flat[5].decode() for id, flat in inbox if b"b" in flat[::2]},
            ticks={int(id.split(b"-")[0]) for id, flat in inbox if flat[-1] == keys.BACKGROUND.encode()},
            behind=behind is not None,
        )
    return found


async def check(client: RedisClient, found: World, expected: World) -> None:
    """The invariants of the fault catalogue, read from Redis; from the oracle only what cannot be read there."""
    names = {name.decode() for name in await client.command("KEYS", "*")}
    for name, chat in found.chats.items():
        accepted = [turn for turn, _ in expected.chats[name].answers.values() if turn]
        ended = [int(number) for kind, numbers in chat.lines if kind in ENDS for number in numbers.split(",")]
        assert sorted(ended + chat.inbox) == accepted, "I1: nothing lost, nothing answered twice"
        assert ended == sorted(ended), "I3: in order"
        tokens = expected.chats[name].tokens
        assert tokens == sorted(tokens), "I5: no accepted write of an older token"
        assert bool(chat.inbox) == (chat.queue is not None), "in the queue when there are messages, and only then"
        if not chat.inbox:
            left = {kind for kind in ("inbox", "ledger", *IDLE_KINDS) if f"shoal:{{0ax}}:{kind}:{name}" in names}
            assert left <= IDLE_KINDS, "I8: debris"
            assert set(await client.command("HKEYS", keys.session(name))) <= IDLE_FIELDS, "I8: debris in the session"
            assert not await client.command("HEXISTS", keys.FAIR_KEYS, keys.turn(name)), "I8: it has no share"
    known = {"queue", "leases", "wake", "dead", "seen", "chats", "inbox", "ledger", "shares", "served", *IDLE_KINDS}
    assert {name.split(":")[2] for name in names} <= known, "I8: keys of a kind that nobody knows"


async def dump(client: RedisClient) -> Dumps:
    """All there is in Redis."""
    names = sorted(await client.command("KEYS", "*"))
    if not names:
        return {}
    answers = await client.pipeline([part for name in names for part in (["DUMP", name], ["PTTL", name])])
    return {name: (answers[2 * i], max(0, answers[2 * i + 1])) for i, name in enumerate(names)}


async def contents(client: RedisClient) -> dict[bytes, bytes]:
    """The same without the times to live."""
    return {name: content for name, (content, _) in (await dump(client)).items()}


async def restore(client: RedisClient, dumps: Dumps) -> None:
    """Set Redis back to what `dump` found."""
    await client.command("FLUSHALL")
    if dumps:
        await client.pipeline([["RESTORE", name, ttl, content] for name, (content, ttl) in dumps.items()])


def _numbers(entries: list[list[bytes]]) -> list[int]:
    return [int(entry[0].split(b"-")[0]) for entry in entries]


def _line(record: bytes) -> tuple[str, str]:
    line = decode_line(record)
    if isinstance(line, UserLine):
        return "said", line.id
    return line.kind, ",".join(line.in_reply_to)
