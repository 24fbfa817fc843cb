"""A turn that speaks by the message tool, on a real Valkey: said once, and not said again at the end."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from shared.errors import TurnReleased
from shared.ids import nonce
from shared.media.store import MediaStore
from shared.messages.effects import Effect
from shared.messages.outbound import OutboundMessage
from shared.messages.transcript import LedgerEntry, decode_ledger, decode_transcript
from shared.settings import AgentSettings, MediaSettings, Settings
from shared.store import keys
from shared.store.client.redis_client import RedisClient
from shared.store.delivery.outbox import Outbox
from shared.store.turns.inbox import Inbox
from shared.store.turns.queue import Claim, LeaseQueue
from shared.store.turns.turn_writes import HISTORY_CAP_BYTES, Turns
from shared.tasks import cancel_all
from shoal.direct import process_direct
from tests.helpers.build import say
from tests.helpers.scripted_model import Replies, ScriptedModel, call, calls
from tests.helpers.wait import eventually
from worker.agent.loop import run_agent
from worker.agent.tools.tool import ToolContext
from worker.agent.tools.toolbox import Toolbox
from worker.agent.turn import AgentResult, AgentRunSpec
from worker.attempt.run_turn import RunTurn
from worker.guards.chats import ChatPolicy
from worker.lease.lease_loop import LeaseLoop
from worker.tools.message import FROM_ELSEWHERE, MessageArguments, MessageTool
from worker.turn.conversation import Conversation
from worker.turn.journal import TurnJournal
from worker.turn.live_updates import LiveUpdates

A, B = "web:owner/a", "web:owner/b"


class Interrupted(MessageTool):
    """Loses its worker once, between what it does and its result."""

    lost = 0

    async def run(self, arguments: MessageArguments, context: ToolContext) -> str:
        answer = await super().run(arguments, context)
        if not self.lost:
            self.lost += 1
            raise TurnReleased("lost")
        return answer


class Fleet:
    """One worker with the message tool and a scripted model."""

    def __init__(
        self, client: RedisClient, replies: Replies, folder: Path, *, tool: type[MessageTool] = MessageTool
    ) -> None:
        self.client = client
        self.model = ScriptedModel(replies)
        self.tools = Toolbox([tool(ChatPolicy(), MediaStore(MediaSettings(dir=folder)), files=4)])
        self.max_rounds = 40
        runner = RunTurn(client, Turns(client), self.answer, settings=AgentSettings())
        self.loop = LeaseLoop(LeaseQueue(client, "turns", owner=nonce(), lease_s=30), slots=10, run=runner)

    async def answer(self, conversation: Conversation, journal: TurnJournal, show: LiveUpdates) -> AgentResult:
        spec = AgentRunSpec(
            session=conversation.session,
            entry=conversation.entry,
            history=conversation.history,
            resume=conversation.resume,
            max_rounds=self.max_rounds,
            progress=show,
        )
        return await run_agent(spec, self.model, self.tools, journal)

    async def run(self) -> None:
        async def idle() -> bool:
            await self.loop.claim_once()
            return self.loop.running == 0 and int(await self.client.command("ZCARD", keys.queue("turns"))) == 0

        await eventually(idle, within_s=60)


def speak(text: str = "Here it is.", **arguments: Any) -> Any:
    return calls(call("message", {"text": text, **arguments}), text="")


async def lines(client: RedisClient, session: str = A) -> list[OutboundMessage]:
    found = await Outbox(client).read_after(session, after=0)
    return [one.line for one in found if isinstance(one.line, OutboundMessage)]


async def saved(client: RedisClient, session: str) -> list[str]:
    entries: Sequence[bytes] = await client.command("LRANGE", keys.history(session), 0, -1)
    return [str(decode_transcript(entry).content) for entry in entries]


async def test_who_has_spoken_does_not_say_it_again(client: RedisClient, tmp_path: Path) -> None:
    """One line with words; the one that ends the turn has none and names the message. History keeps the final text."""
    await say(Inbox(client), "hi", id="x1")
    await Fleet(client, [speak(), "I have told you."], tmp_path).run()
    notice, end = await lines(client)
    assert (notice.content, notice.kind, notice.sent_by_tool, notice.turn, notice.in_reply_to) == (
        "Here it is.",
        "notice",
        True,
        1,
        (),
    )
    assert (end.content, end.kind, end.turn, end.in_reply_to) == ("", "reply", 1, ("x1",))
    assert (await saved(client, A))[-1] == "I have told you."


async def test_a_turn_that_stops_at_its_cap_says_so_all_the_same(client: RedisClient, tmp_path: Path) -> None:
    """The person must know that it is not finished."""
    await say(Inbox(client), "hi")
    fleet = Fleet(client, [speak(), speak("more")], tmp_path)
    fleet.max_rounds = 2
    await fleet.run()
    notice, end = await lines(client)
    assert notice.content == "Here it is."
    assert "not finished" in end.content


async def test_a_line_is_sent_once_when_its_worker_is_lost_after_it(client: RedisClient, tmp_path: Path) -> None:
    """Between the effect and its result; and the answer of the second attempt is suppressed by what the first said."""
    await say(Inbox(client), "hi", id="x1")
    fleet = Fleet(client, [speak(), "I have told you."], tmp_path, tool=Interrupted)
    await fleet.run()
    assert [line.content for line in await lines(client)] == ["Here it is.", ""]
    assert len(fleet.model.asked) == 2, "the model was not asked again for what it had said"


async def test_a_line_to_another_chat_leaves_the_answer_here(client: RedisClient, tmp_path: Path) -> None:
    """It stands in that chat's log once, its history knows, its list moves up, and a later turn there sees it."""
    await say(Inbox(client), "first", chat="owner/b")
    await Fleet(client, ["yes?"], tmp_path).run()
    await say(Inbox(client), "tell the other", chat="owner/a")
    before = (await Outbox(client).position(B)).last_seq
    await Fleet(client, [speak("News!", chat="b"), "told"], tmp_path, tool=Interrupted).run()
    [notice] = [line for line in await lines(client, B) if line.sent_by_tool]
    assert (notice.content, notice.turn) == ("News!", 0)
    assert (await Outbox(client).position(B)).last_seq == before + 1
    assert [line.content for line in await lines(client, A)] == ["told"]
    chats = await client.command("ZREVRANGE", keys.chats("web", "owner"), 0, -1)
    assert chats == [b"owner/b", b"owner/a"]
    assert await saved(client, B) == ["first", "yes?", FROM_ELSEWHERE, "News!"]

    await say(Inbox(client), "what was that?", chat="owner/b")
    later = Fleet(client, ["that"], tmp_path)
    await later.run()
    assert "News!" in str(later.model.asked[0])


@pytest.mark.parametrize(("chat", "reported"), [("ann/a", "not your chat"), ("nowhere", "there is no chat 'nowhere'")])
async def test_a_chat_that_may_not_or_cannot_be_reached_gets_nothing(
    client: RedisClient, tmp_path: Path, chat: str, reported: str
) -> None:
    """The model reads why; no key of that chat is made, and the answer here is sent (security row 9)."""
    await say(Inbox(client), "hi")
    fleet = Fleet(client, [speak("psst", chat=chat), "could not"], tmp_path)
    await fleet.run()
    assert reported in fleet.model.asked[1][-1]["content"]
    assert [line.content for line in await lines(client)] == ["could not"]
    names = [name.decode() for name in await client.command("KEYS", "shoal:{0ax}:*")]
    assert [name for name in names if "ann" in name or "nowhere" in name] == []


async def test_the_history_of_the_other_chat_keeps_within_its_cap(client: RedisClient, tmp_path: Path) -> None:
    """The oldest entries go, and are counted as at a commit."""
    await say(Inbox(client), "first", chat="owner/b")
    await Fleet(client, ["yes?"], tmp_path).run()
    await client.command("HINCRBY", keys.session(B), "history", HISTORY_CAP_BYTES)
    await say(Inbox(client), "tell the other", chat="owner/a")
    await Fleet(client, [speak("News!", chat="b"), "told"], tmp_path).run()
    assert (await saved(client, B))[-1] == "News!"
    assert "first" not in await saved(client, B)
    assert int(await client.command("HGET", keys.session(B), "mark")) > 0


async def test_a_python_caller_gets_the_texts_of_the_message_tool(client: RedisClient, tmp_path: Path) -> None:
    """`process_direct` returns it, as the final text was not sent."""
    fleet = Fleet(client, [speak("One."), speak("Two."), "done"], tmp_path)
    working = asyncio.create_task(fleet.loop.run())
    try:
        answer = await process_direct("go", client=client, settings=Settings(), timeout_s=30)
    finally:
        fleet.loop.drain()
        await cancel_all([working])
    assert answer == "One.\n\nTwo."


class Unheard(Turns):
    """Writes an effect, and the answer does not arrive the first time; or does not even write it."""

    written = True
    cut = False

    async def append_step(
        self, claim: Claim, step: int, entry: LedgerEntry, effect: Effect | None = None, *, retry_for_s: float = 0.0
    ) -> None:
        if effect is not None and not self.cut:
            self.cut = True
            if self.written:
                await super().append_step(claim, step, entry, effect)
            await asyncio.Event().wait()
        await super().append_step(claim, step, entry, effect)


class Hasty(MessageTool):
    """Has hardly any time."""

    timeout_s = 0.05


@pytest.mark.parametrize("written", [True, False])
async def test_a_line_that_was_perhaps_sent_when_time_ran_out_is_sent_once(
    client: RedisClient, tmp_path: Path, written: bool
) -> None:
    """The tool's time ends while the store is silent: the ledger has each step once, at the place that this worker
    knows, and the turn has spoken."""
    await say(Inbox(client), "hi")
    fleet = Fleet(client, [speak(), "I have told you."], tmp_path, tool=Hasty)
    seen: list[list[LedgerEntry]] = []
    turns = Unheard(client)
    turns.written = written

    async def answer(conversation: Conversation, journal: TurnJournal, show: LiveUpdates) -> AgentResult:
        result = await fleet.answer(conversation, journal, show)
        stored = await client.command("XRANGE", keys.ledger(A), "-", "+")
        seen.extend([[decode_ledger(fields[1]) for _, fields in stored], list(journal.entries)])
        return result

    runner = RunTurn(client, turns, answer, settings=AgentSettings())
    fleet.loop = LeaseLoop(LeaseQueue(client, "turns", owner=nonce(), lease_s=30), slots=1, run=runner)
    await fleet.run()
    assert seen[0] == seen[1]
    assert [type(entry).__name__ for entry in seen[0]] == ["AssistantEntry", "IntentEntry", "EffectEntry", "ToolEntry"]
    assert [line.content for line in await lines(client)] == ["Here it is.", ""]
