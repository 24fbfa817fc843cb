"""Replies are shown once, in order, whatever the platform says; what cannot be shown is on record."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import pytest

from shared.messages.outbound import Approval, OutboundMessage
from shared.metrics import DELIVERY_UNKNOWN
from tests.contracts.channels.bench import Fault, FaultKind
from tests.contracts.channels.stage import Stage, text_file

pytestmark = pytest.mark.way_out

LINES = [f"Line {number:03d} of a long answer about ponds and what lives in them." for number in range(150)]


async def dead_letters(stage: Stage, chat: str) -> list[str]:
    """The reasons of those of a chat."""
    found = await stage.client.command("XRANGE", "shoal:{0ax}:dead", "-", "+")
    fields = [dict(zip(row[1][::2], row[1][1::2], strict=True)) for row in found]
    member = f"out:{stage.bench.session(chat)}".encode()
    return [one[b"reason"].decode() for one in fields if one[b"member"] == member]


def sends(stage: Stage, chat: str | None = None) -> Sequence[float]:
    """When posts were sent, into one chat or into any."""
    return [call.at for call in stage.bench.calls() if call.kind == "send" and chat in (None, call.chat)]


async def test_a_long_reply_is_split_and_nothing_of_it_is_lost(played: Stage) -> None:
    """Each message is one that the platform takes; every line is in one of them, in order."""
    chat = played.bench.chat(0)
    played.script("tell me", "\n\n".join(LINES))
    await played.say(chat, "tell me")
    await played.until(lambda: LINES[-1] in "\n".join(played.texts(chat)), "the last line")
    assert re.findall(r"Line \d{3}", "\n".join(played.texts(chat))) == [line[:8] for line in LINES]


async def test_markup_is_shown_as_markup(played: Stage) -> None:
    """Not as stars."""
    chat = played.bench.chat(0)
    played.script("tell me", "very **bold** words <tag> & more")
    await played.say(chat, "tell me")
    [shown] = await played.sees(chat, "very bold words <tag> & more")
    assert shown.markup or "markup" in played.bench.cannot


@pytest.mark.needs("markup")
async def test_markup_that_is_refused_is_sent_once_as_plain_text(played: Stage) -> None:
    """A platform that cannot read our markup still shows the words."""
    chat = played.bench.chat(0)
    played.bench.fault(Fault(kind="markup"))
    played.script("tell me", "very **bold** words")
    await played.say(chat, "tell me")
    [shown] = await played.sees(chat, "very bold words")
    assert not shown.markup
    assert await dead_letters(played, chat) == []


@pytest.mark.needs("refused")
async def test_a_post_that_is_refused_is_a_dead_letter_and_later_ones_go_on(played: Stage) -> None:
    """It alone: the chat is not stuck behind it, and an operator can see it."""
    chat = played.bench.chat(0)
    played.bench.fault(Fault(kind="refused"))
    await played.say(chat, "one")
    await played.say(chat, "two")
    await played.sees(chat, "echo: two")
    assert await dead_letters(played, chat) == ["undeliverable"]


@pytest.mark.needs("closed")
async def test_a_closed_chat_is_left_alone_until_its_person_comes_back(played: Stage) -> None:
    """What waited is on record; the first word of the person opens the chat again."""
    chat = played.bench.chat(0)
    played.bench.fault(Fault(kind="closed", times=-1, chat=chat))
    await played.say(chat, "one")

    async def dropped() -> bool:
        return await dead_letters(played, chat) == ["chat_closed"]

    await played.until(dropped, "the record")
    played.bench.heal()
    await played.say(chat, "two")
    await played.sees(chat, "echo: two")


@pytest.mark.needs("throttled")
async def test_a_chat_that_is_throttled_waits_and_no_other(played: Stage) -> None:
    """Its replies come when the platform takes them, in order; meanwhile others get theirs."""
    slow, quick = played.bench.chat(0), played.bench.chat(1)
    played.bench.fault(Fault(kind="throttled", chat=slow, retry_after_s=1.0))
    await played.say(slow, "one")
    await played.until(lambda: sends(played, slow), "the first try")
    await played.say(quick, "hello")
    await played.say(slow, "two")
    await played.sees(quick, "echo: hello")
    await played.sees(slow, "echo: one", "echo: two")
    first, second, _ = sends(played, slow)
    assert second - first >= 0.95
    assert sends(played, quick)[0] < second


@pytest.mark.needs("throttled bot")
async def test_a_bot_that_is_throttled_says_nothing_anywhere(played: Stage) -> None:
    """Until the platform's time is over; then everything is said."""
    chats = [played.bench.chat(number) for number in range(3)]
    played.bench.fault(Fault(kind="throttled bot", chat=chats[0], retry_after_s=1.0))
    await played.say(chats[0], "hello")
    await played.until(lambda: sends(played), "the first try")
    for chat in chats[1:]:
        await played.say(chat, "hello")
    for chat in chats:
        await played.sees(chat, "echo: hello")
    first, *later = sends(played)
    assert min(later) - first >= 0.95


@pytest.mark.needs("down")
async def test_a_platform_that_is_out_of_order_gets_everything_later_in_order(played: Stage) -> None:
    """Nothing is given up for a few minutes of that."""
    chat = played.bench.chat(0)
    played.bench.fault(Fault(kind="down", times=2))
    await played.say(chat, "one")
    await played.say(chat, "two")
    await played.sees(chat, "echo: one", "echo: two")


@pytest.mark.parametrize("kind", ["unheard", "unanswered", "stored", "hang"])
async def test_a_send_without_an_answer_loses_nothing_and_doubles_only_what_is_counted(
    stage: Stage, kind: FaultKind
) -> None:
    """With a key or a look-up a reply is there once. Where the platform offers nothing it may be there once more, and
    that is counted."""
    if kind in stage.bench.cannot:
        pytest.skip(f"{stage.bench.name} has no form of {kind!r}")
    patience: dict[str, Any] = {f"channels.{stage.bench.name}": {"timeout_s": 1.0}} if kind == "hang" else {}
    channel, chat = (await stage.gateway(**patience)).channel, stage.bench.chat(0)
    counted = DELIVERY_UNKNOWN.labels(channel.name)
    before = counted._value.get()
    stage.bench.fault(Fault(kind=kind))
    await stage.say(chat, "one")
    await stage.say(chat, "two")
    twice = kind in ("unanswered", "stored") and channel.abilities.resend_guard == "nothing"
    await stage.sees(chat, *(["echo: one"] * (2 if twice else 1)), "echo: two")
    assert stage.texts(chat).count("echo: one") - 1 <= counted._value.get() - before <= 1
    if channel.abilities.resend_guard != "nothing":
        assert counted._value.get() == before


@pytest.mark.both_ways
async def test_answers_on_offer_are_buttons_and_pressing_one_says_it(played: Stage) -> None:
    """Where there are no buttons, the words are in the text."""
    chat = played.bench.chat(0)
    played.script("drink?", OutboundMessage(content="What would you like?", turn=0, buttons=("Tea", "Coffee")))
    await played.say(chat, "drink?")
    [shown] = await played.until(lambda: played.bench.shown(chat), "the question")
    if not played.replicas[0].channel.abilities.buttons:
        assert {"Tea", "Coffee"} <= set(re.findall(r"\w+", shown.text))
        return
    assert shown.buttons == ("Tea", "Coffee")
    if "press" not in played.bench.cannot:
        await played.say(chat, "Tea", does="press")
        await played.until(lambda: played.texts(chat)[-1] == "echo: Tea", "the answer")


async def test_a_question_whether_a_tool_may_run_can_be_answered(played: Stage) -> None:
    """Its buttons say the commands; its text does, too."""
    chat = played.bench.chat(0)
    asks = Approval(id="a1b2", state="open", tool="exec")
    line = OutboundMessage(
        content="May I? Say `/yes a1b2` or `/no a1b2`.", turn=0, kind="notice", approval=asks,
        buttons=("/yes a1b2", "/no a1b2"),
    )  # fmt: skip
    played.script("do it", line, "done")
    await played.say(chat, "do it")
    asked, _ = await played.until(lambda: len(played.bench.shown(chat)) == 2 and played.bench.shown(chat), "the lines")
    assert "/yes a1b2" in asked.text
    if played.replicas[0].channel.abilities.buttons:
        assert asked.buttons == ("Yes", "No")
    await played.say(chat, "/yes a1b2")
    await played.until(lambda: len(played.texts(chat)) == 3, "the command's answer")
    assert played.worker.texts(played.bench.session(chat)) == ["do it"]


async def test_a_question_that_does_not_fit_into_a_message_offers_no_yes(played: Stage) -> None:
    """Nobody reads all of several messages before the one with the buttons."""
    chat = played.bench.chat(0)
    asks = Approval(id="a1b2", state="open", tool="exec", arguments="many words " * 3_000)
    line = OutboundMessage(
        content=asks.arguments, turn=0, kind="notice", approval=asks, buttons=("/yes a1b2", "/no a1b2")
    )
    played.script("do it", line, "done")
    await played.say(chat, "do it")
    asked, _ = await played.until(lambda: len(played.bench.shown(chat)) == 2 and played.bench.shown(chat), "the lines")
    if played.bench.name == "email":  # a mail holds more than the longest question
        assert asked.text.count("many words") == 3_000
        return
    assert "too long to be shown here" in asked.text
    assert "/no a1b2" in asked.text
    if played.replicas[0].channel.abilities.buttons:
        assert asked.buttons == ("No",)


async def test_files_come_after_the_text(played: Stage) -> None:
    """By their bytes; where a platform takes none, by their names."""
    chat, file = played.bench.chat(0), text_file()
    ref = played.file(chat, file.name, file.data)
    played.script("send it", OutboundMessage(content="Here it is:", turn=0, media=(str(ref),)))
    await played.say(chat, "send it")
    if not played.replicas[0].channel.abilities.media:
        await played.until(lambda: "notes.txt" in "".join(played.texts(chat)), "the name")
        return
    text, sent = await played.until(
        lambda: len(played.bench.shown(chat)) == 2 and played.bench.shown(chat), "text and file"
    )
    assert (text.text, sent.file) == ("Here it is:", file.data)


@pytest.mark.needs("group", "reply_to")
async def test_in_a_group_an_answer_shows_what_it_answers(played: Stage) -> None:
    """Other people's words stand in between."""
    group = played.bench.chat(0, group=True)
    action = await played.say(group, "what time is it?", group=True)
    [shown] = await played.until(lambda: played.bench.shown(group), "the answer")
    assert shown.reply_to == action.id


async def test_a_message_that_the_agent_sent_itself_is_its_answer(played: Stage) -> None:
    """The empty reply behind it is not shown, and nothing waits for it."""
    chat = played.bench.chat(0)
    played.script("tell me", OutboundMessage(content="Listen!", turn=0, kind="notice", sent_by_tool=True), "")
    await played.say(chat, "tell me")
    await played.say(chat, "bye")
    await played.sees(chat, "Listen!", "echo: bye")
    await played.quiet()


async def test_a_turn_that_was_stopped_says_so(played: Stage) -> None:
    """With what was said until then."""
    chat = played.bench.chat(0)
    played.script("go on", OutboundMessage(content="As I was saying", turn=0, kind="stopped"))
    await played.say(chat, "go on")
    [shown] = await played.until(lambda: played.bench.shown(chat), "the line")
    assert re.fullmatch(r"As I was saying\s+Stopped\.", shown.text)
