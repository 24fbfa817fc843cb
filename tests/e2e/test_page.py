"""A person at the chat page: real Chromium, real gateway, real worker, once LiteLLM, and a scripted model over HTTP."""

from __future__ import annotations

import asyncio
import itertools
import re
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import pairwise
from statistics import median

import pytest
from playwright.async_api import Page, expect

from gateway.channels.web.socket.socket import NOT_ACCEPTED
from gateway.commands.registry import OWN
from shared.store import keys
from shared.store.client.redis_client import RedisClient
from tests.gateway.harness import free_port
from tests.helpers.axe import violations
from tests.helpers.chromium import chromium
from tests.helpers.fleet import holder, replies, warm, watching
from tests.helpers.fleet_fixtures import Spawn
from tests.helpers.openai_server import Answer, Call, ScriptedOpenAI
from tests.helpers.processes import Process
from tests.helpers.wait import eventually

pytestmark = pytest.mark.usefixtures("browser")

TOKEN = "sesame-open-the-door"
STORY = "Once upon a time " + " ".join(f"word{i}" for i in range(80)) + " the end."
RETOLD = STORY[:60] + " and so on " + " ".join(f"deed{i}" for i in range(60)) + " The end."
CODE = "Here you are:\n\n```python\nprint('hi')\n```\n\n| a | b |\n|---|---|\n| 1 | 2 |\n\n<script>alert(1)</script>"
PATIENCE_MS = 30_000
RECORD = """() => {
  window.recorded = [];
  const text = () => document.querySelector(".card.reply[data-state=streaming] .body")?.textContent;
  setInterval(() => text() && recorded.push(text()), 50);
}"""
"""What a person reads in the answer that is being written, every 50 ms."""


NOTES = """() => {
  window.notes = [];
  const keep = (node) => node.classList?.contains("toast") && notes.push(node.textContent);
  new MutationObserver((changes) => changes.forEach((change) => change.addedNodes.forEach(keep)))
    .observe(document, { childList: true, subtree: true });
}"""
"""Keeps what passing notes said: they are gone after some seconds."""


def start_gateway(spawn: Spawn, port: int) -> Process:
    return spawn("gateway", WEB__PORT=str(port), WEB__TOKEN=TOKEN)


@asynccontextmanager
async def page_at(
    port: int, *, width: int = 1280, height: int = 800, token: str = TOKEN, timezone: str | None = None
) -> AsyncIterator[Page]:
    """The chat page, signed in, connected. Fails the test if the page had an error of its own."""
    async with chromium() as browser:
        page = await browser.new_page(viewport={"width": width, "height": height}, timezone_id=timezone)
        errors: list[str] = []
        page.on("pageerror", lambda error: errors.append(str(error)))
        await page.add_init_script(f"({NOTES})()")
        await _open(page, port, token)
        await expect(page.locator("#composer textarea")).to_be_visible(timeout=PATIENCE_MS)
        yield page
        assert errors == []


@asynccontextmanager
async def page_of_fleet(spawn: Spawn) -> AsyncIterator[Page]:
    """The page of a gateway and a worker that are started for it."""
    port = free_port()
    start_gateway(spawn, port)
    spawn("worker")
    async with page_at(port) as page:
        yield page


async def _open(page: Page, port: int, token: str = TOKEN) -> None:
    """Open the page once somebody listens: Chromium tries again by itself where nobody does, beside us."""
    await eventually(lambda: _listens(port), within_s=60, what="the gateway")
    await page.goto(f"http://127.0.0.1:{port}/#token={token}")


async def _listens(port: int) -> bool:
    try:
        _, writer = await asyncio.open_connection("127.0.0.1", port)
    except OSError:
        return False
    writer.close()
    await writer.wait_closed()
    return True


async def ask(page: Page, text: str) -> None:
    await page.locator("#composer textarea").fill(text)
    await page.locator("#composer textarea").press("Enter")


async def noted(page: Page, text: str) -> None:
    """Wait until a passing note has said something with this text, whether it still stands there or not."""

    async def found() -> bool:
        return any(text in note for note in await page.evaluate("notes"))

    await eventually(found, what=f"a note with {text!r}")


async def sessions(client: RedisClient) -> list[str]:
    names = await client.command("KEYS", "shoal:{0ax}:session:*")
    return [name.decode().removeprefix("shoal:{0ax}:session:") for name in names]


async def test_a_question_typed_into_the_page_is_answered_by_a_model_over_http(
    client: RedisClient, spawn: Spawn, model: ScriptedOpenAI
) -> None:
    """The whole way: page, gateway, queue, worker, LiteLLM, tool call, stream, Markdown, page."""
    model.script(
        Answer(match="code", text="I compute first.", calls=[Call("calculate", '{"expression": "6*7"}')], held_after=1),
        Answer(match="code", text=CODE, delta_s=0.05),
    )
    port = free_port()
    start_gateway(spawn, port)
    await warm(spawn("worker", MODEL__CLIENT="litellm"))
    async with page_at(port) as page:
        assert "token" not in page.url, "the token leaves the address bar"
        await ask(page, "show me code")
        await expect(page.locator('.own[data-state="received"]')).to_have_count(1, timeout=PATIENCE_MS)
        await expect(page.locator('.card.reply[data-state="streaming"]')).to_be_visible(timeout=PATIENCE_MS)
        model.release()
        done = page.locator('.card.reply[data-state="done"]')
        await expect(done).to_be_visible(timeout=PATIENCE_MS)
        await expect(done.locator("pre code")).to_contain_text("print('hi')")
        await expect(done.locator("table td").first).to_have_text("1")
        await expect(done).to_contain_text("<script>alert(1)</script>")
        assert await done.locator("script").count() == 0
        await expect(page.locator("#chats li[data-chat]")).to_contain_text("show me code")
    bodies = [request.body for request in model.requests()]
    assert len(bodies) == 2
    assert bodies[0]["stream"] is True
    assert {tool["function"]["name"] for tool in bodies[0]["tools"]} >= {"calculate", "current_time"}
    assert bodies[1]["messages"][-1]["role"] == "tool"
    assert "42" in bodies[1]["messages"][-1]["content"]


async def test_a_link_with_the_token_of_another_asks_first_and_says_whose_it_is(
    client: RedisClient, spawn: Spawn, model: ScriptedOpenAI
) -> None:
    """Else what a person writes next would be read by whoever made the link; a wrong token changes nothing."""
    port = free_port()
    others = "a-token-of-mallory"
    spawn("gateway", WEB__PORT=str(port), WEB__TOKEN=TOKEN, WEB__TOKENS__MALLORY=others)
    async with page_at(port) as page:
        switch, stored = page.locator("#switch"), "localStorage.getItem('shoal.token')"
        await _open(page, port, others)
        await expect(switch).to_be_visible(timeout=PATIENCE_MS)
        await expect(switch).to_contain_text("signs you in as mallory. Here you are owner.")
        assert "token" not in page.url
        await expect(page.locator("#app")).to_be_hidden()
        assert await page.evaluate(stored) == TOKEN
        await page.keyboard.press("Enter")  # the safe answer has the focus
        await expect(page.locator("#composer textarea")).to_be_visible(timeout=PATIENCE_MS)
        await expect(switch).to_be_hidden()
        assert await page.evaluate(stored) == TOKEN
        await _open(page, port, "not-a-token-of-anybody")
        await noted(page, "not accepted")
        await expect(page.locator("#composer textarea")).to_be_visible(timeout=PATIENCE_MS)
        assert await page.evaluate(stored) == TOKEN
        await _open(page, port, others)
        await page.get_by_role("button", name="Sign in as mallory").click(timeout=PATIENCE_MS)
        await expect(page.locator("#composer textarea")).to_be_visible(timeout=PATIENCE_MS)
        assert await page.evaluate(stored) == others


async def test_a_worker_killed_in_the_middle_leaves_one_card_with_one_answer(
    client: RedisClient, spawn: Spawn, model: ScriptedOpenAI
) -> None:
    """The text goes on in place where it stood; no letter goes or changes; there is one reply. That it goes on at once
    is for `proof.chaos.takeover` to measure; here the model is not asked for what stands there already."""
    model.script(Answer(text=STORY, delta_s=0.05, held_after=45, times=0))
    port = free_port()
    start_gateway(spawn, port)
    await warm(*[spawn("worker", MODEL__CLIENT="direct") for _ in range(2)])
    async with page_at(port) as page:
        await page.evaluate(RECORD)
        await ask(page, "a story")
        await expect(page.locator(".card.reply")).to_contain_text("word30", timeout=PATIENCE_MS)
        [session] = await sessions(client)
        worker = await holder(client, session)
        worker.kill()
        model.release()
        done = page.locator('.card.reply[data-state="done"]')
        await expect(done).to_contain_text("the end.", timeout=PATIENCE_MS)
        await expect(page.locator(".card.reply")).to_have_count(1)
        await expect(page.locator(".own")).to_have_count(1)
        texts: list[str] = await page.evaluate("recorded")
    assert all(later.startswith(text) for text, later in pairwise(texts))
    first, second = (request.body["messages"] for request in model.requests())
    assert "word30" in second[len(first)]["content"], "what stood there, to go on with"
    assert await replies(client, session) == [STORY]


async def test_a_page_that_is_opened_again_shows_the_longest_text(
    client: RedisClient, spawn: Spawn, model: ScriptedOpenAI
) -> None:
    """Also while another attempt, whose model began again in other words, has written less."""
    model.script(Answer(text=STORY, delta_s=0.04, held_after=60), Answer(text=RETOLD, delta_s=0.35))
    port = free_port()
    start_gateway(spawn, port)
    await warm(*[spawn("worker") for _ in range(2)])
    async with page_at(port) as page:
        await ask(page, "a story")
        card = page.locator(".card.reply")
        await expect(card).to_contain_text("word40", timeout=PATIENCE_MS)
        [session] = await sessions(client)
        async with watching(client, session) as seen:
            (await holder(client, session)).kill()
            await eventually(lambda: "deed5" in "".join(delta.text for delta in seen.deltas(2)))
        await page.reload()
        await expect(card).to_contain_text("word40", timeout=PATIENCE_MS)
        await page.evaluate(RECORD)
        await expect(page.locator('.card.reply[data-state="done"]')).to_contain_text("The end.", timeout=60_000)
        lengths = [len(text) for text in await page.evaluate("recorded")]
    assert lengths == sorted(lengths)
    assert await replies(client, session) == [RETOLD]


async def test_the_page_comes_back_by_itself_when_its_gateway_was_killed(
    client: RedisClient, spawn: Spawn, model: ScriptedOpenAI
) -> None:
    """kill -9 of the gateway while it streams: the page says so, reconnects, and shows each line once."""
    model.script(Answer(match="first", text=STORY, delta_s=0.04), Answer(text="short"))
    port = free_port()
    gateway = start_gateway(spawn, port)
    spawn("worker")
    async with page_at(port) as page:
        await ask(page, "the first one")
        await expect(page.locator(".card.reply")).to_contain_text("word5", timeout=PATIENCE_MS)
        gateway.kill_group()
        await expect(page.locator("#banner")).to_be_visible(timeout=PATIENCE_MS)
        await ask(page, "written while it was away")
        start_gateway(spawn, port)
        await expect(page.locator("#banner")).to_be_hidden(timeout=PATIENCE_MS)
        await expect(page.locator('.card.reply[data-state="done"]')).to_have_count(2, timeout=PATIENCE_MS)
        await expect(page.locator(".card.reply").first).to_contain_text("the end.")
        await expect(page.locator(".card.reply").last).to_contain_text("short")
        await expect(page.locator(".own")).to_have_count(2)
        assert await page.locator("#transcript [data-seq]").count() == 4
    [session] = await sessions(client)
    assert await replies(client, session) == [STORY, "short"]


async def test_a_page_without_a_gateway_tries_every_300_ms_at_first(client: RedisClient, spawn: Spawn) -> None:
    """Whoever starts the gateway again finds the page back within half a second. This is about speed alone: the middle
    one of seven waits counts, and they would grow to many seconds if the page tried ever more seldom from the start."""
    port, tries = free_port(), list[float]()

    async def refuse(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        tries.append(time.monotonic())
        writer.transport.abort()

    gateway = start_gateway(spawn, port)
    async with page_at(port):
        gateway.kill_group()
        async with await asyncio.start_server(refuse, "127.0.0.1", port):
            await eventually(lambda: len(tries) >= 8, within_s=PATIENCE_MS / 1000)
    assert median(after - before for before, after in itertools.pairwise(tries[:8])) < 1.0


async def test_a_page_that_holds_lost_lines_shows_those_that_got_their_numbers(
    client: RedisClient, spawn: Spawn, model: ScriptedOpenAI
) -> None:
    """The store came back as an older copy while the gateway of the page was gone, and went on without it."""
    model.script(Answer(match="kept", text="one"), Answer(match="lost", text="two"), Answer(text="three"))
    port, other = free_port(), free_port()
    gateway = start_gateway(spawn, port)
    spawn("worker")
    start_gateway(spawn, other)
    done = '.card.reply[data-state="done"]'
    async with page_at(port) as page:
        await ask(page, "kept")
        await expect(page.locator(done)).to_have_count(1, timeout=PATIENCE_MS)
        [session] = await sessions(client)
        names = [make(session) for make in (keys.session, keys.history, keys.outbox)]
        copies = [await client.command("DUMP", name) for name in names]
        await ask(page, "lost")
        await expect(page.locator(done)).to_have_count(2, timeout=PATIENCE_MS)
        gateway.kill_group()
        await expect(page.locator("#banner")).to_be_visible(timeout=PATIENCE_MS)
        for name, copy in zip(names, copies, strict=True):
            await client.command("RESTORE", name, 0, copy, "REPLACE")
        async with page_at(other) as device:
            await device.locator("#chats li[data-chat]").first.click()
            await expect(device.locator(done)).to_have_count(1, timeout=PATIENCE_MS)
            await ask(device, "found")
            await expect(device.locator(done)).to_have_count(2, timeout=PATIENCE_MS)
        start_gateway(spawn, port)
        await expect(page.locator("#banner")).to_be_hidden(timeout=PATIENCE_MS)
        await expect(page.locator(".own").last).to_contain_text("found", timeout=PATIENCE_MS)
        await expect(page.locator(done).last).to_contain_text("three")
        await expect(page.locator(".own")).to_have_count(2)
        await expect(page.locator(done)).to_have_count(2)


async def test_stop_keeps_what_was_written_and_the_next_message_is_answered(
    client: RedisClient, spawn: Spawn, model: ScriptedOpenAI
) -> None:
    """The stop button ends the running turn, also in the middle of a model call that would never end."""
    model.script(Answer(match="story", text=STORY, stall_after=5), Answer(text="Here I am."))
    port = free_port()
    start_gateway(spawn, port)
    spawn("worker")
    async with page_at(port, width=390, height=844) as page:
        await ask(page, "a story")
        await expect(page.locator(".card.reply")).to_contain_text("Once upon", timeout=PATIENCE_MS)
        await page.locator("#stop").click()
        stopped = page.locator('.card.reply[data-kind="stopped"]')
        await expect(stopped).to_be_visible()
        await expect(stopped).to_contain_text("Once upon")
        await ask(page, "are you there?")
        await expect(page.locator(".card.reply").last).to_contain_text("Here I am.", timeout=PATIENCE_MS)


async def test_a_slash_offers_the_commands_and_help_is_answered_without_a_model(
    client: RedisClient, spawn: Spawn, model: ScriptedOpenAI
) -> None:
    """A listbox that is worked from the keyboard; the gateway answers, also while no worker is there."""
    port = free_port()
    start_gateway(spawn, port)
    async with page_at(port) as page:
        area, offered = page.locator("#composer textarea"), page.locator("#commands [role=option]")
        await area.press_sequentially("/")
        await expect(offered).to_have_count(len(OWN))
        await area.press_sequentially("m")
        await expect(offered).to_have_text([re.compile("^/model"), re.compile("^/memory")])
        await area.press("ArrowDown")
        chosen = page.locator("#commands [aria-selected=true]")
        await expect(chosen).to_have_attribute("data-name", "memory")
        assert await area.get_attribute("aria-activedescendant") == await chosen.get_attribute("id")
        await area.press("Tab")
        await expect(area).to_have_value("/memory ")
        await expect(page.locator("#commands")).to_be_hidden()
        await area.fill("/")
        await area.press("Escape")
        await expect(page.locator("#commands")).to_be_hidden()
        await area.fill("")
        await area.press_sequentially("/he")
        await area.press("Enter")
        await expect(area).to_have_value("/help ")
        assert await page.locator(".own").count() == 0, "the first Enter completes"
        await area.press("Enter")
        answer = page.locator('.card.reply[data-kind="command"]')
        await expect(answer.locator("li")).to_have_count(len(OWN), timeout=PATIENCE_MS)
        await expect(page.locator("#stop")).to_be_hidden()
        await expect(page.locator("#title")).to_have_text("New chat")
        await area.fill("/etc/hosts")
        await expect(page.locator("#commands")).to_be_hidden()
    assert model.requests() == []


async def test_new_during_a_turn_ends_its_card_and_the_next_message_begins_afresh(
    client: RedisClient, spawn: Spawn, model: ScriptedOpenAI
) -> None:
    """Nobody waits for an answer that will not come: not this page, not another device, not after a reload."""
    model.script(
        Answer(match="afresh", text="Here I am."),
        Answer(match="story", text=STORY, held_after=5, times=0),
    )
    port = free_port()
    start_gateway(spawn, port)
    spawn("worker")
    async with page_at(port) as page, page_at(port, width=390, height=844) as phone:
        await ask(page, "a story")
        await expect(page.locator(".card.reply")).to_contain_text("Once upon", timeout=PATIENCE_MS)
        await phone.reload()  # the phone had opened before there was a chat
        await phone.locator("#open-side").click()
        await phone.locator("#chats .chat").click()
        await expect(phone.locator(".card.reply")).to_contain_text("Once upon", timeout=PATIENCE_MS)
        await ask(page, "and this")
        await expect(page.locator("#queue")).to_be_visible(timeout=PATIENCE_MS)
        await ask(page, "/new")
        for device in (page, phone):
            answer = device.locator('.card.reply[data-kind="command"]')
            await expect(answer).to_contain_text("1 waiting message was dropped", timeout=PATIENCE_MS)
            await expect(device.locator(".card.reply")).to_have_count(1)
            await expect(answer.get_by_role("separator", name="New conversation")).to_be_visible()
            await expect(device.locator("#stop")).to_be_hidden()
            await expect(device.locator("#queue")).to_be_hidden()
            await expect(device.locator(".own .status", has_text="Not answered")).to_have_count(2)
        await phone.reload()
        await expect(phone.locator(".own .status", has_text="Not answered")).to_have_count(2, timeout=PATIENCE_MS)
        await expect(phone.locator("#stop")).to_be_hidden()
        await ask(page, "now afresh")
        for device in (page, phone):
            await expect(device.locator(".card.reply").last).to_contain_text("Here I am.", timeout=PATIENCE_MS)
            await expect(device.locator(".card.reply")).to_have_count(2)
            await expect(device.locator(".rule")).to_have_count(1)
    [session] = await sessions(client)
    fields = await client.command("HMGET", f"shoal:{{0ax}}:session:{session}", "errors", "crashes", "stop")
    assert fields == [None, None, None]
    assert await client.command("EXISTS", "shoal:{0ax}:dead") == 0
    asked = [request.body["messages"] for request in model.requests()]
    # What `/new` ended is summed up by a job, whose request may come after that of the turn.
    [afresh] = [messages for messages in asked if "now afresh" in str(messages[-1])]
    assert not re.search(r"\bstory|Once upon", str(afresh)), "the model does not see what was said before"


async def test_a_wrong_token_gets_the_login_form_with_the_reason(client: RedisClient, spawn: Spawn) -> None:
    """Nothing of the chat is shown to somebody without a token, however long they wait; the right one signs in."""
    port = free_port()
    start_gateway(spawn, port)
    async with chromium() as browser:
        page = await browser.new_page()
        await page.clock.install()
        await _open(page, port, token="wrong")
        await expect(page.locator("#login input")).to_be_visible(timeout=PATIENCE_MS)
        await expect(page.locator("#login-message")).to_have_text(NOT_ACCEPTED)
        assert await violations(page) == []
        await page.clock.run_for(60_000)
        await expect(page.get_by_role("main")).to_have_count(1)
        await page.locator("#login input").fill(TOKEN)
        await page.locator("#login input").press("Enter")
        await expect(page.locator("#composer textarea")).to_be_visible(timeout=PATIENCE_MS)
        await expect(page.get_by_role("main")).to_have_count(1)


async def test_a_waiting_message_is_shown_with_its_place_and_can_be_withdrawn(
    client: RedisClient, spawn: Spawn, model: ScriptedOpenAI
) -> None:
    """ "Received, 1 ahead of you" and a button; the second page sees it struck through; what joined a turn waits for
    nothing more; the rest is answered."""
    model.script(
        Answer(match="slow", text="at last", held=True, times=0), Answer(match="keep", text="kept it", times=0)
    )
    async with page_of_fleet(spawn) as page:
        await ask(page, "slow question")
        await expect(page.locator('.own[data-state="received"]')).to_have_count(1, timeout=PATIENCE_MS)
        await ask(page, "drop this")
        await ask(page, "keep this")
        dropped = page.locator(".own", has_text="drop this")
        await expect(dropped).to_contain_text("1 ahead of you", timeout=PATIENCE_MS)
        await expect(page.locator(".own", has_text="keep this")).to_contain_text("2 ahead of you")
        await dropped.get_by_role("button", name="Withdraw").click()
        await expect(dropped).to_have_attribute("data-state", "withdrawn", timeout=PATIENCE_MS)
        await expect(dropped).to_contain_text("Withdrawn")
        await expect(page.locator(".own", has_text="keep this")).to_contain_text("1 ahead of you")
        model.release()
        await expect(page.locator('.card.reply[data-state="done"]')).to_have_count(2, timeout=PATIENCE_MS)
        await page.reload()
        await expect(page.locator('.own[data-state="withdrawn"]')).to_have_count(1, timeout=PATIENCE_MS)
        await expect(page.locator('.card.reply[data-state="done"]')).to_have_count(2, timeout=PATIENCE_MS)
        await expect(page.get_by_role("button", name="Withdraw")).to_have_count(0)
