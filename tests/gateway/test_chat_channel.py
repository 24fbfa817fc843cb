"""A channel of a chat platform over its life: opened, off with a reason, mended, closed."""

from __future__ import annotations

import asyncio
import os
import urllib.error
import urllib.request
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from gateway.chat_channel import ChatChannel
from gateway.commands.registry import build_commands
from gateway.ingress.ingest import Ingress
from gateway.platform import registry
from gateway.platform.access import AccessSettings
from gateway.platform.protocol import ChannelBroken, NotAccepted, Platform
from gateway.platform.registry import BuiltPlatform, PlatformContext
from gateway.platform.webhooks import WebhookServer
from shared.metrics import CHANNEL_ON
from shared.settings import Settings, load
from shared.store.client.redis_client import RedisClient
from tests.fakes.pond import FakePond
from tests.gateway.fake_platform import FakePlatform
from tests.gateway.harness import Process, process
from tests.helpers.pond_package import pond_package
from tests.helpers.wait import eventually

SOON_S = 60.0
FAKES: dict[str, FakePlatform] = {}


def make(given: PlatformContext) -> BuiltPlatform:
    """The factory of `fake` in PLATFORMS in these tests."""
    platform: Platform = FAKES[given.name]
    return BuiltPlatform(platform, AccessSettings())


class Running:
    """A channel that runs in this process."""

    def __init__(self, redis_url: str, platform: FakePlatform, settings: Settings) -> None:
        FAKES[platform.name] = platform
        self.platform = platform
        self.stop = asyncio.Event()
        self.client = RedisClient(redis_url)
        self.hooks = WebhookServer(settings.hooks, self.stop)
        self.channel = ChatChannel(platform.name, settings, self.client, self.hooks)
        sink = Ingress(self.client, build_commands(settings, self.client))
        self.task = asyncio.create_task(self.channel.listen(sink, self.stop))

    @property
    def state(self) -> str:
        return self.channel.facts()["fake.state"]

    async def is_(self, state: str) -> None:
        await eventually(lambda: self.state == state, within_s=SOON_S, what=state)

    async def close(self) -> None:
        self.stop.set()
        await asyncio.wait({self.task})
        await self.client.close()


class Runs:
    """Makes them."""

    def __init__(self, redis_url: str, settings: Settings) -> None:
        self.redis_url, self.settings = redis_url, settings
        self.all: list[Running] = []

    def __call__(self, platform: FakePlatform) -> Running:
        self.all.append(Running(self.redis_url, platform, self.settings))
        return self.all[-1]


@pytest.fixture
async def run(redis_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Runs]:
    monkeypatch.setitem(registry.PLATFORMS, "fake", f"{__name__}:make")
    monkeypatch.chdir(tmp_path)
    made = Runs(redis_url, load({"SHOAL_CHANNELS__FAKE__ON": "true", "SHOAL_WORKER__LEASE_S": "60"}))
    yield made
    for one in made.all:
        await one.close()


async def test_it_opens_listens_and_closes(run: Runs) -> None:
    """In this order, and what it says of itself is what operators see."""
    one = run(FakePlatform())
    await one.is_("on")
    await eventually(one.platform.listening.is_set, within_s=SOON_S)
    assert one.channel.facts() == {
        "fake.state": "on",
        "fake.run": "exclusive",
        "fake.listens": "true",
        "fake.chats": "0",
    }
    assert CHANNEL_ON.labels("fake")._value.get() == 1
    await one.close()
    assert one.platform.closed
    assert one.task.exception() is None
    assert (one.state, CHANNEL_ON.labels("fake")._value.get()) == ("closed", 0)


async def test_a_platform_that_is_away_at_the_start_is_tried_again(run: Runs, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody starts a process again because of it."""
    monkeypatch.setattr("gateway.platform.opening.FIRST_S", 0.05)
    platform = FakePlatform()
    gate = asyncio.Event()
    platform.fault("open", NotAccepted("no connection"), TimeoutError(), KeyError("a bug"), gate.wait)
    one = run(platform)
    await eventually(lambda: platform.calls.count("open") == 4, within_s=SOON_S)
    assert (one.state, one.channel.why_off) == ("away", "KeyError in the channel's code")
    gate.set()
    await one.is_("on")
    assert one.channel.why_off == ""


async def test_a_broken_channel_is_off_with_its_reason_until_it_is_mended(
    run: Runs, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By a person, at the platform: it is looked at again now and then."""
    monkeypatch.setattr("gateway.platform.opening.MENDED_S", 0.3)
    platform = FakePlatform()
    platform.fault("open", ChannelBroken("the token is wrong: write a new one\ninto the settings"))
    one = run(platform)
    await one.is_("off")
    assert one.channel.facts()["fake.why"] == "the token is wrong: write a new one into the settings"
    await one.is_("on")


async def test_a_channel_that_breaks_while_it_listens_is_off_and_rests(run: Runs) -> None:
    """Its deliveries rest, too. That it can be opened does not mean that it was mended."""
    platform = FakePlatform()
    broken = asyncio.Event()

    async def break_down() -> None:
        await broken.wait()
        raise ChannelBroken("the bot was deleted")

    platform.fault("listen", break_down)
    one = run(platform)
    await one.is_("on")
    broken.set()
    await one.is_("off")
    assert one.channel.why_off == "the bot was deleted"
    assert platform.calls.count("open") == 1
    assert not one.task.done()


async def test_an_end_while_it_cannot_be_opened_is_quick(run: Runs) -> None:
    """Also in the middle of a call."""
    platform = FakePlatform()
    platform.fault("open", asyncio.Event().wait)
    one = run(platform)
    await eventually(lambda: "open" in platform.calls, within_s=SOON_S)
    async with asyncio.timeout(10):
        await one.close()
    assert platform.closed


async def test_a_webhook_is_answered_only_while_the_channel_is_open(run: Runs) -> None:
    """Before, the platform is told to come again."""
    platform = FakePlatform(run_mode="webhook")
    gate = asyncio.Event()
    platform.fault("open", gate.wait)
    one = run(platform)
    assert one.hooks._handlers == {"fake": None}
    gate.set()
    await one.is_("on")
    await eventually(lambda: one.hooks._handlers["fake"] is not None, within_s=SOON_S)
    await one.close()
    assert one.hooks._handlers == {"fake": None}


# --- as a process


@pytest.fixture
def path() -> Iterator[str]:
    with pond_package() as found:
        yield os.pathsep.join([*found, str(Path(__file__).parents[2])])


def environ(pond: FakePond, path: str, **more: str) -> dict[str, Any]:
    return {
        "PYTHONPATH": path,
        "SHOAL_CHANNELS__POND__API": pond.address,
        "SHOAL_CHANNELS__POND__TOKEN": "pond-token",
        "SHOAL_HOOKS__PORT": "0",
        **more,
    }


def ready(gateway: Process) -> str:
    """What /readyz says; '' when nobody answers."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{gateway.metrics_port}/readyz", timeout=5) as answer:
            return str(answer.read().decode())
    except urllib.error.HTTPError as exc:
        with exc:
            return f"{exc.code} {exc.read().decode()}"
    except OSError:
        return ""


async def test_without_names_the_web_chat_and_what_is_on_is_run(redis_url: str, path: str) -> None:
    """A broken one takes the other with it nowhere: it is named where operators look."""
    async with FakePond().serving() as pond:
        with process(redis_url, **environ(pond, path, SHOAL_CHANNELS__POND__TOKEN="wrong")) as gateway:
            await eventually(lambda: "pond:" in ready(gateway), within_s=SOON_S, what=gateway.log.read_text)
            assert ready(gateway) == (
                "ready\npond: Pond does not know the token: write a new one into channels.pond.token\n"
            )
            gateway.popen.terminate()
            assert await gateway.exit_code(SOON_S) == 0


async def test_a_gateway_whose_only_channel_is_off_is_not_ready(redis_url: str, path: str) -> None:
    """Its process stays: there is nothing that starting it again would mend."""
    async with FakePond().serving() as pond:
        with process(redis_url, "pond", **environ(pond, path, SHOAL_CHANNELS__POND__TOKEN="wrong")) as gateway:
            await eventually(lambda: ready(gateway).startswith("503 pond: Pond does not"), within_s=SOON_S)
            assert gateway.popen.poll() is None


async def test_a_gateway_of_one_platform_runs_and_ends(redis_url: str, path: str) -> None:
    """Named, without the web chat; at SIGTERM it is gone in seconds."""
    async with FakePond().serving() as pond:
        with process(redis_url, "pond", **environ(pond, path)) as gateway:
            await eventually(lambda: pond.polls == 1, within_s=SOON_S, what="the poll")
            assert ready(gateway) == "ready\n"
            gateway.popen.terminate()
            assert await gateway.exit_code(SOON_S) == 0


OTHERS = ("hook", "pond", "web")

WRONG = {
    "a secret is missing": ((), {}, "channels.pond.token is missing; it must be text, not empty"),
    "it is off": (("pond",), {"ON": "false"}, "channels.pond.on is false; set it to true, or do not start 'pond'"),
    "no such channel": (
        ("frog",),
        {},
        f"there is no channel 'frog'; the channels are: {', '.join(sorted([*registry.PLATFORMS, *OTHERS]))}",
    ),
    "its own rule": (
        (),
        {"TOKEN": "x", "RUN": "webhook"},
        "channels.pond.secret is missing; the webhook believes only what it signs",
    ),
    "no such run mode": (
        (),
        {"TOKEN": "x", "RUN": "socket"},
        "channels.pond.run is 'socket', which it cannot do; it can: exclusive, webhook",
    ),
    "no such key": (
        (),
        {"TOKEN": "x", "POLL": "3"},
        (
            "SHOAL_CHANNELS__POND__POLL: there is no setting 'channels.pond.poll'; "
            "did you mean SHOAL_CHANNELS__POND__POLL_S?"
        ),
    ),
}


@pytest.mark.parametrize("what", WRONG)
async def test_settings_that_do_not_fit_stop_the_start(redis_url: str, path: str, what: str) -> None:
    """One line each, and `--check` says the same before anything is started."""
    names, more, printed = WRONG[what]
    given = {"SHOAL_CHANNELS__POND__API": "http://127.0.0.1:1", "PYTHONPATH": path}
    given |= {f"SHOAL_CHANNELS__POND__{key}": value for key, value in more.items()}
    for arguments in (names, ("--check", *names)):
        with process(redis_url, *arguments, **given) as gateway:
            assert await gateway.exit_code(SOON_S) == 2
            assert gateway.log.read_text() == f"{printed}\n"


async def test_settings_that_fit_are_ok(redis_url: str, path: str) -> None:
    """A channel that is off may lack its secrets."""
    for given in ({"TOKEN": "x"}, {"ON": "false"}):
        names = {f"SHOAL_CHANNELS__POND__{key}": value for key, value in given.items()}
        with process(
            redis_url, "--check", PYTHONPATH=path, SHOAL_CHANNELS__POND__API="http://127.0.0.1:1", **names
        ) as gateway:
            assert await gateway.exit_code(SOON_S) == 0
            assert gateway.log.read_text() == "ok\n"
