"""A real fleet, scraped by a real Prometheus: every dashboard and rule has data, and an alert reaches somebody."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import os
import subprocess
import urllib.error
import urllib.request
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Final, NamedTuple

import pytest

from shared.store.client.redis_client import RedisClient
from shared.store.fleet.presence import list_processes, remove_presence
from shared.store.fleet.spending import Spending
from shared.store.keys import leases, queue
from tests.deploy.test_alerts import rules
from tests.deploy.test_dashboards import committed, metrics_in
from tests.fakes.pond import BOT, FakePond
from tests.fakes.pond import TOKEN as POND_TOKEN
from tests.gateway.harness import TOKENS, Client, answers, free_port, stranger
from tests.gateway.harness import client as person
from tests.helpers.fleet import holder, warm, workers
from tests.helpers.fleet_fixtures import Spawn, model, model_server, spawn
from tests.helpers.monitoring import RULES, Alertmanager, Prometheus, fetch, filled_in
from tests.helpers.need import need
from tests.helpers.openai_server import Answer, Call, ScriptedOpenAI
from tests.helpers.pond_package import pond_package
from tests.helpers.processes import Process
from tests.helpers.valkey import command
from tests.helpers.wait import eventually
from tests.helpers.web_server import WebServer, reply, web_server
from tools.dashboards.boards import BOARDS

__all__ = ["model", "model_server", "spawn"]

CANARY: Final = "canary-chat"
BUDGET: Final = 1_000_000
CROWD: Final = ("time", "time", "send somebody")

EMPTY: Final[dict[str, str]] = {
    "Approvals": "no tool of this fleet asks people first",
    "Traces lost": "needs `tracing.endpoint`, and a receiver that is away",
    "Failed later": "needs a platform that takes a post and then does not deliver it",
    "shoal:delivery_failed_later:increase15m": "the same",
    "shoal_delivery_failed_later_total": "the same",
}
"""What may be without data here, and the fault or setting that it needs; at most five."""


class Fleet(NamedTuple):
    """The processes and where they are asked."""

    worker: Process
    worker_port: int
    gateway_port: int
    web: str


@pytest.fixture
async def pond() -> AsyncIterator[FakePond]:
    """A chat platform."""
    async with FakePond().serving() as server:
        yield server


@pytest.fixture
async def fleet(client: RedisClient, spawn: Spawn, model: ScriptedOpenAI, pond: FakePond) -> AsyncIterator[Fleet]:
    """One gateway, for the page and a chat platform, and one worker under its guardian."""
    ports = free_port(), free_port(), free_port()
    with pond_package() as path:
        yield await started(client, spawn, pond, ports, os.pathsep.join(path))


async def started(client: RedisClient, spawn: Spawn, pond: FakePond, ports: tuple[int, int, int], path: str) -> Fleet:
    """Both processes, when they are ready."""
    gateway = spawn(
        "gateway",
        "web",
        "pond",
        env={"PYTHONPATH": path},
        CHANNELS__POND__API=pond.address,
        CHANNELS__POND__TOKEN=POND_TOKEN,
        CHANNELS__POND__ALLOW_FROM="ada",
        METRICS__PORT=str(ports[0]),
        WEB__PORT=str(ports[1]),
        WEB__TOKENS__OWNER=TOKENS["owner"],
        INBOX__SENDER_PER_MINUTE="0",
    )
    worker = spawn(
        "worker",
        METRICS__PORT=str(ports[2]),
        MODEL__NAME="openai/gpt-4o-mini",  # it has a price
        MODEL__CLIENT="direct",
        BUDGET__TOKENS_PER_DAY=str(BUDGET),
        CRON__MIN_EVERY_S="0.5",
        AGENT__TIMEZONE="UTC",
    )
    web = f"127.0.0.1:{ports[1]}"
    await eventually(lambda: answers(web), within_s=30, what=f"the gateway: {gateway.log}")
    await workers(client, 1)
    await warm(worker)
    return Fleet(worker, ports[2], ports[0], web)


@pytest.fixture
async def prometheus(fleet: Fleet, tmp_path: Path) -> AsyncIterator[Prometheus]:
    """Ours, looking at the fleet."""
    need("prometheus", install="Debian: apt-get install prometheus")
    made = Prometheus(tmp_path, {"shoal-gateway": [fleet.gateway_port], "shoal-worker": [fleet.worker_port]})
    try:
        await made.ready()
        yield made
    finally:
        made.stop()


def script(model: ScriptedOpenAI) -> None:
    """What the model does when it is gauges so."""
    plan = json.dumps({"action": "add", "message": "count the birds", "every_seconds": 1})
    task = json.dumps({"task": "look", "label": "look"})
    model.script(
        Answer(match="^plan", role="user", calls=[Call("cron", plan)]),
        Answer(match="^send somebody", role="user", calls=[Call("spawn", task)], times=0),
        Answer(match="^send somebody", role="tool", text="sent", first_s=0.5, times=0),
        Answer(match="^time", role="user", calls=[Call("current_time")], times=0),
        Answer(match="^time", role="tool", text="late", first_s=0.5, times=0),
        Answer(match="^slow", text="slow " * 40, delta_s=0.25, times=3),
        Answer(match="^refused", status=401, error={"message": "no"}),
        Answer(match="^busy", status=429, retry_after="2"),
        Answer(match="^odd", fault="garbage"),
        Answer(match="^broken", text="broken " * 60, cut_after=50),
        Answer(match="^function", role="user", calls=[Call("look_outside", "{}")]),
    )


async def keep_writing(pond: FakePond) -> None:
    """Somebody on the platform who writes again and again, and the bot itself. The first answer is cut off."""
    pond.script("unanswered", "send", "chat", 1, 0.0)
    for number in itertools.count(1):
        for sender in ("ada", BOT):
            event = {"id": f"{sender}{number}", "chat": "chat", "sender": sender, "at": number, "text": "hello"}
            pond.tell({"kind": "message", **event})
        await another_post(pond, len(pond.chats.get("chat", ())))


async def another_post(pond: FakePond, many: int) -> None:
    """Return when there are more than so many."""
    await eventually(lambda: len(pond.chats.get("chat", ())) > many, within_s=60)


async def everything_happens(client: RedisClient, people: Client, web: str) -> None:
    """Each thing that a counter with labels counts, once."""
    await people.say(CANARY, "slow")
    await people.next("delta", chat=CANARY)
    (await holder(client, f"web:owner/{CANARY}")).kill()
    await people.next("reply", chat=CANARY)
    await people.say(CANARY, "/status")
    await people.say(CANARY, "hello", id="twice")
    await people.next("reply", chat=CANARY)
    await people.say(CANARY, "hello", id="twice")
    await people.send("message", id="long", chat=CANARY, text="x" * 70_000)
    assert (await people.answer("long"))["type"] == "error"
    for text in ("plan", "busy", "refused", "odd", "broken"):
        await people.say(text, text)
        await people.next("reply", chat=text)
    await people.say("slow", "slow")
    await people.say("slow", "not this", id="back")
    await people.send("withdraw", id="back")
    await people.say(CANARY, "/new")
    await Spending(client).add("web:owner/rich", BUDGET, 0.0)
    await people.say("rich", "hello")
    await people.next("reply", chat="rich")
    await asyncio.to_thread(offer_function, web)


@contextlib.asynccontextmanager
async def strangers(web: str) -> AsyncIterator[None]:
    """Somebody who guesses a token, and somebody who begins a request and sends no more of it."""
    async with stranger(web) as guesses:
        await guesses.send("hello", token="not-the-token-of-anybody")
        await guesses.closed()
    _, silent = await asyncio.open_connection(*web.rsplit(":", 1))
    try:
        silent.write(b"GET / HTTP/1.1\r\n")
        yield
    finally:
        silent.close()


async def keep_talking(web: str, chat: str, text: str) -> None:
    """Somebody who asks the same again and again."""
    async with person(web) as people:
        while True:
            await people.say(chat, text)
            await people.next("reply", chat=chat)


def list_models(address: str) -> None:
    """Ask the API, as a program does."""
    ask_api(address, "models")


def offer_function(address: str) -> None:
    """A program whose function the model calls; it never sends the result."""
    function = {"type": "function", "function": {"name": "look_outside"}}
    messages = [{"role": "user", "content": "function"}]
    answer = ask_api(address, "chat/completions", {"model": "shoal", "messages": messages, "tools": [function]})
    assert b"look_outside" in answer


def ask_api(address: str, path: str, body: dict[str, Any] | None = None) -> bytes:
    """The answer to a program's request."""
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(f"http://{address}/v1/{path}", data, {"Content-Type": "application/json"})
    request.add_header("Authorization", f"Bearer {TOKENS['owner']}")
    with urllib.request.urlopen(request, timeout=60) as answer:
        assert answer.status == 200
        return bytes(answer.read())


@pytest.mark.slow
@pytest.mark.timeout(240)
async def test_every_dashboard_and_rule_has_data_of_a_running_fleet(
    fleet: Fleet, prometheus: Prometheus, client: RedisClient, model: ScriptedOpenAI, pond: FakePond
) -> None:
    """Under load, as Grafana would ask; and no chat is in any page of metrics."""
    script(model)
    async with person(fleet.web) as people, strangers(fleet.web):
        crowd = [asyncio.create_task(keep_talking(fleet.web, f"crowd{n}", text)) for n, text in enumerate(CROWD)]
        crowd.append(asyncio.create_task(keep_writing(pond)))
        await client.command("CONFIG", "SET", "maxmemory", 1_000_000_000)
        try:
            await everything_happens(client, people, fleet.web)
            asked = {
                f"{board.uid}: {panel['title']}: {target['expr']}": filled_in(target["expr"])
                for board in BOARDS
                for panel in committed(board)["panels"]
                for target in panel.get("targets", ())
                if panel["title"] not in EMPTY
            }
            asked |= {name: name for rule in rules() if (name := rule.get("record")) and name not in EMPTY}
            for rule in rules():
                asked |= {name: f"count({name})" for name in metrics_in(rule["expr"]) if name not in EMPTY}
            for task in crowd:
                assert not task.done(), task.exception()
            without = list(asked)

            def answered() -> bool:
                list_models(fleet.web)
                without[:] = [where for where in without if not prometheus.values(asked[where])]
                return not without

            with contextlib.suppress(AssertionError):
                await eventually(answered, within_s=90, every_s=1)
            assert without == [], "\n".join(without)
            for task in crowd:
                assert not task.done(), task.exception()
        finally:
            for task in crowd:
                task.cancel()
            await asyncio.gather(*crowd, return_exceptions=True)
            await client.command("CONFIG", "SET", "maxmemory", 0)
    health = {rule["name"]: rule["health"] for group in prometheus.ask("rules")["groups"] for rule in group["rules"]}
    assert set(health.values()) == {"ok"}
    assert {target["health"] for target in prometheus.ask("targets")["activeTargets"]} == {"up"}
    for port in (fleet.gateway_port, fleet.worker_port):
        page = fetch(f"http://127.0.0.1:{port}/metrics")
        assert not [word for word in (CANARY, "owner/", "crowd") if word in page]
        checked = subprocess.run(
            ["promtool", "check", "metrics"], input=page, capture_output=True, text=True, check=False
        )
        assert checked.returncode == 0, checked.stdout + checked.stderr


def test_few_expressions_are_excused() -> None:
    """Five at most."""
    assert len(EMPTY) <= 5


async def test_machines_pages_are_not_on_the_address_of_people(spawn: Spawn) -> None:
    """What is gauges to the monitoring is gauges to nobody else."""
    metrics, web = free_port(), free_port()
    spawn("gateway", METRICS__PORT=str(metrics), WEB__PORT=str(web), WEB__TOKENS__OWNER=TOKENS["owner"])
    await eventually(lambda: answers(f"127.0.0.1:{web}"), within_s=30)
    for page in ("metrics", "healthz", "readyz"):
        assert fetch(f"http://127.0.0.1:{metrics}/{page}")
        with pytest.raises(urllib.error.HTTPError, match="404") as refused:
            fetch(f"http://127.0.0.1:{web}/{page}")
        refused.value.close()


def reported(web: WebServer, status: str) -> set[str]:
    """The alerts that came with this status."""
    posts = [json.loads(asked.body) for asked in web.asked]
    return {alert["labels"]["alertname"] for post in posts for alert in post["alerts"] if alert["status"] == status}


def seen_by(fleet: Fleet, redis_url: str) -> str:
    """What the gateway tells of the queue of turns, and what Redis holds of it."""
    lines = fetch(f"http://127.0.0.1:{fleet.gateway_port}/metrics").splitlines()
    gauges = [line for line in lines if line.startswith("shoal_queue_") and '"turns"' in line]
    asked = (
        ("TIME",),
        ("ZRANGE", queue("turns"), "0", "-1", "WITHSCORES"),
        ("HGETALL", leases("turns")),
        ("CLIENT", "LIST"),
    )
    return "\n".join([*gauges, *(command(redis_url, *words) for words in asked)])


@pytest.mark.slow
@pytest.mark.timeout(240)
async def test_somebody_is_called_when_workers_die_and_the_line_ages(
    fleet: Fleet, client: RedisClient, redis_url: str, spawn: Spawn, tmp_path: Path
) -> None:
    """Killed workers, a message, Prometheus, Alertmanager, a webhook; and the end of it is gauges, too. The rules are
    ours with shorter times."""
    need("prometheus", install="Debian: apt-get install prometheus")
    need("prometheus-alertmanager")
    quick = []
    for path in RULES:
        text = (
            path.read_text().replace("for: 1m\n", "for: 1s\n").replace('{queue="turns"}) > 30', '{queue="turns"}) > 3')
        )
        quick.append(tmp_path / path.name)
        quick[-1].write_text(text)
    targets = {"shoal-gateway": [fleet.gateway_port], "shoal-worker": [fleet.worker_port]}
    async with web_server() as web:
        web.pages["/alert"] = reply("ok")
        alertmanager = Alertmanager(tmp_path, web.url("/alert"))
        prometheus = Prometheus(tmp_path, targets, rules=quick, alertmanager=alertmanager)
        try:
            await alertmanager.ready()
            await prometheus.ready()
            fleet.worker.kill_group()
            for one in await list_processes(client):
                if one.kind == "worker":
                    await remove_presence(client, one)  # else it expires after 15 s
            async with person(fleet.web) as people:
                await people.say("waits", "hello?")
                await eventually(
                    lambda: "ShoalOldestTurnWaits" in reported(web, "firing"),
                    within_s=60,
                    every_s=0.5,
                    what=lambda: f"the alert: {prometheus.ask('alerts')}, {seen_by(fleet, redis_url)}",
                )
                await eventually(lambda: "ShoalNoWorkers" in reported(web, "firing"), within_s=60, every_s=0.5)
                spawn("worker", METRICS__PORT=str(fleet.worker_port), MODEL__CLIENT="direct")
                await workers(client, 1)
                await people.shown("waits", 2, within_s=30)
            await eventually(lambda: "ShoalOldestTurnWaits" in reported(web, "resolved"), within_s=90, every_s=0.5)
        finally:
            prometheus.stop()
            alertmanager.stop()
