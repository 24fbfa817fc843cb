"""Stored responses: whose they are, how many, and what they go with."""

from __future__ import annotations

import msgspec
import pytest

from shared.errors import Refused
from shared.ids import account_of, is_ephemeral, is_stored
from shared.messages.inbound import InboundMessage
from shared.messages.live import TurnEvent
from shared.messages.outbound import OutboundMessage
from shared.messages.transcript import UserEntry
from shared.store import keys
from shared.store.client.redis_client import RedisClient
from shared.store.responses.responses import DAY_MS, Responses
from shared.store.sessions.erase import EphemeralSessions, erase, forget
from shared.store.sessions.requests import ApiRequest, Requests
from shared.store.turns.inbox import Inbox, InboxLimits
from shared.store.turns.queue import Claim, LeaseQueue
from shared.store.turns.turn_writes import Turns

CHAIN = "api:owner/~-"


async def asked_for(
    client: RedisClient, responses: Responses, *, principal: str = "owner", session: str | None = None
) -> ApiRequest:
    """One response, whose message waits."""
    begun = await Requests(client).begin(principal, key=None, session=session, asked="h", stored=True)
    accepted = await Inbox(client).ingest(message_of(begun, principal))
    assert await responses.keep(principal, begun, accepted.turn, shown=b"{}", input=b"[]")
    return begun


def message_of(begun: ApiRequest, principal: str = "owner") -> InboundMessage:
    chat = begun.session.removeprefix("api:")
    return InboundMessage(
        channel="api", chat_id=chat, sender_id=principal, id=begun.ticket, content="hello", timestamp=1_700_000_000_000
    )


async def answered(client: RedisClient, limits: InboxLimits | None = None) -> Claim:
    """The oldest turn that waits ends."""
    queue = LeaseQueue(client, "turns", owner="o" * 32, lease_s=30)
    [claim] = await queue.acquire(1)
    assert claim.turn is not None
    line = OutboundMessage(content="hi", turn=claim.turn.n)
    entries = (UserEntry(content="hello", turn=1),)
    await Turns(client, limits).commit(claim, history=entries, lines=[line], event=TurnEvent(1, "done"))
    await queue.close()
    return claim


async def of_responses(client: RedisClient) -> list[str]:
    """Every key of a response."""
    found = [key.decode() for key in await client.command("KEYS", "*")]
    kinds = (keys.response(""), keys.responses(""), keys.kept_responses(""))
    return sorted(key for key in found if key.startswith(kinds))


async def test_a_response_is_read_by_its_principal_alone(client: RedisClient) -> None:
    """An unknown one and another person's are the same: none."""
    responses = Responses(client)
    begun = await asked_for(client, responses)
    found = await responses.lookup("owner", begun.ticket)
    assert found is not None
    assert (found.id, found.session, found.turn, found.answer) == (begun.ticket, begun.session, 1, None)
    assert await responses.lookup("ann", begun.ticket) is None
    assert await responses.lookup("owner", "0" * 32) is None
    assert await responses.store_answer(begun.ticket, b"first")
    await responses.store_answer(begun.ticket, b"second")
    again = await responses.lookup("owner", begun.ticket)
    assert again is not None
    assert again.answer == b"first"


async def test_an_answer_to_a_deleted_response_is_not_stored(client: RedisClient) -> None:
    """It would bring back a record without an end."""
    responses = Responses(client)
    begun = await asked_for(client, responses)
    found = await responses.lookup("owner", begun.ticket)
    assert found is not None
    assert not await responses.drop("ann", found)
    assert await responses.drop("owner", found)
    assert not await responses.store_answer(begun.ticket, b"late")
    assert await of_responses(client) == []


async def test_a_session_of_responses_is_kept_as_long_as_they_are(client: RedisClient) -> None:
    """It is on the agenda of what is deleted, with the newest response; no person named it, and one account pays."""
    begun = await asked_for(client, Responses(client, days=3))
    assert begun.session == f"{CHAIN}{begun.ticket}"
    assert (is_stored(begun.session), is_ephemeral(begun.session)) == (True, False)
    assert account_of(begun.session) == "api:owner/~"
    due_ms = float(await client.command("ZSCORE", keys.EPHEMERAL, begun.session))
    assert abs(due_ms - begun.at_ms - 3 * DAY_MS) < 60_000
    for key in (keys.response(begun.ticket), keys.responses(begun.session), keys.kept_responses("owner")):
        assert 2 * DAY_MS < await client.command("PTTL", key) <= 3 * DAY_MS


async def test_a_principal_keeps_the_newest_responses(client: RedisClient) -> None:
    """A session without a response is due to be deleted; a named one stays. Others keep theirs."""
    responses = Responses(client, most=2)
    first = await asked_for(client, responses)
    other = await asked_for(client, responses, principal="ann")
    named = await asked_for(client, responses, session="api:owner/a")
    newest = [await asked_for(client, responses) for _ in range(2)]
    left = [await responses.lookup("owner", one.ticket) is not None for one in (first, named, *newest)]
    assert left == [False, False, True, True]
    assert await responses.lookup("ann", other.ticket) is not None
    assert await client.command("ZSCORE", keys.EPHEMERAL, first.session) == b"0"
    assert await client.command("ZSCORE", keys.EPHEMERAL, named.session) is None
    assert await client.command("EXISTS", keys.responses("api:owner/a")) == 0


async def test_of_responses_of_one_millisecond_the_last_is_the_newest(client: RedisClient) -> None:
    """Their names, which are random, say nothing about it."""
    responses = Responses(client, most=1)
    for ticket in ("d" * 32, "b" * 32, "c" * 32, "a" * 32):
        begun = await Requests(client).begin("owner", key=None, session=None, asked="h", stored=True)
        asked = msgspec.structs.replace(begun, ticket=ticket, at_ms=1_700_000_000_000 * 2)
        accepted = await Inbox(client).ingest(message_of(asked, "owner"))
        assert await responses.keep("owner", asked, accepted.turn, shown=b"{}", input=b"[]")
        assert await responses.lookup("owner", ticket) is not None


@pytest.mark.parametrize("how", [forget, erase])
async def test_responses_are_erased_with_their_session(client: RedisClient, how: object) -> None:
    """Whatever erases it; those of another session stay."""
    responses = Responses(client)
    gone = [await asked_for(client, responses, session="api:owner/a") for _ in range(2)]
    stays = await asked_for(client, responses, session="api:owner/b")
    await how(client, "api:owner/a")  # type: ignore[operator]
    assert [await responses.lookup("owner", one.ticket) for one in gone] == [None, None]
    assert await of_responses(client) == sorted(
        [keys.response(stays.ticket), keys.responses("api:owner/b"), keys.kept_responses("owner")]
    )


async def test_an_erased_session_gets_no_response(client: RedisClient) -> None:
    """Erased after its message was accepted: nothing comes back."""
    responses = Responses(client)
    begun = await Requests(client).begin("owner", key=None, session=None, asked="h", stored=True)
    await Inbox(client).ingest(message_of(begun))
    await EphemeralSessions(client).end(begun.session)
    assert not await responses.keep("owner", begun, 1, shown=b"{}", input=b"[]")
    assert await of_responses(client) == []


async def test_a_session_of_responses_remembers_and_is_not_consolidated(client: RedisClient) -> None:
    """The next response reads its history; no job makes a memory of it."""
    begun = await asked_for(client, Responses(client))
    await answered(client, InboxLimits(idle_ms=1000))
    assert await client.command("LLEN", keys.history(begun.session)) == 1
    assert await client.command("ZCARD", keys.IDLE) == 0


async def test_a_message_follows_the_newest_turn_alone(client: RedisClient) -> None:
    """While that turn runs it may come again; after another message it never can. The same message is known again."""
    inbox = Inbox(client)
    begun = await asked_for(client, Responses(client))
    next_one = msgspec.structs.replace(message_of(begun), id="next")
    with pytest.raises(Refused) as refused:
        await inbox.ingest(next_one, follows=1)
    assert refused.value.code == "running"
    await answered(client)
    assert (await inbox.ingest(next_one, follows=1)).turn == 2
    assert (await inbox.ingest(next_one, follows=1)).duplicate
    with pytest.raises(Refused) as refused:
        await inbox.ingest(msgspec.structs.replace(next_one, id="fork"), follows=1)
    assert refused.value.code == "moved"


async def test_a_message_does_not_follow_a_turn_before_a_new_conversation(client: RedisClient) -> None:
    """`/new` took its history away."""
    begun = await asked_for(client, Responses(client), session="api:owner/a")
    await answered(client)
    await client.command("HSET", keys.session(begun.session), "began", "1")
    with pytest.raises(Refused) as refused:
        await Inbox(client).ingest(msgspec.structs.replace(message_of(begun), id="next"), follows=1)
    assert refused.value.code == "moved"
