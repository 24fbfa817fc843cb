"""Webhooks of programs on a real server: each verified call is a message, once, and a stranger's text."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import hmac
import json
from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import pytest

from gateway.platform.webhooks import WebhookServer
from gateway.webhooks.channel import HookChannel
from gateway.webhooks.incoming import BODY_BYTES
from gateway.webhooks.signatures import CLOCK_S, sign
from shared.clock import SYSTEM_CLOCK
from shared.errors import SettingsError
from shared.messages.inbound import STRANGER, InboundMessage, decode_inbound
from shared.messages.outbound import UserLine
from shared.metrics import WEBHOOKS
from shared.settings import IncomingWebhook, Secret, Settings, WebhookSettings, load, secrets_of
from shared.settings.sections.gateways import HooksSettings
from shared.settings.sections.webhooks import signing_key
from shared.store import keys
from shared.store.client.redis_client import RedisClient
from shared.store.delivery.feed import Feed
from shared.store.delivery.outbox import Outbox
from shared.store.sessions.chats import Chats
from shared.store.turns.inbox import Inbox
from tests.helpers.wait import eventually

SECRET, OTHER = "whsec_" + "A" * 43 + "=", "whsec_" + "B" * 43 + "="
TOKEN = "sesame-open-the-door"
BODY = b'{"alert": {"title": "Disk full"}}'
PROMPT = "Look at this alert: {{ body.alert.title }}"


class Site:
    """The webhooks of one gateway."""

    def __init__(self, hooks: WebhookServer, client: RedisClient, http: aiohttp.ClientSession) -> None:
        self._hooks, self.client, self._http = hooks, client, http

    async def post(self, name: str, headers: dict[str, str], body: bytes = BODY) -> int:
        url = f"http://{self._hooks.address}/hooks/in/{name}"
        async with self._http.post(url, data=body, headers=headers) as answer:
            self.retry_after = answer.headers.get("Retry-After")
            return answer.status

    async def signed(self, id: str = "evt_1", body: bytes = BODY, *, secret: str = SECRET, off_s: int = 0) -> int:
        at_s = int(SYSTEM_CLOCK.now_ms() / 1000) + off_s
        return await self.post("alerts", headers_of(id, at_s, body, secret), body)

    async def messages(self, session: str) -> list[InboundMessage]:
        rows = await self.client.command("XRANGE", keys.inbox(session), "-", "+")
        return [decode_inbound(fields[fields.index(b"m") + 1]) for _, fields in rows]


def headers_of(id: str, at_s: int, body: bytes, secret: str = SECRET) -> dict[str, str]:
    signature = sign(signing_key(secret), id, at_s, body)
    return {"webhook-id": id, "webhook-timestamp": str(at_s), "webhook-signature": signature}


def settings_of(**hooks: IncomingWebhook) -> Settings:
    own = {"alerts": IncomingWebhook(secret=Secret(SECRET), chat="web:ann/alerts", prompt=PROMPT)} | hooks
    return Settings(webhooks=WebhookSettings(in_=own))


@contextlib.asynccontextmanager
async def site(redis_url: str, **more: IncomingWebhook) -> AsyncIterator[Site]:
    draining, client = asyncio.Event(), RedisClient(redis_url)
    hooks = WebhookServer(HooksSettings(port=0), draining)
    channel = HookChannel(settings_of(**more), client, hooks)
    running = asyncio.create_task(hooks.run())
    # No channel of this kind needs the way in of the others.
    listening = asyncio.create_task(channel.listen(None, draining))  # type: ignore[arg-type]
    async with aiohttp.ClientSession() as http:
        try:
            await eventually(lambda: hooks.address, within_s=60)
            yield Site(hooks, client, http)
        finally:
            draining.set()
            await asyncio.gather(running, listening)
            await client.close()


async def test_a_signed_call_is_a_message_of_a_stranger(redis_url: str) -> None:
    """Durable before the answer, marked, in the chat of the settings, and shown on the page."""
    async with site(redis_url) as s:
        before = WEBHOOKS.labels("in", "accepted")._value.get()
        assert await s.signed() == 202
        [message] = await s.messages("web:ann/alerts")
        assert message.content.startswith("Look at this alert: \n[body.alert.title ")
        assert "\nDisk full\n" in message.content
        assert message.sources == ("webhook alerts",)
        assert (message.metadata[STRANGER], message.sender_id) == ("1", "webhook-alerts")
        [line] = await Outbox(s.client).read_after("web:ann/alerts", after=0)
        assert isinstance(line.line, UserLine)
        assert line.line.text == message.content
        assert WEBHOOKS.labels("in", "accepted")._value.get() == before + 1


async def test_a_call_leaves_its_chat_unread(redis_url: str) -> None:
    """The person has seen what they saw before: in the list of chats, and on the pages that are open."""
    async with site(redis_url) as s:
        own = InboundMessage(channel="web", chat_id="ann/alerts", sender_id="ann", id="m1", content="hi", timestamp=1)
        await Inbox(s.client).ingest(own, log_line=UserLine(id="m1", text="hi", at=1), principal="ann")
        cursor = (await Feed(s.client).follow("web:ann", "")).cursor
        assert await s.signed() == 202
        [row] = await Chats(s.client).latest("web", "ann")
        assert (row.seq, row.seen) == (2, 1)
        facts = (await Feed(s.client).follow("web:ann", cursor)).facts
        assert facts is not None
        assert [(fact.chat, fact.seq, fact.seen) for fact in facts] == [("alerts", 2, None)]


async def test_a_call_that_comes_again_is_one_message(redis_url: str) -> None:
    """The sender missed our answer, or somebody replays what they recorded: the same 202, and no second turn."""
    async with site(redis_url) as s:
        for _ in range(3):
            assert await s.signed("evt_1") == 202
        assert await s.signed("evt_2") == 202
        assert len(await s.messages("web:ann/alerts")) == 2


async def test_two_webhooks_with_one_id_are_two_messages(redis_url: str) -> None:
    """Senders choose their ids, and know nothing of each other."""
    other = IncomingWebhook(secret=Secret(TOKEN), chat="web:ann/alerts", prompt="b", verify="github")
    async with site(redis_url, builds=other) as s:
        assert await s.signed("1") == 202
        signature = "sha256=" + hmac.new(TOKEN.encode(), BODY, hashlib.sha256).hexdigest()
        assert await s.post("builds", {"X-GitHub-Delivery": "1", "X-Hub-Signature-256": signature}) == 202
        assert len(await s.messages("web:ann/alerts")) == 2


async def test_without_ids_the_body_is_what_comes_again(redis_url: str) -> None:
    """A bearer token is all that some senders can do."""
    hook = IncomingWebhook(secret=Secret(TOKEN), chat="telegram:42", prompt="{{ body.n }}", verify="bearer")
    async with site(redis_url, plain=hook) as s:
        for n in (1, 1, 2):
            assert await s.post("plain", {"Authorization": f"Bearer {TOKEN}"}, b'{"n": %d}' % n) == 202
        assert len(await s.messages("telegram:42")) == 2
        assert await s.post("plain", {"Authorization": f"Bearer {TOKEN}x"}) == 401


@pytest.mark.parametrize("forged", ["none", "other secret", "old", "early", "body", "malformed", "utf-8"])
async def test_a_call_that_is_not_signed_well_is_401(redis_url: str, forged: str) -> None:
    """Constant answer, no message, no error in the log."""
    async with site(redis_url) as s:
        at_s = int(SYSTEM_CLOCK.now_ms() / 1000)
        good = headers_of("evt_1", at_s, BODY)
        status = await {
            "none": lambda: s.post("alerts", {}),
            "other secret": lambda: s.signed(secret=OTHER),
            "old": lambda: s.signed(off_s=-CLOCK_S - 2),
            "early": lambda: s.signed(off_s=CLOCK_S + 2),
            "body": lambda: s.post("alerts", good, BODY + b" "),
            "malformed": lambda: s.post("alerts", good | {"webhook-signature": "v1 , ,v1,"}),
            "utf-8": lambda: s.post("alerts", good, b"\xff\xfe"),
        }[forged]()
        assert status == 401
        assert await s.messages("web:ann/alerts") == []


async def test_the_old_secret_counts_while_it_is_named(redis_url: str) -> None:
    """A secret is replaced without a call that is lost."""
    both = IncomingWebhook(secret=Secret(OTHER), old_secret=Secret(SECRET), chat="web:ann/alerts", prompt="x")
    async with site(redis_url, alerts=both) as s:
        assert await s.signed("1", secret=OTHER) == 202
        assert await s.signed("2", secret=SECRET) == 202


async def test_limits(redis_url: str) -> None:
    """Of the body, of the prompt that it makes, of calls; each webhook has its own."""
    hook = IncomingWebhook(secret=Secret(TOKEN), chat="web:ann/b", prompt="x", verify="bearer", per_minute=2)
    many = IncomingWebhook(secret=Secret(TOKEN), chat="web:ann/c", prompt="{{ body.a }}" * 40, verify="bearer")
    async with site(redis_url, few=hook, many=many) as s:
        shown = {"Authorization": f"Bearer {TOKEN}"}
        assert await s.signed(body=b"[" + b" " * BODY_BYTES + b"]") == 413
        assert await s.post("many", shown, json.dumps({"a": "x" * 5000}).encode()) == 413
        assert [await s.post("few", shown, b"%d" % n) for n in range(3)] == [202, 202, 503]
        assert s.retry_after == "30"
        assert await s.post("few", {"Authorization": "Bearer x"}) == 401, "a stranger uses nothing up"
        assert await s.signed() == 202


async def test_what_is_no_json_and_what_is_no_webhook(redis_url: str) -> None:
    """Told from a wrong signature: the sender can mend it."""
    async with site(redis_url) as s:
        assert await s.signed(body=b"alert=1") == 400
        assert await s.signed(body=b"[" * 5000) == 400
        assert await s.post("none", {}) == 404
        assert await s.post("alerts/x", {}) == 404


async def test_a_slash_is_no_command(redis_url: str) -> None:
    """A program changes nothing of a chat, whatever its prompt begins with."""
    hook = IncomingWebhook(secret=Secret(TOKEN), chat="web:ann/b", prompt="/forget", verify="bearer")
    async with site(redis_url, slash=hook) as s:
        assert await s.post("slash", {"Authorization": f"Bearer {TOKEN}"}) == 202
        [message] = await s.messages("web:ann/b")
        assert message.content == "/forget"


async def test_redis_away_and_a_full_inbox_are_503(redis_url: str) -> None:
    """The sender calls again."""
    async with site(redis_url) as s:
        cap = Settings().inbox.cap
        hook = [await s.signed(f"evt_{n}") for n in range(cap + 1)]
        assert hook == [202] * cap + [503]
        await s.client.close()
        assert await s.signed("evt_0") == 503


def test_settings_of_a_webhook(tmp_path: Path) -> None:
    """Every part that cannot work is named at the start."""
    file = tmp_path / "shoal.toml"
    whole = f'secret = "{SECRET}"\nchat = "web:ann/alerts"\nprompt = "{{{{ body.a }}}}"\n'
    file.write_text(f"[webhooks.in.alerts]\n{whole}")
    settings = load({"SHOAL_WEBHOOKS__IN__ALERTS__OLD_SECRET": OTHER}, path=file)
    assert settings.webhooks.in_["alerts"].per_minute == 60
    assert set(secrets_of(settings)) >= {
        (SECRET, "webhooks.in.alerts.secret"),
        (OTHER, "webhooks.in.alerts.old_secret"),
    }


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ('secret = "abc"', "webhooks.in.x.secret must be whsec_ and the base64 of at least 24 bytes"),
        ('verify = "bearer"\nsecret = "short"', "webhooks.in.x.secret is too short; use at least 16"),
        ('verify = "none"', "webhooks.in.x.verify must be one of bearer, github, standard, not 'none'"),
        ('chat = "alerts"', "webhooks.in.x.chat is 'alerts'; write channel and chat"),
        ('chat = "system:alerts"', "webhooks.in.x.chat is 'system:alerts', in which nobody reads"),
        ('chat = "hook:alerts"', "webhooks.in.x.chat is 'hook:alerts', in which nobody reads"),
        ('chat = "web:alerts"', "webhooks.in.x.chat is 'web:alerts'; a chat of the page is"),
        ('prompt = "{{ 7*7 }}"', "webhooks.in.x.prompt has '{{ 7*7 }}'; only paths such as '{{ body.alert.title }}'"),
        ("prompt = 1", "webhooks.in.x.prompt must be text, not empty, not 1"),
        ("per_minute = 0", "webhooks.in.x.per_minute must be a whole number from 1 to 100000, not 0"),
        ('url = "x"', "webhooks.in.x.url: there is no such setting"),
    ],
)
def test_settings_that_cannot_work(tmp_path: Path, line: str, problem: str) -> None:
    """One line each, with what to write instead."""
    fields = {"secret": f'"{SECRET}"', "chat": '"web:ann/a"', "prompt": '"x"'}
    for one in line.splitlines():
        fields[one.partition(" = ")[0]] = one.partition(" = ")[2]
    file = tmp_path / "shoal.toml"
    file.write_text("[webhooks.in.x]\n" + "".join(f"{name} = {value}\n" for name, value in fields.items()))
    with pytest.raises(SettingsError) as caught:
        load({}, path=file)
    assert str(caught.value).startswith(problem)
