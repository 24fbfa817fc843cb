"""A chat whose keys in Redis are broken, and another chat on the same socket of the page."""

from __future__ import annotations

import random

import pytest

from shared.store import keys
from tests.gateway.harness import Client, client, gateway, session_of
from tests.helpers.break_keys import BREAKAGES, Breakage, break_key

SESSION_KEYS = [kind for kind in keys.FAMILIES.values() if isinstance(kind, keys.SessionKeys) and kind.type]


async def ask_everything(page: Client) -> None:
    """Whatever a page may want of the broken chat, each answered before the next."""
    await page.send("resume", chat="broken", after=0)
    await page.send("history", chat="broken")
    for text in ("hello?", "/status", "/new", "/stop"):
        id = f"m{text.strip('/?')}"
        await page.send("message", id=id, chat="broken", text=text)
        await page.answer(id)
    await page.send("stop", chat="broken")
    await page.send("ack", chat="broken", seq=1)
    await page.send("withdraw", id="mhello", chat="broken")
    await page.send("approve", chat="broken", call="00ff", yes=True)
    await page.send("chats")


@pytest.mark.parametrize("how", BREAKAGES)
@pytest.mark.parametrize("kind", SESSION_KEYS, ids=str)
async def test_a_broken_chat_closes_no_socket_and_its_errors_name_it(
    redis_url: str, kind: keys.SessionKeys, how: Breakage
) -> None:
    """The other chat goes on as ever, on the same socket."""
    async with gateway(redis_url) as gw, client(gw.address) as page:
        for chat in ("broken", "other"):
            await page.say(chat, "hi")
        await break_key(gw.client, kind(session_of("broken")), how, random.Random(7))
        await ask_everything(page)
        await page.say("other", "still here?")
        await page.send("history", chat="other")
        assert [line["text"] for line in (await page.next("history", chat="other"))["lines"]] == ["hi", "still here?"]
        errors = [frame for frame in page.seen if frame["type"] == "error"]
        assert all(frame.get("chat") == "broken" for frame in errors), errors


async def test_a_page_hears_once_that_a_chat_is_broken_and_sees_it_when_it_is_mended(redis_url: str) -> None:
    """Under a code of its own: the store is there, and a page that only waited would wait for ever."""
    async with gateway(redis_url) as gw, client(gw.address) as page:
        await page.say("broken", "hi", id="m1")
        await gw.client.command("RENAME", keys.outbox(session_of("broken")), "aside")
        await gw.client.command("SET", keys.outbox(session_of("broken")), "x")
        await page.send("resume", chat="broken", after=0)
        assert (await page.next("error"))["code"] == "broken"
        await gw.client.command("RENAME", "aside", keys.outbox(session_of("broken")))
        await page.send("resume", chat="broken", after=0)
        assert (await page.next("resumed", chat="broken"))["seq"] == 1
