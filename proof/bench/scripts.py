"""The longest call of each script, with the largest data that the limits allow: the server answers nobody meanwhile.

The time is the server's own (SLOWLOG), of the whole call. Scripts whose data has no size of
its own are named in `CONSTANT`.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from proof.bench.plan import Plan
from proof.bench.server import server
from proof.bench.table import Report, Rounds
from shared.errors import Refused
from shared.ids import nonce
from shared.messages.codec import encode
from shared.messages.effects import SayEffect
from shared.messages.inbound import TEXT_LIMIT_BYTES, InboundMessage
from shared.messages.live import TurnEvent
from shared.messages.outbound import OutboundMessage, UserLine, WaitingCalls
from shared.messages.schedule import EveryPlan, Schedule
from shared.messages.subagent import RESULT_LIMIT_BYTES
from shared.messages.transcript import AssistantEntry, CallsEntry, ToolCall, UserEntry
from shared.settings import MemorySettings, Settings
from shared.store import keys
from shared.store.answers.branches import LINES, Branches
from shared.store.answers.ratings import Ratings
from shared.store.client.redis_client import RedisClient
from shared.store.client.scripts import load, script_names, sha
from shared.store.delivery.deliveries import DROPPED_AT_ONCE, OUTBOX_CAP, DeliveryQueue
from shared.store.delivery.feed import Feed
from shared.store.delivery.notices import AT_ONCE, Notices, endpoint_session
from shared.store.responses.conversations import Conversations
from shared.store.responses.responses import Responses
from shared.store.schedules.schedules import NextTick, Schedules
from shared.store.sessions.backup import SessionBackup
from shared.store.sessions.erase import erase
from shared.store.sessions.memory import MemoryLimits, MemoryStore
from shared.store.sessions.requests import ApiRequest
from shared.store.sessions.session import ARCHIVE_CAP_BYTES, Sessions
from shared.store.subagents.subagents import Subagents
from shared.store.turns.albums import Albums
from shared.store.turns.client_calls import ClientCalls
from shared.store.turns.dead_letters import DeadLetters
from shared.store.turns.inbox import Inbox, InboxLimits
from shared.store.turns.known_messages import SeenMessages, Withdrawals
from shared.store.turns.queue import Claim, LeaseQueue
from shared.store.turns.turn_writes import CHILDREN_CAP, HISTORY_CAP_BYTES, LEDGER_CAP_BYTES, Turns
from tests.helpers.children import Parent
from tests.helpers.children import end as end_subagent

LIMIT_MS: Final = 20.0
ROUNDS: Final = 3
CHAT: Final = "owner/big"
SESSION: Final = f"web:{CHAT}"
TEXT: Final = "x" * TEXT_LIMIT_BYTES
FACTS: Final = 200
ENDPOINTS: Final = 10
STEP: Final = 100_000
PLACES: Final = 1000
"""Bytes of one step of a turn, and of one entry of a conversation: about what a long result has."""

MEMORY: Final = MemorySettings(file_bytes=256 * 1024, log_bytes=16 * 1024 * 1024)
WAITING: Final = 100_000
LIMITS: Final = InboxLimits(sessions_cap=2 * WAITING)

CONSTANT: Final = frozenset(
    {
        # `cancel` and `stop` do what `subagents/cancel` and `turns/stop` do.
        *("commands/answer", "commands/approve", "commands/cancel", "commands/restore", "commands/retry"),
        *("commands/stop", "commands/trust", "commands/unschedule"),
        *("access/audit", "access/pair_approve", "access/pair_ask", "access/pair_revoke", "delivery/ack"),
        *("delivery/edit", "delivery/leave", "delivery/pause", "letters/replay", "delivery/requeue"),
        *("delivery/save_note", "delivery/stream_message", "fleet/announce", "fleet/limit_enter", "fleet/limit_report"),
        *("fleet/broken_keys", "fleet/spend", "jobs/finish", "jobs/wake", "listeners/acquire", "listeners/release"),
        *("listeners/renew", "schedules/reschedule", "sessions/mark_files", "sessions/request_begin"),
        *(
            "sessions/bin",
            "sessions/describe",
            "sessions/label",
            "sessions/page_log",  # moves 500 lines at most
            "sessions/request_end",
            "sessions/requeue",
            "sessions/share",
            "sessions/title",
            "subagents/detach",
            "subagents/save_note",
            "waits/approve",
        ),
        *("waits/park", "turns/show_text", "turns/slow_down", "turns/stop"),
    }
)
"""They read and write single fields and members, or one record at the end of a list."""


def measure(plan: Plan) -> Report:
    """Every case on a server of its own data; the figure is the longest call of a script in it."""
    rounds = Rounds()
    with server() as valkey:
        for _ in range(plan.repeats(ROUNDS)):
            found: dict[str, float] = {}
            for case in CASES:
                for name, took_ms in asyncio.run(_run(valkey.url, case, plan)).items():
                    found[name] = max(took_ms, found.get(name, 0.0))
            for name, took_ms in sorted(found.items(), key=lambda item: -item[1]):
                rounds.add(name, "ms", took_ms)
    figures = rounds.figures()
    # Of the quickest round: what else runs on the machine is not the script's.
    over = [figure.name for figure in figures if figure.extremes[0] > LIMIT_MS]
    within = f"none takes longer than {LIMIT_MS:g} ms" if not over else f"OVER {LIMIT_MS:g} ms: {', '.join(over)}"
    constant = f"not measured, because their data has no size of its own: {', '.join(sorted(CONSTANT))}"
    return Report(title="the longest call of each script", figures=figures, notes=(within, constant))


class Stage:
    """What a case works with."""

    def __init__(self, client: RedisClient, plan: Plan) -> None:
        self.client = client
        self.inbox, self.turns = Inbox(client, LIMITS), Turns(client, LIMITS)
        self.many = plan.of(WAITING, 200)

    def queue(self, name: str = "turns") -> LeaseQueue:
        return LeaseQueue(self.client, name, owner=nonce(), lease_s=600, history_window=600)

    async def say(self, chat: str = CHAT, content: str = TEXT, **fields: Any) -> InboundMessage:
        """A message that waits in a chat."""
        sent = InboundMessage(
            channel="web", chat_id=chat, sender_id="owner", id=nonce(), content=content, timestamp=1, **fields
        )
        await self.inbox.ingest(sent, log_line=UserLine(id=sent.id, text=content), principal="owner")
        return sent

    async def claim(self, chat: str = CHAT, **fields: Any) -> Claim:
        """A turn that runs in a chat."""
        await self.say(chat, **fields)
        [claim] = await self.queue().acquire(1)
        return claim

    async def end(self, claim: Claim, size: int = 100) -> None:
        """Commit a turn that leaves a conversation of this many bytes."""
        assert claim.turn is not None
        n, step = claim.turn.n, min(size, STEP)
        history = [UserEntry(content="x" * (step - 60), turn=n) for _ in range(max(1, size // step))]
        lines = [OutboundMessage(content=TEXT, turn=n)]
        await self.turns.commit(claim, history=history, lines=lines, event=TurnEvent(n, "done"))

    async def fill_ledger(self, claim: Claim, append: Callable[..., Awaitable[None]]) -> None:
        """Steps up to the limit of a turn."""
        for step in range(1, LEDGER_CAP_BYTES // STEP + 1):
            await append(claim, step, AssistantEntry(content="x" * (STEP - 60), turn=1))

    async def set_list(self, key: str, size: int) -> None:
        """A list of records of a conversation with this many bytes."""
        record = encode(UserEntry(content="x" * (STEP - 60), turn=1))
        await self.client.pipeline([("RPUSH", key, record) for _ in range(size // len(record))])

    async def queue_many(self, key: str, prefix: str) -> None:
        """Members that are due, thousands of them."""
        for start in range(0, self.many, 5000):
            members = [part for i in range(start, start + 5000) for part in (i + 1, f"{prefix}{i}")]
            await self.client.command("ZADD", key, *members)


async def _one_full_chat(stage: Stage) -> None:
    """A chat at every limit: messages that wait, conversation, ledger, memory, lines. Its turn is lost once."""
    client = stage.client
    await stage.end(await stage.claim(), HISTORY_CAP_BYTES)
    memory = MemoryStore(client, MemoryLimits(log_bytes=MEMORY.log_bytes))
    await memory.write_memory(f"chat:{SESSION}", "x" * MEMORY.file_bytes, version="0")
    claim = await stage.claim(metadata={"joins": "1"})
    await stage.end(await stage.claim("owner/other"), HISTORY_CAP_BYTES)
    talker = await stage.claim("owner/talker")
    there = SayEffect(
        session="web:owner/other",
        line=OutboundMessage(content=TEXT, turn=1),
        history=(UserEntry(content="x" * (STEP - 60), turn=1),),
    )
    await stage.turns.append_step(talker, 1, AssistantEntry(content="x", turn=1), there)
    for _ in range(LIMITS.cap - 2):
        await stage.say(metadata={"joins": "1"})
    last = await stage.say(metadata={"joins": "1"})
    await SeenMessages(client).knows(last)
    part = msgspec.structs.replace(last, id=nonce())
    await Albums(client).hold(part, "9", b"x" * 1000)
    await Albums(client).expect(part, "9")
    await SeenMessages(client).new_form(last, nonce())
    await Withdrawals(client, LIMITS).withdraw("web", CHAT, last.id)
    await stage.turns.join_waiting(claim, 1, at_start=True)
    for step in range(2, LEDGER_CAP_BYTES // STEP):
        await stage.turns.append_step(claim, step, AssistantEntry(content="x" * (STEP - 60), turn=2))
    queue = stage.queue()
    await client.command("HSET", keys.leases("turns"), claim.member, f"{queue.owner}:{claim.token}")
    held = msgspec.structs.replace(claim, owner=queue.owner)
    await queue.renew([held] * 100)
    await queue.release(held)
    [again] = await queue.acquire(8)
    await stage.end(again, HISTORY_CAP_BYTES)


async def _long_conversations(stage: Stage) -> None:
    """Chats at the limit of a conversation, all due at once."""
    for i in range(12):
        await stage.end(await stage.claim(f"owner/{i}", content="x"), HISTORY_CAP_BYTES - STEP)
    for i in range(12):
        await stage.say(f"owner/{i}", "x")
    await stage.queue().acquire(12, most=25)


async def _everything_is_due(stage: Stage) -> None:
    """As many chats as may wait, each with a short message; then as many jobs and subagents without a slot."""
    await stage.client.command("CONFIG", "SET", "slowlog-log-slower-than", -1)  # the list would be too long to read
    for start in range(0, stage.many, 2000):
        await asyncio.gather(*(stage.say(f"owner/{i}", "x") for i in range(start, start + 2000)))
    await stage.client.command("CONFIG", "SET", "slowlog-log-slower-than", 0)
    fair = [part for i in range(stage.many) for part in (f"turn:web:owner/{i}", f"{i % 5000:016x}")]
    for start in range(0, len(fair), 10_000):
        await stage.client.command("HSET", keys.FAIR_KEYS, *fair[start : start + 10_000])
    for grace in (False, True):
        await stage.queue().acquire(12, most=25, grace=grace)
    await stage.queue_many(keys.queue("jobs"), "sub:")
    await stage.queue("jobs").acquire(8, subagents=0)
    await stage.queue_many(keys.SUBAGENTS, "")
    await Subagents(stage.client).requeue_lost()


async def _memory(stage: Stage) -> None:
    """A conversation that ends with an archive at its limit, and what memory jobs and backups do with it all."""
    client, sessions = stage.client, Sessions(stage.client, LIMITS)
    store = MemoryStore(client, MemoryLimits(log_bytes=MEMORY.log_bytes))
    backup = SessionBackup(client, msgspec.structs.replace(Settings(), memory=MEMORY))
    await stage.end(await stage.claim(), HISTORY_CAP_BYTES - STEP)
    await stage.set_list(keys.archive(SESSION), ARCHIVE_CAP_BYTES)
    await client.command("HSET", keys.session(SESSION), "archive", ARCHIVE_CAP_BYTES)
    await stage.set_list(keys.memlog(f"chat:{SESSION}"), MEMORY.log_bytes)
    await client.command("HSET", keys.memory(f"chat:{SESSION}"), "log", MEMORY.log_bytes, "v", 1)
    await client.command("HSET", keys.session(SESSION), "acked", 0)
    for _ in range(40):
        await stage.end(await stage.claim())
    file = await backup.export(SESSION, now_ms=1)
    await backup.restore(file, "web:owner/copy")
    await backup.restore(file, "web:owner/copy", replace=True)
    read = await store.read_unconsolidated(SESSION)
    await store.consolidate(SESSION, read, take=len(read.entries), entry="x" * 10_000)
    await stage.end(await stage.claim(), HISTORY_CAP_BYTES - STEP)
    state = await sessions.state(SESSION)
    command = InboundMessage(channel="web", chat_id=CHAT, sender_id="owner", id="new", content="/new", timestamp=1)
    line = OutboundMessage(content="New.", turn=state.turn, kind="command")
    await sessions.answer_command(command, line, state, change="new")
    for session in (SESSION, "web:owner/copy"):
        await erase(client, session)


async def _delivery(stage: Stage) -> None:
    """Chats of a platform with as many lines as may wait, and one that is closed."""
    queue = DeliveryQueue(stage.client, "telegram", lease_s=600)
    for i in range(30):
        name = f"telegram:{i}"
        await stage.client.pipeline(
            [
                ("XADD", keys.outbox(name), f"{n}-0", "m", encode(OutboundMessage(content=TEXT, turn=n)), "at", "1")
                for n in range(1, OUTBOX_CAP)
            ]
        )
        await stage.client.command("ZADD", keys.outqueue("telegram"), 1, name)
    chats, _ = await queue.acquire(30)
    for chat in chats:
        await queue.read_chat(chat)
        await queue.begin_post(chat, 1, 0)
    await queue.finish_post(chats[0], 1, 0, id="p", last=True)
    await queue.give_up_line(chats[-1], 1, "closed", drop_all=True)
    letters = DeadLetters(stage.client, stage.inbox)
    await letters.newest(limit=DROPPED_AT_ONCE)


async def _schedules(stage: Stage) -> None:
    """As many schedules as a chat and the fleet may have, all due."""
    store = Schedules(stage.client, msgspec.structs.replace(Settings().cron, per_chat=200), LIMITS)
    for i in range(200):
        plan = EveryPlan(60_000, 0)
        one = Schedule(id=f"{i:08x}", channel="web", chat_id=CHAT, owner="o", text="x" * 4000, plan=plan)
        await store.add(one, 1)
    await stage.queue_many(keys.SCHEDULES, "gone:web:owner/")
    look = await store.due()
    tick = await stage.say("owner/x")
    for due in look.due:
        if due.schedule is not None:
            await store.fire(due, due.schedule, NextTick(to=60_000, due_ms=60_000), tick)
    await store.pause(SESSION)
    await store.resume(SESSION)
    await store.remove(SESSION, f"{0:08x}")


async def _subagents(stage: Stage) -> None:
    """As many subagents of a chat as may be open, each with a ledger at its limit."""
    parent, children = await Parent.begin(stage.client), Subagents(stage.client, LIMITS)
    await parent.spawn(*(f"s{i}" for i in range(CHILDREN_CAP)))
    claims = await stage.queue("jobs").acquire(CHILDREN_CAP)
    for claim in claims[:40]:
        await stage.fill_ledger(claim, children.append_step)
    await end_subagent(stage.client, claims[0], "x" * RESULT_LIMIT_BYTES)
    for claim in claims[1:40]:
        await stage.queue("jobs").release(msgspec.structs.replace(claim))
    await stage.queue("jobs").acquire(CHILDREN_CAP)
    await children.cancel(parent.claim.session)


async def _responses(stage: Stage) -> None:
    """Responses of a principal at their limit of one, each with the longest message as its input."""
    await stage.say()
    responses = Responses(stage.client, most=1)
    for _ in range(3):
        asked = ApiRequest(key="", session=SESSION, ticket=nonce(), at_ms=1, after=0, new=True)
        await responses.keep("owner", asked, 1, shown=b"{}", input=TEXT.encode())
    if kept := await responses.lookup("owner", asked.ticket):
        await responses.drop("owner", kept)


async def _background(stage: Stage) -> None:
    """One response in the background over the highest limit: none of those before it has ended."""
    inbox = Inbox(stage.client, replace(LIMITS, background_at_once=PLACES))
    with contextlib.suppress(Refused):
        for number in range(PLACES + 1):
            asked = InboundMessage(
                channel="api", chat_id=f"owner/~-{number}", sender_id="owner", id=nonce(), content="hello", timestamp=1
            )
            await inbox.ingest(asked, background="owner")


async def _conversations(stage: Stage) -> None:
    """A program that begins a conversation with as much as one request may have, and fills it; then the last entry of a
    full one is removed."""
    conversations = Conversations(stage.client, LIMITS)
    many = HISTORY_CAP_BYTES // STEP + 1
    asked = ApiRequest(key="", session=SESSION, ticket=nonce(), at_ms=1, after=0, new=True)
    await conversations.begin("owner", asked, SESSION, lambda turn: _entries(turn, 5), (), {"a": "b" * 4000})
    for _ in range(many):
        again = msgspec.structs.replace(asked, ticket=nonce())
        await conversations.add("owner", again, SESSION, lambda turn: _entries(turn, 5), ())
    *_, last = await conversations.records(SESSION)
    await conversations.drop(SESSION, last)


def _entries(turn: int, many: int) -> list[UserEntry]:
    return [UserEntry(content="x" * STEP, turn=turn, at=at) for at in range(many)]


async def _feed(stage: Stage) -> None:
    """A page that missed as many facts as a feed keeps."""
    feed = Feed(stage.client)
    known = await feed.follow("web:owner", "")
    for number in range(FACTS):
        await stage.say(f"owner/{number}", "hello")
    await feed.follow("web:owner", known.cursor)


async def _client_calls(stage: Stage) -> None:
    """A program that submits as many and as long results as one request may have."""
    claim, calls = await stage.claim(), ClientCalls(stage.client, LIMITS)
    assert claim.turn is not None
    asked = CallsEntry(
        id="abcd", turn=claim.turn.n, calls=tuple(ToolCall(f"c{at}", "f", "x" * 1000) for at in range(64))
    )
    await stage.turns.append_step(claim, 1, AssistantEntry(content=None, turn=1, tool_calls=asked.calls))
    line = OutboundMessage(content="", turn=1, kind="notice", calls=WaitingCalls(calls=asked.calls))
    await stage.turns.park(claim, "turns", 2, asked, line, wait_s=600)
    outputs = {call.id: "x" * 8192 for call in asked.calls}
    await calls.submit(claim.session, outputs, request=nonce(), cap_bytes=LEDGER_CAP_BYTES)


async def _branches(stage: Stage) -> None:
    """A branch of a chat that has more lines, and more of a conversation, than may come along; and a rating."""
    client = stage.client
    rest = HISTORY_CAP_BYTES // (LINES + 2)
    for _ in range(LINES // 2 + 2):
        sent = await stage.say(content="x" * (rest - 200))
        [claim] = await stage.queue().acquire(1)
        assert claim.turn is not None
        n, text = claim.turn.n, "x" * (rest - 200)
        line = OutboundMessage(content=text, turn=n, in_reply_to=(sent.id,))
        entries = (UserEntry(content=text, turn=n), AssistantEntry(content=text, turn=n))
        await stage.turns.commit(claim, history=entries, lines=[line], event=TurnEvent(n, "done"))
    await Branches(client, LIMITS, "web").make("owner", "big", "branch")
    await Ratings(client, LIMITS).rate(SESSION, 2, "up")


async def _notices(stage: Stage) -> None:
    """As many notices as one call hands on, for more endpoints than anybody has; all wait already."""
    notices = Notices(stage.client)
    await notices.open()
    endpoints = [endpoint_session(f"e{i}") for i in range(ENDPOINTS)]
    line = encode(OutboundMessage(content="x" * 300, turn=0, kind="notice"))
    for _ in range(3):
        for _ in range(AT_ONCE):
            await stage.client.command("XADD", keys.NOTICES, "*", "s", SESSION, "n", 1, "q", 1, "w", "withdrawn")
        found = await notices.oldest()
        await notices.hand_over([(notice.id, [(one, line) for one in endpoints]) for notice in found])


CASES: Final = (
    *(_one_full_chat, _long_conversations, _everything_is_due, _memory, _delivery, _schedules, _subagents),
    *(_responses, _background, _conversations, _feed, _client_calls, _branches, _notices),
)


async def _run(url: str, case: Callable[[Stage], Awaitable[None]], plan: Plan) -> dict[str, float]:
    """The longest call of each script in a case, in ms."""
    client = RedisClient(url, timeout_s=60)
    try:
        await client.pipeline(
            [("FLUSHALL", "SYNC"), ("CONFIG", "SET", "slowlog-max-len", 1_000_000), ("SLOWLOG", "RESET")]
        )
        names = {sha(load(name)): name for name in script_names()}
        # A script is parsed when it is loaded, which is no part of its call.
        await client.pipeline([("SCRIPT", "LOAD", load(name).source) for name in names.values()])
        await client.command("CONFIG", "SET", "slowlog-log-slower-than", 0)
        await case(Stage(client, plan))
        await client.command("CONFIG", "SET", "slowlog-log-slower-than", -1)
        return _longest(await client.command("SLOWLOG", "GET", -1), names)
    finally:
        await client.close()


def _longest(entries: Iterable[Any], names: dict[str, str]) -> dict[str, float]:
    found: dict[str, float] = {}
    for _, _, took_us, words, *_ in entries:
        if words[0].upper() == b"EVALSHA" and (name := names.get(words[1].decode())):
            found[name] = max(took_us / 1000, found.get(name, 0.0))
    return found
