"""`/jobs`, and what `/stop` and `/new` do to subagents."""

from __future__ import annotations

import pytest

from gateway.commands.registry import build_commands
from gateway.ingress.ingest import Ingress
from shared.ids import nonce
from shared.messages.outbound import OutboundMessage, UserLine
from shared.settings import Settings
from shared.store.client.redis_client import RedisClient
from shared.store.delivery.outbox import Outbox
from shared.store.subagents.subagents import Subagents
from tests.helpers.build import message
from tests.helpers.children import CHAT, SESSION, Parent, end, reports, take


@pytest.fixture
def ingress(client: RedisClient) -> Ingress:
    return Ingress(client, build_commands(Settings(), client))


async def ask(client: RedisClient, ingress: Ingress, text: str, *, id: str = "", chat: str = CHAT) -> str:
    """Say a command; the text of its answer."""
    user_line = message(text, id=id or nonce(), chat=chat)
    await ingress.ingest(user_line, show=UserLine(id=user_line.id, text=text), principal="owner")
    line = (await Outbox(client).read_after(f"web:{chat}", after=0))[-1].line
    assert isinstance(line, OutboundMessage)
    return line.content


async def states(client: RedisClient) -> dict[str, str]:
    return {child.task.id: child.state for child in await Subagents(client).of_session(SESSION)}


async def test_it_lists_what_runs_waits_and_ended(client: RedisClient, ingress: Ingress) -> None:
    """With rounds, tokens and age; another chat's are not there."""
    assert "Nothing runs" in await ask(client, ingress, "/jobs")
    parent = await Parent.begin(client)
    await parent.spawn("runs", "waits")
    await parent.commit()
    [claim] = await take(client, 1)
    await Subagents(client).save_progress(claim, rounds=3, tokens=1234)
    reply = await ask(client, ingress, "/jobs")
    assert reply.startswith("2 jobs in the background of this chat:")
    assert "`runs` **running** search: 3 rounds, 1,234 tokens" in reply
    assert "`waits` **queued** search: 0 rounds" in reply
    await end(client, claim)
    assert "`runs` **done** search: 3 rounds" in await ask(client, ingress, "/jobs")
    assert "Nothing runs" in await ask(client, ingress, "/jobs", chat="owner/b")


async def test_one_is_cancelled_or_all_and_nobody_elses(client: RedisClient, ingress: Ingress) -> None:
    """The person asked for it, so the chat gets no report; the same command again cancels nothing more."""
    parent = await Parent.begin(client)
    await parent.spawn("a", "b", "c")
    await parent.commit()
    assert "No job `a` runs in this chat" in await ask(client, ingress, "/jobs cancel a", chat="owner/b")
    assert await ask(client, ingress, "/jobs cancel a", id="once") == "`a` (search) is cancelled."
    await ask(client, ingress, "/jobs cancel a", id="once")
    assert await states(client) == {"a": "cancelled", "b": "queued", "c": "queued"}
    assert await ask(client, ingress, "/jobs cancel all") == "2 jobs cancelled."
    assert set((await states(client)).values()) == {"cancelled"}
    assert await ask(client, ingress, "/jobs cancel all") == "Nothing runs in the background."
    assert await reports(client) == []


@pytest.mark.parametrize("text", ["/jobs cancel", "/jobs nonsense", "/jobs cancel zzz"])
async def test_what_makes_no_sense_changes_nothing_and_says_what_to_do(
    client: RedisClient, ingress: Ingress, text: str
) -> None:
    """Every answer names the way on."""
    parent = await Parent.begin(client)
    await parent.spawn("a")
    assert "/jobs" in await ask(client, ingress, text)
    assert await states(client) == {"a": "queued"}


async def test_stop_ends_them_also_when_no_turn_runs(client: RedisClient, ingress: Ingress) -> None:
    """All that runs in the background of the chat, without a report."""
    parent = await Parent.begin(client)
    await parent.spawn("a", "b")
    await parent.commit()
    assert await ask(client, ingress, "/stop") == "Stopped. 2 jobs in the background cancelled."
    assert set((await states(client)).values()) == {"cancelled"}
    assert await reports(client) == []
    assert await ask(client, ingress, "/stop") == "Nothing is running."


async def test_a_new_conversation_says_what_it_ended(client: RedisClient, ingress: Ingress) -> None:
    """And nothing of it is left."""
    parent = await Parent.begin(client)
    await parent.spawn("a")
    await parent.commit()
    assert "1 job in the background cancelled." in await ask(client, ingress, "/new")
    assert await states(client) == {}
