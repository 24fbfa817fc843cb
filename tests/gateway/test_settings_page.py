"""The settings over HTTP: everybody has their own, the owner the installation's, and no secret leaves."""

from __future__ import annotations

import asyncio
import json
import urllib.error
import urllib.request
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest
from starlette.requests import Request

from gateway.channels.web.http.first_run import InitCommand
from gateway.channels.web.settings.installation import PAGES
from gateway.channels.web.settings.model_list import ModelsPart
from shared.clock import SYSTEM_CLOCK
from shared.messages.inbound import TIMEZONE, decode_inbound
from shared.settings import Settings
from shared.settings.load import load
from shared.store import keys
from shared.store.client.redis_client import RedisClient
from shared.store.fleet.presence import Presence, announce
from shared.store.fleet.spending import DAY_MS, Spending
from shared.store.jobs.jobs import QUEUE
from shared.store.schedules.schedules import Schedules
from shared.store.sessions.memory import MemoryStore
from tests.gateway.harness import TOKENS, Client, Gateway, client, gateway, session_of
from tests.helpers.children import Parent
from tests.helpers.schedules import schedule

PARTS = ("you", "work", "usage", "models", "installation")
KEY = "sk-a-key-that-nobody-may-read"
SETTINGS = """
[model]
name = "openai/gpt-5-mini"
api_key = "sk-a-key-that-nobody-may-read"

[model.presets.fast]
name = "openai/gpt-5-nano"
about = "quick and cheap"

[web]
token = "a-token-that-nobody-may-read"

[budget]
tokens_per_day = 1000

[network]
proxy = "http://user:a-password-of-a-proxy@proxy.example:3128"

[mcp.notes]
url = "https://notes.example/mcp?token=a-token-in-an-address"
headers = { Authorization = "Bearer a-header-that-nobody-may-read" }

[channels.telegram]
token = "12345678:a-token-of-a-bot-that-nobody-may-read"

[webhooks.out.team]
url = "https://chat.example/services/a-path-that-nobody-may-read"
secret = "whsec_bm9ib2R5LW1heS1yZWFkLXRoaXMtc2VjcmV0LWtleQ=="

[webhooks.in.alerts]
secret = "whsec_bm9ib2R5LW1heS1yZWFkLXRoaXMtc2VjcmV0LWtleQ=="
chat = "web:owner/alerts"
prompt = "An alert: {{ body.title }}"
"""


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    file = tmp_path / "shoal.toml"
    file.write_text(SETTINGS)
    return load({}, path=file)


@pytest.fixture
async def gw(redis_url: str, settings: Settings) -> AsyncIterator[Gateway]:
    async with gateway(redis_url, settings=settings) as running:
        yield running


@pytest.fixture
async def owner(gw: Gateway) -> AsyncIterator[Client]:
    """With one chat, `a`."""
    async with client(gw.address) as person:
        await person.say("a", "hello")
        yield person


async def ask(
    gw: Gateway, path: str, *, method: str = "GET", body: object = None, token: str = TOKENS["owner"], **headers: str
) -> tuple[int, Any]:
    data = None if body is None else body if isinstance(body, bytes) else json.dumps(body).encode()
    sent = {"Authorization": f"Bearer {token}", "Content-Type": "application/json", **headers}
    request = urllib.request.Request(f"http://{gw.address}/settings/{path}", data, sent, method=method)

    def call() -> tuple[int, Any]:
        try:
            with urllib.request.urlopen(request) as answer:
                assert "no-store" in answer.headers["cache-control"]
                return answer.status, json.load(answer)
        except urllib.error.HTTPError as error:
            with error:
                return error.code, json.load(error)

    return await asyncio.to_thread(call)


async def serve_jobs(client: RedisClient, results: dict[str, Any]) -> None:
    """Answer every job as a worker does, by its function; one that is not in `results` fails."""
    while True:
        for name in await client.command("KEYS", f"{client.arq}job:*"):
            job = msgspec.msgpack.decode(await client.command("GET", name))
            key = " ".join((job["f"], *job["a"]))
            known = key in results
            answer = {"s": known, "r": results.get(key, "no such function")}
            id = name.decode().rpartition(":")[2]
            await client.command("SET", f"{client.arq}result:{id}", msgspec.msgpack.encode(answer), "PX", 60_000)
            await client.command("DEL", name)


@pytest.mark.parametrize("part", PARTS)
async def test_nobody_sees_settings_without_a_token_or_from_a_page_of_others(gw: Gateway, part: str) -> None:
    assert (await ask(gw, part, token="wrong"))[0] == 401
    assert (await ask(gw, part, Origin="https://evil.example"))[0] == 403


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("GET", "installation", None),
        ("POST", "models/test", {}),
        ("POST", "models/test?preset=fast", {}),
        ("PUT", "models/key", {"key": KEY}),
    ],
)
async def test_what_is_the_owners_is_refused_to_others(gw: Gateway, method: str, path: str, body: object) -> None:
    """From the page itself, too, and without a word of what there is."""
    origin = f"http://{gw.address}"
    status, fault = await ask(gw, path, method=method, body=body, token=TOKENS["ann"], Origin=origin)
    assert (status, fault["detail"]) == (403, "only the owner of this installation may see that")
    assert await gw.client.command("ZCARD", keys.queue(QUEUE)) == 0, "and no worker is asked"


async def test_a_second_person_sees_nothing_of_the_first(gw: Gateway, owner: Client) -> None:
    """Neither plans, jobs, memory and usage, nor the zone that they chose."""
    parent = await Parent.begin(gw.client)
    await parent.spawn("one")
    await Schedules(gw.client).add(schedule("p1"), 2_000_000_000_000)
    await MemoryStore(gw.client).write_memory(f"chat:{session_of('a')}", "# Otters", version="0")
    await Spending(gw.client).add(session_of("a"), 500, 0.25)
    await ask(gw, "you", method="PUT", body={"timezone": "Asia/Tokyo"})
    ann = TOKENS["ann"]
    status, work = await ask(gw, "work", token=ann)
    assert (status, work) == (200, {"plans": [], "jobs": [], "memories": [], "next": 0})
    _, usage = await ask(gw, "usage", token=ann)
    assert (usage["today"], usage["days"], usage["chats"]) == ({"tokens": 0, "usd": 0}, [], [])
    _, you = await ask(gw, "you", token=ann)
    assert (you["principal"], you["owner"], you["timezone"]) == ("ann", False, "")
    _, models = await ask(gw, "models", token=ann)
    assert models == {"models": [{"preset": "", "about": ""}, {"preset": "fast", "about": "quick and cheap"}]}


async def test_a_chosen_zone_beats_that_of_the_browser(gw: Gateway, owner: Client) -> None:
    """From the next message on, on every device, until it is given up; names that people use are understood."""
    status, you = await ask(gw, "you", method="PUT", body={"timezone": "tokyo"})
    assert (status, you["timezone"]) == (200, "Asia/Tokyo")
    async with client(gw.address) as other:
        await other.say("b", "from another device")
    assert await zone_of_newest(gw, "b") == "Asia/Tokyo"
    assert (await ask(gw, "you"))[1]["timezone"] == "Asia/Tokyo"
    assert (await ask(gw, "you", method="PUT", body={"timezone": ""}))[1]["timezone"] == ""
    await owner.say("c", "and now")
    assert await zone_of_newest(gw, "c") == ""


async def zone_of_newest(gw: Gateway, chat: str) -> str:
    [(_, fields)] = await gw.client.command("XREVRANGE", keys.inbox(session_of(chat)), "+", "-", "COUNT", 1)
    record = next(found for field in fields if (found := decode_inbound.or_none(field)) is not None)
    return record.metadata.get(TIMEZONE, "")


@pytest.mark.parametrize(
    ("body", "status", "words"),
    [
        ({"timezone": "Mars/Olympus"}, 400, "is not a time zone"),
        ({"timezone": "ist"}, 400, "may be several"),
        ({"timezone": 7}, 400, "send the time zone"),
        ({"zone": "UTC"}, 400, "send the time zone"),
        (b"\xff", 400, "send the time zone"),
        ({"timezone": "a" * 65}, 400, "send the time zone"),
        ({"timezone": "a" * 2000}, 413, "at most 1,024 bytes"),
    ],
)
async def test_what_is_no_zone_is_refused_in_words(gw: Gateway, body: object, status: int, words: str) -> None:
    code, fault = await ask(gw, "you", method="PUT", body=body)
    assert code == status
    assert words in fault["detail"]


async def test_the_work_of_all_chats_stands_together(gw: Gateway, owner: Client) -> None:
    """Each thing with its chat; the next plan first."""
    await owner.say("b", "another chat")
    parent = await Parent.begin(gw.client)
    await parent.spawn("one")
    schedules = Schedules(gw.client)
    await schedules.add(schedule("p1"), 2_000_000_000_000)
    await schedules.add(schedule("p2", chat="owner/b", text="tea"), 1_900_000_000_000)
    await MemoryStore(gw.client).write_memory(f"chat:{session_of('b')}", "# Tea", version="0")
    status, work = await ask(gw, "work")
    assert status == 200
    assert [(one["id"], one["chat"], one["next"]) for one in work["plans"]] == [
        ("p2", "b", 1_900_000_000_000), ("p1", "a", 2_000_000_000_000),
    ]  # fmt: skip
    assert [(one["id"], one["chat"], one["title"], one["open"]) for one in work["jobs"]] == [
        ("one", "a", "hello", True)
    ]
    assert work["memories"] == [{"chat": "b", "title": "another chat", "bytes": 5, "of": "chat"}]
    assert work["next"] == 0


async def test_many_chats_are_read_page_by_page(gw: Gateway) -> None:
    """A page costs the same number of round trips, whatever is in it."""
    many = {f"owner/c{n}": n for n in range(1, 151)}
    await gw.client.command(
        "ZADD", keys.chats("web", "owner"), *[part for chat, at in many.items() for part in (at, chat)]
    )
    await Schedules(gw.client).add(schedule("old", chat="owner/c3"), 2_000_000_000_000)
    _, first = await ask(gw, "work")
    assert (first["plans"], first["next"]) == ([], 100)
    _, second = await ask(gw, f"work?skip={first['next']}")
    assert ([one["id"] for one in second["plans"]], second["next"]) == (["old"], 0)
    for skip in ("-1", "x", "%D9%A2", "99999"):
        assert (await ask(gw, f"work?skip={skip}"))[0] == 400


async def test_usage_is_that_of_the_day_and_of_the_month(gw: Gateway, owner: Client) -> None:
    """Over the API, too; yesterday of another month is a day, and of no total."""
    spending = Spending(gw.client)
    await spending.add(session_of("a"), 700, 0.5)
    await spending.add("api:owner/~x", 300, 0.25)
    day = SYSTEM_CLOCK.now_ms() // DAY_MS
    far = day - 29
    await gw.client.command("HSET", keys.used("owner"), f"{far}:t", 40, f"{far}:m", 10)
    _, usage = await ask(gw, "usage")
    assert usage["today"] == {"tokens": 1000, "usd": 0.75}
    same = datetime.fromtimestamp(far * 86_400, UTC).month == datetime.fromtimestamp(day * 86_400, UTC).month
    assert usage["month"]["tokens"] == 1040 if same else 1000
    assert [one["tokens"] for one in usage["days"]] == [40, 1000]
    assert usage["chats"] == [{"chat": "a", "title": "hello", "tokens": 700, "usd": 0.5}]
    assert usage["limits"] == {"tokens": 1000, "usd": 0, "warn_at": 0.8}


CARD = {
    "role": "usual", "preset": "", "model": "openai/gpt-5-mini", "provider": "openai", "client": "direct",
    "host": "api.openai.com", "route": "openai:ab12", "key": True, "needs_key": True, "problem": "",
}  # fmt: skip
FAST = {**CARD, "role": "preset", "preset": "fast", "model": "openai/gpt-5-nano"}


async def test_the_owner_sees_what_a_worker_knows_of_models(gw: Gateway) -> None:
    """With the state of their routes and how to give them a key; routes themselves are left out."""
    now = SYSTEM_CLOCK.now_ms()
    await gw.client.command("HSET", keys.limit("openai:ab12"), "open_at", now + 60_000, "kind", "rate_limit")
    worker = asyncio.create_task(serve_jobs(gw.client, {"list_models": [CARD, FAST]}))
    _, found = await ask(gw, "models")
    worker.cancel()
    assert (found["asked"], found["first_run"], found["replace_key"]) == (True, False, False)
    usual, fast = found["models"]
    assert (usual["state"], usual["key"]) == ("closed", True)
    assert usual["why"].startswith("the model's provider asked for a pause; trying again in ")
    assert usual["toml"] == '[model]\napi_key_file = "secrets/model.key"'
    assert fast["toml"] == '[model.presets."fast"]\napi_key_file = "secrets/fast.key"'
    assert fast["about"] == "quick and cheap"
    assert "ab12" not in json.dumps(found)
    assert KEY not in json.dumps(found)


async def test_without_a_worker_names_are_known(gw: Gateway) -> None:
    _, found = await ask(gw, "models")
    assert not found["asked"]
    assert [one["model"] for one in found["models"]] == ["openai/gpt-5-mini", "openai/gpt-5-nano"]


async def test_a_test_shows_what_came(gw: Gateway) -> None:
    """An answer, the provider's error without what looks like a key, and a preset that is not there."""
    answers = {"ask_model": [True, "'m' said 'OK' after 1 s"], "ask_model fast": [False, f"wrong key: {KEY}"]}
    worker = asyncio.create_task(serve_jobs(gw.client, answers))
    assert (await ask(gw, "models/test", method="POST"))[1] == {"ok": True, "text": "'m' said 'OK' after 1 s"}
    _, refused = await ask(gw, "models/test?preset=fast", method="POST")
    assert refused == {"ok": False, "text": "wrong key: ***"}
    assert (await ask(gw, "models/test?preset=none", method="POST"))[0] == 404
    worker.cancel()
    _, alone = await ask(gw, "models/test", method="POST")
    assert alone == {"ok": False, "text": "no worker took the question in time; is one running?"}


async def test_tests_are_few(gw: Gateway) -> None:
    """Each costs money: the seventh within a minute waits."""
    worker = asyncio.create_task(serve_jobs(gw.client, {"ask_model": [True, "OK"]}))
    codes = [(await ask(gw, "models/test", method="POST"))[0] for _ in range(7)]
    worker.cancel()
    assert codes == [200] * 6 + [429]


async def test_a_key_is_replaced_where_shoal_up_runs_and_nowhere_else(gw: Gateway) -> None:
    """A page of another origin, or a program, may not; here the settings are not the process's own."""
    body, origin = {"key": "sk-another"}, f"http://{gw.address}"
    assert (await ask(gw, "models/key", method="PUT", body=body))[0] == 403
    status, fault = await ask(gw, "models/key", method="PUT", body=body, Origin=origin)
    assert (status, fault["detail"]) == (
        404, "the key of this installation is replaced by its operator, in its settings",
    )  # fmt: skip


async def test_keys_are_replaced_one_after_another(
    client: RedisClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two pages may ask at the same time; the key that was sent last stays."""
    (tmp_path / "model.key").write_text(KEY)
    lines = ["[model]", 'name = "openai/gpt-5-mini"', 'api_key_file = "model.key"', "[web]", "replace_key = true"]
    (tmp_path / "shoal.toml").write_text("\n".join(lines))
    monkeypatch.chdir(tmp_path)
    steps: list[str] = []

    async def run(self: InitCommand, *options: str, secret: str) -> str:
        steps.append(f"begin {secret}")
        for _ in range(20):
            await asyncio.sleep(0)
        steps.append(f"end {secret}")
        return ""

    monkeypatch.setattr(InitCommand, "run", run)
    models = ModelsPart(client, load({}), None)
    await asyncio.gather(*(models.replace_key("owner", key_request(key)) for key in ("one", "two")))
    assert steps == ["begin one", "end one", "begin two", "end two"]


def key_request(key: str) -> Request:
    body = json.dumps({"key": key}).encode()

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": body, "more_body": False}

    length = (b"content-length", str(len(body)).encode())
    return Request({"type": "http", "method": "PUT", "headers": [length]}, receive)


async def test_the_installation_is_shown_without_secrets(gw: Gateway) -> None:
    """Processes, channels with their state, and the settings that are not the defaults."""
    details = {"web.state": "on", "telegram.state": "away", "telegram.why": "no network"}
    up = Presence(
        kind="gateway",
        name="g1",
        host="h",
        pid=1,
        started_at=SYSTEM_CLOCK.now_ms() - 90_000,
        version="0",
        details=details,
    )
    await announce(gw.client, up)
    status, found = await ask(gw, "installation")
    text = json.dumps(found)
    assert status == 200
    assert [(one["name"], one["seconds"] >= 90) for one in found["processes"]] == [("g1", True)]
    assert found["channels"] == [
        {"name": "telegram", "state": "away", "why": "no network"}, {"name": "web", "state": "on", "why": ""},
    ]  # fmt: skip
    rows = {row["name"]: row["value"] for one in found["settings"] for row in one["rows"]}
    assert rows["budget.tokens_per_day"] == "1000"
    assert rows["model.api_key"] == rows["channels.telegram.token"] == '"***"'
    assert rows["mcp.notes.url"] == '"https://notes.example/mcp?\u2026"'
    assert rows["webhooks.out.team.url"] == '"https://chat.example/\u2026"'
    assert rows["webhooks.in.alerts.chat"] == '"web:owner/alerts"'
    assert "web.port" not in rows
    assert "webhooks.in.alerts.verify" not in rows
    for secret in ("whsec_", "nobody-may-read", "a-password", "in-an-address"):
        assert secret not in text


def test_every_section_of_the_settings_has_its_page() -> None:
    """One without would keep a gateway from its start."""
    assert PAGES.keys() == set(Settings.__struct_fields__)


async def test_too_many_looks_are_refused_with_a_time(gw: Gateway) -> None:
    """As many as a person needs are not."""
    codes = [(await ask(gw, "you"))[0] for _ in range(35)]
    assert codes[:30] == [200] * 30
    assert 429 in codes


async def test_a_store_that_is_away_is_explained(redis_url: str) -> None:
    async with gateway(redis_url) as gw:
        await gw.client.close()
        status, fault = await ask(gw, "usage")
        assert (status, fault["detail"]) == (503, "the store cannot be read just now")
