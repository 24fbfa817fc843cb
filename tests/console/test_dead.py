from __future__ import annotations

import asyncio
import json
import secrets
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import pytest
from click.testing import CliRunner, Result

from console.main import cli
from shared.errors import BadRecord, RedisAway
from shared.ids import log_id
from shared.messages.codec import encode
from shared.messages.inbound import InboundMessage, decode_inbound
from shared.messages.live import TurnEvent
from shared.messages.outbound import UserLine
from shared.store import keys
from shared.store.client.redis_client import RedisClient
from shared.store.delivery.outbox import Outbox
from shared.store.turns.dead_letters import PAGE, DeadLetterEntry, DeadLetters
from shared.store.turns.inbox import TURNS, Inbox, InboxLimits
from shared.store.turns.queue import LeaseQueue
from shared.store.turns.turn_writes import DeadLetter, Turns
from tests.helpers.build import message, reply, say
from tests.helpers.clock import HandClock
from tests.helpers.platform_chat import PlatformChat, gateway, lease_one

SESSION = "web:owner/a"
DAY_MS = 86_400_000

T = TypeVar("T")


async def bury(
    client: RedisClient,
    reference: str,
    text: str = "please help",
    *,
    reason: str = "error",
    record: bytes | None = None,
    chat: str = "owner/a",
) -> None:
    """A message that was taken, failed and was given up, as a worker does it."""
    await say(Inbox(client), text, chat=chat)
    queue = LeaseQueue(client, TURNS, owner=secrets.token_hex(16), lease_s=10)
    [claim] = await queue.acquire(1)
    assert claim.turn is not None
    dead = DeadLetter(f"{reason} {reference}", claim.turn.record if record is None else record)
    n = claim.turn.n
    await Turns(client).commit(claim, history=[], lines=[reply("Sorry", n)], event=TurnEvent(n, "failed"), dead=dead)
    await queue.close()


async def put(client: RedisClient, reference: str, message: InboundMessage, *, id: str = "*") -> None:
    """A letter straight into the stream."""
    member = keys.turn(message.session)
    await client.command(
        "XADD", keys.DEAD, id, "member", member, "n", 1, "reason", f"error {reference}", "m", encode(message)
    )


def letters_of(client: RedisClient, limits: InboxLimits | None = None) -> DeadLetters:
    return DeadLetters(client, Inbox(client, limits), HandClock(5000.0))


async def waiting(client: RedisClient, session: str = SESSION) -> list[InboundMessage]:
    """What lies in a session's inbox."""
    rows: list[Any] = await client.command("XRANGE", keys.inbox(session), "-", "+")
    return [decode_inbound(row[1][3]) for row in rows]


async def found(letters: DeadLetters, reference: str) -> DeadLetterEntry:
    letter = await letters.find(reference)
    assert letter is not None
    return letter


# The store.


async def test_a_letter_is_found_by_the_reference_of_the_apology(client: RedisClient) -> None:
    """However many came after it, however it was typed; else by its place, else not at all."""
    await bury(client, "0000cafe", reason="timeout")
    for n in range(2 * PAGE + 5):
        await put(client, f"{n:08x}", message("text"))
    letters = letters_of(client)
    letter = await found(letters, " 0000CAFE ")
    assert (letter.reason, letter.session, letter.turn, letter.chat_id) == ("timeout", SESSION, 1, "owner/a")
    assert letter.size_bytes == len(await letters.read_record(letter) or b"")
    assert await letters.find(letter.id) == letter
    assert await letters.find("ffffffff") is None
    assert await letters.find("1-1") is None
    assert await letters.count() == 2 * PAGE + 6


async def test_a_letter_without_a_reference_goes_by_its_place(client: RedisClient) -> None:
    """Nothing that lies there is out of reach."""
    id = (await client.command("XADD", keys.DEAD, "*", "member", keys.turn(SESSION), "reason", "odd")).decode()
    [letter] = await letters_of(client).newest()
    assert (letter.reason, letter.reference, letter.turn, letter.size_bytes) == ("odd", id, 0, 0)


async def test_a_replay_is_a_new_message_at_the_tail_of_its_session(client: RedisClient) -> None:
    """It waits its turn, is as young as the replay, and stands in the chat; the letter is gone."""
    await bury(client, "ab12cd34", "please help")
    await say(Inbox(client), "later", id="m-later")
    letters = letters_of(client)
    accepted = await letters.replay(await found(letters, "ab12cd34"))
    assert accepted is not None
    assert (accepted.turn, accepted.ahead, accepted.duplicate) == (3, 1, False)
    _, again = await waiting(client)
    assert (again.id, again.content, again.timestamp) == ("replay-ab12cd34", "please help", 5_000_000)
    line = (await Outbox(client).read_after(SESSION, after=0))[-1].line
    assert line == UserLine(id="replay-ab12cd34", text="please help", at=5_000_000)
    assert await letters.count() == 0


async def test_a_replay_that_died_before_its_end_makes_no_second_turn(client: RedisClient) -> None:
    """The message is in its inbox, the letter is still there: done again, only the letter goes."""

    class Dies(DeadLetters):
        async def drop(self, letter: DeadLetterEntry) -> bool:
            raise RedisAway("killed")

    await bury(client, "ab12cd34")
    letter = await found(letters_of(client), "ab12cd34")
    with pytest.raises(RedisAway):
        await Dies(client, Inbox(client)).replay(letter)
    assert await letters_of(client).count() == 1
    accepted = await letters_of(client).replay(letter)
    assert accepted is not None
    assert accepted.duplicate
    assert len(await waiting(client)) == 1
    assert await letters_of(client).count() == 0
    assert await letters_of(client).replay(letter) is None, "somebody else was quicker"


async def test_a_channel_without_a_log_gets_no_line(client: RedisClient) -> None:
    """Only web chats show people their own messages."""
    sent = message("hello", chat="77", channel="telegram")
    await put(client, "ab12cd34", sent)
    letters = letters_of(client)
    await letters.replay(await found(letters, "ab12cd34"))
    assert [one.content for one in await waiting(client, "telegram:77")] == ["hello"]
    assert await client.command("EXISTS", keys.outbox("telegram:77"), keys.chats("telegram", "owner")) == 0


@pytest.mark.parametrize("record", [b"", b"\xc1garbage", b"\x80", encode(message(chat="owner/other"))])
async def test_a_record_that_cannot_be_read_is_not_replayed(client: RedisClient, record: bytes) -> None:
    """It stays, for whoever wants to look at it."""
    await bury(client, "ab12cd34", reason="bad_record", record=record)
    letters = letters_of(client)
    with pytest.raises(BadRecord):
        await letters.replay(await found(letters, "ab12cd34"))
    assert await letters.count() == 1
    assert await waiting(client) == []


async def test_letters_of_the_last_thirty_days_are_kept(client: RedisClient) -> None:
    """Older ones go when the next one is written."""
    seconds, _ = await client.command("TIME")
    now = int(seconds) * 1000
    await put(client, "00000031", message("31 days"), id=f"{now - 31 * DAY_MS}-0")
    await put(client, "00000029", message("29 days"), id=f"{now - 29 * DAY_MS}-0")
    await bury(client, "00000000")
    assert [one.reference for one in await letters_of(client).newest()] == ["00000000", "00000029"]


async def test_a_round_over_all_ends_although_new_ones_come(client: RedisClient) -> None:
    """A replay that dies again at once would else be replayed for ever."""
    for n in range(PAGE + 3):
        await put(client, f"{n:08x}", message("text"))
    seen = []
    letters = letters_of(client)
    async for letter in letters.all():
        seen.append(letter.reference)
        await letters.drop(letter)
        await put(client, "ffffffff", message("new"))
    assert seen == [f"{n:08x}" for n in range(PAGE + 3)]


# The command.


@pytest.fixture
def shoal(redis_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Result]:
    """`shoal dead ...` on the test's Valkey."""
    monkeypatch.chdir(tmp_path)

    def run(*arguments: str, input: str | None = None, **environ: str) -> Result:
        return CliRunner().invoke(
            cli, ["dead", *arguments], input=input, env={"SHOAL_REDIS__URL": redis_url, **environ}
        )

    return run


@pytest.fixture
def store(redis_url: str) -> Callable[[Callable[[RedisClient], Awaitable[T]]], T]:
    """Runs something with a client, in a test that is no coroutine."""

    def run(work: Callable[[RedisClient], Awaitable[T]]) -> T:
        async def inner() -> T:
            client = RedisClient(redis_url)
            try:
                return await work(client)
            finally:
                await client.close()

        return asyncio.run(inner())

    return run


Shoal = Callable[..., Result]
Store = Callable[[Callable[[RedisClient], Awaitable[Any]]], Any]


def test_a_list_shows_newest_first_by_pages_and_no_chat_ids(shoal: Shoal, store: Store) -> None:
    """A chat id can be a phone number; who needs it asks for it."""

    async def three(client: RedisClient) -> None:
        for n in range(3):
            await bury(client, f"{n:08x}", reason="timeout", chat=f"owner/c{n}")

    store(three)
    lines = shoal("list", "--limit", "2").output.splitlines()
    assert lines[0].split() == ["reference", "reason", "channel", "session", "age", "size"]
    first = lines[1].split()
    assert first[:4] == ["00000002", "timeout", "web", log_id("web:owner/c2")]
    assert lines[2].startswith("00000001")
    assert lines[-1] == "3 in all; go on with --before 00000001"
    assert "owner" not in "".join(lines)
    rest = json.loads(shoal("list", "--before", "00000001", "--json", "--show-chats").output)
    assert (rest["total"], rest["before"]) == (3, None)
    [letter] = rest["letters"]
    assert (letter["reference"], letter["chat"], letter["channel"], letter["turn"]) == (
        "00000000",
        "owner/c0",
        "web",
        1,
    )
    assert json.loads(shoal("list", "--limit", "1", "--json").output)["before"] == "00000002"
    assert "owner/c2" in shoal("list", "--show-chats").output
    assert shoal("list", "--before", "00000000").output == "No older letters.\n"


def test_an_empty_list_says_so(shoal: Shoal) -> None:
    """Not a bare header."""
    assert shoal("list").output == "No dead letters.\n"
    assert json.loads(shoal("list", "--json").output) == {"letters": [], "total": 0, "before": None}


def test_a_letter_is_shown_without_its_text_unless_asked_for(shoal: Shoal, store: Store) -> None:
    """And the text without control codes."""
    store(lambda client: bury(client, "ab12cd34", "my secret\x1b[2J plan"))
    plain = shoal("show", "ab12cd34").output
    assert "secret" not in plain
    assert "owner" not in plain
    assert "characters  18" in plain.splitlines()
    assert "what        a message without an answer" in plain.splitlines()
    assert not {"True", "False"} & set(plain.split())
    assert shoal("show", "ab12cd34", "--text").output.endswith("\n\nmy secret plan\n")
    result = json.loads(shoal("show", "ab12cd34", "--text", "--show-chats", "--json").output)
    assert result["text"] == "my secret\x1b[2J plan"
    assert (result["readable"], result["chat"], result["sender"]) == (True, "owner/a", "owner")


def test_an_unreadable_letter_says_what_is_wrong_with_it(shoal: Shoal, store: Store) -> None:
    """Shown, and when a replay is tried: it stays, and the exit code is 1."""
    store(lambda client: bury(client, "ab12cd34", record=b"\xc1"))
    assert "record_malformed" in shoal("show", "ab12cd34").output
    result = shoal("replay", "ab12cd34")
    assert result.exit_code == 1
    assert result.stderr.startswith(
        "'ab12cd34' was left where it is: its record cannot be read (a record is not msgpack"
    )
    assert "1" in shoal("drop", "ab12cd34", "--yes").output
    assert shoal("show", "ab12cd34").exit_code == 1


def test_replay_puts_one_message_back(shoal: Shoal, store: Store) -> None:
    """Its exit code is 0; a second time there is no such letter."""
    store(lambda client: bury(client, "ab12cd34", "please help"))
    assert shoal("replay", "ab12cd34").output == "Put back 1 message.\n"
    assert [one.content for one in store(waiting)] == ["please help"]
    again = shoal("replay", "ab12cd34")
    assert again.exit_code == 1
    assert again.stderr.startswith("there is no dead letter 'ab12cd34'")


async def undelivered(client: RedisClient) -> None:
    """A platform did not take a reply that another gateway may have sent before."""
    chat, first, second = PlatformChat(client), gateway(client), gateway(client)
    await chat.ask_and_answer("my secret plan", "next")
    assert await first.begin_post(await lease_one(first), 1, 0) is not None
    await chat.time_passes()
    assert await second.give_up_line(await lease_one(second), 1, "400: too\x1b[2J long")


def test_a_reply_that_a_platform_did_not_take_is_found_with_what_was_written_of_it(shoal: Shoal, store: Store) -> None:
    """Its text only when it is asked for, and its chat. It goes by its place: nobody was shown a reference."""
    store(undelivered)
    [row] = shoal("list").output.splitlines()[1:]
    reference = row.split()[0]
    assert row.split()[1:4] == ["undeliverable", "telegram", log_id("telegram:42")]
    plain = shoal("show", reference).output
    assert "secret" not in plain
    assert ["why", "400:", "too", "long"] in [line.split() for line in plain.splitlines()]
    assert "a reply that did not arrive; it may be there all the same" in plain
    assert shoal("show", reference, "--text").output.endswith("\n\nmy secret plan\n")
    result = json.loads(shoal("show", reference, "--json", "--show-chats").output)
    assert (result["undelivered"], result["may_be_there"], result["chat"], result["characters"]) == (
        True,
        True,
        "42",
        14,
    )


def test_a_reply_that_was_not_delivered_is_put_back_behind_what_waits(shoal: Shoal, store: Store) -> None:
    """Its chat is due again; a second time there is no such letter."""
    store(undelivered)
    assert shoal("replay", "--all").output == "Put back 1 message.\n"
    lines = store(lambda client: Outbox(client).read_after("telegram:42", after=0))
    assert [(one.seq, one.line.content) for one in lines] == [(2, "next"), (3, "my secret plan")]
    assert shoal("list").output == "No dead letters.\n"


def test_a_reply_that_nobody_can_read_says_so(shoal: Shoal, store: Store) -> None:
    """A newer release wrote it, say."""

    async def odd(client: RedisClient) -> None:
        await client.command("XADD", keys.DEAD, "*", "member", "out:telegram:42", "n", 1, "reason", "x", "m", b"\xc1")

    store(odd)
    [letter] = json.loads(shoal("list", "--json").output)["letters"]
    assert "record_malformed" in shoal("show", letter["id"]).output
    assert json.loads(shoal("show", letter["id"], "--json").output)["may_be_there"] is False
    assert shoal("drop", letter["id"], "--yes").output == "Dropped 1 letter.\n"


def test_replay_of_all_goes_oldest_first_and_leaves_what_does_not_work(shoal: Shoal, store: Store) -> None:
    """Unreadable, Shoal's own, and what finds its inbox full."""

    async def five(client: RedisClient) -> None:
        await bury(client, "0000000a", "first")
        await bury(client, "0000000b", record=b"?")
        await put(client, "0000000c", message("from a subagent", channel="system"))
        await bury(client, "0000000d", "second")
        await bury(client, "0000000e", "third")

    store(five)
    result = shoal("replay", "--all", "--json", SHOAL_INBOX__CAP="2")
    assert result.exit_code == 1
    answer = json.loads(result.stdout)
    assert answer["replayed"] == 2
    why = {one["reference"]: one["why"] for one in answer["left"]}
    assert list(why) == ["0000000b", "0000000c", "0000000e"]
    assert "cannot be read" in why["0000000b"]
    assert "Shoal's own" in why["0000000c"]
    assert "already wait" in why["0000000e"]
    assert [one.content for one in store(waiting)] == ["first", "second"]
    assert json.loads(shoal("list", "--json").output)["total"] == 3


def test_nothing_is_dropped_unasked(shoal: Shoal, store: Store) -> None:
    """One or all: the question names the number, and only `y` or --yes drops."""

    async def two(client: RedisClient) -> None:
        await bury(client, "0000000a")
        await bury(client, "0000000b")

    store(two)
    for answer in ("n\n", "\n", ""):
        result = shoal("drop", "--all", input=answer)
        assert result.exit_code == 1
        assert "Forget 2 dead letters for good?" in result.stderr
    assert json.loads(shoal("list", "--json").output)["total"] == 2
    assert shoal("drop", "0000000a", input="y\n").stdout == "Dropped 1 letter.\n"
    assert json.loads(shoal("drop", "--all", "--yes", "--json").output) == {"dropped": 1, "interrupted": False}
    assert shoal("drop", "--all").stdout == "Dropped 0 letters.\n", "nothing to ask about"


@pytest.mark.parametrize("command", ["replay", "drop"])
def test_one_or_all_must_be_given(shoal: Shoal, command: str) -> None:
    """Neither is a slip, both are a riddle: usage, exit code 2."""
    assert shoal(command).exit_code == 2
    assert shoal(command, "ab12cd34", "--all").exit_code == 2


@pytest.mark.parametrize(
    "arguments", [("list",), ("show", "x"), ("replay", "x"), ("replay", "--all"), ("drop", "x", "--yes")]
)
def test_redis_away_is_one_line_and_exit_code_three(shoal: Shoal, arguments: tuple[str, ...]) -> None:
    """The address without its password."""
    result = shoal(*arguments, SHOAL_REDIS__URL="redis://:canary@127.0.0.1:1/0")
    assert result.exit_code == 3
    [line] = result.stderr.splitlines()
    assert line.startswith("Redis is away")
    assert "redis://:***@127.0.0.1:1/0" in line


async def test_the_page_of_letters_leaves_the_records_where_they_are(client: RedisClient) -> None:
    """A list of large messages must not be a large answer."""
    await put(client, "ab12cd34", msgspec.structs.replace(message(), content="x" * 60_000))
    answer = await client.run("letters/page", command="XREVRANGE", first="+", last="-", most=10)
    [letter] = await letters_of(client).newest()
    assert letter.size_bytes > 60_000
    assert len(repr(answer)) < 300
