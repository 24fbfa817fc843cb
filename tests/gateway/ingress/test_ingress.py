"""Chat commands at the way in of a gateway, on a real Valkey: answered at once, once, without a turn."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

import pytest

from gateway.commands.command import Command, CommandAnswer, CommandContext
from gateway.commands.registry import OWN, build_commands
from gateway.ingress.commands import ANSWER_CHARS
from gateway.ingress.ingest import Ingress
from shared.embedded import EmbeddedValkey
from shared.errors import BadInput, LeaseLost, RedisAway, Refused
from shared.ids import nonce
from shared.messages.codec import encode
from shared.messages.inbound import InboundMessage
from shared.messages.live import TurnEvent
from shared.messages.outbound import OutboundMessage, UserLine
from shared.messages.transcript import AssistantEntry, UserEntry
from shared.metrics import COMMANDS
from shared.settings import ModelSettings, PresetSettings, Settings
from shared.store import keys
from shared.store.client.redis_client import RedisClient
from shared.store.delivery.outbox import Outbox
from shared.store.fleet.presence import Presence, announce
from shared.store.fleet.spending import Spending
from shared.store.sessions.memory import MemoryStore
from shared.store.sessions.session import Sessions, SessionState
from shared.store.turns.inbox import Accepted, Inbox, InboxLimits
from shared.store.turns.queue import Claim, LeaseQueue
from shared.store.turns.turn_writes import Turns
from tests.helpers.build import message, reply, say
from tests.helpers.clock import HandClock

SESSION = "web:owner/a"
SCOPE = f"chat:{SESSION}"
PRESETS = {"fast": PresetSettings("openai/small", about="quick answers"), "deep": PresetSettings("openai/large")}
SETTINGS = Settings(model=ModelSettings(name="openai/usual", presets=PRESETS))
COMMANDS_ALL = [f"/{name}" for name in OWN]


def make(client: RedisClient, *extra: Command, limits: InboxLimits | None = None) -> Ingress:
    return Ingress(client, build_commands(SETTINGS, client, extra), limits)


@pytest.fixture
def ingress(client: RedisClient) -> Ingress:
    return make(client)


async def tell(
    ingress: Ingress, text: str, *, id: str | None = None, chat: str = "owner/a", **options: Any
) -> Accepted:
    """A person says this in the web chat."""
    user_line = message(text, id=id or nonce(), chat=chat)
    return await ingress.ingest(user_line, show=UserLine(id=user_line.id, text=text), principal="owner", **options)


async def lines(client: RedisClient, session: str = SESSION) -> list[UserLine | OutboundMessage]:
    return [one.line for one in await Outbox(client).read_after(session, after=0)]


async def replies(client: RedisClient, session: str = SESSION) -> OutboundMessage:
    """The newest line of the chat, an answer."""
    line = (await lines(client, session))[-1]
    assert isinstance(line, OutboundMessage)
    return line


async def ask(client: RedisClient, ingress: Ingress, text: str) -> str:
    """Say a command; the text of its answer."""
    accepted = await tell(ingress, text)
    assert (accepted.turn, accepted.ahead, accepted.duplicate) == (0, 0, False)
    line = await replies(client)
    assert line.kind == "command"
    return line.content


async def take(client: RedisClient) -> Claim:
    """A worker takes the turn that is due."""
    [claim] = await LeaseQueue(client, "turns", owner=nonce(), lease_s=30).acquire(1)
    return claim


async def commit(client: RedisClient, claim: Claim) -> None:
    assert claim.turn is not None
    n = claim.turn.n
    entries = [UserEntry(content="q", turn=n)]
    await Turns(client).commit(claim, history=entries, lines=[reply("yes", n)], event=TurnEvent(n, "done"))


async def queued(client: RedisClient) -> list[bytes]:
    found: list[bytes] = await client.command("ZRANGE", keys.queue("jobs"), 0, -1)
    return found


# What is a command


@pytest.mark.parametrize(
    "text", ["/help", "/HELP", "/Help ", " /help", "\n/help\n", "/help me", "/help@shoal_bot", "/help@shoal_bot please"]
)
async def test_a_known_word_with_a_slash_is_answered_without_a_turn(
    client: RedisClient, ingress: Ingress, text: str
) -> None:
    """Whatever its case, with or without the bot's name or words behind it."""
    accepted = await tell(ingress, text)
    assert accepted == Accepted(turn=0, ahead=0, seq=1, duplicate=False)
    assert (await replies(client)).content.startswith("You can say:")
    assert await client.command("EXISTS", keys.inbox(SESSION), keys.queue("turns")) == 0


@pytest.mark.parametrize(
    "text",
    ["/etc/hosts", "/", "//help", "/ help", "/helpful", "/help.", "/help/me", "help", "say /help", "/hélp", "/х"],
)
async def test_every_other_text_goes_to_the_model(client: RedisClient, ingress: Ingress, text: str) -> None:
    """People talk about paths; nothing they write is eaten."""
    assert (await tell(ingress, text)).turn == 1
    assert await client.command("XLEN", keys.inbox(SESSION)) == 1


async def test_a_message_without_a_slash_costs_no_more_than_before(client: RedisClient, ingress: Ingress) -> None:
    """One script, one look at its session, and one at the ids of each of the three days."""
    await tell(ingress, "warm up")
    await client.command("CONFIG", "RESETSTAT")
    await tell(ingress, "hello")
    info = (await client.command("INFO", "commandstats")).decode()
    calls = {
        line.split(":")[0]: line.split("calls=")[1].split(",")[0] for line in info.splitlines() if "calls=" in line
    }
    assert calls["cmdstat_evalsha"] == "1"
    assert calls["cmdstat_hmget"] == "4"


# Every command, in every state


async def _idle(client: RedisClient) -> Claim | None:
    await tell(make(client), "before")
    await commit(client, await take(client))
    return None


async def _running(client: RedisClient) -> Claim | None:
    await _idle(client)
    await tell(make(client), "now", id="head")
    return await take(client)


async def _waiting(client: RedisClient) -> Claim | None:
    claim = await _running(client)
    await tell(make(client), "later", id="later-1")
    await tell(make(client), "and later", id="later-2")
    return claim


STATES = {"fresh": None, "idle": _idle, "running": _running, "waiting": _waiting}


@pytest.mark.parametrize("text", COMMANDS_ALL)
@pytest.mark.parametrize("moment", STATES)
async def test_every_command_is_answered_at_every_moment_and_once(
    client: RedisClient, ingress: Ingress, text: str, moment: str
) -> None:
    """One answer behind its line; the second delivery gets the same, and changes nothing more."""
    arrange = STATES[moment]
    claim = await arrange(client) if arrange else None
    before = len(await lines(client))
    first = await tell(ingress, text, id="c1")
    answered = await lines(client)
    assert len(answered) == before + 2
    assert isinstance(answered[-2], UserLine)
    line = answered[-1]
    assert isinstance(line, OutboundMessage)
    assert (line.kind, line.in_reply_to[0]) == ("command", "c1")
    assert line.content
    state = await Sessions(client).state(SESSION)
    again = await tell(ingress, text, id="c1")
    assert again == Accepted(turn=0, ahead=0, seq=first.seq, duplicate=True)
    assert await lines(client) == answered
    assert await Sessions(client).state(SESSION) == state
    over = text in ("/new", "/forget")
    assert state.generation == (1 if over else 0)
    if claim is None:
        return
    if over:
        assert state.waiting == ()
        with pytest.raises(LeaseLost):
            await commit(client, claim)
    else:
        assert len(state.waiting) == (3 if moment == "waiting" else 1)
        await commit(client, claim)


@pytest.mark.parametrize("text", COMMANDS_ALL)
async def test_one_command_through_two_gateways_at_once_has_one_effect(client: RedisClient, text: str) -> None:
    """A platform delivers it to both."""
    await _waiting(client)
    one, two = make(client), make(client)
    answers = await asyncio.gather(*(tell(gateway, text, id="c1") for gateway in (one, two) * 5))
    assert sum(not answer.duplicate for answer in answers) == 1
    assert len({answer.seq for answer in answers}) == 1
    assert sum(isinstance(line, OutboundMessage) and line.kind == "command" for line in await lines(client)) == 1


# /help


async def test_help_lists_every_command_in_a_line(client: RedisClient, ingress: Ingress) -> None:
    """The same list that pages offer."""
    text = await ask(client, ingress, "/help")
    rows = [line for line in text.splitlines() if line.startswith("- ")]
    assert [row.split("`")[1] for row in rows] == [f"/{row.name}" for row in ingress.commands] == COMMANDS_ALL


# /new


async def test_new_says_what_it_ended(client: RedisClient, ingress: Ingress) -> None:
    """A person must not wait for answers that will never come."""
    assert await ask(client, ingress, "/new") == "New conversation."
    await _waiting(client)
    text = await ask(client, ingress, "/new")
    assert text == (
        "New conversation. What we said before goes into memory. I stopped what I was doing. "
        "2 waiting messages were dropped."
    )
    line = await replies(client)
    assert line.turn == 4, "every turn up to the newest is over"
    assert line.in_reply_to[1:] == ("head", "later-1", "later-2")
    assert "not read" in await ask(client, ingress, "/new and what is the weather like?")


async def test_new_begins_at_once_and_asks_for_the_archive(client: RedisClient, ingress: Ingress) -> None:
    """The next message is due; the job is there once, however often it is said."""
    await _running(client)
    await ask(client, ingress, "/new")
    await ask(client, ingress, "/new")
    assert await queued(client) == [f"archive:{SESSION}".encode()]
    assert (await tell(ingress, "fresh")).ahead == 0
    claim = await take(client)
    assert claim.turn is not None
    assert claim.turn.history == ()


class Interrupting:
    """A command like `/new`; something happens between what it reads and what is written."""

    name = "again"
    about = "a test"

    def __init__(self, *happens: Any) -> None:
        self.happens = list(happens)
        self.seen: list[SessionState] = []

    async def answer(self, context: CommandContext) -> CommandAnswer:
        self.seen.append(context.state)
        if self.happens:
            await self.happens.pop(0)()
        return CommandAnswer(f"{len(context.state.waiting)} dropped", change="new")


async def test_what_comes_in_between_is_seen_and_named(client: RedisClient) -> None:
    """A message, then a reply: each time the answer is made anew, and fits what happened."""
    await say(Inbox(client), id="m1")
    claim = await take(client)
    command = Interrupting(lambda: say(Inbox(client), id="m2"), lambda: commit(client, claim))
    await tell(make(client, command), "/again", id="c1")
    assert [state.waiting for state in command.seen] == [("m1",), ("m1", "m2"), ("m2",)]
    line = await replies(client)
    assert (line.content, line.in_reply_to) == ("1 dropped", ("c1", "m2"))
    assert [isinstance(one, OutboundMessage) and one.content for one in await lines(client)].count("yes") == 1


async def test_a_chat_that_never_holds_still_is_refused_after_a_while(client: RedisClient) -> None:
    """Bounded: the person is asked to try again."""

    async def more() -> None:
        await say(Inbox(client))

    command = Interrupting(*[more] * 30)
    with pytest.raises(Refused) as refused:
        await tell(make(client, command), "/again")
    assert refused.value.code == "busy"
    assert len(command.seen) == 10
    assert (await Sessions(client).state(SESSION)).generation == 0


@pytest.mark.parametrize("seed", range(10))
async def test_new_racing_a_message_and_a_commit_loses_neither(
    client: RedisClient, ingress: Ingress, seed: int
) -> None:
    """Each message is answered, or named in the answer of `/new`, or still waits; never two of these, never none."""
    await say(Inbox(client), id="m1")
    claim = await take(client)

    async def late_commit() -> None:
        for _ in range(seed):
            await asyncio.sleep(0)
        with contextlib.suppress(LeaseLost):
            await commit(client, claim)

    await asyncio.gather(tell(ingress, "/new", id="c1"), tell(ingress, "more", id="m2"), late_commit())
    answers = [line for line in await lines(client) if isinstance(line, OutboundMessage)]
    replied = {"m1"} if any(line.kind == "reply" for line in answers) else set()
    [dropped] = [set(line.in_reply_to[1:]) for line in answers if line.kind == "command"]
    waiting = set((await Sessions(client).state(SESSION)).waiting)
    assert sorted([*replied, *dropped, *waiting]) == ["m1", "m2"]


# /stop


async def test_stop_says_whether_there_was_something_to_stop(client: RedisClient, ingress: Ingress) -> None:
    """And what comes next."""
    assert await ask(client, ingress, "/stop") == "Nothing is running."
    await say(Inbox(client))
    assert await ask(client, ingress, "/stop") == "Stopped."
    await say(Inbox(client))
    assert await ask(client, ingress, "/stop") == "Stopped. 1 more message waits."


async def test_stop_never_eats_the_next_message(client: RedisClient, ingress: Ingress) -> None:
    """Not when it is delivered again while the next turn runs, and not when nothing ran."""
    await tell(ingress, "/stop", id="c0")
    await say(Inbox(client))
    first = await take(client)
    assert first.turn is not None
    assert first.turn.stop == 0
    await tell(ingress, "/stop", id="c1")
    await commit(client, first)
    await say(Inbox(client))
    second = await take(client)
    for id in ("c0", "c1"):
        assert (await tell(ingress, "/stop", id=id)).duplicate
    assert second.turn is not None
    assert second.turn.stop == 0
    assert await client.command("HGET", keys.session(SESSION), "stop") is None


# /status


async def test_status_tells_how_full_the_window_of_the_model_is(client: RedisClient, ingress: Ingress) -> None:
    """As the newest answer of the conversation has it; after `/new` there is none."""
    answers = [AssistantEntry(content="x", turn=n, context=n * 10_000, window=200_000) for n in (1, 3)]
    stopped = AssistantEntry(content="[stopped]", turn=4)
    await client.command("RPUSH", keys.history(SESSION), *map(encode, (*answers, stopped)))
    assert "; 15 % of the model's context (30,000 of 200,000 tokens)" in await ask(client, ingress, "/status")
    await ask(client, ingress, "/new")
    assert "context" not in await ask(client, ingress, "/status")


async def test_status_tells_what_a_person_wants_to_know(client: RedisClient, ingress: Ingress) -> None:
    """Is it at work, on what, with which model, and what did it cost."""
    text = await ask(client, ingress, "/status")
    assert "nothing to do" in text
    assert "0 workers" in text
    await say(Inbox(client), id="m1")
    assert "no worker is running" in await ask(client, ingress, "/status")
    for name, draining in (("w1", False), ("w2", True)):
        record = Presence(
            kind="worker", name=name, host="h", pid=1, started_at=0, version="0", slots=1, draining=draining
        )
        await announce(client, record)
    await announce(client, Presence(kind="gateway", name="g", host="h", pid=1, started_at=0, version="0"))
    assert "waits for a free worker" in await ask(client, ingress, "/status")
    queue = LeaseQueue(client, "turns", owner=nonce(), lease_s=30)
    [claim] = await queue.acquire(1)
    await queue.release(claim, count="away")
    assert "cannot be reached" in await ask(client, ingress, "/status")
    claim = await take(client)
    await say(Inbox(client), id="m2")
    await Spending(client).add(SESSION, 12_345, 0.0678)
    await MemoryStore(client).write_memory(SCOPE, "likes tea", version="0")
    await ask(client, ingress, "/model fast")
    text = await ask(client, ingress, "/status")
    for part in (
        "working on your message, asking the model again; 1 more waits", "`openai/small`, chosen as `fast`",
        "0 entries", "9 bytes; 0 entries of history", "12,345 tokens, about $0.0678", "1 worker",
    ):  # fmt: skip
        assert part in text


async def test_status_says_that_another_worker_goes_on(client: RedisClient, ingress: Ingress) -> None:
    await say(Inbox(client))
    queue = LeaseQueue(client, "turns", owner=nonce(), lease_s=30)
    [claim] = await queue.acquire(1)
    await queue.release(claim, count="crashes")
    await take(client)
    assert "working on your message, continuing on another worker" in await ask(client, ingress, "/status")


# /model


async def test_model_lists_what_there_is_and_marks_the_one_in_use(client: RedisClient, ingress: Ingress) -> None:
    """Name, what it is, what it is good for."""
    text = await ask(client, ingress, "/model")
    assert "- `default`: openai/usual, the usual one **(in use)**" in text
    assert "- `fast`: openai/small, quick answers\n" in text
    assert "- `deep`: openai/large\n" in text


async def test_a_model_is_chosen_by_name_for_this_chat_and_given_back(client: RedisClient, ingress: Ingress) -> None:
    """It holds from the next turn on, over `/new`, in this chat alone."""
    assert "`fast`" in await ask(client, ingress, "/model FAST")
    await ask(client, ingress, "/new")
    assert "`fast`: openai/small, quick answers **(in use)**" in await ask(client, ingress, "/model")
    await tell(ingress, "hello")
    await tell(ingress, "hello", chat="owner/b")
    presets = {}
    for claim in await LeaseQueue(client, "turns", owner=nonce(), lease_s=30).acquire(8):
        assert claim.turn is not None
        presets[claim.session] = claim.turn.preset
    assert presets.pop(SESSION) == "fast"
    assert set(presets.values()) <= {""}
    assert "openai/usual" in await ask(client, ingress, "/model default")
    assert (await Sessions(client).state(SESSION)).preset == ""


async def test_an_unknown_model_changes_nothing_and_names_those_there_are(
    client: RedisClient, ingress: Ingress
) -> None:
    """The person sees what to write instead."""
    await ask(client, ingress, "/model deep")
    assert (
        await ask(client, ingress, "/model huge")
        == "There is no such model here. These are: `default`, `fast`, `deep`."
    )
    assert (await Sessions(client).state(SESSION)).preset == "deep"


async def test_a_model_that_is_not_offered_any_more_is_named(client: RedisClient, ingress: Ingress) -> None:
    """An operator took the preset away."""
    await client.command("HSET", keys.session(SESSION), "preset", "gone")
    text = await ask(client, ingress, "/model")
    assert "`gone`, which was chosen for this chat, is not offered any more." in text
    assert "the usual one **(in use)**" in text


# /memory


async def test_memory_is_shown_as_it_is_and_cut_with_a_note(client: RedisClient, ingress: Ingress) -> None:
    """In a quote, so that nobody takes it for what the agent says now."""
    assert await ask(client, ingress, "/memory") == "What I remember of this chat: nothing yet."
    store = MemoryStore(client)
    version = await store.write_memory(SCOPE, "# Facts\n\n- likes tea\n", version="0")
    assert "> # Facts\n>\n> - likes tea" in await ask(client, ingress, "/memory")
    await store.write_memory(SCOPE, "\n".join(f"- fact {n}" for n in range(2_000)), version=version)
    text = await ask(client, ingress, "/memory")
    assert len(text) < 6_000
    assert "all of it has" in text
    shown = [line for line in text.splitlines() if line.startswith("> - fact")]
    assert shown[-1] == f"> - fact {len(shown) - 1} …", "whole lines"


async def test_memory_search_finds_entries_with_all_words(client: RedisClient, ingress: Ingress) -> None:
    """The newest first, whatever the case; a few of many."""
    await client.command(
        "RPUSH", keys.memlog(SCOPE), *(f"[2026-01-0{n} 10:00] Tea with Ann, cup {n}" for n in range(1, 10))
    )
    await client.command("RPUSH", keys.memlog(SCOPE), "[2026-02-01 10:00] Coffee with Ann")
    assert "`HISTORY.md` has 10 entries" in await ask(client, ingress, "/memory")
    text = await ask(client, ingress, "/memory search ann TEA")
    assert text.startswith("9 entries found")
    assert text.index("cup 9") < text.index("cup 2")
    assert "cup 1" not in text
    assert "1 older ones are not shown" in text
    assert await ask(client, ingress, "/memory search wine") == "Nothing found in 10 entries of `HISTORY.md`."
    assert "What shall I look for" in await ask(client, ingress, "/memory search")


# /forget


async def test_forget_says_exactly_what_was_deleted(client: RedisClient, ingress: Ingress) -> None:
    """And what was kept; a running turn is stopped."""
    await MemoryStore(client).write_memory(SCOPE, "likes tea", version="0")
    await client.command("RPUSH", keys.memlog(SCOPE), "one", "two")
    await _waiting(client)
    text = await ask(client, ingress, "/forget")
    for part in (
        "of this chat", "`MEMORY.md` (9 bytes)", "`HISTORY.md` (2 entries)", "this conversation (1 entry)",
        "I stopped what I was doing.", "2 waiting messages were dropped.", "Kept:",
    ):  # fmt: skip
        assert part in text
    jobs = [job.partition(b":")[0] for job in await queued(client)]
    assert jobs == [b"media"], "there is nothing to archive, but files may be there"
    assert await ask(client, ingress, "/memory") == "What I remember of this chat: nothing yet."


async def test_a_memory_of_all_is_not_deleted_from_a_chat(client: RedisClient) -> None:
    """Only an operator may; nothing happens, not even to the running turn."""
    ingress = make(client, limits=InboxLimits(memory_scope="shared"))
    await MemoryStore(client).write_memory("shared", "the office is closed", version="0")
    claim = await _running(client)
    assert "shoal session forget" in await ask(client, ingress, "/forget")
    assert (await MemoryStore(client).read_memory("shared")).text == "the office is closed"
    assert "for everybody" in await ask(client, ingress, "/memory")
    assert claim is not None
    await commit(client, claim)


async def test_a_persons_memory_is_deleted_for_all_their_chats_and_nobody_elses(client: RedisClient) -> None:
    """Also when the command is the first word of a chat; in a group it is the group's own memory that goes."""
    ingress = make(client, limits=InboxLimits(memory_scope="user"))
    store = MemoryStore(client)
    for scope in ("user:web:owner", "user:web:ann", "chat:web:owner%2Fgroup"):
        await store.write_memory(scope, "something", version="0")
    group = InboundMessage(
        channel="web", chat_id="owner/group", sender_id="owner", id="g1", content="/forget", timestamp=0,
        metadata={"group": "1"},
    )  # fmt: skip
    await store.write_memory(f"chat:{group.session}", "something", version="0")
    await ingress.ingest(group)
    assert (await store.read_memory(f"chat:{group.session}")).text == ""
    assert (await store.read_memory("user:web:owner")).text == "something"
    assert "all your chats" in await ask(client, ingress, "/forget")
    assert (await store.read_memory("user:web:owner")).text == ""
    assert (await store.read_memory("user:web:ann")).text == "something"


# Commands of packages, and faults


class Echo:
    """A command of a package."""

    name = "echo"
    about = "say it again"

    def __init__(self, fault: Exception | None = None) -> None:
        self.fault = fault

    async def answer(self, context: CommandContext) -> CommandAnswer:
        if self.fault is not None:
            raise self.fault
        return CommandAnswer(context.argument)


async def test_a_command_of_a_package_is_listed_and_answered(client: RedisClient) -> None:
    """With what stands behind its word."""
    ingress = make(client, Echo())
    assert ingress.commands[-1].name == "echo"
    assert "`/echo` say it again" in await ask(client, ingress, "/help")
    assert await ask(client, ingress, "/echo one  two\nthree ") == "one  two\nthree"
    assert len(await ask(client, ingress, "/echo " + "x" * 60_000)) == ANSWER_CHARS + 2


async def test_a_command_that_breaks_is_an_apology_without_details(client: RedisClient) -> None:
    """And no second try of it: the person reads one short sentence."""
    text = await ask(client, make(client, Echo(RuntimeError("secret detail"))), "/echo hi")
    assert text.startswith("Sorry, `/echo` did not work.")
    assert "secret" not in text


@pytest.mark.parametrize("fault", [BadInput("no", "not so"), Refused("later", "not now", 1), RedisAway("away")])
async def test_a_refusal_of_a_command_goes_up_as_that_of_a_message(client: RedisClient, fault: Exception) -> None:
    """The channel knows how to say it; nothing is stored."""
    with pytest.raises(type(fault)):
        await tell(make(client, Echo(fault)), "/echo hi")
    assert await client.command("DBSIZE") == 0


async def test_commands_are_counted_by_name_and_once(client: RedisClient, ingress: Ingress) -> None:
    """A metric with few values."""
    count = COMMANDS.labels("web", "help")._value
    before = count.get()
    for _ in range(3):
        await tell(ingress, "/Help", id="c1")
    assert count.get() == before + 1


# Redis away


@pytest.fixture
async def hasty(redis_url: str) -> AsyncIterator[RedisClient]:
    made = RedisClient(redis_url, timeout_s=1.0)
    yield made
    await made.close()


async def test_a_command_waits_for_redis_as_long_as_a_message_does(hasty: RedisClient, valkey: EmbeddedValkey) -> None:
    """And is answered once it is back; without time to wait it is refused."""
    ingress = make(hasty)
    valkey.kill()
    with pytest.raises(RedisAway):
        await tell(ingress, "/help")
    waiting = asyncio.create_task(tell(ingress, "/help", retry_for_s=30))
    await asyncio.to_thread(valkey.start)
    assert (await waiting).turn == 0


async def test_patience_is_measured_by_the_clock(hasty: RedisClient, valkey: EmbeddedValkey) -> None:
    """A try that would begin too late is not made."""
    clock = HandClock()
    ingress = Ingress(hasty, build_commands(SETTINGS, hasty), clock=clock)

    class Ticking(Echo):
        async def answer(self, context: CommandContext) -> CommandAnswer:
            clock.at += 3
            raise RedisAway("away")

    ingress = Ingress(hasty, build_commands(SETTINGS, hasty, [Ticking()]), clock=clock)
    with pytest.raises(RedisAway):
        await tell(ingress, "/echo", retry_for_s=5)
    assert clock.at == 1006


async def test_a_job_that_cannot_be_queued_costs_nothing(client: RedisClient, ingress: Ingress) -> None:
    """The conversation is new all the same, and the sweep finds what is to be archived."""
    await _idle(client)
    await client.command("SET", "arq:job:archive:" + SESSION, "x")
    await client.command("CONFIG", "SET", "maxmemory", "1")
    try:
        accepted = await tell(ingress, "/new")
    finally:
        await client.command("CONFIG", "SET", "maxmemory", "0")
    assert accepted.turn == 0
    assert await queued(client) == []
    assert await client.command("ZSCORE", keys.IDLE, SESSION) is not None
