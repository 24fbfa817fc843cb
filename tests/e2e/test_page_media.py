"""Files and buttons on the chat page: real Chromium, real gateway, real worker, a scripted model over HTTP."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from playwright.async_api import FilePayload, Page, expect

from shared.errors import Refused
from shared.store.client.redis_client import RedisClient
from shared.store.turns.inbox import Inbox
from tests.e2e.test_page import PATIENCE_MS, ask, noted, page_at, sessions
from tests.gateway.harness import free_port
from tests.helpers.axe import violations
from tests.helpers.build import message
from tests.helpers.fleet_fixtures import Spawn
from tests.helpers.media_files import archive, png, wav
from tests.helpers.openai_server import Answer, Call, ScriptedOpenAI

pytestmark = pytest.mark.usefixtures("browser")

TOKEN = "sesame-open-the-door"


def say(**arguments: object) -> Call:
    return Call("message", json.dumps(arguments))


def fleet(spawn: Spawn, folder: Path, **settings: str) -> int:
    """A gateway and a worker that share their files; the port of the page."""
    port = free_port()
    media = str(folder / "media")
    spawn("gateway", WEB__PORT=str(port), WEB__TOKEN=TOKEN, MEDIA__DIR=media, **settings)
    spawn("worker", MEDIA__DIR=media, WORKSPACE__ROOT=str(folder / "workspaces"), **settings)
    return port


async def attach(page: Page, *files: FilePayload) -> None:
    await page.locator("#files").set_input_files(list(files))


async def test_files_are_attached_sent_and_read(
    client: RedisClient, spawn: Spawn, model: ScriptedOpenAI, tmp_path: Path
) -> None:
    """A picture is seen by the model, a text lies in the workspace; both stand in the chat, also after a reload. One
    that is refused says why, and can be taken off."""
    model.script(Answer(text="I see.", times=0))
    async with page_at(fleet(spawn, tmp_path)) as page:
        await attach(
            page,
            FilePayload(name="p.png", mimeType="image/png", buffer=png()),
            FilePayload(name="notes.txt", mimeType="text/plain", buffer=b"remember the milk"),
            FilePayload(name="all.zip", mimeType="application/zip", buffer=archive("a.txt")),
        )
        items = page.locator("#attachments li")
        await expect(page.locator('#attachments li[data-state="ready"]')).to_have_count(2, timeout=PATIENCE_MS)
        await expect(items.locator("img.thumb")).to_have_js_property("naturalWidth", 3, timeout=PATIENCE_MS)
        refused = page.locator('#attachments li[data-state="failed"]')
        await expect(refused).to_contain_text("file refused: it is a zip archive", timeout=PATIENCE_MS)
        await refused.locator("button").click()
        await expect(items).to_have_count(2)
        await ask(page, "what is it?")
        await expect(items).to_have_count(0)
        own = page.locator(".own")
        await expect(page.locator('.card.reply[data-state="done"]')).to_contain_text("I see.", timeout=PATIENCE_MS)
        await expect(own.locator("button.file .name")).to_have_text("notes.txt")
        picture = own.locator("button.picture img")
        await expect(picture).to_have_js_property("naturalWidth", 3, timeout=PATIENCE_MS)
        box = own.locator("button.picture")
        await expect(box).to_have_css("background-color", "rgba(0, 0, 0, 0)")
        await expect(box).to_have_css("width", "24px")
        await page.reload()
        await expect(picture).to_have_js_property("naturalWidth", 3, timeout=PATIENCE_MS)
        async with page.expect_download() as download:
            await own.locator("button.file").click()
        saved = await (await download.value).path()
        assert saved.read_bytes() == b"remember the milk"
    [asked] = [request.body["messages"][-1]["content"] for request in model.requests()]
    assert asked[0]["image_url"]["url"].startswith("data:image/png;base64,")
    assert "[file: notes.txt, text, 1 kB; it is the file 'inbox/1-notes.txt']" in asked[-1]["text"]
    [stored] = (tmp_path / "workspaces").rglob("1-notes.txt")
    assert stored.read_text() == "remember the milk"


async def test_a_file_alone_is_a_message_and_files_can_be_pasted_and_dropped(
    client: RedisClient, spawn: Spawn, model: ScriptedOpenAI, tmp_path: Path
) -> None:
    """The send button waits for no text then."""
    model.script(Answer(text="Thanks.", times=0))
    events = """(kind) => {
      const data = new DataTransfer();
      data.items.add(new File(["hello"], `${kind}.txt`, { type: "text/plain" }));
      const make = { paste: () => new ClipboardEvent("paste", { clipboardData: data, bubbles: true }),
        drop: () => new DragEvent("drop", { dataTransfer: data, bubbles: true, cancelable: true }) };
      document.querySelector("#composer textarea").dispatchEvent(make[kind]());
    }"""
    async with page_at(fleet(spawn, tmp_path)) as page:
        for kind in ("paste", "drop"):
            await page.evaluate(events, kind)
        await expect(page.locator('#attachments li[data-state="ready"]')).to_have_count(2, timeout=PATIENCE_MS)
        await page.locator("#send").click()
        await expect(page.locator(".own button.file .name")).to_have_text(["paste.txt", "drop.txt"])
        await expect(page.locator(".own .text")).to_be_hidden()
        await expect(page.locator('.card.reply[data-state="done"]')).to_contain_text("Thanks.", timeout=PATIENCE_MS)


async def test_files_to_send_are_handled_by_keyboard_and_none_goes_silently(
    client: RedisClient, spawn: Spawn, model: ScriptedOpenAI, tmp_path: Path
) -> None:
    """Taking one off leaves the focus at the next; one that was refused stays when the message goes without it. A file
    that is dropped beside the chat is taken, for the browser would leave the page for it. Too many are named."""
    model.script(Answer(text="Thanks.", times=0))
    drop = """() => {
      const data = new DataTransfer();
      data.items.add(new File(["hello"], "drop.txt", { type: "text/plain" }));
      const event = new DragEvent("drop", { dataTransfer: data, bubbles: true, cancelable: true });
      document.querySelector("#chats").dispatchEvent(event);
      return event.defaultPrevented;
    }"""
    async with page_at(fleet(spawn, tmp_path)) as page:
        texts = [FilePayload(name=f"{name}.txt", mimeType="text/plain", buffer=name.encode()) for name in "ab"]
        await attach(page, *texts, FilePayload(name="all.zip", mimeType="application/zip", buffer=archive("a.txt")))
        items = page.locator("#attachments li")
        ready = page.locator('#attachments li[data-state="ready"]')
        refused = page.locator('#attachments li[data-state="failed"]')
        await expect(ready).to_have_count(2, timeout=PATIENCE_MS)
        await expect(refused).to_have_count(1, timeout=PATIENCE_MS)
        await items.first.locator("button").press("Enter")
        await expect(page.get_by_role("button", name="Remove b.txt")).to_be_focused()
        assert await page.evaluate(drop)
        await expect(ready.locator(".name")).to_have_text(["b.txt", "drop.txt"], timeout=PATIENCE_MS)
        await ask(page, "here")
        await expect(page.locator(".own button.file .name")).to_have_text(["b.txt", "drop.txt"])
        await expect(items).to_have_count(1)
        await refused.locator("button").press("Enter")
        await expect(page.locator("#attach")).to_be_focused()
        await expect(page.locator("#attachments")).to_be_hidden()
        many = [FilePayload(name=f"{name}.txt", mimeType="text/plain", buffer=b"text") for name in "cdefgh"]
        await attach(page, *many)
        await noted(page, "A message can have 4 files. Left out: g.txt, h.txt.")
        await expect(items).to_have_count(4)


async def test_buttons_are_pressed_by_keyboard_and_stay_until_the_talk_goes_on(
    client: RedisClient, spawn: Spawn, model: ScriptedOpenAI, tmp_path: Path
) -> None:
    """The agent's word stands once, without an empty card after it; a button says its label. A command and a notice
    leave the buttons, what the person writes takes them away."""
    model.script(
        Answer(match="choose", calls=[say(text="**Which** one?", buttons=["Red", "<b>Blue</b>"])]),
        Answer(match="choose", text="I asked."),
        Answer(match="Blue", text="Blue it is."),
    )
    async with page_at(fleet(spawn, tmp_path)) as page:
        await ask(page, "choose")
        sent_text = page.locator('.card.reply[data-kind="said"]')
        await expect(sent_text.locator("strong")).to_have_text("Which", timeout=PATIENCE_MS)
        buttons = page.locator(".buttons button")
        await expect(buttons).to_have_text(["Red", "<b>Blue</b>"], timeout=PATIENCE_MS)
        await expect(page.locator("#stop")).to_be_hidden(timeout=PATIENCE_MS)
        await expect(page.locator(".card.reply")).to_have_count(1)
        await page.reload()
        await expect(buttons).to_have_count(2, timeout=PATIENCE_MS)
        await expect(page.locator(".card.reply")).to_have_count(1)
        await ask(page, "/help")
        await expect(page.locator('.card.reply[data-kind="command"]')).to_have_count(1, timeout=PATIENCE_MS)
        [session] = await sessions(client)
        chat = session.removeprefix("web:")
        await Inbox(client).notify_refusal(message(chat=chat), Refused("sender_limit", "too much", retry_after_s=1))
        await expect(page.locator('.card.reply[data-kind="notice"]')).to_have_count(1, timeout=PATIENCE_MS)
        await expect(buttons).to_have_count(2)
        await buttons.last.focus()
        await page.keyboard.press("Enter")
        await expect(page.locator(".own").last).to_contain_text("<b>Blue</b>")
        await expect(buttons).to_have_count(0)
        await expect(page.locator(".card.reply").last).to_contain_text("Blue it is.", timeout=PATIENCE_MS)


async def test_a_file_of_the_agent_can_be_kept(
    client: RedisClient, spawn: Spawn, model: ScriptedOpenAI, tmp_path: Path
) -> None:
    """It wrote it into its workspace and sends it along."""
    write = Call("write_file", json.dumps({"path": "plan.md", "content": "# Plan"}))
    model.script(
        Answer(match="plan", calls=[write]),
        Answer(match="plan", calls=[say(text="Here it is.", media=["plan.md"])]),
        Answer(match="plan", text="Sent."),
    )
    async with page_at(fleet(spawn, tmp_path)) as page:
        await ask(page, "plan")
        chip = page.locator(".reply button.file")
        await expect(chip.locator(".name")).to_have_text("plan.md", timeout=PATIENCE_MS)
        async with page.expect_download() as download:
            await chip.click()
        saved = await download.value
        assert saved.suggested_filename == "plan.md"
        assert (await saved.path()).read_bytes() == b"# Plan"


async def test_the_agent_reads_the_time_of_the_browser(spawn: Spawn, model: ScriptedOpenAI, tmp_path: Path) -> None:
    """The zone goes with hello, again after a reload."""
    model.script(Answer(text="Good evening.", times=0))
    async with page_at(fleet(spawn, tmp_path), timezone="Pacific/Auckland") as page:
        await ask(page, "what time is it?")
        await expect(page.locator("#transcript")).to_contain_text("Good evening.", timeout=PATIENCE_MS)
    assert "(Pacific/Auckland)" in str(model.requests()[-1].body["messages"][-1]["content"])


async def test_an_answer_by_voice_is_played_in_the_page(spawn: Spawn, model: ScriptedOpenAI, tmp_path: Path) -> None:
    """For whom spoke and said `/voice on`, also after a reload; what they sent is played, too."""
    model.script(
        Answer(role="voice", text="What is the time?", times=0),
        Answer(role="speech", text=wav().decode("latin-1"), times=0),
        Answer(text="It is **late**.", times=0),
    )
    voice = {"VOICE__MODEL": "whisper", "VOICE__SPEAKER": "tts", "VOICE__SPEAKER_FORMAT": "wav"}
    async with page_at(fleet(spawn, tmp_path, **voice)) as page:
        await ask(page, "/voice on")
        await expect(page.locator('.card.reply[data-kind="command"]')).to_have_count(1, timeout=PATIENCE_MS)
        await attach(page, FilePayload(name="note.wav", mimeType="audio/wav", buffer=wav()))
        await expect(page.locator('#attachments li[data-state="ready"]')).to_have_count(1, timeout=PATIENCE_MS)
        await page.locator("#send").click()
        play = page.get_by_role("button", name="answer.wav")
        await expect(play).to_have_count(1, timeout=PATIENCE_MS)
        await expect(page.locator(".own").get_by_role("button", name="note.wav")).to_have_count(1)
        assert await violations(page) == []
        await page.reload()
        await play.click(timeout=PATIENCE_MS)
        player = page.locator(".reply audio")
        await player.evaluate("one => one.ended || new Promise((done) => { one.onended = done; })")
        assert await violations(page) == []
        assert model.requests()[-1].body["input"] == "It is late."


async def test_a_voice_note_is_recorded_shown_as_text_and_answered(
    spawn: Spawn, model: ScriptedOpenAI, tmp_path: Path
) -> None:
    """The microphone stands only where somebody writes down what is said; the note goes like any file."""
    model.script(Answer(role="voice", text="What is the time?"), Answer(text="It is late.", times=0))
    async with page_at(fleet(spawn, tmp_path, VOICE__MODEL="whisper")) as page:
        await page.get_by_role("button", name="Record a voice note").click()
        stop = page.get_by_role("button", name="Stop recording")
        await expect(stop).to_have_attribute("aria-pressed", "true")
        assert await violations(page) == []
        await page.wait_for_timeout(300)  # what is said; a note of nothing has no sound in it
        await stop.click()
        await expect(page.locator('#attachments li[data-state="ready"]')).to_contain_text("voice.", timeout=PATIENCE_MS)
        await page.locator("#send").click()
        await expect(page.locator("#transcript")).to_contain_text(
            "You said: \N{LEFT DOUBLE QUOTATION MARK}What is the time?\N{RIGHT DOUBLE QUOTATION MARK}",
            timeout=PATIENCE_MS,
        )
        await expect(page.locator("#transcript")).to_contain_text("It is late.", timeout=PATIENCE_MS)
    async with page_at(fleet(spawn, tmp_path / "without")) as page:
        await expect(page.locator("#microphone")).to_be_hidden()
