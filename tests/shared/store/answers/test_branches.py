"""Branches of chats: once, in one step, with what was said up to an answer and nothing else of the other chat."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from shared.errors import BadInput, Refused
from shared.ids import nonce
from shared.messages.codec import encode
from shared.messages.live import TurnEvent
from shared.messages.outbound import Approval, OutboundMessage, UserLine
from shared.messages.transcript import AssistantEntry, UserEntry, decode_transcript
from shared.settings import Settings
from shared.store import keys
from shared.store.answers import branches as module
from shared.store.answers.branches import LINES, Branches
from shared.store.answers.ratings import Ratings
from shared.store.client.redis_client import RedisClient
from shared.store.delivery.feed import Feed
from shared.store.delivery.outbox import Outbox
from shared.store.sessions.backup import SessionBackup
from shared.store.sessions.chats import Chats
from shared.store.sessions.erase import erase
from shared.store.sessions.memory import MemoryStore
from shared.store.sessions.session import Change, Sessions
from shared.store.sessions.trust import TRUST_FIELDS, Trust
from shared.store.turns.inbox import Inbox, InboxLimits
from shared.store.turns.queue import LeaseQueue
from shared.store.turns.turn_writes import Turns
from tests.helpers.build import message, say
from tests.shared.store.test_last_turn import read, retry

OLD = "web:owner/a"
NEW = "web:owner/b"


def branches(client: RedisClient, *, most_chats: int = 0) -> Branches:
    return Branches(client, InboxLimits(chats_per_person=most_chats), "web")


async def answer(client: RedisClient, *texts: str, sources: tuple[str, ...] = (), **fields: Any) -> None:
    """Answer the message that waits, which had these texts, as a worker does."""
    [claim] = await LeaseQueue(client, "turns", owner=nonce(), lease_s=30).acquire(1)
    assert claim.turn is not None
    n = claim.turn.n
    history = [UserEntry(content=text, turn=n, sources=sources) for text in texts]
    line = OutboundMessage(content=f"re {texts[0]}", turn=n, in_reply_to=(f"id-{texts[0]}",), **fields)
    await Turns(client).commit(
        claim,
        history=[*history, AssistantEntry(content=f"re {texts[0]}", turn=n, sources=sources)],
        lines=[line],
        event=TurnEvent(n, "done"),
        sources=sources,
    )


async def turn(client: RedisClient, text: str, *, chat: str = "owner/a", **fields: Any) -> None:
    """A message, and its answer."""
    await say(Inbox(client), text, chat=chat, id=f"id-{text}")
    await answer(client, text, **fields)


async def command(client: RedisClient, word: str, session: str = OLD, *, ends: bool = False) -> None:
    """A chat command with its answer."""
    sessions, sent = Sessions(client), message(f"/{word}", chat=session.removeprefix("web:"))
    state = await sessions.state(session)
    line = OutboundMessage(
        content="Done.", turn=state.counter if ends else 0, in_reply_to=(sent.id,), kind="command", at=1
    )
    change: Change = "" if not ends else "new" if word == "new" else "forget"
    await sessions.answer_command(
        sent,
        line,
        state,
        change=change,
        log_line=UserLine(id=sent.id, text=f"/{word}"),
        principal="owner",
    )


async def texts(client: RedisClient, session: str = NEW) -> list[str]:
    """The log of a chat, as its person reads it."""
    lines = await Outbox(client).read_before(session, seq=None, limit=1000)
    return [one.line.text if isinstance(one.line, UserLine) else one.line.content for one in lines]


async def talk(client: RedisClient, session: str = NEW) -> list[str | None]:
    """The conversation as the model sees it."""
    records = await client.command("LRANGE", keys.history(session), 0, -1)
    return [decode_transcript(record).content for record in records]


async def everything(client: RedisClient, session: str) -> dict[str, Any]:
    """All that Redis has under the names of a chat."""
    names = sorted(await client.command("KEYS", f"*{session}"))
    return {name.decode(): await client.command("DUMP", name) for name in names}


async def test_a_branch_has_the_lines_and_the_conversation_up_to_its_answer(client: RedisClient) -> None:
    """It says first of which chat it is one; the other chat is as it was, to the byte."""
    for text in ("one", "two", "three"):
        await turn(client, text)
    before = await everything(client, OLD)
    made = await branches(client).make("owner", "a", "b", seq=4)
    assert (made.chat_id, made.title, made.new) == ("owner/b", "one (branch)", True)
    first, *rest = await texts(client)
    assert "branch of “one”" in first
    assert rest == ["one", "re one", "two", "re two"]
    assert await talk(client) == ["one", "re one", "two", "re two"]
    assert await everything(client, OLD) == before
    [line] = await Outbox(client).read_before(NEW, seq=2, limit=1)
    assert isinstance(line.line, OutboundMessage)
    assert line.line.branch_of is not None
    assert (line.line.branch_of.chat, line.line.branch_of.seq) == ("a", 4)


async def test_it_goes_on_like_any_chat(client: RedisClient) -> None:
    """The next message is answered with what came along before it, and numbers go on."""
    await turn(client, "one")
    await branches(client).make("owner", "a", "b")
    await turn(client, "two", chat="owner/b")
    assert await talk(client) == ["one", "re one", "two", "re two"]
    assert (await texts(client))[1:] == ["one", "re one", "two", "re two"]
    assert await talk(client, OLD) == ["one", "re one"]
    state = await Sessions(client).state(NEW)
    assert (state.counter, state.waiting, state.running) == (2, (), False)


async def test_the_same_request_again_makes_nothing(client: RedisClient) -> None:
    """Neither at once, nor later, nor when the other chat is gone; the branch is what it was."""
    await turn(client, "one")
    made = await asyncio.gather(*(branches(client).make("owner", "a", "b") for _ in range(5)))
    assert sorted(one.new for one in made) == [False] * 4 + [True]
    await turn(client, "two", chat="owner/b")
    was = await everything(client, NEW)
    await turn(client, "three")
    await branches(client).make("owner", "a", "b")
    await erase(client, OLD)
    assert not (await branches(client).make("owner", "a", "b")).new
    assert await everything(client, NEW) == was
    assert [row.chat_id for row in await Chats(client).latest("web", "owner")] == ["owner/b"]


async def test_it_is_in_the_list_and_pages_hear_of_it(client: RedisClient) -> None:
    """With its title, read to its end, at the top; on every page that follows the feed."""
    await turn(client, "one")
    feed = Feed(client)
    cursor = (await feed.follow("web:owner", "")).cursor
    await branches(client).make("owner", "a", "b")
    row, other = await Chats(client).latest("web", "owner")
    assert (row.chat_id, row.title, row.running, row.seq, row.seen) == ("owner/b", "one (branch)", False, 3, 3)
    assert other.title == "one"
    missed = await feed.follow("web:owner", cursor)
    assert missed.facts is not None
    assert [(fact.chat, fact.row, fact.seq) for fact in missed.facts] == [("b", True, 3)]


async def test_the_name_of_another_chat_is_refused(client: RedisClient) -> None:
    """The chat that has it stays as it is."""
    await turn(client, "one")
    await turn(client, "two", chat="owner/b")
    was = await everything(client, NEW)
    for to in ("a", "b"):
        with pytest.raises(BadInput, match="already"):
            await branches(client).make("owner", "a", to)
    assert await everything(client, NEW) == was


@pytest.mark.parametrize("seq", [1, 3, 99])
async def test_it_begins_after_an_answer_alone(client: RedisClient, seq: int) -> None:
    """Not after a message, nor a command, nor a line that there is not."""
    await turn(client, "one")
    await command(client, "status")
    with pytest.raises(BadInput, match="begins after an answer"):
        await branches(client).make("owner", "a", "b", seq=seq)
    assert await everything(client, NEW) == {}


async def test_nobody_makes_a_branch_of_the_chat_of_another_person(client: RedisClient) -> None:
    """Nor of one that was deleted."""
    await turn(client, "one")
    for principal, chat in (("ann", "a"), ("owner", "none")):
        with pytest.raises(BadInput, match="there is no chat"):
            await branches(client).make(principal, chat, "b")
    await Chats(client).delete(OLD)
    with pytest.raises(BadInput, match="there is no chat"):
        await branches(client).make("owner", "a", "b")


async def test_messages_that_were_answered_later_stay_there(client: RedisClient) -> None:
    """A message that waited while the answer was written is not of this conversation yet."""
    await say(Inbox(client), "one", id="id-one")
    await say(Inbox(client), "two", id="id-two")
    await answer(client, "one")
    await answer(client, "two")
    assert await texts(client, OLD) == ["one", "two", "re one", "re two"]
    await branches(client).make("owner", "a", "b", seq=3)
    assert (await texts(client))[1:] == ["one", "re one"]
    assert await talk(client) == ["one", "re one"]


async def test_what_new_ended_is_not_of_the_conversation(client: RedisClient) -> None:
    """After `/new` a branch shows what stands above, as the chat does, and the model does not see it."""
    await turn(client, "one")
    await command(client, "new", ends=True)
    await turn(client, "two")
    await branches(client).make("owner", "a", "b")
    assert await talk(client) == ["two", "re two"]
    assert (await texts(client))[1:] == ["one", "re one", "/new", "Done.", "two", "re two"]
    await branches(client).make("owner", "a", "c", seq=2)
    assert await talk(client, "web:owner/c") == ["one", "re one"]


async def test_what_was_consolidated_comes_along_from_the_transcript(client: RedisClient) -> None:
    """Word for word: in the other chat it is a summary by now."""
    for text in ("one", "two", "three"):
        await turn(client, text)
    memory = MemoryStore(client)
    read = await memory.read_unconsolidated(OLD)
    assert await memory.consolidate(OLD, read, take=4, entry="summed up")
    assert await talk(client, OLD) == ["three", "re three"]
    await branches(client).make("owner", "a", "b", seq=4)
    assert await talk(client) == ["one", "re one", "two", "re two"]
    await branches(client).make("owner", "a", "c")
    assert await talk(client, "web:owner/c") == ["one", "re one", "two", "re two", "three", "re three"]


async def test_an_answer_that_is_forgotten_begins_no_branch(client: RedisClient) -> None:
    """Its line is still shown, but a chat that begins with it would know nothing of it."""
    await turn(client, "one")
    await command(client, "forget", ends=True)
    with pytest.raises(BadInput, match="do not know"):
        await branches(client).make("owner", "a", "b", seq=2)


async def test_an_answer_that_was_replaced_begins_no_branch(client: RedisClient) -> None:
    """It left the conversation for good; the one in its place begins one."""
    await turn(client, "one")
    state, last = await read(client)
    await retry(client, state, last, id="id-one-again")
    await answer(client, "one-again")
    with pytest.raises(BadInput, match="do not know"):
        await branches(client).make("owner", "a", "b", seq=2)
    await branches(client).make("owner", "a", "b")
    assert await talk(client) == ["one-again", "re one-again"]


@pytest.mark.parametrize("ending", ["forget", "erase"])
async def test_a_conversation_that_ends_meanwhile_does_not_live_on(
    client: RedisClient, redis_url: str, ending: str
) -> None:
    """The chat is deleted or forgotten after it was read: the script makes nothing."""

    class LateClient(RedisClient):
        """A client whose branch comes after the end of the conversation."""

        async def run(self, name: str, /, **given: Any) -> Any:
            if name == "answers/branch":
                await (erase(client, OLD) if ending == "erase" else command(client, "forget", ends=True))
            return await super().run(name, **given)

    await turn(client, "one")
    late = LateClient(redis_url)
    with pytest.raises(BadInput, match="at this moment"):
        await branches(late).make("owner", "a", "b")
    await late.close()
    assert await everything(client, NEW) == {}


async def test_marks_of_strangers_texts_come_along(client: RedisClient) -> None:
    """Those of the turns that come along; a later turn's stay, and so do those of files."""
    await turn(client, "one", sources=("evil.example",))
    await turn(client, "two", sources=("later.example",))
    await client.command("HSET", keys.session(OLD), "file_sources", "file.example")
    await branches(client).make("owner", "a", "b", seq=2)
    state = await Sessions(client).state(NEW)
    assert (state.sources, state.file_sources) == (("evil.example",), ())
    await branches(client).make("owner", "a", "c")
    assert (await Sessions(client).state("web:owner/c")).sources == ("evil.example", "later.example")


async def test_what_the_agent_wrote_from_elsewhere_comes_along_with_its_mark(client: RedisClient) -> None:
    """It belongs to no turn; only what stands above the answer comes along."""
    for text in ("one", "two"):
        await turn(client, text)
        await client.command("RPUSH", keys.history(OLD), encode(AssistantEntry(content=f"after {text}", turn=0)))
    await client.command("HSET", keys.session(OLD), "sources", "evil.example")
    await branches(client).make("owner", "a", "b")
    assert await talk(client) == ["one", "re one", "after one", "two", "re two"]
    assert (await Sessions(client).state(NEW)).sources == ("evil.example",)
    await branches(client).make("owner", "a", "c", seq=2)
    assert await talk(client, "web:owner/c") == ["one", "re one"]
    assert (await Sessions(client).state("web:owner/c")).sources == ()


async def test_what_was_trusted_stays_trusted(client: RedisClient) -> None:
    """Only for what was trusted: a mark that came later is one."""
    await turn(client, "one", sources=("known.example",))
    sessions, sent = Sessions(client), message("/trust", chat="owner/a")
    line = OutboundMessage(content="Trusted.", turn=0, in_reply_to=(sent.id,), kind="command")
    await sessions.answer_command(sent, line, await sessions.state(OLD), change="trust", principal="owner")
    await turn(client, "two", sources=("other.example",))
    await branches(client).make("owner", "a", "b")
    assert (await sessions.state(NEW)).sources == ("other.example",)
    trusted = [await client.command("HMGET", keys.session(one), *TRUST_FIELDS) for one in (OLD, NEW)]
    assert trusted[0] == trusted[1] != [None] * len(TRUST_FIELDS)


async def test_trust_ends_with_the_turns_that_come_along(client: RedisClient) -> None:
    """The branch counts its own turns from there on, and nobody has trusted what they read."""
    for text in ("one", "two", "three"):
        await turn(client, text, sources=("known.example",))
    sessions, sent = Sessions(client), message("/trust", chat="owner/a")
    line = OutboundMessage(content="Trusted.", turn=0, in_reply_to=(sent.id,), kind="command")
    await sessions.answer_command(sent, line, await sessions.state(OLD), change="trust", principal="owner")
    await branches(client).make("owner", "a", "b", seq=2)
    assert (await sessions.state(NEW)).sources == ()
    trust = Trust.parse(await client.command("HMGET", keys.session(NEW), *TRUST_FIELDS))
    assert (trust.left_of(1, ("known.example",)), trust.left_of(2, ("known.example",))) == ((), ("known.example",))


@pytest.mark.parametrize(("scope", "has"), [("user:owner", b"user:owner"), (f"chat:{OLD}", None)])
async def test_memory_of_the_person_is_that_of_the_branch_too(
    client: RedisClient, scope: str, has: bytes | None
) -> None:
    """The memory of the other chat alone is not: `/forget` here would delete it there."""
    await turn(client, "one")
    await client.command("HSET", keys.session(OLD), "scope", scope)
    await branches(client).make("owner", "a", "b")
    assert await client.command("HGET", keys.session(NEW), "scope") == has


async def test_choices_come_along_and_permissions_do_not(client: RedisClient) -> None:
    """The model and the voice do; standing approvals, the folder, plans and the pin do not."""
    await turn(client, "one")
    given = {
        "preset": "big",
        "busy": "merge",
        "voice": "on",
        "standing": "x",
        "folder": "books",
        "pin": "1",
        "share": "s",
    }
    await client.command("HSET", keys.session(OLD), *[word for pair in given.items() for word in pair])
    await branches(client).make("owner", "a", "b")
    has = [await client.command("HGET", keys.session(NEW), name) for name in given]
    assert has == [b"big", b"merge", b"on", None, None, None, None]


async def test_lines_lose_files_ratings_and_the_way_to_take_an_approval_back(client: RedisClient) -> None:
    """Files are named; a rating is of the other chat's answer; `/always off` works there alone."""
    ref = f"media:{'0' * 64}.txt;3;notes.txt"
    await say(Inbox(client), "", id="id-one", media=(ref,))
    asked = Approval(id="q", state="yes", tool="exec", standing=True)
    await answer(client, "one", media=(ref,), approval=asked)
    await turn(client, "two")
    await Ratings(client, InboxLimits()).rate(OLD, 4, "up")
    await turn(client, "three")
    await branches(client).make("owner", "a", "b")
    lines = [one.line for one in await Outbox(client).read_before(NEW, seq=None, limit=100)]
    assert not any(line.media for line in lines)
    assert not any(isinstance(line, OutboundMessage) and line.rated for line in lines)
    assert [line.approval.standing for line in lines if isinstance(line, OutboundMessage) and line.approval] == [False]
    shown = await texts(client)
    assert shown[2].startswith("re one")
    assert shown[2].endswith("*File: notes.txt*")


async def test_a_branch_of_a_branch_says_of_which_alone(client: RedisClient) -> None:
    """One line at its head, and a title with both endings."""
    await turn(client, "one")
    await branches(client).make("owner", "a", "b")
    await branches(client).make("owner", "b", "c")
    first, *rest = await texts(client, "web:owner/c")
    assert "branch of “one (branch)”" in first
    assert rest == ["one", "re one"]
    assert (await Chats(client).latest("web", "owner"))[0].title == "one (branch) (branch)"


async def test_a_long_title_keeps_its_ending(client: RedisClient) -> None:
    """In 120 characters."""
    await turn(client, "one")
    await Chats(client).label(OLD, title="ä" * 120)
    made = await branches(client).make("owner", "a", "b")
    assert made.title == "ä" * 111 + " (branch)"


async def test_of_a_long_chat_the_newest_lines_come_along(client: RedisClient, monkeypatch: pytest.MonkeyPatch) -> None:
    """Wherever they are; the first line says so, and the model sees what the log shows."""
    monkeypatch.setattr(module, "LINES", 4)
    for text in ("one", "two", "three"):
        await turn(client, text)
    await branches(client).make("owner", "a", "b")
    first, *rest = await texts(client)
    assert "first part is only there" in first
    assert rest == ["two", "re two", "three", "re three"]
    assert await talk(client) == rest
    monkeypatch.setattr(module, "LINES", LINES)
    monkeypatch.setattr(module, "BYTES", 1)
    await branches(client).make("owner", "a", "c")
    assert (await texts(client, "web:owner/c"))[1:] == ["re three"]


async def test_a_person_has_no_more_chats_than_they_may(client: RedisClient) -> None:
    """A branch counts like a chat that begins with a message."""
    await turn(client, "one")
    with pytest.raises(Refused) as refused:
        await branches(client, most_chats=1).make("owner", "a", "b")
    assert refused.value.code == "chat_limit"
    assert (await branches(client, most_chats=2).make("owner", "a", "b")).new


async def test_a_branch_is_exported_and_erased_like_any_chat(client: RedisClient) -> None:
    """Nothing that names it is left, and the other chat stays."""
    await turn(client, "one")
    await branches(client).make("owner", "a", "b")
    file = await SessionBackup(client, Settings()).export(NEW, now_ms=1)
    assert file.conversation is not None
    assert len(file.conversation) == 2
    assert len(file.log or ()) == 3
    await erase(client, NEW)
    assert await everything(client, NEW) == {}
    assert await talk(client, OLD) == ["one", "re one"]


async def test_its_keys_expire(client: RedisClient) -> None:
    """As those of other chats do."""
    await turn(client, "one")
    await branches(client).make("owner", "a", "b")
    for name in await everything(client, NEW):
        assert await client.command("PTTL", name) > 0, name
