"""The pages of a long log: nothing said is lost, whatever happens while lines move."""

from __future__ import annotations

import random
from functools import partial

from shared.messages.codec import encode
from shared.messages.outbound import UserLine
from shared.settings import WebSettings
from shared.store import keys
from shared.store.client.packing import pack
from shared.store.client.redis_client import RedisClient
from shared.store.delivery.outbox import NumberedLine, Outbox
from shared.store.sessions.erase import erase
from shared.store.sessions.log_pages import HOT_LINES, LogPages
from shared.store.turns.inbox import Inbox
from tests.helpers.build import message
from worker.jobs.log_sweep import LogSweep

SESSION = "web:owner/long"
KEEP_MS = 86_400_000
CAP = 16 * 1024 * 1024


async def write_lines(client: RedisClient, first: int, last: int, text: str = "line {seq}") -> None:
    """Lines as the scripts write them, without the turns between."""
    for seq in range(first, last + 1, 500):
        rows = range(seq, min(seq + 500, last + 1))
        add = [("XADD", keys.outbox(SESSION), f"{one}-0", "m", record(one, text)) for one in rows]
        await client.pipeline([*add, ("HSET", keys.session(SESSION), "log", rows[-1])])


def record(seq: int, text: str) -> bytes:
    return encode(UserLine(id=f"m{seq}", text=text.format(seq=seq), at=seq))


def texts(lines: list[NumberedLine]) -> list[tuple[int, str]]:
    return [(one.seq, one.line.text) for one in lines if isinstance(one.line, UserLine)]


async def page_out(client: RedisClient, cap_bytes: int = CAP, keep_ms: int = KEEP_MS) -> int:
    return await LogPages(client).page_out(SESSION, cap_bytes=cap_bytes, keep_ms=keep_ms)


async def test_a_log_is_read_back_to_its_very_first_line(client: RedisClient) -> None:
    """Every line once, with its number, text and mark, as if it had never left the log."""
    await write_lines(client, 1, 1730)
    before = await Outbox(client).read_before(SESSION, seq=None, limit=5000)
    assert await page_out(client) == 1230
    assert await client.command("XLEN", keys.outbox(SESSION)) == HOT_LINES
    found: list[NumberedLine] = []
    while page := await Outbox(client).read_before(SESSION, seq=found[0].seq if found else None, limit=51):
        assert len(page) == 51 or page[0].seq == 1
        found = page + found
    assert found == before
    assert texts(found) == [(seq, f"line {seq}") for seq in range(1, 1731)]


async def test_who_was_away_gets_what_left_the_log_meanwhile(client: RedisClient) -> None:
    """A reader that knows line 40 gets line 41 next, and no line twice."""
    await write_lines(client, 1, 1100)
    await page_out(client)
    seen, outbox = 40, Outbox(client)
    numbers: list[int] = []
    while page := await outbox.read_after(SESSION, after=seen, limit=100):
        numbers += [one.seq for one in page]
        seen = numbers[-1]
    assert numbers == list(range(41, 1101))
    # A new reader begins with the log: what is older is history, which it asks for.
    assert (await outbox.read_after(SESSION, after=0, limit=1))[0].seq == 601


async def test_lines_of_every_length_are_read_back(client: RedisClient) -> None:
    """A page has a limit of bytes, and a line larger than that a page of its own."""
    drawn = random.Random(7)
    lines = {seq: "x" * drawn.choice([0, 3, 5_000, 70_000, 300_000]) for seq in range(1, 621)}
    for seq, text in lines.items():
        await write_lines(client, seq, seq, text)
    assert await page_out(client) == 120
    assert dict(texts(await Outbox(client).read_before(SESSION, seq=None, limit=1000))) == lines


async def test_the_oldest_pages_go_over_the_cap_and_after_their_time(client: RedisClient) -> None:
    """The newest page stays in any case; the log itself is not touched."""
    await write_lines(client, 1, 2500)
    await page_out(client, cap_bytes=1024)
    kept = await Outbox(client).read_before(SESSION, seq=None, limit=5000)
    assert (kept[0].seq > 1, kept[-1].seq) == (True, 2500)
    assert [one.seq for one in kept] == list(range(kept[0].seq, 2501))
    assert int(await client.command("HGET", keys.session(SESSION), "pages")) <= 1024


async def test_a_page_goes_after_its_time(client: RedisClient) -> None:
    """What it held is gone then; the newest page stays in any case."""
    await client.command("XADD", keys.pages(SESSION), "1-0", "z", b"of a long time ago", "t", 1)
    await write_lines(client, 101, 801)
    assert await page_out(client) == 201
    assert (await Outbox(client).read_before(SESSION, seq=None, limit=5000))[0].seq == 101
    assert [id for id, _ in await client.command("XRANGE", keys.pages(SESSION), "-", "+")] == [
        b"101-0",
        b"201-0",
        b"301-0",
    ]


async def test_two_workers_move_the_same_lines_once(client: RedisClient) -> None:
    """The script sees that the log begins with another line by now."""
    await write_lines(client, 1, 700)
    page = pack(["1", b"z"])
    move = partial(
        client.run,
        "sessions/page_log",
        session=SESSION,
        first=1,
        behind=201,
        pages_bytes=CAP,
        keep_pages_ms=KEEP_MS,
        new=page,
    )
    assert await move() == 1
    assert await move() == 0
    assert await client.command("XLEN", keys.outbox(SESSION)) == 500


async def test_the_sweep_pages_the_logs_that_the_scripts_named(client: RedisClient) -> None:
    """A chat is named with every fiftieth of its lines, and nothing else is needed."""

    await write_lines(client, 1, 649)
    sent = message(chat="owner/long")
    await Inbox(client).ingest(sent, log_line=UserLine(id=sent.id, text="the 650th"), principal="owner")
    assert await client.command("XLEN", keys.outbox(SESSION)) == 650
    sweep = LogSweep(client, WebSettings())
    assert await sweep.run_once() == 150
    assert await sweep.run_once() == 0
    assert await client.command("ZCARD", keys.PAGING) == 0


async def test_pages_go_with_their_chat(client: RedisClient) -> None:
    """An erased chat leaves no line anywhere."""
    await write_lines(client, 1, 700)
    await page_out(client)
    assert 0 < await client.command("PTTL", keys.pages(SESSION)) <= KEEP_MS
    await erase(client, SESSION)
    assert await client.command("EXISTS", keys.pages(SESSION), keys.outbox(SESSION)) == 0
