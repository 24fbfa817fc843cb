"""docs/first-telegram-bot.md, followed step by step."""

from __future__ import annotations

import asyncio
import itertools
import os
import re
import signal
from pathlib import Path

from tests.e2e.test_up import READY
from tests.fakes.telegram import TOKEN, FakeTelegram
from tests.gateway.harness import free_port
from tests.helpers.processes import ROOT, Process
from tests.helpers.wait import eventually

TUTORIAL = (ROOT / "docs" / "first-telegram-bot.md").read_text()
PERSON = 4242


class Phone:
    """A person who writes to the bot."""

    def __init__(self, telegram: FakeTelegram) -> None:
        self._telegram = telegram
        self._numbers = itertools.count(1)

    def write(self, text: str) -> None:
        number = next(self._numbers)
        message = {
            "message_id": number,
            "date": 1_790_000_000,
            "chat": {"id": PERSON, "type": "private"},
            "from": {"id": PERSON, "is_bot": False, "first_name": "Ada"},
            "text": text,
        }
        self._telegram.tell({"update_id": number, "message": message})

    def ask(self, text: str, pattern: str) -> bool:
        """Return whether the bot has answered with this pattern; write to it, perhaps again, if it has not."""
        if not (found := self.find(pattern)):
            self.write(text)
        return found is not None

    def texts(self) -> list[str]:
        """Return what the bot has written."""
        return [post.text for post in self._telegram.posts.get(str(PERSON), [])]

    def find(self, pattern: str) -> re.Match[str] | None:
        """Return what a message of the bot has of this pattern, if one has."""
        return next((found for text in self.texts() if (found := re.search(pattern, text))), None)


async def test_a_newcomer_gets_an_answer_in_telegram(tmp_path: Path) -> None:
    """The file of the token, the section of the settings, a code, an answer, a reminder: nothing is left out."""
    [section] = re.findall(r"```toml\n(\[channels.telegram\].*?)```", TUTORIAL, re.DOTALL)
    port = free_port()
    environment = {"SHOAL_DATA__DIR": str(tmp_path / "data"), "HOME": str(tmp_path), "PYTHONPATH": str(ROOT)}
    async with FakeTelegram({str(PERSON)}).serving() as telegram:
        (tmp_path / "secrets").mkdir(mode=0o700)
        (tmp_path / "secrets" / "telegram").write_text(TOKEN)
        (tmp_path / "shoal.toml").write_text(f'{section}api = "{telegram.address}"\n')
        log, env = tmp_path / "up.log", {**environment, "SHOAL_WEB__PORT": str(port)}
        shoal = Process("console", "up", env=env, log=log, root=tmp_path)
        try:
            await eventually(lambda: READY.findall(shoal.log), within_s=60)
            phone = Phone(telegram)
            phone.write("hello")
            code = await eventually(lambda: phone.find(r"[A-Z0-9]{4}-[A-Z0-9]{4}"), within_s=60)
            assert isinstance(code, re.Match)
            pair = Process(
                "console", "pair", "approve", code[0], env=environment, log=tmp_path / "pair.log", root=tmp_path
            )
            assert await asyncio.to_thread(pair.wait, 20) == 0, pair.log
            await eventually(lambda: len(phone.texts()) == 2, within_s=60)  # the bot confirms it
            # What a gateway knows of a sender may be a second old. No person is as fast as this test.
            await eventually(
                lambda: phone.ask("Remind me in one second to stretch", "I will remind you"), 60, every_s=1.5
            )
            await eventually(lambda: phone.find("Here is your reminder: stretch"), within_s=60)
            os.kill(shoal.pid, signal.SIGINT)
            assert await asyncio.to_thread(shoal.wait, 30) == 0
        finally:
            if shoal.alive:
                shoal.kill_group()
