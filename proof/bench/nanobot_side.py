"""nanobot answering turns, run by the Python that it is installed for: `nanobot_side.py <address> <model> <folder>`.

Knows nothing of Shoal. It makes a workspace with 20 skills and an AGENTS.md, and says its version. Each line `<first
chat> <chats> <seconds>` lets so many chats talk, each with a conversation of 40 messages before it, once (0 seconds) or
again and again for so long; it is answered with turns, seconds and CPU seconds.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import resource
import sys
import time
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from typing import Any

WORDS = "The shoal turned as one, a thousand small fish and not one of them in charge of the others. "
SKILLS, MESSAGES, CHARS = 20, 40, 520


def prepare(address: str, model: str, folder: Path) -> Any:
    """Its agent loop, with its own settings but for where the model is."""
    workspace = folder / "workspace"
    for n in range(SKILLS):
        skill = workspace / "skills" / f"skill-{n}"
        skill.mkdir(parents=True)
        always = "always: true\n" if n == 0 else ""
        skill.joinpath("SKILL.md").write_text(
            f"---\nname: skill-{n}\ndescription: {WORDS.strip()}\n{always}---\n\n{WORDS * 20}\n"
        )
    workspace.joinpath("AGENTS.md").write_text(WORDS * 20)
    settings = {
        "agents": {"defaults": {"model": model, "provider": "custom", "workspace": str(workspace)}},
        "providers": {"custom": {"apiKey": "none", "apiBase": address}},
    }
    config = folder / "config.json"
    config.write_text(json.dumps(settings))
    import_module("loguru").logger.remove()
    return import_module("nanobot").Nanobot.from_config(config)._loop


class Talk:
    """Chats of one agent loop."""

    def __init__(self, loop: Any) -> None:
        self._loop = loop
        self._message = import_module("nanobot.bus.events").InboundMessage
        self.answered: asyncio.Queue[str] = asyncio.Queue()

    def remember(self, chat: str) -> None:
        """A conversation of 40 messages."""
        session = self._loop.sessions.get_or_create(f"bench:{chat}")
        for n in range(MESSAGES):
            text = f"{n}: {WORDS * 6}"[:CHARS]
            session.add_message("user" if n % 2 == 0 else "assistant", text)
        self._loop.sessions.save(session)

    async def listen(self) -> None:
        """Note the chats that are answered."""
        while True:
            out = await self._loop.bus.consume_outbound()
            if "word0" in (out.content or ""):
                self.answered.put_nowait(out.chat_id)

    async def say(self, chat: str) -> None:
        """A message."""
        text = "And what does the next one say?"
        await self._loop.bus.publish_inbound(
            self._message(channel="bench", sender_id="owner", chat_id=chat, content=text)
        )


async def talk(one: Talk, first: int, chats: int, seconds: float) -> tuple[int, float, float]:
    """Turns, seconds, CPU seconds."""
    for n in range(first, first + chats):
        one.remember(str(n))
    began, used = time.perf_counter(), time.process_time()
    for n in range(first, first + chats):
        await one.say(str(n))
    done = 0
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds or 300):
            while seconds or done < chats:
                chat = await one.answered.get()
                done += 1
                if seconds:
                    await one.say(chat)
    return done, time.perf_counter() - began, time.process_time() - used


async def main(address: str, model: str, folder: str) -> None:
    loop = prepare(address, model, Path(folder))
    one = Talk(loop)
    running = [asyncio.create_task(loop.run()), asyncio.create_task(one.listen())]
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    print(version("nanobot-ai"), most, flush=True)
    while line := await asyncio.to_thread(sys.stdin.readline):
        first, chats, seconds = line.split()
        found = await talk(one, int(first), int(chats), float(seconds))
        print(*found, flush=True)
    for task in running:
        task.cancel()


if __name__ == "__main__":
    os.chdir(sys.argv[3])
    asyncio.run(main(*sys.argv[1:]))
