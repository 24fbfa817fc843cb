"""`shoal cron`: what an operator sees and removes of what chats have planned; and a chat at a terminal that is told
something nobody asked for."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeVar

import pytest
from click.testing import CliRunner, Result

from console.chat.state import ClientState, GrowingReply, ReplyEvent
from console.main import cli
from shared.messages.schedule import HEARTBEAT, CronPlan
from shared.messages.web import DeltaFrame, HistoryFrame
from shared.store.client.redis_client import RedisClient
from shared.store.schedules.schedules import Schedules
from tests.helpers.schedules import left, schedule
from tests.helpers.web_frames import reply_frame

NOW = 1_795_262_400_000  # Saturday, 2026-11-21, 12:00 UTC

T = TypeVar("T")
Shoal = Callable[..., Result]


@pytest.fixture
def shoal(redis_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Shoal:
    """`shoal cron ...` on the test's Valkey."""
    monkeypatch.chdir(tmp_path)

    def run(*arguments: str, input: str | None = None) -> Result:
        return CliRunner().invoke(cli, ["cron", *arguments], input=input, env={"SHOAL_REDIS__URL": redis_url})

    return run


def on(redis_url: str, work: Callable[[RedisClient], Awaitable[T]]) -> T:
    async def run() -> T:
        client = RedisClient(redis_url)
        try:
            return await work(client)
        finally:
            await client.close()

    return asyncio.run(run())


async def planned(client: RedisClient) -> None:
    schedules = Schedules(client)
    await schedules.add(schedule("bb", plan=CronPlan("30 8 * * 1-5", "UTC"), text="secret\x1b[2J"), NOW + 1000)
    await schedules.add(schedule("aa"), NOW)
    for chat in ("owner/a", "owner/b"):
        await schedules.add(schedule(HEARTBEAT, chat=chat), NOW + 2000)


def test_list_shows_all_the_next_one_first_and_no_text(shoal: Shoal, redis_url: str) -> None:
    """What people asked for is nobody's business here."""
    assert shoal("list").stdout == "Nothing is planned.\n"
    on(redis_url, planned)
    shown = shoal("list")
    assert [line.split()[:2] for line in shown.stdout.splitlines()[1:3]] == [
        ["aa", "web:owner/a"],
        ["bb", "web:owner/a"],
    ]
    assert "secret" not in shown.stdout
    assert len(shoal("list", "--chat", "web:owner/b").stdout.splitlines()) == 2
    assert "4 in all" in shoal("list", "--limit", "1").stdout
    result = json.loads(shoal("list", "--json").stdout)
    assert result["total"] == 4
    assert [one["id"] for one in result["schedules"][:2]] == ["aa", "bb"]
    assert result["schedules"][0] == {
        "id": "aa", "session": "web:owner/a", "in_logs": result["schedules"][0]["in_logs"], "plan": "every 1 min",
        "next": "2026-11-21 12:00 (Saturday, UTC)", "next_ms": NOW, "missed_ticks": "skip", "timezone": "UTC",
        "owner": "owner", "created_ms": 0, "paused": False, "runs": 0, "missed": 0, "last_ms": None,
    }  # fmt: skip


def test_show_tells_the_text_only_when_it_is_asked_for(shoal: Shoal, redis_url: str) -> None:
    """Without control codes."""
    on(redis_url, planned)
    assert "secret" not in shoal("show", "bb").stdout
    shown = shoal("show", "bb", "--text").stdout
    assert "secret" in shown
    assert "\x1b" not in shown
    assert json.loads(shoal("show", "bb", "--text", "--json").stdout)["text"] == "secret\x1b[2J"


def test_remove_asks_and_takes_one_out(shoal: Shoal, redis_url: str) -> None:
    """A no changes nothing."""
    on(redis_url, planned)
    assert shoal("remove", "aa", input="n\n").exit_code == 1
    assert json.loads(shoal("remove", "aa", "--yes", "--json").stdout) == {
        "id": "aa", "session": "web:owner/a", "removed": True,
    }  # fmt: skip
    assert "Removed: 'bb'" in shoal("remove", "bb", input="y\n").stdout
    assert "Removed" in shoal("remove", HEARTBEAT, "--chat", "web:owner/a", "--yes").stdout
    assert "Removed" in shoal("remove", HEARTBEAT, "--yes").stdout
    assert on(redis_url, left) == []


def test_what_is_not_clear_is_one_line_that_says_what_to_do(shoal: Shoal, redis_url: str) -> None:
    """Exit code 1."""
    on(redis_url, planned)
    for arguments, message in [
        (("show", "zz"), "there is no schedule 'zz'; `shoal cron list` shows all"),
        (("remove", HEARTBEAT, "--yes"), "2 chats have a schedule 'heartbeat'; say which by --chat NAME"),
        (("list", "--chat", "nonsense"), "'nonsense' is no session"),
    ]:
        shown = shoal(*arguments)
        assert shown.exit_code == 1
        assert message in shown.stderr
        assert len(shown.stderr.splitlines()) == 1


def test_a_terminal_shows_an_answer_that_nobody_asked_for() -> None:
    """A schedule's turn grows and is answered in the middle of a chat; what was asked there goes on waiting."""
    state = ClientState("a")
    list(state.on_frame(HistoryFrame("a", (), more=False)))
    state.send_message("m1", "hello")
    shown = [
        *state.on_frame(DeltaFrame("a", 1, 1, 0, "ti", True)),
        *state.on_frame(DeltaFrame("a", 1, 1, 1, "ck", False)),
    ]
    assert shown == [GrowingReply(1, "ti"), GrowingReply(1, "tick")]
    tick = reply_frame("a", 1, 1, "tick", ("aa:1",))
    assert list(state.on_frame(tick)) == [ReplyEvent(tick, ())]
    own = reply_frame("a", 2, 2, "yes", ("m1",))
    assert list(state.on_frame(own)) == [ReplyEvent(own, ("m1",))]
