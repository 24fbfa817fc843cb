"""`shoal top` on a real terminal: it comes, it goes, and it leaves nothing behind."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from shared.embedded import EmbeddedValkey
from shared.ids import log_id, nonce
from shared.store import keys
from shared.store.client.redis_client import RedisClient
from shared.store.fleet.presence import announce
from shared.store.turns.inbox import Inbox
from shared.store.turns.queue import LeaseQueue
from tests.helpers.build import say
from tests.helpers.fleet_seen import gateway, worker
from tests.helpers.terminal import ENTER_SCREEN, ROOT, OnTerminal
from tests.helpers.wait import eventually_sync

Start = Callable[..., OnTerminal]


def appear(url: str) -> None:
    """Two processes say that they live."""

    async def both() -> None:
        client = RedisClient(url)
        await announce(client, worker("worker-one"))
        await announce(client, gateway("gateway-one"))
        await client.close()

    asyncio.run(both())


@pytest.fixture
def start(redis_url: str, tmp_path: Path) -> Iterator[Start]:
    appear(redis_url)
    started: list[OnTerminal] = []

    def one(*words: str, **more: str) -> OnTerminal:
        started.append(OnTerminal("top", *words, cwd=tmp_path, **{"SHOAL_REDIS__URL": redis_url, **more}))
        return started[-1]

    yield one
    for terminal in started:
        terminal.close()


def test_q_ends_it_and_the_terminal_is_as_it_was(start: Start) -> None:
    """The real command against a real server: both processes are there, exit code 0."""
    terminal = start()
    terminal.shows(ENTER_SCREEN, "worker-one", "gateway-one", "12 of 100", "q quit")
    assert terminal.modes() != terminal.before
    terminal.type("q")
    assert terminal.ended() == 0
    terminal.given_back()
    assert "Traceback" not in terminal.text


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_a_signal_ends_it_as_well(start: Start, number: signal.Signals, code: int) -> None:
    """Ctrl-C, a shell that ends, a window that is closed."""
    terminal = start()
    terminal.shows("worker-one")
    terminal.send(number)
    assert terminal.ended() == code
    terminal.given_back()


def test_keys_sort_and_pause(start: Start) -> None:
    """Page up, which comes as several characters, is none of them."""
    terminal = start("--every", "0.2")
    terminal.shows("s sort: name")
    terminal.type("\x1b[5~")
    terminal.type("s")
    terminal.shows("s sort: runs")
    terminal.type("p")
    terminal.shows("paused", "p go on")
    terminal.type("p")
    terminal.shows("p pause", after=terminal.text.rindex("p go on"))
    terminal.type("q")
    assert terminal.ended() == 0


def begin_turn(url: str) -> str:
    """A turn that runs; return the name of its worker."""

    async def run() -> str:
        client = RedisClient(url)
        owner = nonce()
        await announce(client, worker(owner[:12]))
        await say(Inbox(client), chat="owner/tea")
        await LeaseQueue(client, "turns", owner=owner, lease_s=600).acquire(1)
        await client.close()
        return owner[:12]

    return asyncio.run(run())


def stop_of(url: str) -> bytes | None:
    async def run() -> bytes | None:
        client = RedisClient(url)
        found = await client.command("HGET", keys.session("web:owner/tea"), "stop")
        await client.close()
        return found  # type: ignore[no-any-return]

    return asyncio.run(run())


def test_a_turn_is_chosen_looked_at_and_stopped(start: Start, redis_url: str) -> None:
    """Arrows, Enter, l, Esc; x asks, and only y stops."""
    terminal = start("--every", "3600")
    terminal.shows("worker-one", "choose")
    name = begin_turn(redis_url)
    terminal.type("\x1b[B")
    terminal.shows("web:owner/tea", name, "Enter details")
    terminal.type("\x1b[A")  # the first row, whichever was there when the list was opened
    for _ in range(3):
        terminal.type("\x1b[A")
    terminal.shows("x stop")
    at = len(terminal.text)
    terminal.type("\n")
    terminal.shows("turn web:owner/tea", "in the inbox", log_id("web:owner/tea"), after=at)
    terminal.type("l")
    terminal.shows("There is no log of `shoal up`", after=at)
    at = len(terminal.text)
    terminal.type("\x1b")
    terminal.shows("Enter details", after=at)
    at = len(terminal.text)
    terminal.type("x")
    terminal.shows("Stop the turn of web:owner/tea? y/n", after=at)
    at = len(terminal.text)
    terminal.type("n")
    terminal.shows("Enter details", after=at)
    assert stop_of(redis_url) is None
    at = len(terminal.text)
    terminal.type("x")
    terminal.shows("y/n", after=at)
    terminal.type("y")
    terminal.shows("stopped", after=at)
    assert stop_of(redis_url) is not None
    terminal.type("q")
    assert terminal.ended() == 0
    terminal.given_back()
    assert "Traceback" not in terminal.text


def test_it_is_drawn_anew_for_another_window(start: Start) -> None:
    """At once, however seldom it looks."""
    terminal = start("--every", "3600")
    terminal.shows("worker-one")
    at = len(terminal.text)
    terminal.resize(150, 40)
    terminal.send(signal.SIGWINCH)  # what the kernel sends to a foreground job
    terminal.shows("turns,jobs", after=at)
    terminal.type("q")
    assert terminal.ended() == 0


def test_it_can_be_put_to_sleep_and_woken(start: Start) -> None:
    """Ctrl-Z gives the terminal back, fg takes it again."""
    terminal = start()
    terminal.shows("worker-one")
    terminal.send(signal.SIGTSTP)
    there = psutil.Process(terminal.process.pid)
    eventually_sync(lambda: there.status() == psutil.STATUS_STOPPED, 60)
    terminal.given_back()
    at = len(terminal.text)
    terminal.send(signal.SIGCONT)
    terminal.shows(ENTER_SCREEN, "worker-one", after=at)
    terminal.type("q")
    assert terminal.ended() == 0
    terminal.given_back()


def test_it_stays_while_redis_is_away(start: Start, valkey: EmbeddedValkey) -> None:
    """And goes on by itself."""
    terminal = start("--every", "0.2")
    terminal.shows("worker-one")
    valkey.kill()
    terminal.shows("Redis is away")
    at = len(terminal.text)
    valkey.start()
    appear(valkey.url)
    terminal.shows("worker-one", "thing", after=at)
    terminal.type("q")
    assert terminal.ended() == 0


def test_it_waits_for_a_redis_that_is_not_there_yet(start: Start) -> None:
    """In an incident it is started before Redis is back."""
    terminal = start(SHOAL_REDIS__URL="redis://:canary@127.0.0.1:1/0")
    terminal.shows("Redis is away", "redis://:***@127.0.0.1:1/0")
    terminal.type("q")
    assert terminal.ended() == 0
    assert "canary" not in terminal.text


@pytest.mark.parametrize("environ", [{"NO_COLOR": "1"}, {"TERM": "dumb"}])
def test_a_terminal_without_colours_gets_none(start: Start, environ: dict[str, str]) -> None:
    """NO_COLOR is honoured; one that cannot do anything gets one look after the other, as text."""
    terminal = start("--every", "0.2", **environ)
    terminal.shows("worker-one")
    colours = [f"\x1b[{code}m" for code in ("31", "1;31", "32", "1;32", "33")]
    assert [code for code in colours if code in terminal.text] == []
    if "TERM" in environ:
        assert "\x1b[" not in terminal.text
        terminal.send(signal.SIGINT)
        assert terminal.ended() == 130
    else:
        terminal.type("q")
        assert terminal.ended() == 0


def test_looks_follow_one_another_as_lines_of_json(redis_url: str, valkey: EmbeddedValkey, tmp_path: Path) -> None:
    """Also through a time without Redis; whoever reads may stop."""
    appear(redis_url)
    process = subprocess.Popen(
        [sys.executable, "-m", "console", "top", "--json", "--every", "0.2"],
        cwd=tmp_path,
        env={"PYTHONPATH": str(ROOT), "SHOAL_REDIS__URL": redis_url, "PATH": ""},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stderr is not None
    with process.stdout, process.stderr:
        seen = [json.loads(process.stdout.readline()) for _ in range(2)]
        assert [one["away"] for one in seen] == [None, None]
        valkey.kill()
        while json.loads(process.stdout.readline())["away"] is None:
            pass
        away = json.loads(process.stdout.readline())
        assert "Redis is away" in away["away"]["why"]
        assert {key for key, value in away.items() if value is not None} == {"away"}
        valkey.start()
        while json.loads(process.stdout.readline())["away"] is not None:
            pass
        process.stdout.close()
        assert process.wait(60) == 1
        assert "Traceback" not in process.stderr.read()
