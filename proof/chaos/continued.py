"""What a killed worker costs an answer: `python -m proof.chaos.continued --waves 5`.

Chats ask for stories of `--seconds` by a model that writes 30 letters a second, while workers are killed at random
moments; once with a provider that goes on with a reply by itself, once with one that has to be asked in words. Printed
are the times from a kill to the first new letter, without the model's own time to it. Promised: p50 within 0.5 s and
p99 within 1.5 s; every text is the one that nobody killed would have had; no more calls than kills and one; at most
1.05 times the letters are paid for. The exit code is 1 when a promise is broken.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import random
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec

from proof.chaos.recovery import times_of
from shared.embedded import EmbeddedValkey
from shared.store.client.redis_client import RedisClient
from shared.store.turns.inbox import Inbox
from tests.helpers.build import say
from tests.helpers.fleet import Seen, holder, replies, warm, watching
from tests.helpers.processes import Process
from tests.helpers.stream_server import stream_server
from tests.helpers.wait import eventually
from worker.agent.model.ask import CUT_OFF

LETTERS_A_SECOND: Final = 30
FIRST_LETTER_S: Final = 0.2
CHATS: Final = 20
P50_S, P99_S, PAID = 0.5, 1.5, 1.05
Body = dict[str, Any]


def story(chat: str, letters: int) -> str:
    """Return the story of a chat: words that stand nowhere twice, and a table of code in the middle."""
    words = [f"{chat}-{number}" for number in range(letters)]
    text = " ".join(words[: letters // 8])
    half = len(text) // 2
    return f"{text[:half]}\n\n```\n{text[half:]}"[: letters - 4] + "\n```"


class Storyteller:
    """A model server. `calls` and `letters` count, by chat, what it was asked and what it has written."""

    def __init__(self, letters: int) -> None:
        self.length = letters
        self.calls: Counter[str] = Counter()
        self.letters: Counter[str] = Counter()

    async def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer the requests of a connection."""
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").lower()
                length = next(line for line in head.splitlines() if line.startswith("content-length:"))
                body = msgspec.json.decode(await reader.readexactly(int(length.partition(":")[2])))
                await self._tell(body["messages"], writer)

    async def _tell(self, messages: list[Body], writer: asyncio.StreamWriter) -> None:
        asked = next(one["content"] for one in messages if one["role"] == "user")
        chat = asked.partition(" ")[0]
        self.calls[chat] += 1
        text = self._rest(story(chat, self.length), messages)
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n")
        await asyncio.sleep(FIRST_LETTER_S)
        begun = time.monotonic()
        for number, letter in enumerate(text):
            self.letters[chat] += 1
            await self._send(writer, {"delta": {"content": letter}, "finish_reason": None})
            await asyncio.sleep(max(0.0, begun + number / LETTERS_A_SECOND - time.monotonic()))
        await self._send(writer, {"delta": {}, "finish_reason": "stop"})
        writer.write(b"e\r\ndata: [DONE]\n\n\r\n0\r\n\r\n")
        await writer.drain()

    def _rest(self, whole: str, messages: list[Body]) -> str:
        last = messages[-1]
        if last["role"] == "assistant":  # a prefix
            return whole[len(last["content"]) :]
        if last["content"].startswith(CUT_OFF):
            begun = messages[-2]["content"].rstrip()
            return whole[begun.rfind(" ") + 1 :] if " " in begun else whole
        return whole

    async def _send(self, writer: asyncio.StreamWriter, choice: Body) -> None:
        event = b"data: " + msgspec.json.encode({"choices": [{"index": 0, **choice}]}) + b"\n\n"
        writer.write(f"{len(event):x}\r\n".encode() + event + b"\r\n")
        await writer.drain()


class Result(NamedTuple):
    """What came of all waves with one kind of provider."""

    kills: int
    seconds: list[float]
    wrong: int
    too_many_calls: int
    paid: float

    def line(self, name: str) -> str:
        """Return the line that is printed."""
        times = times_of(self.seconds)
        return (
            f"{name}: {self.kills} answers cut by kills; first new letter p50 {1000 * times.p50:.0f} ms, "
            f"p99 {1000 * times.p99:.0f} ms, max {1000 * times.worst:.0f} ms; {self.wrong} texts differ, "
            f"{self.too_many_calls} calls too many, {self.paid:.3f} times the letters paid"
        )

    @property
    def kept(self) -> bool:
        """Whether every promise was kept."""
        times = times_of(self.seconds)
        exact = not self.wrong and not self.too_many_calls
        return exact and times.p50 <= P50_S and times.p99 <= P99_S and self.paid <= PAID


class Wave:
    """Chats whose stories are running at the same time, and the kills that hit each."""

    def __init__(self, client: RedisClient, chats: list[str], seen: dict[str, Seen]) -> None:
        self._client = client
        self._chats = chats
        self._seen = seen
        self.hits: list[tuple[str, int, float]] = []  # chat, attempt that was cut, when
        self.kills: Counter[str] = Counter()

    async def kill_someone(self, choose: random.Random) -> None:
        """Kill the worker of a chat that is being answered."""
        at_work = [chat for chat in self._chats if not await replies(self._client, f"web:owner/{chat}")]
        if not at_work:
            return
        worker = await holder(self._client, f"web:owner/{choose.choice(at_work)}")
        cut = [chat for chat in at_work if await self._is_held_by(chat, worker.pid)]
        worker.kill()
        now = time.monotonic()
        for chat in cut:
            if deltas := self._seen[chat].deltas():
                self.hits.append((chat, deltas[-1].attempt, now))
                self.kills[chat] += 1

    async def _is_held_by(self, chat: str, pid: int) -> bool:
        owner = await holder(self._client, f"web:owner/{chat}")
        return bool(owner.pid == pid)

    def seconds(self) -> list[float]:
        """Return the times from each kill to the first new letter, without the model's own."""
        found = []
        for chat, attempt, at in self.hits:
            if grown := self._seen[chat].grown_at(attempt + 1):
                found.append(max(0.0, grown - at - FIRST_LETTER_S))
        return found


async def run(folder: Path, url: str, *, name: str, waves: int, seconds: float, chats: int, kills: int) -> Result:
    """Tell all stories with the model of this name."""
    teller = Storyteller(int(seconds * LETTERS_A_SECOND))
    async with contextlib.AsyncExitStack() as stack:
        port = await stack.enter_async_context(stream_server(teller.handle, limit=8 * 1024 * 1024))
        env = {
            "SHOAL_WORKER__LEASE_S": "3",
            "SHOAL_REDIS__URL": url,
            "SHOAL_MODEL__NAME": name,
            "SHOAL_MODEL__API_BASE": f"http://127.0.0.1:{port}/v1",
            "SHOAL_MODEL__API_KEY": "sk-story",
            "SHOAL_WORKER__TURNS": str(chats),
        }
        fleet = [Process("worker", env=env, log=folder / f"{number}.log") for number in range(2)]
        for member in fleet:
            stack.callback(member.kill_group)
        await warm(*fleet)
        client = RedisClient(url)
        stack.push_async_callback(client.close)
        return await _tell_all(client, teller, waves=waves, seconds=seconds, chats=chats, kills=kills)


async def _tell_all(
    client: RedisClient, teller: Storyteller, *, waves: int, seconds: float, chats: int, kills: int
) -> Result:
    choose, times, wrong, calls, killed = random.Random(7), list[float](), 0, 0, 0
    for wave in range(waves):
        names = [f"c{wave}x{number}" for number in range(chats)]
        async with _watched(client, names) as seen:
            running = Wave(client, names, seen)
            for chat in names:
                await say(Inbox(client), f"{chat} tell me", chat=f"owner/{chat}")
            await eventually(partial(_all_speak, seen), within_s=30)
            for moment in sorted(choose.uniform(0.3, 0.9) * seconds / kills for _ in range(kills)):
                await asyncio.sleep(moment)
                await running.kill_someone(choose)
            for chat in names:
                await eventually(partial(replies, client, f"web:owner/{chat}"), within_s=seconds * 2 + 30)
                text = await replies(client, f"web:owner/{chat}")
                wrong += text != [story(chat, teller.length)]
                calls += max(0, teller.calls[chat] - running.kills[chat] - 1)
            times += running.seconds()
            killed += len(running.hits)
    paid = sum(teller.letters.values()) / (waves * chats * teller.length)
    return Result(killed, times, wrong, calls, paid)


def _all_speak(seen: dict[str, Seen]) -> bool:
    return all(one.deltas() for one in seen.values())


@contextlib.asynccontextmanager
async def _watched(client: RedisClient, chats: list[str]) -> AsyncIterator[dict[str, Seen]]:
    async with contextlib.AsyncExitStack() as stack:
        yield {chat: await stack.enter_async_context(watching(client, f"web:owner/{chat}")) for chat in chats}


PROVIDERS: Final = {"by itself": "hosted_vllm/story", "in words": "openai/story"}


def main() -> int:
    """Measure, and print a line for each kind of provider."""
    parser = argparse.ArgumentParser(prog="python -m proof.chaos.continued")
    parser.add_argument("--waves", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--chats", type=int, default=CHATS)
    parser.add_argument("--kills", type=int, default=2)
    given = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="shoal-continued-"))
    kept = True
    for kind, name in PROVIDERS.items():
        server = EmbeddedValkey(folder / name.partition("/")[0])
        server.start()
        try:
            result = asyncio.run(run(folder, server.url, name=name, **vars(given)))
        finally:
            server.stop()
        sys.stdout.write(f"{result.line(f'goes on {kind}')}; {'kept' if result.kept else 'BROKEN'}\n")
        kept = kept and result.kept
    shutil.rmtree(folder)
    return 0 if kept else 1


if __name__ == "__main__":
    sys.exit(main())
