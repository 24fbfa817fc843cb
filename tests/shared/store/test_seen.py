"""What is known of messages that came before, and of the forms that one has had."""

from __future__ import annotations

import hashlib

import msgspec

from shared.messages.inbound import InboundMessage
from shared.store import keys
from shared.store.client.redis_client import RedisClient
from shared.store.sessions.erase import erase
from shared.store.turns.inbox import DAY_MS, Inbox
from shared.store.turns.known_messages import SeenMessages
from tests.helpers.build import message
from tests.helpers.schedules import server_ms

FULL = 50_000
"""Fields of a hash of ids above which there is another one."""

FILL = "for i = 2, ARGV[1] do redis.call('HSET', KEYS[1], 'other/' .. i, '1:0') end"


def form(id: str, chat: str = "7") -> InboundMessage:
    return message(chat=chat, channel="telegram", id=id)


async def day(client: RedisClient, days: int = 0) -> str:
    """The name of the hash of a day: today, or some days ago."""
    return f"{keys.seen('telegram')}{await server_ms(client) // DAY_MS - days}"


async def sizes(client: RedisClient) -> dict[str, int]:
    """The fields of each hash of ids."""
    names = await client.command("KEYS", keys.seen("telegram") + "*")
    return {name.decode(): await client.command("HLEN", name) for name in names}


async def test_a_message_that_came_is_known(client: RedisClient) -> None:
    """By chat and id, for as long as ids are remembered."""
    seen, today = SeenMessages(client), await day(client)
    assert not await seen.knows(form("m1"))
    await Inbox(client).ingest(form("m1"))
    assert await seen.knows(form("m1"))
    assert not await seen.knows(form("m1", chat="8"))
    for days, known in ((1, True), (2, True), (3, False)):
        await client.command("RENAME", today, await day(client, days))
        assert await seen.knows(form("m1")) is known
        await client.command("RENAME", await day(client, days), today)


async def test_no_hash_of_ids_grows_without_bound(client: RedisClient) -> None:
    """A full one stays as it is, and so does a full part of it. Every id is known as before, wherever it is, and has
    its expiry."""
    inbox, seen, today = Inbox(client), SeenMessages(client), await day(client)
    first = await inbox.ingest(form("m1"))
    await client.command("EVAL", FILL, 1, today, FULL - 1)
    second = await inbox.ingest(form("m2"))
    [part] = set(await sizes(client)) - {today}
    await client.command("EVAL", FILL, 1, part, FULL - 1)
    # An id of the same part: the part is full, so it has parts of its own.
    same = next(id for id in map(str, range(10_000)) if part_of(today, f"7/{id}") == part)
    third = await inbox.ingest(form(same))
    assert len(await sizes(client)) == 3
    assert max((await sizes(client)).values()) <= FULL
    for accepted, id in ((first, "m1"), (second, "m2"), (third, same)):
        again = await inbox.ingest(form(id))
        assert (again.duplicate, again.turn) == (True, accepted.turn)
        assert await seen.knows(form(id))
    assert not await seen.knows(form("m9"))
    for name in await sizes(client):
        assert 0 < await client.command("TTL", name) <= 3 * 86_400


def part_of(today: str, id: str) -> str:
    """The first part that an id belongs to."""
    return f"{today}:{hashlib.sha1(id.encode()).hexdigest()[:2]}"


async def test_what_is_stored_for_an_id_changes_where_it_is(client: RedisClient) -> None:
    """A full hash gets no second answer in a part: the newest form of a message is always the one that is found."""
    seen, today = SeenMessages(client), await day(client)
    await seen.new_form(form("e1"), "m1")
    await client.command("EVAL", FILL, 1, today, FULL)
    await seen.new_form(form("f1"), "m2")
    for first, newer in (("m1", "e2"), ("m2", "f2")):
        await seen.new_form(form(newer), first)
        assert await seen.newest_form(form(first)) == newer
    assert len(await sizes(client)) == 2


async def test_a_session_is_forgotten_in_every_part(client: RedisClient) -> None:
    """An id of an erased chat counts as new wherever it was."""
    inbox, today = Inbox(client), await day(client)
    await inbox.ingest(form("m1"))
    await client.command("EVAL", FILL, 1, today, FULL)
    await inbox.ingest(form("m2"))
    await erase(client, form("m1").session)
    assert [await SeenMessages(client).knows(form(id)) for id in ("m1", "m2")] == [False, False]


async def test_forms_follow_each_other(client: RedisClient) -> None:
    """Each takes the place of the newest before; one that is told again has the same answer as at first."""
    seen = SeenMessages(client)
    assert await seen.newest_form(form("m1")) == "m1"
    assert await seen.new_form(form("e1"), "m1") == "m1"
    assert await seen.new_form(form("e1"), "m1") == "m1"
    assert await seen.new_form(form("e2"), "m1") == "e1"
    assert await seen.new_form(form("e2"), "m1") == "e1"
    assert await seen.newest_form(form("m1")) == "e2"
    assert await seen.newest_form(form("m1", chat="8")) == "m1"
    assert await seen.newest_form(msgspec.structs.replace(form("m1"), channel="slack")) == "m1"


async def test_forms_are_forgotten_with_the_ids_and_with_their_session(client: RedisClient) -> None:
    """Nothing of its own stays."""
    await SeenMessages(client).new_form(form("e1"), "m1")
    [key] = await client.command("KEYS", keys.seen("telegram") + "*")
    assert 0 < await client.command("TTL", key) <= 3 * 86_400
    await erase(client, form("m1").session)
    assert await SeenMessages(client).newest_form(form("m1")) == "m1"
