"""Back-pressure at the way in, on a real Valkey: how much one sender, one chat, all chats, and bots may write."""

from __future__ import annotations

import msgspec
import pytest

from shared.errors import Refused
from shared.ids import nonce
from shared.messages.inbound import InboundMessage
from shared.messages.live import TurnEvent
from shared.messages.outbound import OutboundMessage
from shared.store import keys
from shared.store.client.redis_client import RedisClient
from shared.store.delivery.outbox import Outbox
from shared.store.turns.inbox import Accepted, Inbox, InboxLimits
from shared.store.turns.queue import LeaseQueue
from shared.store.turns.turn_writes import Turns
from tests.helpers.build import message, reply

SESSION = "web:owner/a"
LOOP = InboxLimits(bot_turns=3, bot_window_ms=300_000)


async def tell(inbox: Inbox, *, bot: bool = False, internal: bool = False, sender: str = "owner", text: str = "hello",
               chat: str = "owner/a", id: str = "") -> Accepted:  # fmt: skip
    texts = message(text, chat=chat, id=id or nonce())
    return await inbox.ingest(
        msgspec.structs.replace(texts, sender_id=sender, metadata={"bot": "1"} if bot else {}), internal=internal
    )


async def refusal(inbox: Inbox, **options: bool | str) -> Refused:
    with pytest.raises(Refused) as refused:
        await tell(inbox, **options)  # type: ignore[arg-type]
    return refused.value


async def answer(client: RedisClient, text: str) -> None:
    """A worker answers what is at the head."""
    [claim] = await LeaseQueue(client, "turns", owner=nonce(), lease_s=30).acquire(1)
    assert claim.turn is not None
    n = claim.turn.n
    await Turns(client).commit(claim, history=[], lines=[reply(text, n)], event=TurnEvent(n, "done"))


async def brakes(client: RedisClient) -> list[str]:
    return sorted(key.decode() for key in await client.command("KEYS", keys.brake("*")))


async def pass_time(client: RedisClient, ms: int) -> None:
    """The brakes stand as they will after so long."""
    for key in await brakes(client):
        paid_until = int(await client.command("GET", key))
        await client.command("SET", key, paid_until - ms, "KEEPTTL")


# One sender


async def test_one_sender_may_write_so_many_a_minute_in_all_chats_together(client: RedisClient) -> None:
    """Refused with the number and a time to wait; nothing is stored of it, and other senders are not held up."""
    inbox = Inbox(client, InboxLimits(sender_per_minute=6))
    for n in range(6):
        await tell(inbox, chat=f"owner/{n}")
    refused = await refusal(inbox, chat="owner/new")
    assert (refused.code, "6 messages" in refused.message) == ("sender_limit", True)
    assert 1 < refused.retry_after_s <= 10
    assert await client.command("EXISTS", keys.session("web:owner/new"), keys.inbox("web:owner/new")) == 0
    await tell(inbox, chat="owner/new", sender="ann")


async def test_a_sender_gets_one_more_for_each_part_of_a_minute(client: RedisClient) -> None:
    """What is refused costs nothing: whoever waits as long as was said is heard."""
    inbox = Inbox(client, InboxLimits(sender_per_minute=6))
    for _ in range(6):
        await tell(inbox)
    for _ in range(20):
        await refusal(inbox)
    await pass_time(client, 10_000)
    await tell(inbox)
    assert (await refusal(inbox)).retry_after_s > 8


async def test_two_gateways_count_one_sender_together(redis_url: str, client: RedisClient) -> None:
    """The number holds for the fleet."""
    limits = InboxLimits(sender_per_minute=4)
    other = RedisClient(redis_url)
    try:
        for _ in range(2):
            await tell(Inbox(client, limits))
            await tell(Inbox(other, limits))
        assert (await refusal(Inbox(other, limits))).code == "sender_limit"
    finally:
        await other.close()


async def test_a_brake_is_gone_a_minute_after_the_last_message(client: RedisClient) -> None:
    """A sender who went away leaves nothing, and no name stands in the key."""
    await tell(Inbox(client, InboxLimits(sender_per_minute=60)))
    [key] = await brakes(client)
    assert "owner" not in key
    assert 0 < await client.command("PTTL", key) <= 1000


@pytest.mark.parametrize(
    "limits",
    [InboxLimits(sender_per_minute=2), InboxLimits(cap=2), InboxLimits(sessions_cap=1, cap=2)],
    ids=["sender", "chat", "all"],
)
async def test_a_message_that_is_known_is_answered_as_before_over_every_cap(
    client: RedisClient, limits: InboxLimits
) -> None:
    """A platform that sends again what was taken would otherwise do so for ever."""
    inbox = Inbox(client, limits)
    first = await tell(inbox, id="m1")
    await tell(inbox)
    assert (await refusal(inbox)).retry_after_s > 0
    assert await tell(inbox, id="m1") == msgspec.structs.replace(first, duplicate=True)


async def test_what_shoal_writes_itself_is_counted_for_nobody(client: RedisClient) -> None:
    """Results of subagents and replayed dead letters come through whatever their senders did."""
    inbox = Inbox(client, InboxLimits(sender_per_minute=1, bot_turns=1))
    for _ in range(5):
        await tell(inbox, internal=True)
    assert await brakes(client) == []
    await tell(inbox, bot=True)
    assert (await refusal(inbox, bot=True)).code == "bot_loop"
    await tell(inbox, internal=True)
    assert (await refusal(inbox, bot=True)).code == "bot_loop", "nor is it a person"


# Bots


async def test_bots_that_only_answer_each_other_are_paused_with_one_notice(client: RedisClient) -> None:
    """So many turns within the window without a person, then nothing until one writes."""
    inbox = Inbox(client, LOOP)
    for _ in range(3):
        await tell(inbox, bot=True)
    refused = await refusal(inbox, bot=True)
    assert (refused.code, "3 messages of bots" in refused.message) == ("bot_loop", True)
    texts = message()
    assert [await inbox.notify_refusal(texts, refused) for _ in range(3)] == [True, False, False]
    [line] = [one.line for one in await Outbox(client).read_after(SESSION, after=0)]
    assert isinstance(line, OutboundMessage)
    assert (line.kind, "until a person writes" in line.content) == ("notice", True)
    await tell(inbox, bot=True, chat="owner/other")

    await tell(inbox)
    await tell(inbox, bot=True)


async def test_a_person_in_between_begins_the_count_anew(client: RedisClient) -> None:
    """Bots in a chat where people talk are welcome."""
    inbox = Inbox(client, LOOP)
    for n in range(12):
        await tell(inbox, bot=n % 3 != 0)


async def test_bots_that_are_slow_are_no_loop(client: RedisClient) -> None:
    """An alert now and then is what a bot is for."""
    inbox = Inbox(client, LOOP)
    for _ in range(3):
        await tell(inbox, bot=True)
    stamps = (await client.command("HGET", keys.session(SESSION), "bots")).split()
    await client.command(
        "HSET", keys.session(SESSION), "bots", b" ".join([b"%d" % (int(stamps[0]) - 300_000), *stamps[1:]])
    )
    await tell(inbox, bot=True)
    assert len((await client.command("HGET", keys.session(SESSION), "bots")).split()) == 3, "the oldest is forgotten"
    assert (await refusal(inbox, bot=True)).code == "bot_loop"


async def test_our_own_text_coming_back_is_no_person(client: RedisClient) -> None:
    """A bot that nobody marked as one, and that repeats what it hears."""
    inbox, echo = Inbox(client, LOOP), "I am not sure that I understood that."
    await tell(inbox)
    for _ in range(3):
        await answer(client, echo)
        await tell(inbox, text=echo)
    await answer(client, echo)
    assert (await refusal(inbox, text=echo)).code == "bot_loop"
    await tell(inbox, text="What is going on here, please?")
    await answer(client, "ok")
    for _ in range(5):
        await tell(inbox, text="ok")


async def test_guards_that_are_off_cost_no_field_and_no_key(client: RedisClient) -> None:
    """0 is no limit."""
    inbox = Inbox(client, InboxLimits(cap=1000))
    for n in range(100):
        await tell(inbox, bot=n % 2 == 0)
    assert await client.command("HGET", keys.session(SESSION), "bots") is None
    assert await brakes(client) == []


# Notices


async def test_a_burst_gets_one_notice_a_minute_for_its_sender_and_in_its_chat(client: RedisClient) -> None:
    """Neither one sender in many chats nor many senders in one chat make a second burst of it."""
    inbox, refused = Inbox(client), Refused("inbox_full", "50 messages already wait", 10)

    async def notices(sender: str, chat: str) -> bool:
        texts: InboundMessage = msgspec.structs.replace(message(chat=chat), sender_id=sender)
        return await inbox.notify_refusal(texts, refused)

    assert await notices("owner", "owner/a")
    assert not await notices("owner", "owner/b")
    assert not await notices("ann", "owner/a")
    assert await notices("ann", "ann/c")
    for key in await brakes(client):
        assert 0 < await client.command("PTTL", key) <= 60_000
        await client.command("DEL", key)
    assert await notices("owner", "owner/a")
    assert await client.command("PTTL", keys.session(SESSION)) > 0, "a chat that was only refused is forgotten, too"


# The chats of one person


async def open_chat(inbox: Inbox, chat: str, owner: str = "owner", channel: str = "web") -> Accepted:
    first = msgspec.structs.replace(message("hello", chat=f"{owner}/{chat}", id=nonce()), channel=channel)
    return await inbox.ingest(first, principal=owner)


async def test_a_person_has_so_many_chats_and_goes_on_in_them(client: RedisClient) -> None:
    """A further one is refused, by a message or a command; other people and known chats are not concerned."""
    inbox = Inbox(client, InboxLimits(chats_per_person=2, api_sessions_per_person=1))
    for chat in "abab":
        await open_chat(inbox, chat)
    with pytest.raises(Refused, match="in 2 chats within 30 days, and more are not allowed") as refused:
        await open_chat(inbox, "c")
    assert refused.value.code == "chat_limit"
    with pytest.raises(Refused, match="in 2 chats"):
        await inbox.admit(message("/status", chat="owner/c"), principal="owner")
    assert await client.command("EXISTS", keys.session("web:owner/c"), keys.inbox("web:owner/c")) == 0
    await open_chat(inbox, "a")
    await open_chat(inbox, "c", owner="ann")
    await open_chat(inbox, "x", channel="api")
    with pytest.raises(Refused, match="in 1 chats"):
        await open_chat(inbox, "y", channel="api")
    await open_chat(Inbox(client, InboxLimits()), "c")


async def test_a_chat_that_was_there_before_the_limit_goes_on(client: RedisClient) -> None:
    """Sessions over HTTP were not listed by the release before; and an old chat does not count any more."""
    await Inbox(client).ingest(message("hello", chat="owner/old", id=nonce()))
    inbox = Inbox(client, InboxLimits(chats_per_person=1))
    await open_chat(inbox, "new")
    await open_chat(inbox, "old")
    listed = keys.chats("web", "owner")
    for chat in ("owner/old", "owner/new"):
        score = await client.command("ZSCORE", listed, chat)
        await client.command("ZADD", listed, int(float(score)) - 31 * 86_400_000, chat)
    await open_chat(inbox, "c")


async def test_a_list_keeps_as_many_chats_as_may_be_counted(client: RedisClient) -> None:
    """Else the limit would never be reached."""
    listed = keys.chats("web", "owner")
    await client.command("ZADD", listed, *(part for n in range(1500) for part in (1, f"owner/{n}")))
    await open_chat(Inbox(client, InboxLimits(chats_per_person=1200)), "a")
    assert await client.command("ZCARD", listed) == 1200
    sent = message("hook", chat="owner/a")
    await Inbox(client).ingest(msgspec.structs.replace(sent, channel="web"), principal="owner", internal=True)
    assert await client.command("ZCARD", listed) == 1200, "a message of the system knows no limit"
    await open_chat(Inbox(client), "a")
    assert await client.command("ZCARD", listed) == 1000
