"""`shoal jobs`: list, show, cancel."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeVar

import pytest
from click.testing import CliRunner, Result

from console.main import cli
from shared.ids import log_id
from shared.store.client.redis_client import RedisClient
from shared.store.subagents.subagents import Subagents
from tests.helpers.children import SESSION, Parent, end, reports, take

T = TypeVar("T")
Shoal = Callable[..., Result]
Store = Callable[[Callable[[RedisClient], Awaitable[T]]], T]


@pytest.fixture
def shoal(redis_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Shoal:
    """The command in a folder of its own; it runs its own event loop, so these tests have none."""
    monkeypatch.chdir(tmp_path)
    return lambda *arguments: CliRunner().invoke(cli, ["jobs", *arguments], env={"SHOAL_REDIS__URL": redis_url})


@pytest.fixture
def store(redis_url: str) -> Store[object]:
    """Asks the store."""

    def run(work: Callable[[RedisClient], Awaitable[object]]) -> object:
        async def asked() -> object:
            client = RedisClient(redis_url)
            try:
                return await work(client)
            finally:
                await client.close()

        return asyncio.run(asked())

    return run


async def spawned(client: RedisClient) -> None:
    """One that runs and one that waits, of a turn that is over."""
    parent = await Parent.begin(client)
    await parent.spawn("runs", "waits")
    await parent.commit()
    [claim] = await take(client, 1)
    await Subagents(client).save_progress(claim, rounds=2, tokens=70)


def test_nothing_is_there(shoal: Shoal) -> None:
    """It says so, and exits with 0."""
    result = shoal("list")
    assert (result.exit_code, result.output) == (0, "No job runs or waits; those that ended: --session NAME.\n")


def test_a_list_has_state_rounds_tokens_and_age_and_no_chat_ids(shoal: Shoal, store: Store[object]) -> None:
    """A chat id can be a phone number: it is shown when asked for."""
    store(spawned)
    result = shoal("list").output
    assert SESSION not in result
    assert log_id(SESSION) in result
    assert ["runs", "running", log_id(SESSION), "2", "70"] in [row.split()[:5] for row in result.splitlines()]
    assert "search" not in result
    assert "search" in shoal("list", "--text").output
    assert SESSION in shoal("list", "--show-chats").output
    jobs = json.loads(shoal("list", "--json").output)["jobs"]
    assert [(job["id"], job["state"], job["rounds"], job["tokens"]) for job in jobs] == [
        ("runs", "running", 2, 70),
        ("waits", "queued", 0, 0),
    ]


def test_one_is_shown_with_its_text_only_when_asked(shoal: Shoal, store: Store[object]) -> None:
    """What people say is nobody's business."""
    store(spawned)
    assert "look it up" not in shoal("show", "runs").output
    assert "look it up" in shoal("show", "runs", "--text").output
    assert json.loads(shoal("show", "runs", "--json").output)["state"] == "running"
    missing = shoal("show", "zzz")
    assert missing.exit_code == 1
    assert "there is no job 'zzz'" in missing.output


def test_a_cancelled_job_reports_and_is_cancelled_once(shoal: Shoal, store: Store[object]) -> None:
    """Its chat did not ask for it, so it is told."""
    store(spawned)
    assert shoal("cancel", "runs").output == "1 job cancelled.\n"
    again = shoal("cancel", "runs")
    assert (again.exit_code, again.output) == (1, "It has ended already.\n")
    assert json.loads(shoal("cancel", "--all", "--json").output) == {"cancelled": ["waits"], "interrupted": False}
    result = store(reports)
    assert isinstance(result, list)
    assert [message.id for message in result] == ["child:runs", "child:waits"]
    assert shoal("list", "--session", SESSION).output.count("cancelled") == 2


def test_without_a_job_and_without_all_it_is_used_wrongly(shoal: Shoal) -> None:
    """Both at once, too."""
    assert shoal("cancel").exit_code == 2
    assert shoal("cancel", "a", "--all").exit_code == 2


def test_one_that_ended_by_itself_is_known_for_a_while(shoal: Shoal, store: Store[object]) -> None:
    """With its result, for who asks."""

    async def ends(client: RedisClient) -> None:
        await spawned(client)
        await end(client, (await take(client, 1))[0], "gold")

    store(ends)
    assert "gold" in shoal("show", "waits", "--text").output
