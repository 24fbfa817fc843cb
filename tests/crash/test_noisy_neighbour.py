"""One session does its worst with commands and searches; the other chats of the same worker do not notice."""

from __future__ import annotations

import asyncio
import json
import time
from statistics import median

import pytest

from shared.messages.transcript import ToolEntry
from shared.store import keys
from shared.store.client.redis_client import RedisClient
from shared.store.turns.inbox import Inbox
from tests.crash.test_exec import SESSION, SLOW_S, Place, place
from tests.helpers.build import say
from tests.helpers.fleet import history, replies
from tests.helpers.fleet_fixtures import Spawn, model, model_server, spawn
from tests.helpers.openai_server import Answer, Call, ScriptedOpenAI
from tests.helpers.wait import eventually

__all__ = ["Spawn", "model", "model_server", "place", "spawn"]
pytestmark = pytest.mark.timeout(300)

CHATS = 20
ROUNDS = 3
RATIO = 5.0
SLACK_S = 1.0
WORST = {
    "fork bomb": ("bash -c 'f() { f | f & }; f; sleep 30'", ("processes", "took more than", "exit code")),
    "memory bomb": ("python3 -c 'b = []\nwhile True: b.append(bytearray(1 << 20))'", ("memory", "MemoryError")),
    "endless output": ("yes", ("bytes and was ended",)),
    "busy loop": ("while :; do :; done", ("took more than", "processor time")),
    "regex bomb": (
        "python3 -c \"import re; re.match('(a+)+$', 'a' * 60 + '!')\"",
        ("took more than", "processor time"),
    ),
    "daemon": ("setsid -f sleep 300; echo away", ("exit code 0",)),
}
"""What a command may try, and one of which words its result has."""


def attack() -> list[Call]:
    """All of it, one after the other, and the same bomb for the file tools."""
    lines = [
        Call("exec", json.dumps({"command": line, "timeout_s": 3}), f"c{n}")
        for n, (line, _) in enumerate(WORST.values())
    ]
    write = Call("write_file", json.dumps({"path": "a.txt", "content": f"{'a' * 60}!\n" * 1000}), "w1")
    grep = Call("grep", json.dumps({"words": "(a+)+$ .*.*.*.*b", "path": "a.txt"}), "g1")
    glob = Call("glob", json.dumps({"pattern": "**/*" * 40 + "b"}), "g2")
    return [write, grep, glob, *lines]


async def test_the_other_chats_do_not_notice_what_one_session_does(
    client: RedisClient, place: Place, model: ScriptedOpenAI
) -> None:
    """Twenty chats are answered about as quickly as when nothing else happens; each attack ends as it is documented."""
    model.script(
        Answer(match="^attack", role="user", calls=attack(), times=0),
        Answer(match="^attack", role="tool", text="survived", times=0),
    )
    await place.worker(TOOLS__EXEC_MEMORY_MB="128", TOOLS__EXEC_PROCESSES="24", TOOLS__EXEC_OUTPUT_KB="256")
    await rounds(client, "warm", 1)
    quiet_s = await rounds(client, "quiet", ROUNDS)
    await say(Inbox(client), "attack")
    await eventually(lambda: client.command("EXISTS", keys.ledger(SESSION)), SLOW_S, what="the first attack")
    noisy_s, within_one_call = list[float](), 0
    while not await replies(client, SESSION):  # as long as any of the attacks goes on
        before = await client.command("XLEN", keys.ledger(SESSION))
        noisy_s += await rounds(client, f"noisy {len(noisy_s)}", 1)
        within_one_call += before == await client.command("XLEN", keys.ledger(SESSION))
    quiet, noisy = median(quiet_s), median(noisy_s)
    print(
        f"\n{place.tier}: median of {CHATS} chats {quiet * 1000:.0f} ms quiet ({len(quiet_s)} turns), "
        f"{noisy * 1000:.0f} ms beside the attacks ({len(noisy_s)} turns)"
    )
    assert await replies(client, SESSION) == ["survived"]
    # Who had to wait for a call of the attack would not be answered before it ends.
    assert within_one_call >= 3
    assert noisy <= RATIO * quiet + SLACK_S
    result = {
        e.call_id.rpartition("-")[2]: e.content for e in await history(client, SESSION) if isinstance(e, ToolEntry)
    }
    for n, (name, (_, words)) in enumerate(WORST.items()):
        assert any(word in result[f"c{n}"] for word in words), (name, result[f"c{n}"])
    assert all("broke" not in content for content in result.values())


async def rounds(client: RedisClient, what: str, many: int) -> list[float]:
    """How long each answer took, over `many` rounds of one message in each chat."""
    return [
        seconds
        for n in range(many)
        for seconds in await asyncio.gather(*(answered_in(client, chat, f"{what} {n}") for chat in range(CHATS)))
    ]


async def answered_in(client: RedisClient, chat: int, text: str) -> float:
    """Seconds from a message to its answer."""
    began = time.monotonic()
    await say(Inbox(client), text, chat=f"owner/n{chat}")
    session = f"web:owner/n{chat}"
    await eventually(lambda: _has(client, session, f"echo: {text}"), 2 * SLOW_S, every_s=0.03, what="an answer")
    return time.monotonic() - began


async def _has(client: RedisClient, session: str, text: str) -> bool:
    return text in await replies(client, session)
