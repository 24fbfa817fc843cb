"""`shoal chat` and the other commands as a person or a script uses them, with real gateways and workers."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import json
import os
import pty
import re
import struct
import subprocess
import sys
import termios
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from shared.media.reference import read_reference
from shared.messages.outbound import OutboundMessage, UserLine
from shared.store.client.redis_client import RedisClient
from shared.store.delivery.outbox import Outbox
from shared.store.turns.inbox import Inbox
from tests.gateway.harness import TOKENS, answers, free_port
from tests.helpers.build import say
from tests.helpers.fleet import holder, replies, workers
from tests.helpers.fleet_fixtures import Spawn
from tests.helpers.openai_server import Answer, Call, ScriptedOpenAI
from tests.helpers.processes import ROOT, Process
from tests.helpers.wait import eventually

SESSION = "web:owner/terminal"
WORDS = " ".join(f"word{i}" for i in range(40))

# What a login does: the terminal becomes the one whose Ctrl-C reaches the program.
_ON_A_TERMINAL = (
    "import fcntl, os, sys, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0); "
    "os.execv(sys.executable, [sys.executable, '-m', 'console', *sys.argv[1:]])"
)


class Fleet:
    """A gateway on a port that stays, and the environment of a person beside it."""

    def __init__(self, spawn: Spawn, redis_url: str, folder: Path) -> None:
        self._spawn = spawn
        self.port = free_port()
        self.environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith("SHOAL_")},
            "SHOAL_REDIS__URL": redis_url,
            "SHOAL_DATA__DIR": str(folder),
            "SHOAL_WEB__PORT": str(self.port),
            "SHOAL_WEB__TOKEN": TOKENS["owner"],
            "TERM": "xterm-256color",
            "HOME": str(folder),  # the history of what is typed is kept there
            "PROMPT_TOOLKIT_NO_CPR": "1",  # nobody answers where the cursor is
        }

    async def gateway(self) -> Process:
        """Start it, the first time or again."""
        process = self._spawn("gateway", WEB__PORT=str(self.port), WEB__TOKENS__OWNER=TOKENS["owner"])
        await eventually(lambda: answers(f"127.0.0.1:{self.port}"), within_s=20, what="the gateway")
        return process

    def worker(self) -> Process:
        return self._spawn("worker", WORKER__LEASE_S="15")

    async def start(self, *arguments: str) -> asyncio.subprocess.Process:
        """`shoal ...` with its ends in pipes."""
        return await asyncio.create_subprocess_exec(
            sys.executable, "-m", "console", *arguments,
            cwd=ROOT, env=self.environment,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )  # fmt: skip

    async def shoal(self, *arguments: str, message: str = "") -> Reported:
        """The same, to its end."""
        return await reported_by(await self.start(*arguments), message)


class Reported(NamedTuple):
    """How a command ended."""

    code: int | None
    out: str
    err: str


async def reported_by(process: asyncio.subprocess.Process, message: str = "") -> Reported:
    async with asyncio.timeout(40):
        out, err = await process.communicate(message.encode())
    return Reported(process.returncode, out.decode(), err.decode())


class Terminal:
    """`shoal ...` on a terminal of its own; `text` is everything that was written to it."""

    def __init__(self, fleet: Fleet, *arguments: str) -> None:
        self._mine, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
        self._process = subprocess.Popen(
            [sys.executable, "-c", _ON_A_TERMINAL, *arguments],
            cwd=ROOT, env=fleet.environment, stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True,
        )  # fmt: skip
        os.close(theirs)
        os.set_blocking(self._mine, False)
        self.text = ""

    def type(self, keys: str) -> None:
        os.write(self._mine, keys.encode())

    def read(self) -> str:
        with contextlib.suppress(BlockingIOError, OSError):
            while data := os.read(self._mine, 65536):
                self.text += data.decode(errors="replace")
        return self.text

    async def shows(self, pattern: str) -> None:
        """Wait until something new on it fits; what was before is forgotten."""

        def found() -> bool:
            match = re.search(pattern, self.read(), re.DOTALL)
            if match:
                self.text = self.text[match.end() :]
            return bool(match)

        try:
            await eventually(found, within_s=20, what=pattern)
        except AssertionError as exc:
            raise AssertionError(f"{exc}; the terminal: {self.text!r}") from None

    async def code(self) -> int:
        """Its exit code."""
        await eventually(lambda: self._process.poll() is not None, within_s=10, what="the end of the command")
        self.read()
        return self._process.wait()

    def close(self) -> None:
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait()
        os.close(self._mine)


@pytest.fixture
async def fleet(client: RedisClient, spawn: Spawn, redis_url: str, tmp_path: Path) -> Fleet:
    """A gateway and a worker."""
    made = Fleet(spawn, redis_url, tmp_path)
    made.worker()
    await made.gateway()
    await workers(client, 1)
    return made


@contextlib.contextmanager
def terminal(fleet: Fleet, *arguments: str) -> Iterator[Terminal]:
    made = Terminal(fleet, *arguments)
    try:
        yield made
    finally:
        made.close()


async def sent(client: RedisClient) -> list[str]:
    """What the person said in the chat, by its log."""
    lines = await Outbox(client).read_after(SESSION, after=0)
    return [line.line.text for line in lines if isinstance(line.line, UserLine)]


async def test_one_message_gets_one_answer_and_nothing_else(fleet: Fleet, model: ScriptedOpenAI) -> None:
    """By -m, by standard input, or as JSON; the answer is clean of what could touch a terminal."""
    model.script(Answer(match="colour", text="\x1b]0;title\x07\x1b[31mred\x1b[0m"))
    assert await fleet.shoal("chat", "-m", "hello") == Reported(0, "echo: hello\n", "")
    assert await fleet.shoal("chat", message="from a pipe\n") == Reported(0, "echo: from a pipe\n", "")
    assert await fleet.shoal("chat", "-m", "what colour?") == Reported(0, "red\n", "")
    result = await fleet.shoal("chat", "--chat", "other", "--json", "-m", "hello")
    assert json.loads(result.out) == {"chat": "other", "seq": 2, "turn": 1, "kind": "reply", "text": "echo: hello"}


async def test_a_worker_that_is_killed_in_the_middle_goes_unnoticed(
    fleet: Fleet, client: RedisClient, model: ScriptedOpenAI
) -> None:
    """SIGKILL while it streams: the answer is printed once and whole."""
    # So slow that it is under way still when a busy machine comes to look.
    model.script(Answer(text=WORDS, delta_s=3), Answer(text=WORDS, delta_s=0.01, times=0))
    fleet.worker()
    await workers(client, 2)
    asking = await fleet.start("chat", "-m", "tell me")
    doomed = await holder(client, SESSION)
    await eventually(lambda: model.stats()["open"] == 1, within_s=10)
    doomed.kill()
    assert await reported_by(asking) == Reported(0, f"{WORDS}\n", "")
    assert await replies(client, SESSION) == [WORDS]


async def test_a_gateway_that_is_killed_in_the_middle_loses_and_doubles_nothing(
    client: RedisClient, spawn: Spawn, redis_url: str, tmp_path: Path, model: ScriptedOpenAI
) -> None:
    """SIGKILL while it streams, another one in its place: one turn, one answer."""
    model.script(Answer(text=WORDS, delta_s=0.15))
    fleet = Fleet(spawn, redis_url, tmp_path)
    fleet.worker()
    doomed = await fleet.gateway()
    await workers(client, 1)
    asking = await fleet.start("chat", "-m", "tell me")
    await eventually(lambda: model.stats()["open"] == 1, within_s=20)
    doomed.kill_group()
    await fleet.gateway()
    result = await reported_by(asking)
    assert (result.code, result.out) == (0, f"{WORDS}\n")
    assert result.err == "(the connection is lost; trying again)\n(connected again)\n"
    assert await sent(client) == ["tell me"]
    assert await replies(client, SESSION) == [WORDS]
    assert model.stats()["requests"] == 1


async def test_what_goes_wrong_is_one_clear_line(fleet: Fleet, client: RedisClient) -> None:
    """No gateway, not ours, a wrong token, a full inbox, a message too long: exit code 1, and what to do."""
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    result = await fleet.shoal("chat", "-m", "x", "--url", url)
    assert result == Reported(
        1, "", f"no gateway at ws://127.0.0.1:{port}/ws: start `make up`, or say where it is with --url\n"
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


async def test_a_full_inbox_is_reported(client: RedisClient, spawn: Spawn, redis_url: str, tmp_path: Path) -> None:
    """Nobody works, fifty wait: the message is not taken, and not sent again behind the person's back."""
    fleet = Fleet(spawn, redis_url, tmp_path)
    await fleet.gateway()
    for _ in range(50):
        await say(Inbox(client), chat="owner/terminal")
    result = await fleet.shoal("chat", "-m", "one more")
    assert result == Reported(1, "", "50 messages already wait in this chat; please wait for answers first\n")


async def test_an_apology_is_found_shown_and_played_again_by_its_reference(
    fleet: Fleet, client: RedisClient, model: ScriptedOpenAI
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
    await eventually(lambda: answered(client, "echo: help me"), within_s=10)
    assert (await fleet.shoal("dead", "show", reference)).code == 1
    assert await fleet.shoal("dead", "list") == Reported(0, "No dead letters.\n", "")


async def answered(client: RedisClient, text: str) -> bool:
    return text in await replies(client, SESSION)


async def test_a_person_talks_stops_and_leaves(fleet: Fleet, client: RedisClient, model: ScriptedOpenAI) -> None:
    """On a terminal: old lines, growing Markdown, tools, Ctrl-C on an answer, in a line and at an empty one."""
    model.script(
        Answer(match="sum", role="user", calls=[Call("calculate", '{"expression": "20 + 22"}')]),
        Answer(match="sum", role="tool", text="It is **42**.\x1b]0;title\x07"),
        Answer(match="story", text=WORDS, delta_s=0.1),
    )
    assert (await fleet.shoal("chat", "-m", "earlier")).code == 0
    with terminal(fleet, "chat") as screen:
        await screen.shows(r"connected as owner.*> earlier.*echo: earlier.*>")
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
    lines = await Outbox(client).read_after(SESSION, after=0)
    kinds = [line.line.kind for line in lines if isinstance(line.line, OutboundMessage)]
    assert kinds == ["reply", "reply", "stopped", "reply"]
    assert await sent(client) == ["earlier", "the sum, please", "a story", "again"]


async def test_a_file_goes_along_with_the_next_message(fleet: Fleet, client: RedisClient, tmp_path: Path) -> None:
    """By /attach, through the gateway's upload; a pasted text of two lines is one message."""
    note = tmp_path / "note.txt"
    note.write_text("buy tea\n")
    with terminal(fleet, "chat") as screen:
        await screen.shows(r"connected as owner.*>")
        screen.type(f"/attach {note}\r")
        await screen.shows(r"attached: note.txt, 8 B; it goes with your next message")
        screen.type("\x1b[200~what is\nin it?\x1b[201~\r")
        await screen.shows(r"echo: what is.*in it\?.*\r\n.*>")
        screen.type("\x04")
        assert await screen.code() == 0
    lines = await Outbox(client).read_after(SESSION, after=0)
    [asked] = [line.line for line in lines if isinstance(line.line, UserLine)]
    assert asked.text == "what is\nin it?"
    assert [read_reference(one).name for one in asked.media] == ["note.txt"]


async def test_commands_go_to_the_gateway_and_their_answers_are_shown(
    client: RedisClient, spawn: Spawn, redis_url: str, tmp_path: Path
) -> None:
    """Without any worker: typed whole or by the Tab key, and by a script; only leaving is the terminal's own."""
    fleet = Fleet(spawn, redis_url, tmp_path)
    await fleet.gateway()
    with terminal(fleet, "chat") as screen:
        await screen.shows("/help shows what you can ask.*>")
        screen.type("/he\t\r")
        await screen.shows("/help")
        await screen.shows("/new.*begin a new conversation.*>")
        screen.type("/new\r")
        await screen.shows("New conversation.*>")
        screen.type("  /quit \r")
        assert await screen.code() == 0
    assert await sent(client) == ["/help", "/new"]
    result = await fleet.shoal("chat", "-m", "/model nobody")
    assert result == Reported(0, "There is no such model here. These are: `default`.\n", "")
    result = await fleet.shoal("chat", "--json", "-m", "/new")
    assert (json.loads(result.out)["kind"], result.code) == ("command", 0)


async def test_a_chat_that_is_opened_in_the_middle_of_an_answer_shows_it_first(
    fleet: Fleet, client: RedisClient, model: ScriptedOpenAI
) -> None:
    """Asked elsewhere, seen here; Ctrl-C stops it as if it were ours."""
    model.script(Answer(text=WORDS, delta_s=0.1))
    await say(Inbox(client), "asked elsewhere", chat="owner/terminal")
    await eventually(lambda: model.stats()["open"] == 1, within_s=15)
    with terminal(fleet, "chat") as screen:
        await screen.shows(r"> asked elsewhere.*word3")
        screen.type("\x03")
        await screen.shows(r"\(stopped\).*>")
        screen.type("\x04")
        assert await screen.code() == 0


async def test_one_message_streams_on_a_terminal_and_can_be_stopped(fleet: Fleet, model: ScriptedOpenAI) -> None:
    """Ctrl-C: what was written stands, and the exit code says that it was cut."""
    model.script(Answer(text=WORDS, delta_s=0.1))
    with terminal(fleet, "chat", "-m", "a story") as screen:
        await screen.shows("word3")
        screen.type("\x03")
        await screen.shows(r"\(stopped\)")
        assert await screen.code() == 130


async def test_a_terminal_lives_through_the_death_of_its_gateway(
    client: RedisClient, spawn: Spawn, redis_url: str, tmp_path: Path, model: ScriptedOpenAI
) -> None:
    """What is typed while nobody is there is sent when somebody is; each line is said once."""
    fleet = Fleet(spawn, redis_url, tmp_path)
    fleet.worker()
    doomed = await fleet.gateway()
    await workers(client, 1)
    with terminal(fleet, "chat") as screen:
        await screen.shows(r"connected as owner.*>")
        doomed.kill_group()
        screen.type("are you there?\r")
        await screen.shows("connection is lost")
        await fleet.gateway()
        await screen.shows(r"connected again.*echo: are you there\?.*>")
        screen.type("\x04")
        assert await screen.code() == 0
    assert await sent(client) == ["are you there?"]
    assert await replies(client, SESSION) == ["echo: are you there?"]


async def test_status_and_doctor_see_the_fleet_as_it_is(fleet: Fleet, client: RedisClient) -> None:
    """Real processes: both are there, healthy but for the fsync of the tests' server, and a job comes back."""
    result = await fleet.shoal("doctor", "--probe", "--json")
    checks = {check["name"]: check for check in json.loads(result.out)["checks"]}
    assert [name for name, check in checks.items() if check["outcome"] == "failed"] == ["appendfsync"]
    assert checks["probe"]["found"].startswith("a worker ran a test job in ")
    assert checks["model"]["found"] == "openai/scripted"
    result = await fleet.shoal("status", "--json")
    found = json.loads(result.out)
    assert [problem["code"] for problem in found["problems"]] == ["fsync"]
    assert [one["kind"] for one in found["processes"]] == ["gateway", "worker"]
    table = (await fleet.shoal("status")).out
    [gateway] = [row for row in table.splitlines() if f"127.0.0.1:{fleet.port}" in row]
    [worker] = [row for row in table.splitlines() if "turns,jobs" in row]
    assert re.search(r" ready +web ", gateway)
    assert re.search(r" ready +0 of 100 .* openai/scripted ", worker)


async def test_a_terminal_shows_how_far_it_is_with_all_letters(fleet: Fleet, client: RedisClient) -> None:
    """A bar, only where somebody sees it."""
    for n in range(300):
        await client.command(
            "XADD", "shoal:{0ax}:dead", "*", "member", "turn:web:a", "n", n, "reason", f"error {n:08x}", "m", ""
        )
    with terminal(fleet, "dead", "drop", "--all", "--yes") as screen:
        assert await screen.code() == 0
        assert "dropping" in screen.text
        assert "Dropped 300 letters." in screen.text
    assert await client.command("XLEN", "shoal:{0ax}:dead") == 0
