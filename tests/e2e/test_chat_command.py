"""`shoal chat` and the other commands as a person or a script uses them, with a real gateway and a real worker."""

from __future__ import annotations

import asyncio
import json
import re
from pathlib import Path

import pytest
import pytest_asyncio

from shared.media.reference import read_reference
from shared.messages.outbound import OutboundMessage, UserLine
from shared.store.client.redis_client import RedisClient
from shared.store.delivery.outbox import Outbox
from shared.store.turns.inbox import Inbox
from tests.e2e.terminals import WORDS, Fleet, Reported, sent, terminal
from tests.gateway.harness import free_port
from tests.helpers.build import say
from tests.helpers.fleet import replies
from tests.helpers.fleet_fixtures import KeptFleet
from tests.helpers.openai_server import Answer, Call, ScriptedOpenAI
from tests.helpers.wait import eventually

PEOPLE = [f"person{number}" for number in range(20)]
_people = iter(PEOPLE)


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def chat_port(kept_fleet: KeptFleet) -> int:
    """A gateway and a worker for all these tests. Each has a person of its own."""
    made = Fleet(kept_fleet.spawn, kept_fleet.redis_url, kept_fleet.folder, person=PEOPLE[0])
    made.worker()
    await made.gateway(*PEOPLE[1:])
    return made.port


@pytest.fixture
def fleet(kept_fleet: KeptFleet, chat_port: int, tmp_path: Path) -> Fleet:
    """The gateway and the worker that all share, and somebody who has never been there."""
    return Fleet(kept_fleet.spawn, kept_fleet.redis_url, tmp_path, port=chat_port, person=next(_people))


async def test_one_message_gets_one_answer_and_nothing_else(fleet: Fleet, model: ScriptedOpenAI) -> None:
    """By -m, by standard input, by both, or as JSON; the answer is clean of what could touch a terminal."""
    model.script(Answer(match="colour", text="\x1b]0;title\x07\x1b[31mred\x1b[0m"))
    assert await fleet.shoal("chat", "-m", "hello") == Reported(0, "echo: hello\n", "")
    assert await fleet.shoal("chat", message="from a pipe\n") == Reported(0, "echo: from a pipe\n", "")
    assert await fleet.shoal("chat", "-m", "what colour?") == Reported(0, "red\n", "")
    both = await fleet.shoal("chat", "-m", "explain:", "-", message="a\n\ndiff\n")
    assert both == Reported(0, "echo: explain:\n\na\n\ndiff\n", "")
    result = await fleet.shoal("chat", "--chat", "other", "--json", "-m", "hello")
    assert json.loads(result.out) == {"chat": "other", "seq": 2, "turn": 1, "kind": "reply", "text": "echo: hello"}


async def test_a_pipe_that_stays_open_makes_nothing_wait(fleet: Fleet) -> None:
    """Standard input is not read without the dash: what is in it goes to nobody."""
    process = await fleet.start("chat", "-m", "hello")
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(b"for the next command\n")
    async with asyncio.timeout(90):
        assert await process.stdout.read() == b"echo: hello\n"
        assert await process.wait() == 0


async def test_what_goes_wrong_is_one_clear_line(fleet: Fleet, kept_client: RedisClient) -> None:
    """No gateway, not ours, a wrong token, a full inbox, a message too long: exit code 1, and what to do."""
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    result = await fleet.shoal("chat", "-m", "x", "--url", url)
    assert result == Reported(
        1, "", f"no gateway at ws://127.0.0.1:{port}/ws: start `shoal up`, or say where it is with --url\n"
    )
    result = await fleet.shoal("chat", "-m", "x", "--url", f"ws://127.0.0.1:{fleet.port}/nothing")
    assert (result.code, result.err.count("\n")) == (1, 1)
    assert "there is no Shoal gateway at" in result.err
    result = await fleet.shoal("chat", "-m", "x", "--token", "wrong")
    assert (result.code, result.err.count("\n")) == (1, 1)
    assert "does not take this token" in result.err
    result = await fleet.shoal("chat", message="y" * 70_000)
    assert (result.code, result.err.count("\n")) == (1, 1)
    assert "70,000 bytes" in result.err
    assert (await fleet.shoal("chat", "-m", " ")).code == 2
    assert (await fleet.shoal("chat", "-m", "x", "--chat", "no/slash")).code == 2


async def test_an_apology_is_found_shown_and_played_again_by_its_reference(
    fleet: Fleet, kept_client: RedisClient, model: ScriptedOpenAI
) -> None:
    """From what the person saw to the answer they get in the end; the exit code of the apology is 1."""
    model.script(Answer(status=400, error={"message": "no"}))
    result = await fleet.shoal("chat", "-m", "help me")
    assert result.code == 1
    [reference] = re.findall(r"\(reference ([0-9a-f]{8})\)", result.out)
    shown = await fleet.shoal("dead", "show", reference, "--text")
    assert shown.code == 0
    assert shown.out.endswith("\n\nhelp me\n")
    assert await fleet.shoal("dead", "replay", reference) == Reported(0, "Put back 1 message.\n", "")
    await eventually(lambda: answered(kept_client, fleet.session, "echo: help me"))
    assert (await fleet.shoal("dead", "show", reference)).code == 1
    assert await fleet.shoal("dead", "list") == Reported(0, "No dead letters.\n", "")


async def answered(client: RedisClient, session: str, text: str) -> bool:
    return text in await replies(client, session)


async def test_a_person_talks_stops_and_leaves(fleet: Fleet, kept_client: RedisClient, model: ScriptedOpenAI) -> None:
    """On a terminal: old lines, growing Markdown, tools, Ctrl-C on an answer, in a line and at an empty one."""
    model.script(
        Answer(match="sum", role="user", calls=[Call("calculate", '{"expression": "20 + 22"}')]),
        Answer(match="sum", role="tool", text="It is **42**.\x1b]0;title\x07"),
        Answer(match="story", text=WORDS, stall_after=20),
    )
    assert (await fleet.shoal("chat", "-m", "earlier")).code == 0
    with terminal(fleet, "chat") as screen:
        await screen.shows(rf"connected as {fleet.person}.*> earlier.*echo: earlier.*>")
        screen.type("the sum, please\r")
        await screen.shows(r"calculate\(.*It is \x1b\[1m42\x1b\[0m\..*>")
        screen.type("a story\r")
        await screen.shows("word3")
        screen.type("\x03")
        await screen.shows(r"\(stopped\).*>")
        screen.type("half a li")
        await screen.shows("half a li")
        screen.type("\x03\x1b[A")
        await screen.shows("a story")
        screen.type("\x15again\r")
        await screen.shows(r"echo: again.*>")
        screen.type("\x03")
        assert await screen.code() == 0
        assert "\x1b]0;" not in screen.text
    lines = await Outbox(kept_client).read_after(fleet.session, after=0)
    kinds = [line.line.kind for line in lines if isinstance(line.line, OutboundMessage)]
    assert kinds == ["reply", "reply", "stopped", "reply"]
    assert await sent(kept_client, fleet.session) == ["earlier", "the sum, please", "a story", "again"]


async def test_a_file_goes_along_with_the_next_message(fleet: Fleet, kept_client: RedisClient, tmp_path: Path) -> None:
    """By /attach, through the gateway's upload; a pasted text of two lines is one message."""
    note = tmp_path / "note.txt"
    note.write_text("buy tea\n")
    with terminal(fleet, "chat") as screen:
        await screen.shows(rf"connected as {fleet.person}.*>")
        screen.type(f"/attach {note}\r")
        await screen.shows(r"attached: note.txt, 8 B; it goes with your next message")
        screen.type("\x1b[200~what is\nin it?\x1b[201~\r")
        await screen.shows(r"echo: what is.*in it\?.*\r\n.*>")
        screen.type("\x04")
        assert await screen.code() == 0
    lines = await Outbox(kept_client).read_after(fleet.session, after=0)
    [asked] = [line.line for line in lines if isinstance(line.line, UserLine)]
    assert asked.text == "what is\nin it?"
    assert [read_reference(one).name for one in asked.media] == ["note.txt"]


async def test_a_chat_that_is_opened_in_the_middle_of_an_answer_shows_it_first(
    fleet: Fleet, kept_client: RedisClient, model: ScriptedOpenAI
) -> None:
    """Asked elsewhere, seen here; Ctrl-C stops it as if it were ours."""
    model.script(Answer(text=" ".join([WORDS] * 10), delta_s=0.1))
    await say(Inbox(kept_client), "asked elsewhere", chat=f"{fleet.person}/terminal")
    await eventually(lambda: model.stats()["open"] == 1, within_s=60)
    with terminal(fleet, "chat") as screen:
        await screen.shows(r"> asked elsewhere.*word3")
        screen.type("\x03")
        await screen.shows(r"\(stopped\).*>")
        screen.type("\x04")
        assert await screen.code() == 0


async def test_one_message_streams_on_a_terminal_and_can_be_stopped(fleet: Fleet, model: ScriptedOpenAI) -> None:
    """Ctrl-C: what was written stands, and the exit code says that it was cut."""
    model.script(Answer(text=WORDS, stall_after=20))
    with terminal(fleet, "chat", "-m", "a story") as screen:
        await screen.shows("word3")
        screen.type("\x03")
        await screen.shows(r"\(stopped\)")
        assert await screen.code() == 130


async def test_a_terminal_shows_how_far_it_is_with_all_letters(fleet: Fleet, kept_client: RedisClient) -> None:
    """A bar, only where somebody sees it."""
    for n in range(300):
        await kept_client.command(
            "XADD", "shoal:{0ax}:dead", "*", "member", "turn:web:a", "n", n, "reason", f"error {n:08x}", "m", ""
        )
    with terminal(fleet, "dead", "drop", "--all", "--yes") as screen:
        assert await screen.code() == 0
        assert "dropping" in screen.text
        assert "Dropped 300 letters." in screen.text
    assert await kept_client.command("XLEN", "shoal:{0ax}:dead") == 0
