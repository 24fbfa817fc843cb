"""`shoal chat` with workers and gateways that die, are missing or are looked at."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest_asyncio

from shared.store.client.redis_client import RedisClient
from shared.store.turns.inbox import Inbox
from tests.e2e.terminals import WORDS, Fleet, Reported, reported_by, sent, terminal
from tests.helpers.build import say
from tests.helpers.fleet import holder, replies, workers
from tests.helpers.fleet_fixtures import Spawn
from tests.helpers.openai_server import Answer, ScriptedOpenAI
from tests.helpers.wait import eventually


@pytest_asyncio.fixture(loop_scope="session")
async def fleet(client: RedisClient, spawn: Spawn, redis_url: str, tmp_path: Path) -> Fleet:
    """A gateway and a worker."""
    made = Fleet(spawn, redis_url, tmp_path)
    made.worker()
    await made.gateway()
    await workers(client, 1)
    return made


async def test_a_worker_that_is_killed_in_the_middle_goes_unnoticed(
    fleet: Fleet, client: RedisClient, model: ScriptedOpenAI
) -> None:
    """SIGKILL while it streams: the answer is printed once and whole."""
    # So slow that it is under way still when a busy machine comes to look.
    model.script(Answer(text=WORDS, delta_s=3), Answer(text=WORDS, delta_s=0.01, times=0))
    fleet.worker()
    await workers(client, 2)
    asking = await fleet.start("chat", "-m", "tell me")
    doomed = await holder(client, fleet.session)
    await eventually(lambda: model.stats()["open"] == 1)
    doomed.kill()
    assert await reported_by(asking) == Reported(0, f"{WORDS}\n", "")
    assert await replies(client, fleet.session) == [WORDS]


async def test_a_gateway_that_is_killed_in_the_middle_loses_and_doubles_nothing(
    client: RedisClient, spawn: Spawn, redis_url: str, tmp_path: Path, model: ScriptedOpenAI
) -> None:
    """SIGKILL while it streams, another one in its place: one turn, one answer."""
    model.script(Answer(text=WORDS, held_after=20))
    fleet = Fleet(spawn, redis_url, tmp_path)
    fleet.worker()
    doomed = await fleet.gateway()
    await workers(client, 1)
    asking = await fleet.start("chat", "-m", "tell me")
    await eventually(lambda: model.stats()["open"] == 1)
    doomed.kill_group()
    await fleet.gateway()
    model.release()
    result = await reported_by(asking)
    assert (result.code, result.out) == (0, f"{WORDS}\n")
    assert result.err == "(the connection is lost; trying again)\n(connected again)\n"
    assert await sent(client, fleet.session) == ["tell me"]
    assert await replies(client, fleet.session) == [WORDS]
    assert model.stats()["requests"] == 1


async def test_a_full_inbox_is_reported(client: RedisClient, spawn: Spawn, redis_url: str, tmp_path: Path) -> None:
    """Nobody works, fifty wait: the message is not taken, and not sent again behind the person's back."""
    fleet = Fleet(spawn, redis_url, tmp_path)
    await fleet.gateway()
    for _ in range(50):
        await say(Inbox(client), chat="owner/terminal")
    result = await fleet.shoal("chat", "-m", "one more")
    assert result == Reported(1, "", "50 messages already wait in this chat; please wait for answers first\n")


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
        await screen.shows("/new.*begin a new conversation in this chat.*>")
        screen.type("/new\r")
        await screen.shows("New conversation.*>")
        screen.type("  /quit \r")
        assert await screen.code() == 0
    assert await sent(client, fleet.session) == ["/help", "/new"]
    result = await fleet.shoal("chat", "-m", "/model nobody")
    assert result == Reported(0, "There is no such model here. These are: `default`.\n", "")
    result = await fleet.shoal("chat", "--json", "-m", "/new")
    assert (json.loads(result.out)["kind"], result.code) == ("command", 0)


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
    assert await sent(client, fleet.session) == ["are you there?"]
    assert await replies(client, fleet.session) == ["echo: are you there?"]


async def test_status_and_doctor_see_the_fleet_as_it_is(fleet: Fleet, client: RedisClient) -> None:
    """Real processes: both are there, healthy but for the fsync of the tests' server, and a job comes back."""
    result = await fleet.shoal("doctor", "--probe", "--json")
    checks = {check["name"]: check for check in json.loads(result.out)["checks"]}
    assert [name for name, check in checks.items() if check["outcome"] == "failed"] == ["appendfsync"]
    assert checks["probe"]["found"].startswith("a worker ran a test job in ")
    assert checks["model"]["found"] == "openai/scripted"

    async def healthy() -> bool:
        found = json.loads((await fleet.shoal("status", "--json")).out)
        assert [one["kind"] for one in found["processes"]] == ["gateway", "worker"]
        return [problem["code"] for problem in found["problems"]] == ["fsync"]

    # A process that the machine held up for a second or two says so for as long.
    await eventually(healthy, within_s=60)
    table = (await fleet.shoal("status")).out
    [gateway] = [row for row in table.splitlines() if f"127.0.0.1:{fleet.port}" in row]
    assert re.search(r" ready +web ", gateway)

    async def rests() -> bool:
        [worker] = [row for row in (await fleet.shoal("status")).out.splitlines() if "turns,jobs" in row]
        return bool(re.search(r" ready +0 of 100 .* openai/scripted ", worker))

    # What a worker says of itself is up to a second old: the test job may still be part of it.
    await eventually(rests, within_s=60)
