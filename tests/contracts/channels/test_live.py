"""A running turn is seen: it types, its text grows in one message, and its reply takes that message's place."""

from __future__ import annotations

import asyncio
import re
import time
from itertools import count, pairwise

import pytest

from gateway.platform.protocol import Post
from shared.messages.outbound import OutboundMessage
from shared.metrics import DELIVERY_UNKNOWN
from shared.store import keys
from tests.contracts.channels.bench import Fault, FaultKind
from tests.contracts.channels.echo import Turn
from tests.contracts.channels.live import Live
from tests.contracts.channels.stage import SLOW_EDITS, Stage

pytestmark = pytest.mark.way_out

LONG = "\n\n".join(f"Line {number:03d} of a long answer about ponds and what lives in them." for number in range(150))


@pytest.fixture
async def live(played: Stage) -> Live:
    """A conducted turn on a platform that can edit."""
    if not played.replicas[0].channel.abilities.edit_every_s:
        pytest.skip(f"{played.bench.name} has no edits")
    return Live(played, played.bench.chat(0))


async def test_a_turn_grows_in_one_message_which_becomes_the_reply(played: Stage, live: Live) -> None:
    """No second message, and nothing is left of what was unfinished."""
    turn = await live.begin()
    await turn.stream("One two")
    await live.sees("One two")
    await turn.stream(" three")
    await live.sees("One two three")
    live.end("One, two, three.")
    [shown] = await played.sees(live.chat, "One, two, three.")
    assert shown.edits >= 2
    await played.quiet()


@pytest.mark.benches("pond, webhook", "telegram, exclusive")
async def test_edits_come_no_faster_than_the_platform_takes_them(stage: Stage) -> None:
    """However fast a model is. The pace is kept by Shoal's own delivery, in the same lines for every platform: one with
    keys and one that offers nothing."""
    replica = await stage.gateway(SLOW_EDITS)
    edit, made_at = replica.channel._platform.edit, list[float]()

    async def timed(id: str, post: Post) -> None:
        made_at.append(time.monotonic())  # not when it arrives, which is later on a machine with much to do
        await edit(id, post)

    vars(replica.channel._platform)["edit"] = timed
    live = Live(stage, stage.bench.chat(0))
    turn = await live.begin()
    for number in range(40):
        await turn.stream(f" w{number}")
        await asyncio.sleep(0.02)
    await live.sees("w39")
    live.end("done")
    await stage.sees(live.chat, "done")
    streamed = made_at[:-1]  # the last one is the reply, which waits for nobody
    assert len(streamed) >= 2
    assert all(after - before >= replica.channel.abilities.edit_every_s for before, after in pairwise(streamed))


async def test_text_that_was_seen_stays_until_a_new_attempt_has_more(played: Stage, live: Live) -> None:
    """A worker died, and then the gateway: the person sees one message that only grows."""
    turn = await live.begin()
    await turn.stream("I think it is blue")
    await live.sees("blue")
    await turn.begin(attempt=2)
    await _stands(played, live, turn, "I think it is blue")
    await turn.stream(" green, as everybody knows")
    await live.sees("It is green, as everybody knows")
    await turn.begin(attempt=3)
    await played.crash(played.replicas[0])
    await played.gateway()
    await played.attended(live.chat)
    await _stands(played, live, turn, "It is green, as everybody knows")
    await turn.stream(" green, which everybody knows by now")
    await live.sees("It is green, which everybody knows by now")
    live.end("It is green.")
    await played.sees(live.chat, "It is green.")


async def _stands(played: Stage, live: Live, turn: Turn, text: str) -> None:
    """Stream a shorter text many times; the one that stands there is not touched."""
    times, seen = count(1), set()

    async def many_times() -> bool:
        await turn.stream("It is", full=True)
        seen.update(played.texts(live.chat)[-1:])
        return next(times) == 20

    await played.until(many_times, "a shorter text")
    assert [one for one in seen if text not in one] == []


async def test_a_text_longer_than_a_message_goes_on_with_the_reply(played: Stage, live: Live) -> None:
    """While it is streamed it is one message; then all of it is there, in order, once."""
    turn = await live.begin()
    await turn.stream(LONG)
    await live.sees("Line 000")
    assert len(played.texts(live.chat)) == 1
    live.end(LONG)
    await played.until(lambda: "Line 149" in "\n".join(played.texts(live.chat)), "the last line")
    await played.quiet()
    found = re.findall(r"Line (\d{3})", "\n".join(played.texts(live.chat)))
    assert found == [f"{number:03d}" for number in range(150)]


async def test_what_is_done_is_shown_until_the_first_words_come(played: Stage, live: Live) -> None:
    """A person sees that their agent works."""
    turn = await live.begin()
    await turn.doing('web_search("ponds")')
    await live.sees("web_search")
    await turn.stream("Ponds are")
    await live.sees("Ponds are")
    assert "web_search" not in played.texts(live.chat)[-1]
    live.end("Ponds are deep.")
    await played.sees(live.chat, "Ponds are deep.")


async def test_what_the_agent_says_itself_takes_the_place_of_its_unfinished_words(played: Stage, live: Live) -> None:
    """Nothing half-said stays behind."""
    turn = await live.begin()
    await turn.stream("I shall tell")
    await live.sees("I shall tell")
    live.end(turn.line("Listen!", kind="notice", sent_by_tool=True), turn.line(""))
    await played.sees(live.chat, "Listen!")
    await played.quiet()


async def test_a_message_that_can_be_edited_no_more_costs_no_reply(played: Stage, live: Live) -> None:
    """The person deleted it, or it is too old: the reply gets one of its own."""
    turn = await live.begin()
    await turn.stream("One two")
    await live.sees("One two")
    played.bench.fault(Fault(kind="refused", call="edit", times=-1))
    live.end("One, two, three.")
    await live.sees("One, two, three.")
    await played.quiet()


async def test_a_platform_that_takes_no_edits_for_a_while_gets_the_reply_afterwards(played: Stage, live: Live) -> None:
    """In the same message."""
    turn = await live.begin()
    await turn.stream("One two")
    await live.sees("One two")
    played.bench.fault(Fault(kind="down", call="edit", times=2))
    live.end("One, two, three.")
    await played.sees(live.chat, "One, two, three.")


async def test_another_gateway_goes_on_with_the_message_of_one_that_died(played: Stage, live: Live) -> None:
    """It is known by its turn, so the person sees one message."""
    turn = await live.begin()
    await turn.stream("One two")
    await live.sees("One two")

    async def noted() -> bool:
        return bool(await played.client.command("HGET", keys.out(played.bench.session(live.chat)), "bubble"))

    await played.until(noted, "the note of the message")
    await played.crash(played.replicas[0])
    await played.gateway()
    live.end("One, two, three.")
    await played.sees(live.chat, "One, two, three.")


@pytest.mark.parametrize(("kind", "dies"), [("unanswered", False), ("unanswered", True), ("stored", False)])
async def test_a_message_of_which_nobody_knows_becomes_the_reply_where_the_platform_can_tell_it(
    played: Stage, live: Live, kind: FaultKind, dies: bool
) -> None:
    """The call that shows the first words is taken by the platform, and then its answer is lost, or the gateway, or
    the answer is a failure. By its key, or by asking, the message is found again. Where a platform offers neither the
    words stay above the reply, and that is counted."""
    counted = DELIVERY_UNKNOWN.labels(played.bench.name)
    before = counted._value.get()
    played.bench.fault(Fault(kind=kind, chat=live.chat))
    turn = await live.begin()
    await turn.stream("One two")
    await live.sees("One two")
    if dies:
        await played.crash(played.replicas[0])
        await played.gateway()
    live.end("One, two, three.")
    if played.replicas[0].channel.abilities.resend_guard == "nothing":
        await live.sees("One, two, three.")
        assert len(played.texts(live.chat)) == 2
        assert counted._value.get() == before + 1
    else:
        await played.sees(live.chat, "One, two, three.")
        assert counted._value.get() == before
    await played.quiet()


async def test_another_gateway_streams_on_into_a_message_that_the_platform_can_tell(played: Stage, live: Live) -> None:
    """While the turn goes on, too."""
    if played.replicas[0].channel.abilities.resend_guard == "nothing":
        pytest.skip(f"{played.bench.name} cannot tell it")
    played.bench.fault(Fault(kind="unanswered", chat=live.chat))
    turn = await live.begin()
    await turn.stream("One two")
    await live.sees("One two")
    await played.crash(played.replicas[0])
    await played.gateway()

    async def goes_on() -> bool:
        await turn.stream("One two three", full=True)
        return "three" in played.texts(live.chat)[-1]

    await played.until(goes_on, "more words")
    live.end("One, two, three.")
    await played.sees(live.chat, "One, two, three.")


async def test_a_command_that_ends_a_turn_shows_in_its_message(played: Stage, live: Live) -> None:
    """The unfinished words do not look as if more of them came."""
    turn = await live.begin()
    await turn.stream("One two")
    await live.sees("One two")
    await played.say(live.chat, "/new")
    await played.until(lambda: len(played.texts(live.chat)) == 2, "the answer of the command")
    await played.until(lambda: re.fullmatch(r"One two\s+Stopped\.", played.texts(live.chat)[0]), "the end of the turn")


@pytest.mark.needs("typing")
async def test_a_turn_types_until_it_is_answered(played: Stage) -> None:
    """Again and again, as long as it runs."""
    if not played.replicas[0].channel.abilities.typing_every_s:
        pytest.skip(f"{played.bench.name} does not type")
    chat = played.bench.chat(0)
    live = Live(played, chat)
    await live.begin()

    def typed() -> int:
        return sum(call.kind == "typing" and call.chat == chat for call in played.bench.calls())

    await played.until(typed, "typing")
    live.end("done")
    await played.sees(chat, "done")


@pytest.mark.needs("typing")
async def test_typing_that_fails_delays_nothing(played: Stage) -> None:
    """It is nobody's concern."""
    played.bench.fault(Fault(kind="hang", call="typing", times=-1))
    chat = played.bench.chat(0)
    live = Live(played, chat)
    await live.begin()
    if played.replicas[0].channel.abilities.typing_every_s:
        await played.until(lambda: any(call.kind == "typing" for call in played.bench.calls()), "typing")
    live.end("done")
    await played.sees(chat, "done", within_s=30)


async def test_a_platform_without_edits_gets_the_reply_alone(played: Stage) -> None:
    """Nothing is streamed there."""
    if played.replicas[0].channel.abilities.edit_every_s:
        pytest.skip(f"{played.bench.name} has edits")
    live = Live(played, played.bench.chat(0))
    turn = await live.begin()
    await turn.stream("One two")
    live.end(OutboundMessage(content="One, two, three.", turn=turn.n))
    [shown] = await played.sees(live.chat, "One, two, three.")
    assert shown.edits == 0
