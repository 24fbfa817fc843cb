"""Back-pressure as a gateway passes it on: refusals with a code, and notices where a refusal shows nowhere."""

from __future__ import annotations

import msgspec
import pytest

from gateway.commands.registry import build_commands
from gateway.ingress.ingest import Ingress
from shared.errors import RedisAway, Refused
from shared.messages.outbound import OutboundMessage
from shared.metrics import REGISTRY
from shared.settings import Settings
from shared.store import keys
from shared.store.client.redis_client import RedisClient
from shared.store.delivery.outbox import Outbox
from shared.store.turns.inbox import Inbox, InboxLimits
from tests.gateway.harness import client as connected
from tests.gateway.harness import gateway
from tests.helpers.build import message

SESSION = "web:owner/a"


def make(client: RedisClient, limits: InboxLimits) -> Ingress:
    return Ingress(client, build_commands(Settings(), client), limits)


async def notices(client: RedisClient, session: str = SESSION) -> list[str]:
    lines = [one.line for one in await Outbox(client).read_after(session, after=0)]
    return [line.content for line in lines if isinstance(line, OutboundMessage) and line.kind == "notice"]


async def burst(ingress: Ingress, count: int, notice: bool = False) -> dict[str, int]:
    """So many messages of one sender to one chat; how often each code came (`""` = taken)."""
    codes: dict[str, int] = {}
    for n in range(count):
        try:
            await ingress.ingest(message(id=f"b{n}"), notice=notice)
            code = ""
        except Refused as refused:
            code = refused.code
        codes[code] = codes.get(code, 0) + 1
    return codes


def refused_by_limit() -> float:
    labels = {"channel": "web", "reason": "sender_limit"}
    return REGISTRY.get_sample_value("shoal_messages_refused_total", labels) or 0.0


@pytest.mark.parametrize(
    ("limits", "code"),
    [
        (InboxLimits(sender_per_minute=20), "sender_limit"),
        (InboxLimits(cap=20), "inbox_full"),
        (InboxLimits(sender_per_minute=30, cap=20), "inbox_full"),
    ],
)
async def test_a_thousand_messages_of_one_sender_are_one_notice(
    client: RedisClient, limits: InboxLimits, code: str
) -> None:
    """In the chat's log, for channels that cannot show a refusal beside the message."""
    codes = await burst(make(client, limits), 1000, notice=True)
    assert codes.keys() == {"", code}
    assert codes[""] <= 25
    [notice] = await notices(client)
    assert "20" in notice
    assert "was not read" in notice


async def test_a_channel_that_shows_refusals_gets_no_notice(client: RedisClient) -> None:
    """The web says it beside the message itself."""
    assert (await burst(make(client, InboxLimits(cap=2)), 10))["inbox_full"] == 8
    assert await notices(client) == []


async def test_too_many_chats_are_reported_to_the_channel_alone(client: RedisClient) -> None:
    """The global cap has a code and a time to wait, and no notice: the platform tells the same message again, and who
    was asked to send it anew would be answered twice."""
    ingress = make(client, InboxLimits(sessions_cap=1))
    await ingress.ingest(message())
    for _ in range(3):
        with pytest.raises(Refused, match="too many chats") as refused:
            await ingress.ingest(message(chat="owner/b"), notice=True)
        assert (refused.value.code, refused.value.retry_after_s) == ("overloaded", 60)
    assert await notices(client, "web:owner/b") == []


async def test_commands_count_as_messages_and_are_known_again(client: RedisClient) -> None:
    """They write two lines each: past the inbox is not past the limit."""
    ingress = make(client, InboxLimits(sender_per_minute=3))
    for n in range(3):
        await ingress.ingest(message("/help", id=f"c{n}"))
    with pytest.raises(Refused, match="3 messages"):
        await ingress.ingest(message("/help", id="c3"))
    assert (await ingress.ingest(message("/help", id="c0"))).duplicate


async def test_a_command_that_is_counted_is_no_message(client: RedisClient) -> None:
    """It is answered in the chat, and no turn hears it."""
    ingress = make(client, InboxLimits(sender_per_minute=5, bot_turns=5))
    assert (await ingress.ingest(message("/help"))).turn == 0
    [line] = await Outbox(client).read_after(SESSION, after=0)
    assert isinstance(line.line, OutboundMessage)
    assert line.line.kind == "command"
    assert await client.command("EXISTS", keys.inbox(SESSION), keys.queue("turns")) == 0


async def test_a_pause_for_bots_is_always_announced_and_a_persons_command_ends_it(client: RedisClient) -> None:
    """No person sees what a bot is answered."""
    ingress = make(client, InboxLimits(bot_turns=2))
    for n in range(6):
        sent = msgspec.structs.replace(message(id=f"l{n}"), metadata={"bot": "1"})
        if n < 2:
            await ingress.ingest(sent)
        else:
            with pytest.raises(Refused, match="no person"):
                await ingress.ingest(sent)
    assert len(await notices(client)) == 1
    await ingress.ingest(message("/help"))
    await ingress.ingest(msgspec.structs.replace(message(), metadata={"bot": "1"}))


async def test_a_notice_that_cannot_be_written_hides_no_refusal(
    client: RedisClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The refusal goes up as it is."""

    async def away(*_: object) -> bool:
        raise RedisAway("away")

    monkeypatch.setattr(Inbox, "notify_refusal", away)
    assert (await burst(make(client, InboxLimits(cap=1)), 3, notice=True)) == {"": 1, "inbox_full": 2}


async def test_the_web_shows_and_counts_the_limit_of_a_sender(redis_url: str) -> None:
    """An error for that message, with its number and a time to wait."""
    before = refused_by_limit()
    async with gateway(redis_url, inbox_limits=InboxLimits(sender_per_minute=2)) as gw, connected(gw.address) as me:
        await me.say("a", "one")
        await me.say("b", "two")
        await me.send("message", id="m3", chat="a", text="three")
        error = await me.answer("m3")
        assert (error["type"], error["code"]) == ("error", "sender_limit")
        assert "2 messages" in error["message"]
        assert 1 <= error["retry_after"] <= 30
        assert await notices(gw.client) == []
    assert refused_by_limit() == before + 1
