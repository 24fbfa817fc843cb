"""A conversation up to one of its turns: which entries, how many, and what marks them."""

from __future__ import annotations

import pytest

from shared.messages.codec import encode
from shared.messages.transcript import AssistantEntry, ToolCall, ToolEntry, TranscriptEntry, UserEntry
from shared.store import keys
from shared.store.client.redis_client import RedisClient
from shared.store.responses.forks import Fork, Forks
from shared.store.sessions.transcripts import pack_pages

SESSION = "api:owner/~-x"
LIMIT = 512 * 1024


def turn(n: int, *, sources: tuple[str, ...] = (), text: str = "") -> list[TranscriptEntry]:
    """The entries of a turn."""
    return [
        UserEntry(content=text or f"question {n}", turn=n, sources=sources),
        AssistantEntry(content=f"answer {n}", turn=n, sources=sources, reasoning="hm"),
    ]


async def store(client: RedisClient, *entries: TranscriptEntry, key: str = "") -> None:
    for entry in entries:
        await client.command("RPUSH", key or keys.history(SESSION), encode(entry))


async def read(client: RedisClient, n: int, limit_bytes: int = LIMIT) -> Fork:
    found = await Forks(client).read_fork(SESSION, n, limit_bytes=limit_bytes)
    assert found is not None
    return found


def texts(fork: Fork) -> list[str | None]:
    return [entry.content for entry in fork.entries]


async def test_later_turns_are_left_out(client: RedisClient) -> None:
    """Its entries belong to no turn of the session that gets them, and bring no thoughts."""
    program = [UserEntry(content="before", turn=0)]
    await store(client, *program, *turn(1), *turn(2), *turn(3))
    assert await read(client, 2) == Fork(
        (
            UserEntry(content="before", turn=0),
            UserEntry(content="question 1", turn=0),
            AssistantEntry(content="answer 1", turn=0),
            UserEntry(content="question 2", turn=0),
            AssistantEntry(content="answer 2", turn=0),
        )
    )


async def test_what_left_the_conversation_is_read_too(client: RedisClient) -> None:
    """From the archive and the transcript, in its order."""
    for page in pack_pages(encode(entry) for entry in turn(1)):
        await client.command("XADD", keys.transcript(SESSION), "*", "z", page)
    await store(client, *turn(2), key=keys.archive(SESSION))
    await store(client, *turn(3), *turn(4))
    found = [f"{who} {n}" for n in (1, 2, 3) for who in ("question", "answer")]
    assert texts(await read(client, 3)) == found


async def test_a_conversation_before_new_is_over(client: RedisClient) -> None:
    """Nothing of it is in a fork of the one after it."""
    await store(client, *turn(1), *turn(2), key=keys.archive(SESSION))
    await store(client, *turn(3), *turn(4))
    await client.command("HSET", keys.session(SESSION), "began", "2")
    assert texts(await read(client, 3)) == ["question 3", "answer 3"]
    assert await read(client, 2) == Fork()


@pytest.mark.parametrize(("limit_bytes", "turns"), [(LIMIT, 50), (100_000, 9)])
async def test_the_newest_entries_within_the_limits(client: RedisClient, limit_bytes: int, turns: int) -> None:
    """At most 100 entries, and so many bytes."""
    for n in range(1, 70):
        await store(client, *turn(n, text="x" * 10_000))
    found = await read(client, 60, limit_bytes=limit_bytes)
    assert len(found.entries) == 2 * turns
    assert found.entries[-1].content == "answer 60"


async def test_a_branch_begins_with_a_message(client: RedisClient) -> None:
    """A result whose call is left out would be refused by providers."""
    call = ToolCall("c", "f", "{}")
    steps: list[TranscriptEntry] = []
    for _ in range(49):
        steps.append(AssistantEntry(content=None, turn=1, tool_calls=(call,)))
        steps.append(ToolEntry(call_id="c", name="f", content="r", turn=1))
    await store(client, turn(1)[0], *steps, turn(1)[1], *turn(2), *turn(3))
    assert texts(await read(client, 3)) == ["question 2", "answer 2", "question 3", "answer 3"]


async def test_marks_travel_but_for_what_a_person_trusted(client: RedisClient) -> None:
    """The mark is that of the entries which travel."""
    await store(client, *turn(1, sources=("a.example",)), *turn(2, sources=("b.example",)), *turn(3, sources=("c",)))
    await client.command(
        "HSET", keys.session(SESSION), "trusted", "1", "trusted_after", "0", "trusted_sources", "a.example"
    )
    found = await read(client, 2)
    assert found.sources == ("b.example",)
    assert [entry.sources for entry in found.entries] == [(), (), ("b.example",), ("b.example",)]


async def test_a_turn_that_is_not_over_has_no_fork(client: RedisClient) -> None:
    await store(client, *turn(1))
    await client.command("XADD", keys.inbox(SESSION), "2-0", "m", "x")
    assert await Forks(client).read_fork(SESSION, 2, limit_bytes=LIMIT) is None
    assert texts(await read(client, 1)) == ["question 1", "answer 1"]


async def test_an_entry_that_cannot_be_read_is_left_out(client: RedisClient) -> None:
    """One of a newer version, say."""
    await client.command("RPUSH", keys.history(SESSION), b"\x00")
    await store(client, *turn(1))
    assert texts(await read(client, 1)) == ["question 1", "answer 1"]
