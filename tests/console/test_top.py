"""`shoal top`: what fits into a terminal, what a look costs, and Redis that comes and goes."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from click.testing import CliRunner, Result

from console.main import cli
from console.top.fleet_snapshot import (
    FleetSnapshot,
    Observation,
    SnapshotPoller,
    TrendPoint,
    Unavailable,
    take_snapshot,
)
from console.top.page import ViewMode, page
from console.top.report import FACTS
from console.top.trend import sparkline
from shared.embedded import EmbeddedValkey
from shared.errors import SettingsError
from shared.store import keys
from shared.store.client.redis_client import RedisClient
from shared.store.fleet.presence import QueueReading, announce, read_queue, read_queues
from shared.store.fleet.provider_limits import CallAllowed, LimitRules, ProviderLimits, read_routes
from tests.helpers.fleet_seen import BROKEN, BUSY, IDLE, MODEL, WAY, gateway, worker
from tests.helpers.valkey import command

FLEETS = {"idle": IDLE, "busy": BUSY, "broken": BROKEN}


def look(found: FleetSnapshot) -> Observation:
    return Observation(found)


def drawn(seen: Observation, mode: ViewMode | None = None, width: int = 80, height: int = 24) -> list[str]:
    return [line.plain for line in page(seen, mode or ViewMode(), width, height)]


# The page.


@pytest.mark.parametrize("fleet", FLEETS)
@pytest.mark.parametrize("width", [20, 40, 60, 80, 120, 250])
def test_a_page_fits_whatever_the_terminal(fleet: str, width: int) -> None:
    """Never a line too many or too long; the head first, and what people get right below what is wrong."""
    for height in (1, 3, 5, 10, 15, 20, 24, 40, 100):
        for away in (None, Unavailable(1.0, "Redis is away: looked at redis://:***@127.0.0.1:6379/0")):
            seen = msgspec.structs.replace(look(FLEETS[fleet]), away=away)
            lines = page(seen, ViewMode(), width, height)
            assert len(lines) == height
            assert [line.plain for line in lines if line.cell_len > width] == []
            assert lines[0].plain.startswith("shoal top"[:width])


@pytest.mark.parametrize("size", [(80, 24), (60, 20), (120, 40)])
@pytest.mark.parametrize("fleet", FLEETS)
def test_what_people_get_and_redis_are_always_there(fleet: str, size: tuple[int, int]) -> None:
    """In every terminal that somebody has in an incident; so is what the keys do."""
    lines = drawn(look(FLEETS[fleet]), None, *size)
    found = [line.split()[0] for line in lines if line]
    for word in ("people", "a", "p50/p95", "fleet", "queue", "redis"):
        assert word in found, (word, lines)
    assert lines[-1].startswith("q quit   p pause   s sort: name")


def test_tables_are_cut_and_what_is_as_always_is_left_out() -> None:
    """Twenty workers in 24 lines: some rows of them, and how many more there are, before models that are open and
    replies that do not wait; a dead letter is always worth a line."""
    found = msgspec.structs.replace(BUSY, dead_letters=1)
    lines = drawn(look(found))
    shown = sum(line.startswith("worker-") for line in lines)
    assert shown >= 5
    assert f"… {20 - shown} more workers" in lines
    begins = {line.split()[0] for line in lines if line}
    assert {"gateway", "dead"} <= begins
    assert not {"models", "replies"} & begins
    whole = drawn(look(found), None, 120, 60)
    assert sum(line.startswith("worker-") for line in whole) == 20
    assert "more" not in "".join(whole)
    assert {"models", "replies"} <= {line.split()[0] for line in whole if line}


def test_what_is_wrong_takes_a_quarter_of_the_page_at_most() -> None:
    """The figures say why; all of it is in `shoal status`."""
    lines = drawn(look(BROKEN))
    assert lines[0].startswith("shoal top  9 things are wrong")
    assert lines[6] == "… `shoal status` shows all"
    assert lines[7].startswith("people ")
    assert sum(line.startswith("! ") for line in drawn(look(BROKEN), None, 120, 100)) == 9


def test_colour_stands_only_where_something_is_wrong() -> None:
    """Bold red or yellow catches the eye because nothing else has it."""
    styles = {str(span.style) for line in page(look(IDLE), ViewMode(), 80, 24) for span in line.spans}
    assert styles == {"bold", "bold green", "dim"}
    red = {
        line.plain[span.start : span.end]
        for line in page(look(BROKEN), ViewMode(), 250, 60)
        for span in line.spans
        if span.style == "bold red"
    }
    assert {"96 s", "5.0 s", "closed for 12 s (rate_limit)", "fsync everysec", "0.6", "5"} <= red


def test_processes_are_sorted_by_what_a_key_says() -> None:
    """s goes round; the busiest, biggest, latest first."""
    stats = worker().stats
    assert stats is not None
    big = worker("a", running=1, stats=msgspec.structs.replace(stats, memory_bytes=900 << 20))
    late = worker("b", running=2, stats=msgspec.structs.replace(stats, lag_s=0.5))
    found = msgspec.structs.replace(IDLE, processes=(worker("c", running=90), late, big, gateway()))
    mode, orders = ViewMode(), {}
    for _ in range(4):
        lines = drawn(look(found), mode)
        orders[mode.sort] = "".join(line[0] for line in lines if re.match(r"[abc] +host", line))
        mode = mode.after_key("s")
    assert orders == {"name": "abc", "runs": "cba", "memory": "abc", "late": "bac"}
    assert mode == ViewMode()


def test_other_keys_do_nothing_and_p_pauses() -> None:
    """What is paused says so in the head, and how it goes on in the foot."""
    assert ViewMode().after_key("x") == ViewMode()
    paused = ViewMode().after_key("p")
    lines = drawn(look(IDLE), paused)
    assert re.search(r"paused \d\d:\d\d:\d\d$", lines[0])
    assert "p go on" in lines[-1]
    assert paused.after_key(" ") == ViewMode()
    assert drawn(look(IDLE), ViewMode(keyed=False))[-1].startswith("Ctrl-C quits")


def test_the_last_looks_are_a_line_of_blocks() -> None:
    """The highest is a whole block, nothing is the lowest; one look is no line, and a narrow page shows the newest."""
    assert sparkline([0, 0.1, 2, 4]) == "▁▂▅█"
    assert sparkline([0, 0]) == "▁▁"
    points = tuple(TrendPoint(float(n % 5), n) for n in range(60))
    assert "trend" not in "".join(drawn(Observation(BUSY, None, points[:1]), height=40))
    [line] = [line for line in drawn(Observation(BUSY, None, points), width=120, height=40) if "trend" in line]
    assert "turns/s" in line
    assert line.endswith("up to 59")
    for width in range(40, 200, 20):
        assert all(len(line) <= width for line in drawn(Observation(BUSY, None, points), width=width, height=30))


def test_before_the_first_answer_the_page_says_that_it_looks() -> None:
    """And nothing that could be taken for figures."""
    lines = drawn(Observation())
    assert lines[0].startswith("shoal top  looking …")
    assert set(lines[1:-1]) == {""}


def test_a_rollout_shows_which_releases_there_are() -> None:
    """Only while there are several."""
    assert "releases 0.1.0 (4), 0.2.0 (1)" in "\n".join(drawn(look(BROKEN), None, 120, 40))
    assert "releases" not in "\n".join(drawn(look(BUSY), None, 120, 40))


def test_servers_of_tools_are_reported_once_for_all_workers() -> None:
    """And those that some workers do not reach."""
    one = worker("a", details={"model": MODEL, "mcp.files": "12 tools", "mcp.search": "3 tools"})
    other = worker("b", details={"model": MODEL, "mcp.files": "12 tools", "mcp.search": "away (refused)"})
    text = "\n".join(drawn(look(msgspec.structs.replace(IDLE, processes=(one, other, gateway()))), None, 120, 40))
    assert "tools    files 12 tools   search 3 tools at 1 of 2   search away (refused) at 1 of 2" in text


# What a look costs.


async def spent(client: RedisClient) -> dict[str, int]:
    """What the server was asked during one look, without what is asked to count."""
    await take_snapshot(client)  # the server knows its scripts from here on
    await client.command("CONFIG", "RESETSTAT")
    await take_snapshot(client)
    text = (await client.command("INFO", "commandstats")).decode()
    counts = {name: int(calls) for name, calls in re.findall(r"cmdstat_([\w|]+):calls=(\d+)", text)}
    counts["config|resetstat"] = 0
    return counts


async def crowd(client: RedisClient, sessions: int, first: int = 0) -> None:
    """So many sessions with something in each; a tenth runs, the others wait."""
    now = int((await client.command("TIME"))[0]) * 1000
    for n in range(first, first + sessions, 500):
        asked: list[tuple[str | int, ...]] = []
        for name in (f"web:owner/{at}" for at in range(n, min(n + 500, first + sessions))):
            asked += [
                ("HSET", keys.session(name), "n", 1), ("XADD", keys.inbox(name), "1-0", "m", "x"),
                ("ZADD", keys.queue("turns"), now + (60_000 if name.endswith("0") else 0), keys.turn(name)),
            ]  # fmt: skip
            if name.endswith("0"):
                asked.append(("HSET", keys.leases("turns"), keys.turn(name), "o:1"))
        await client.pipeline(asked)
    letter = ("member", "turn:web:a", "n", 1, "m", "x" * 999)
    for n in range(sessions // 10):
        await client.command("XADD", keys.DEAD, "*", *letter, "reason", f"error {n}")


async def test_a_look_costs_the_same_whatever_there_is(client: RedisClient) -> None:
    """Few commands, none of which walks over sessions: the fleet does not notice who watches it."""
    for process in (worker("a"), worker("b"), gateway()):
        await announce(client, process)
    await client.command("ZADD", keys.OUTBOXES, 1, "telegram")
    await crowd(client, 20)
    few = await spent(client)
    await crowd(client, 3000, first=20)
    assert await spent(client) == few
    assert 0 < sum(few.values()) <= 40, few
    assert not {"keys", "scan", "hgetall", "smembers", "lrange", "xrange", "hkeys", "hvals"} & few.keys(), few


async def test_queues_are_read_together_as_one_by_one(client: RedisClient) -> None:
    """In fewer commands."""
    await crowd(client, 40)
    now = int((await client.command("TIME"))[0]) * 1000
    await client.command("ZADD", keys.queue("background"), now - 9000, "turn:web:b", now + 90_000, "turn:web:c")
    await client.command("HSET", keys.FAIR_KEYS, "turn:web:owner/10", keys.BACKGROUND)
    together = await read_queues(client, ("turns", "background", "jobs"))
    isolated = [await read_queue(client, name) for name in ("turns", "background", "jobs")]

    def without_time(one: QueueReading) -> QueueReading:
        return msgspec.structs.replace(one, oldest_due_s=round(one.oldest_due_s / 60))

    assert list(map(without_time, together)) == list(map(without_time, isolated))
    turns, background, jobs = together
    assert (turns.due, turns.running, turns.delayed) == (36, 3, 0)
    assert (background.due, background.running, background.delayed) == (1, 1, 1)
    assert background.oldest_due_s >= 9
    assert (jobs.due, jobs.running) == (0, 0)


async def test_ways_to_models_are_read_without_taking_part(client: RedisClient) -> None:
    """Open, with faults, closed, and tried again: as the workers' own scripts leave them."""
    limits, rules = ProviderLimits(client), LimitRules(breaker_after=2)
    assert await read_routes(client, []) == []
    [way] = await read_routes(client, [WAY])
    assert (way.state, way.faults) == ("open", 0)
    for session in ("web:a/1", "web:b/1"):
        entered = await limits.enter(WAY, rules, session=session)
        assert isinstance(entered, CallAllowed)
        await limits.report(WAY, rules, entered, "overloaded", session=session, retry_after_s=60)
        [way] = await read_routes(client, [WAY])
        if way.state == "open":
            assert way.faults == 1
    assert (way.state, way.why) == ("closed", "overloaded")
    assert 50 < way.wait_s <= 60
    await client.command("HSET", keys.limit(WAY), "open_at", 1)
    [way] = await read_routes(client, [WAY])
    assert (way.state, way.why, way.wait_s) == ("trying", "overloaded", 0)
    assert await client.command("HGET", keys.limit(WAY), "credit") == b"1", "nobody's right to try was taken"


async def test_what_is_in_redis_is_seen(client: RedisClient) -> None:
    """From the records of processes to the newest dead letter."""
    await announce(client, worker())
    await announce(client, gateway())
    letter = ("member", "turn:web:a", "n", 1, "reason", "model_away ab12cd34", "m", "x")
    await client.command("XADD", keys.DEAD, "*", *letter)
    await client.command("ZADD", keys.OUTBOXES, 1, "telegram")
    await client.command("ZADD", keys.outwaits("telegram"), 1, "telegram:1")
    found = await take_snapshot(client)
    assert found.of("worker") == [worker()]
    assert found.models() == {WAY: [MODEL]}
    assert [way.route for way in found.provider_routes] == [WAY]
    assert found.newest_letter is not None
    assert (found.newest_letter.reference, found.newest_letter.reason) == ("ab12cd34", "model_away")
    assert (found.outboxes[0].channel, found.outboxes[0].waiting) == ("telegram", 1)
    assert (found.redis.role, found.redis.evicted_keys) == ("master", 0)
    assert 0 < found.redis.ping_s < 5


# Again and again.


async def test_a_redis_that_goes_and_comes_back_is_seen_so(valkey: EmbeddedValkey, redis_url: str) -> None:
    """Since when, what was seen last, and then on: nobody starts anything anew."""
    client = RedisClient(redis_url)
    await announce(client, worker())
    await client.close()
    watch = SnapshotPoller(lambda: redis_url)
    first = await watch.poll()
    assert (first.away, first.found is not None) == (None, True)
    valkey.kill()
    gone = await watch.poll()
    assert gone.away is not None
    assert gone.found == first.found
    assert "looked at redis://:***@127.0.0.1" in gone.away.why
    still = await watch.poll()
    assert still.away is not None
    assert still.away.since == gone.away.since
    assert "Redis is away" in drawn(still)[0]
    valkey.start()
    back = await watch.poll()
    assert back.away is None
    await watch.close()


async def test_an_embedded_redis_may_come_back_elsewhere(redis_url: str) -> None:
    """`make up` was started anew: its address is asked again."""
    known: list[str | SettingsError] = [
        SettingsError("no embedded Valkey is running"),
        "redis://127.0.0.1:1/0",
        redis_url,
    ]
    places = iter(known)

    def address() -> str:
        place = next(places)
        if isinstance(place, SettingsError):
            raise place
        return place

    watch = SnapshotPoller(address)
    whys = [(await watch.poll()).away for _ in range(3)]
    assert [why is not None for why in whys] == [True, True, False]
    assert whys[0] is not None
    assert whys[0].why == "no embedded Valkey is running"
    await watch.close()


async def test_a_server_that_refuses_config_is_not_asked_again(redis_url: str) -> None:
    """Its log of refusals is for intruders."""
    command(redis_url, "ACL", "SETUSER", "guest", "on", ">pw", "~*", "&*", "+@all", "-config")
    command(redis_url, "ACL", "LOG", "RESET")
    watch = SnapshotPoller(
        lambda: redis_url.replace("//:", "//guest:").replace(redis_url.split(":")[2].split("@")[0], "pw")
    )
    try:
        for _ in range(3):
            seen = await watch.poll()
            assert seen.found is not None
            assert seen.found.redis.fsync is None
            assert seen.found.redis.policy == "noeviction", "INFO tells that much"
        refusals = command(redis_url, "ACL", "LOG")
        assert (refusals.count("entry-id"), refusals.splitlines()[:2]) == (1, ["count", "1"])
    finally:
        await watch.close()
        command(redis_url, "ACL", "DELUSER", "guest")


# The command, where there is no terminal.


@pytest.fixture
def shoal(redis_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Result]:
    monkeypatch.chdir(tmp_path)

    async def appear() -> None:
        client = RedisClient(redis_url)
        await announce(client, worker())
        await announce(client, gateway())
        await client.close()

    asyncio.run(appear())

    def run(*arguments: str, **environ: str) -> Result:
        return CliRunner().invoke(cli, ["top", *arguments], env={"SHOAL_REDIS__URL": redis_url, **environ})

    return run


def test_without_a_terminal_it_prints_one_look(shoal: Callable[..., Result]) -> None:
    """The same as with --once: no control codes, nothing cut, and exit code 0 whatever is wrong."""
    for arguments in ((), ("--once",)):
        result = shoal(*arguments)
        assert result.exit_code == 0
        assert "\x1b" not in result.output
        lines = result.output.splitlines()
        assert lines[0] == "1 thing is wrong"
        [row] = [line for line in lines if line.startswith("w1 ")]
        assert row.split()[:6] == ["w1", "host-of-w1", "ready", "12", "of", "100"]
        assert "turns,jobs" in row


def test_json_is_the_object_of_status_and_since_when_redis_is_away(shoal: Callable[..., Result]) -> None:
    """On one line."""
    result = shoal("--json")
    assert result.exit_code == 0
    [line] = result.stdout.splitlines()
    seen: dict[str, Any] = json.loads(line)
    assert set(seen) == {"away", *FACTS}
    assert seen["away"] is None
    assert seen["figures"]["ended_per_s"] == 3.0
    assert [one["name"] for one in seen["processes"]] == ["g1", "w1"]
    assert seen["models"][0]["models"] == [MODEL]


def test_one_look_at_a_redis_that_is_away_is_one_line(shoal: Callable[..., Result]) -> None:
    """Exit code 3, as of every command."""
    for arguments in (("--once",), ("--json",), ()):
        result = shoal(*arguments, SHOAL_REDIS__URL="redis://:canary@127.0.0.1:1/0")
        assert (result.exit_code, result.stdout) == (3, "")
        assert len(result.stderr.splitlines()) == 1
        assert "redis://:***@127.0.0.1:1/0" in result.stderr


def test_once_and_every_exclude_each_other(shoal: Callable[..., Result]) -> None:
    """Usage, exit code 2; so is a look more often than anybody can read."""
    assert shoal("--once", "--every", "5").exit_code == 2
    assert shoal("--every", "0.01").exit_code == 2
