"""Replies that take long to render: each ends at its deadline, nobody else waits for it, and it is not tried twice."""

from __future__ import annotations

import asyncio
import html
import time
from collections.abc import AsyncIterator, Iterator
from statistics import median

import pytest

from gateway.channels.web.renderer import MarkdownRenderer
from shared.embedded import EmbeddedValkey
from tests.gateway.costly import COSTLY, costly
from tests.gateway.harness import TOKENS, Client, Process, Worker, client, process, session_of, worker
from tests.helpers.valkey import fresh

SIZE = 48_000
DELAY_S = 0.5
REPLY = ("A paragraph with **bold** words, `code` and a [link](https://pond.example/a).\n\n" * 50)[:3_600]


@pytest.fixture
async def renderer() -> AsyncIterator[MarkdownRenderer]:
    made = MarkdownRenderer()
    yield made
    await made.close()


def plain(text: str) -> str:
    return f"<pre>{html.escape(text, quote=False)}</pre>"


async def test_a_long_reply_is_rendered_in_another_process(renderer: MarkdownRenderer) -> None:
    """As a short one is; then it is at hand."""
    assert not renderer.is_quick(REPLY)
    rendered = await renderer.html_soon(REPLY, "web:ann")
    assert rendered.count("<strong>bold</strong>") == REPLY.count("**bold**")
    assert renderer.is_quick(REPLY)
    assert renderer.html(REPLY) is rendered


async def test_code_and_formulas_are_rendered_there(renderer: MarkdownRenderer) -> None:
    """Also short ones; the gateway itself imports neither library."""
    text = "```python\nimport this\n```\n$x^2$"
    assert not renderer.is_quick(text)
    shown = await renderer.html_soon(text, "web:ann")
    assert '<span class="hl-k">import </span>' in shown
    assert "<msup>" in shown
    assert renderer.html(text) is shown


@pytest.mark.parametrize("name", COSTLY)
async def test_what_takes_too_long_is_shown_as_plain_text_and_not_tried_again(
    renderer: MarkdownRenderer, name: str
) -> None:
    """A later look at the chat costs nothing; and the next reply is rendered."""
    text = costly(name, SIZE)
    began = time.monotonic()
    shown = await renderer.html_soon(text, "web:ann")
    assert time.monotonic() - began < 20  # a second, on a machine that has time
    assert html.escape(text[:100], quote=False) in shown
    if shown != plain(text):
        return  # this one fits into the time
    assert renderer.is_quick(text)
    began = time.process_time()
    assert renderer.html(text) == await renderer.html_soon(text, "web:ann") == plain(text)
    assert time.process_time() - began < 0.1
    assert "<strong>" in await renderer.html_soon(REPLY, "web:ann")


async def test_a_person_has_one_slot_and_people_take_turns(renderer: MarkdownRenderer) -> None:
    """Of many texts of one person the last is not before the first of another."""
    order: list[str] = []

    async def show(text: str, person: str) -> None:
        await renderer.html_soon(text, person)
        order.append(person)

    many = [asyncio.create_task(show(f"{n} " + costly("[[", SIZE), "web:ann")) for n in range(6)]
    while renderer._slots._value == 2:
        await asyncio.sleep(0)
    await show(REPLY, "web:bob")
    assert order.count("web:ann") <= 3  # none, on a machine that has time
    await asyncio.gather(*many)


async def reply_s(me: Client, w: Worker, chat: str, text: str) -> float:
    """The seconds from the end of a turn to its reply on the page."""
    await me.say(chat, text)
    began = time.monotonic()
    await w.run_once()
    await me.next("reply", chat=chat)
    return time.monotonic() - began


@pytest.fixture(scope="module")
def kept(valkey: EmbeddedValkey) -> Iterator[tuple[Process, str]]:
    """A gateway with two people for all kinds, and its Redis."""
    redis_url = fresh(valkey)
    people = {"SHOAL_WEB__TOKENS__ANN": TOKENS["ann"], "SHOAL_INBOX__SENDER_PER_MINUTE": "0"}
    with process(redis_url, **people) as gateway:
        yield gateway, redis_url


@pytest.mark.parametrize("name", COSTLY)
async def test_four_costly_replies_of_one_person_delay_nobody_else(kept: tuple[Process, str], name: str) -> None:
    """Bob's reply of 3.6 kB comes as it does without ann's four of 48 kB: this is about speed alone. The middle one of
    five counts, beside the same replies a moment before, for a machine that stalls delays one or two of them."""
    gateway, redis_url = kept
    await gateway.ready()
    kind = list(COSTLY).index(name)
    chats = [f"chat{kind}-{n}" for n in range(4)]
    async with (
        client(gateway.address) as bob,
        client(gateway.address, TOKENS["ann"]) as ann,
        worker(redis_url) as w,
    ):
        quiet = max([await reply_s(bob, w, f"quiet{kind}", f"{n} {kind} {REPLY}") for n in range(5)])
        for n, chat in enumerate(chats):
            await ann.say(chat, f"{n}\n" + costly(name, SIZE))
        await w.run_once()
        noisy = median([await reply_s(bob, w, f"b{kind}", f"{n}. {kind} {REPLY}") for n in range(5)])
        assert noisy - quiet <= max(DELAY_S, quiet)
        for chat in chats:
            await ann.shown(chat, 2, within_s=60)
        took_s: list[float] = []
        for chat in chats:
            began = time.monotonic()
            await ann.send("history", chat=chat, before=None)
            await ann.next("history", chat=chat)
            took_s.append(time.monotonic() - began)
        assert sorted(took_s)[1] < DELAY_S  # a few milliseconds each, on a machine that has time
    assert {session for session, _ in w.turns} >= {session_of(f"b{kind}"), session_of(chats[3], "ann")}
