"""The rows of `shoal top`: choosing, looking, and stopping one turn and no other."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from console.top.fleet_snapshot import Observation, SnapshotPoller
from console.top.page import ViewMode, page
from console.top.picker import Picker, Question, Row, keys_of, rows_of
from console.top.picker_actions import read_log
from console.up.log_file import LogFile
from shared.ids import log_id, nonce
from shared.store import keys
from shared.store.client.redis_client import RedisClient
from shared.store.sessions.listing import SessionRow
from shared.store.turns.inbox import Inbox
from shared.store.turns.queue import LeaseQueue
from shared.store.turns.running import RUNNING_LIMIT, RunningTurn, head_turn, list_running
from tests.helpers.build import say
from tests.helpers.fleet_seen import BUSY

TEA = "web:owner/tea"
LOOK = Observation(BUSY, turns=(RunningTurn(TEA, "w1", 3), RunningTurn("web:owner/\x1b[2Jx", "w2", 1)))
TURN = Row("turn", TEA)


def test_what_a_terminal_sends_is_keys() -> None:
    """Both kinds of arrows; sequences of other keys are dropped whole; Escape alone is a key."""
    assert keys_of("\x1b[A\x1bOBs\x1b[5~\x1b[1;5C\n\x1b") == ["up", "down", "s", "\n", "\x1b"]


def test_arrows_open_the_list_and_move_in_it() -> None:
    rows = rows_of(LOOK)
    assert rows[0] == TURN
    assert {row.kind for row in rows} == {"turn", "worker", "gateway"}
    state = Picker().after_key("down", rows)
    assert (state.view, state.chosen) == ("list", rows[0])
    assert state.after_key("up", rows).chosen == rows[0]
    assert state.after_key("down", rows).chosen == rows[1]
    for _ in rows:
        state = state.after_key("down", rows)
    assert state.chosen == rows[-1]
    assert state.after_key("down", rows[:2]).chosen == rows[0]  # its row is gone
    assert Picker().after_key("down", []).chosen is None


def test_enter_goes_in_and_escape_comes_out() -> None:
    rows = rows_of(LOOK)
    inside = Picker("list", TURN).after_key("\n", rows)
    assert (inside.view, inside.after_key("l", rows).view) == ("detail", "log")
    listed = inside.after_key("\x1b", rows)
    assert (listed.view, listed.after_key("\x1b", rows).view) == ("list", None)
    assert Picker().after_key("\n", rows).view is None


@pytest.mark.parametrize("width", [10, 40, 80, 200])
def test_every_page_fits(width: int) -> None:
    """Whatever is chosen; and what a name says about a terminal stays a name."""
    session = SessionRow(
        session=TEA, channel="web", messages=7, waiting=3, running=True, preset="fast", entries=4, idle_s=1.0,
    )  # fmt: skip
    look = msgspec.structs.replace(LOOK, session=session)
    log = ["a line that is much longer than the page is wide" * 3] * 50
    for row in (*rows_of(look)[:3], rows_of(look)[-1], Row("worker", "gone"), None):
        for view in ("list", "detail", "log"):
            for question in (None, Question(TEA, 3)):
                for height in (1, 3, 8, 24):
                    lines = page(look, ViewMode(), width, height, Picker(view, row, question, "done"), log)
                    assert len(lines) == height
                    assert [line.plain for line in lines if line.cell_len > width] == []
                    assert not any("\x1b" in line.plain for line in lines)


def test_the_chosen_row_is_always_on_the_page() -> None:
    """Of more rows than lines."""
    for row in rows_of(LOOK):
        lines = page(LOOK, ViewMode(), 80, 8, Picker("list", row))
        assert sum(any(span.style == "reverse" for span in line.spans) for line in lines) == 1


async def test_a_stop_names_its_turn(client: RedisClient, redis_url: str) -> None:
    """A stop that comes late does not hit the next turn."""
    assert await list_running(client) == ()
    inbox, owner = Inbox(client), nonce()
    await say(inbox, chat="owner/tea")
    await say(inbox, chat="owner/tea")
    await LeaseQueue(client, "turns", owner=owner, lease_s=60).acquire(1)
    assert await list_running(client) == (RunningTurn(TEA, owner[:12], 2),)
    assert (await head_turn(client, TEA), await head_turn(client, "web:owner/none")) == (1, None)
    poller = SnapshotPoller(lambda: redis_url)
    try:
        assert (await poller.poll()).turns == ()
        poller.with_turns, poller.session = True, TEA
        look = await poller.poll()
        assert look.session is not None
        assert (look.turns[0].session, look.session.running) == (TEA, True)
        assert not await poller.stop_turn(TEA, 7)
        assert await poller.stop_turn(TEA, 1)
    finally:
        await poller.close()


@pytest.mark.parametrize("key", [keys.session(TEA), keys.inbox(TEA), keys.history(TEA)])
async def test_a_broken_chat_does_not_end_the_view(client: RedisClient, redis_url: str, key: str) -> None:
    """It is what operators look for."""
    await say(Inbox(client), chat="owner/tea")
    await LeaseQueue(client, "turns", owner=nonce(), lease_s=60).acquire(1)
    await client.command("DEL", key)
    await client.command("SET", key, "broken")
    poller = SnapshotPoller(lambda: redis_url)
    poller.with_turns, poller.session = True, TEA
    try:
        look = await poller.poll()
        assert (look.found is not None, look.away, look.session) == (True, None, None)
    finally:
        await poller.close()


async def test_of_many_turns_some_are_read(client: RedisClient) -> None:
    inbox = Inbox(client)
    for number in range(RUNNING_LIMIT + 5):
        await say(inbox, chat=f"owner/{number}")
    await LeaseQueue(client, "turns", owner=nonce(), lease_s=60).acquire(RUNNING_LIMIT + 5)
    assert len(await list_running(client)) <= RUNNING_LIMIT


def test_the_log_of_a_row(tmp_path: Path) -> None:
    """A turn's by the hash of its session, a process' by its kind; without one it is said where to look."""
    assert "`shoal logs` says" in read_log(tmp_path, TURN)[0]
    file = LogFile(tmp_path)
    file.write("worker", f"turn ended session={log_id(TEA)}")
    file.write("gateway", "listening")
    file.close()
    assert [line[9:] for line in read_log(tmp_path, TURN)] == [f"turn ended session={log_id(TEA)}"]
    assert [line[9:] for line in read_log(tmp_path, Row("gateway", "g1"))] == ["listening"]
    assert read_log(tmp_path, Row("turn", "web:owner/other")) == ["The log has no line about it."]
