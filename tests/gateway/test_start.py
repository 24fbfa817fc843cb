"""Starting and ending the process."""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import os
import signal
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from websockets.exceptions import InvalidStatus

from gateway.platform.registry import PLATFORMS
from shared.embedded import EmbeddedValkey
from shared.store.client.redis_client import RedisClient
from shared.store.fleet.presence import list_processes
from tests.gateway.harness import ROOT, TOKENS, answers, client, process, stranger
from tests.helpers.need import need
from tests.helpers.wait import eventually

NOWHERE = "redis://127.0.0.1:1/0"


@pytest.fixture
def frozen(valkey: EmbeddedValkey) -> Iterator[Callable[[], None]]:
    """Stops Redis, which goes on when the test is over."""
    assert valkey.pid is not None
    yield lambda: os.kill(valkey.pid or 0, signal.SIGSTOP)
    os.kill(valkey.pid, signal.SIGCONT)


FORBIDDEN = ("arq", "litellm", "worker", "openai", "aiohttp", "pydantic", "httpx")


def test_a_gateway_imports_nothing_of_a_worker() -> None:
    """Start time, memory and attack surface: the agent's libraries stay out."""
    code = (
        "import sys, gateway.app, gateway.channels.web.channel\n"
        f"print([name for name in {FORBIDDEN!r} if name in sys.modules])"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=True)
    assert found.stdout.strip() == "[]"


async def test_it_is_ready_within_a_second_and_small(redis_url: str) -> None:
    """So that a fleet grows and heals quickly. Counted in seconds of a core, whatever else the machine does."""
    need("/proc", found=Path("/proc/self/status").exists(), install="a Linux with /proc")
    with process(redis_url) as gw:
        await gw.ready()
        assert cpu_seconds(gw.popen.pid) < 1.0
        status = Path(f"/proc/{gw.popen.pid}/status").read_text()
        rss_kb = int(status.split("VmRSS:")[1].split()[0])
        assert rss_kb < 80 * 1024


def cpu_seconds(pid: int) -> float:
    """What the process used of a core so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / 100


async def test_an_unknown_channel_is_one_clear_line(redis_url: str) -> None:
    """It names what there is; exit code 2."""
    with process(redis_url, "carrier-pigeon") as gw:
        assert await gw.exit_code(60) == 2
        known = ", ".join(sorted([*PLATFORMS, "web", "hook"]))
        assert gw.log.read_text() == f"there is no channel 'carrier-pigeon'; the channels are: {known}\n"


async def test_a_port_in_use_is_one_clear_line(redis_url: str) -> None:
    """It names the setting; exit code 2."""
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        with process(redis_url, SHOAL_WEB__PORT=str(port)) as gw:
            assert await gw.exit_code(60) == 2
            lines = gw.log.read_text().splitlines()
            assert lines == [
                f"web.port {port} on '127.0.0.1' is taken; stop what uses it, or set another one (0 = any free)"
            ]


async def test_without_a_token_it_does_not_start(redis_url: str) -> None:
    """A blank secret is no open door."""
    with process(redis_url, SHOAL_WEB__TOKENS__OWNER="") as gw:
        assert await gw.exit_code(60) == 2
        assert gw.log.read_text().startswith("web.token is not set")


async def test_it_starts_while_redis_is_away_and_is_ready_when_redis_is_there(
    redis_url: str, valkey: EmbeddedValkey
) -> None:
    """Pods start in any order."""
    valkey.kill()
    with process(redis_url) as gw:
        await eventually(lambda: gw.readiness() == 503, within_s=60)
        assert answers(gw.address)
        valkey.start()
        await gw.ready()
        async with client(gw.address) as me:
            await me.say("a", "hello")
        valkey.kill()
        await eventually(lambda: gw.readiness() == 503, within_s=60)
        valkey.start()
        await gw.ready()


async def test_it_says_that_it_is_there_and_takes_that_back(redis_url: str) -> None:
    """What `shoal status` shows."""
    redis = RedisClient(redis_url)
    with process(redis_url) as gw:
        await gw.ready()
        async with client(gw.address):

            async def record() -> bool:
                found = [one for one in await list_processes(redis) if one.kind == "gateway"]
                return len(found) == 1 and found[0].details.get("web.address") == gw.address

            await eventually(record)
        gw.popen.terminate()
        assert await gw.exit_code(60) == 0
        assert await list_processes(redis) == []
    await redis.close()


async def test_sigterm_drains_and_ends_with_zero(redis_url: str) -> None:
    """Open sockets get 1012, readiness goes first, and it takes a few seconds at most."""
    with process(redis_url) as gw:
        await gw.ready()
        async with client(gw.address) as me:
            await me.say("a", "hello")
            gw.popen.terminate()
            assert await me.closed() == 1012
        assert await gw.exit_code(60) == 0


async def test_while_it_ends_it_sends_everybody_elsewhere(redis_url: str, frozen: Callable[[], None]) -> None:
    """At once not ready; new sockets, new requests and those on old connections get 503 with a time to wait; open
    sockets 1012. A message that Redis does not answer holds it there for a moment."""
    with process(redis_url) as gw:
        await gw.ready()
        held = http.client.HTTPConnection(gw.address, timeout=30)
        assert requested(held).status == 200
        async with client(gw.address) as me, client(gw.address) as idle:
            frozen()
            await me.send("message", id="m1", chat="a", text="hi")
            await me.pong()
            gw.popen.terminate()
            await eventually(lambda: gw.readiness() == 503)
            with pytest.raises(InvalidStatus) as refused:
                async with stranger(gw.address):
                    pass
            answer = refused.value.response
            assert (answer.status_code, answer.headers["Retry-After"]) == (503, "1")
            for connection in (held, http.client.HTTPConnection(gw.address, timeout=30)):
                output = await asyncio.to_thread(requested, connection)
                assert (output.status, output.getheader("Retry-After"), output.getheader("Connection")) == (
                    503,
                    "1",
                    "close",
                )
                assert output.getheader("Content-Type") == "application/problem+json"
                connection.close()
            assert await idle.closed() == 1012
            assert await me.closed() == 1012
        assert await gw.exit_code(60) == 0
        assert not answers(gw.address)


def requested(connection: http.client.HTTPConnection) -> http.client.HTTPResponse:
    """The page, on a connection that may be an old one."""
    connection.request("GET", "/")
    answer = connection.getresponse()
    answer.read()
    return answer


async def test_sigterm_works_while_redis_is_away(redis_url: str, valkey: EmbeddedValkey) -> None:
    """Also with a message under way: it is refused or left unanswered, never half taken."""
    with process(redis_url) as gw:
        await gw.ready()
        async with client(gw.address) as me:
            valkey.kill()
            await me.send("message", id="m1", chat="a", text="hi")
            await me.pong()
            gw.popen.terminate()
            assert await me.closed() == 1012
            assert not [frame for frame in me.seen if frame["type"] == "accepted"]
        assert await gw.exit_code(60) == 0


async def test_no_text_of_a_message_and_no_secret_is_in_the_log(redis_url: str) -> None:
    """Not at debug level either; tokens in addresses neither."""
    with process(redis_url, SHOAL_LOG__LEVEL="debug") as gw:
        await gw.ready()
        async with client(gw.address, path="/ws?token=in-the-address") as me:
            await me.say("secret-chat", "a private matter")
            await me.raw('{"type":"message","text":"another private matter"')
            await me.next("error")
        with contextlib.suppress(OSError):
            await asyncio.to_thread(urllib.request.urlopen, f"http://{gw.address}/?token=in-the-address", None, 5)
        gw.popen.terminate()
        assert await gw.exit_code(60) == 0
        log = gw.log.read_text()
        assert "web listening" in log
        for word in ("private", "secret-chat", "in-the-address", *TOKENS.values()):
            assert word not in log


@pytest.mark.parametrize("name", ["shoal_messages_accepted_total", "shoal_messages_duplicate_total"])
async def test_messages_are_counted(redis_url: str, name: str) -> None:
    """By channel, and never by chat."""
    with process(redis_url) as gw:
        await gw.ready()
        async with client(gw.address) as me:
            for _ in range(2):
                await me.say("canary-chat", "hello", id="m1")
        with await asyncio.to_thread(
            urllib.request.urlopen, f"http://127.0.0.1:{gw.metrics_port}/metrics", None, 5
        ) as answer:
            text = answer.read().decode()
        assert f'{name}{{channel="web"}} 1.0' in text
        assert "canary" not in text
