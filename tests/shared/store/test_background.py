"""Responses in the background that are not finished: how many a principal may have, counted exactly."""

from __future__ import annotations

import asyncio

import msgspec
import pytest

from shared.errors import Refused
from shared.ids import nonce, split_session
from shared.messages.live import TurnEvent
from shared.messages.outbound import OutboundMessage, WaitingCalls
from shared.messages.transcript import AssistantEntry, CallsEntry, ToolCall
from shared.settings import Settings
from shared.store import keys
from shared.store.client.redis_client import RedisClient
from shared.store.responses.responses import Responses
from shared.store.sessions.erase import EphemeralSessions
from shared.store.sessions.requests import ApiRequest, Requests
from shared.store.turns.client_calls import ClientCalls
from shared.store.turns.inbox import Inbox, InboxLimits
from shared.store.turns.known_messages import Withdrawals
from shared.store.turns.queue import Claim, LeaseQueue
from shared.store.turns.turn_writes import LEDGER_CAP_BYTES, Turns
from tests.shared.store.test_responses import answered, message_of, of_responses

LIMITS = InboxLimits(background_at_once=2)


class Program:
    """A principal that begins responses in the background."""

    def __init__(self, client: RedisClient, principal: str = "owner", limits: InboxLimits = LIMITS) -> None:
        self.client = client
        self.principal = principal
        self.inbox = Inbox(client, limits)
        self.responses = Responses(client)
        self.calls = ClientCalls(client, limits)

    async def asks(self, session: str | None = None) -> ApiRequest:
        """One more response; its message waits."""
        begun = await Requests(self.client).begin(self.principal, key=None, session=session, asked="h", stored=True)
        await self.accept(begun)
        return begun

    async def accept(self, begun: ApiRequest) -> None:
        accepted = await self.inbox.ingest(message_of(begun, self.principal), background=self.principal)
        assert await self.responses.keep(self.principal, begun, accepted.turn, shown=b"{}", input=b"[]")

    async def is_refused(self) -> bool:
        """Whether one more is, which is then withdrawn again."""
        begun = await Requests(self.client).begin(self.principal, key=None, session=None, asked="h", stored=True)
        try:
            await self.accept(begun)
        except Refused as refused:
            return (refused.code, refused.retry_after_s) == ("background_limit", 5)
        await EphemeralSessions(self.client).end(begun.session)
        return False


@pytest.fixture
def program(client: RedisClient) -> Program:
    return Program(client)


async def test_one_over_the_limit_begins_no_turn(client: RedisClient, program: Program) -> None:
    """It leaves nothing. A repetition of one that was accepted, one that is not in the background, and another
    principal are not counted."""
    begun = await program.asks()
    await program.asks()
    assert await program.is_refused()
    await program.accept(begun)
    again = await Requests(client).begin("owner", key=None, session=None, asked="h", stored=True)
    await program.inbox.ingest(message_of(again))
    await Program(client, "ann").asks()
    assert await client.command("ZCARD", keys.queue("turns")) == 4
    assert len(await client.command("KEYS", keys.session("*"))) == 4


async def test_of_many_at_once_exactly_the_limit_is_accepted(client: RedisClient, program: Program) -> None:
    """However many gateways take them."""
    many = [Program(client) for _ in range(12)]
    done = await asyncio.gather(*(one.asks() for one in many), return_exceptions=True)
    assert sum(isinstance(one, ApiRequest) for one in done) == 2
    assert await client.command("HLEN", keys.unfinished("owner")) == 2


async def test_no_limit(client: RedisClient) -> None:
    program = Program(client, limits=InboxLimits())
    for _ in range(5):
        await program.asks()


async def answer(client: RedisClient, program: Program, begun: ApiRequest) -> None:
    await answered(client)


async def withdraw(client: RedisClient, program: Program, begun: ApiRequest) -> None:
    channel, chat_id = split_session(begun.session)
    assert await Withdrawals(client, LIMITS).withdraw(channel, chat_id, begun.ticket, at_ms=1) == "withdrawn"


async def delete(client: RedisClient, program: Program, begun: ApiRequest) -> None:
    found = await program.responses.lookup("owner", begun.ticket)
    assert found is not None
    await program.responses.drop("owner", found)


async def erase(client: RedisClient, program: Program, begun: ApiRequest) -> None:
    await EphemeralSessions(client).end(begun.session)


async def expire(client: RedisClient, program: Program, begun: ApiRequest) -> None:
    await client.command("DEL", keys.response(begun.ticket))
    place = await client.command("HKEYS", keys.unfinished("owner"))
    old = f"{begun.ticket} {begun.at_ms - 600_001}"
    await client.command("HSET", keys.unfinished("owner"), next(one for one in place if begun.session in str(one)), old)


@pytest.mark.parametrize("how", [answer, withdraw, delete, erase, expire])
async def test_one_that_ended_frees_its_place(client: RedisClient, program: Program, how: object) -> None:
    """Finished, cancelled, deleted, erased or expired: one more fits, and no second one."""
    begun = await program.asks()
    await program.asks()
    assert await program.is_refused()
    await how(client, program, begun)  # type: ignore[operator]
    assert not await program.is_refused()
    await program.asks()
    assert await program.is_refused()


async def test_a_message_whose_record_was_not_written_holds_its_place(client: RedisClient, program: Program) -> None:
    """Its gateway was killed in between; the turn works all the same."""
    begun = await Requests(client).begin("owner", key=None, session=None, asked="h", stored=True)
    await program.inbox.ingest(message_of(begun), background="owner")
    await program.asks()
    assert await program.is_refused()
    await program.accept(begun)
    await answered(client)
    assert not await program.is_refused()


async def park(client: RedisClient) -> Claim:
    """The turn that is due calls a function of its program."""
    queue = LeaseQueue(client, "turns", owner=nonce(), lease_s=30)
    [claim] = await queue.acquire(1)
    calls = (ToolCall("c1", "f", "{}"),)
    turns = Turns(client)
    await turns.append_step(claim, 1, AssistantEntry(content=None, turn=1, tool_calls=calls))
    line = OutboundMessage(content="", turn=1, kind="notice", calls=WaitingCalls(calls=calls))
    question = CallsEntry(id="abc1", turn=1, calls=calls)
    assert await turns.park(claim, "turns", 2, question, line, wait_s=600, cap_bytes=LEDGER_CAP_BYTES)
    await queue.close()
    return claim


@pytest.mark.parametrize("background", [True, False])
async def test_a_response_that_goes_on_with_a_turn_has_its_place(
    client: RedisClient, program: Program, background: bool
) -> None:
    """The one before it ended with the calls, and frees it. A refused one can be sent again with the results."""
    begun = await program.asks()
    await park(client)
    await program.asks()
    assert not await program.is_refused()
    third = await program.asks()

    async def submit(request: str) -> str:
        done = await program.calls.submit(
            begun.session,
            {"c1": "x"},
            request=request,
            cap_bytes=LEDGER_CAP_BYTES,
            principal="owner",
            background=background,
        )
        return done.outcome

    if background:
        with pytest.raises(Refused) as refused:
            await submit("r2")
        assert refused.value.code == "background_limit"
        await EphemeralSessions(client).end(third.session)
    assert await submit("r2") == "done"
    assert await program.is_refused()
    held = await client.command("HGET", keys.unfinished("owner"), f"1 {begun.session}")
    assert (held or b"").startswith(b"r2 ") is background
    # The first response, deleted, has no place any more that it could free.
    await delete(client, program, begun)
    assert await client.command("HGET", keys.unfinished("owner"), f"1 {begun.session}") == held


async def test_a_broken_key_keeps_nobody_from_asking(client: RedisClient, program: Program) -> None:
    """It counts as no places, as does one that an older list of Redis users does not allow."""
    await client.command("SET", keys.unfinished("owner"), "broken")
    for _ in range(3):
        await program.asks()
    assert len([key for key in await of_responses(client) if key.startswith(keys.response(""))]) == 3


async def test_a_turn_that_was_committed_without_an_answer_is_over(client: RedisClient, program: Program) -> None:
    """A dead letter, too."""
    await program.asks()
    await program.asks()
    queue = LeaseQueue(client, "turns", owner=nonce(), lease_s=30)
    [claim] = await queue.acquire(1)
    await Turns(client).commit(claim, history=(), lines=[], event=TurnEvent(1, "failed"))
    await queue.close()
    assert not await program.is_refused()


def test_limits_are_those_of_the_settings() -> None:
    made = InboxLimits.of(msgspec.convert({"api": {"background_at_once": 7}}, Settings))
    assert made.background_at_once == 7
