"""Two gateway processes on one Redis."""

from __future__ import annotations

import asyncio

from shared.store import keys
from shared.store.client.redis_client import RedisClient
from tests.gateway.harness import client, process, session_of, worker


async def test_a_line_written_through_one_gateway_is_seen_on_the_other(redis_url: str) -> None:
    """A person's devices may be connected anywhere."""
    with process(redis_url) as a, process(redis_url) as b:
        await asyncio.gather(a.ready(), b.ready())
        async with client(a.address) as phone, client(b.address) as laptop, worker(redis_url) as w:
            await phone.send("resume", chat="a", after=0)
            await phone.next("resumed")
            await laptop.say("a", "hello", id="m1")
            assert (await phone.next("message"))["id"] == "m1"
            await w.run_once()
            for device in (phone, laptop):
                assert (await device.next("reply"))["in_reply_to"] == ["m1"]
                assert device.seqs("a") == [1, 2]


async def test_a_killed_gateway_loses_and_doubles_nothing(redis_url: str) -> None:
    """SIGKILL: the client goes to the other one, says what it knows, sends again what was not accepted."""
    with process(redis_url) as a, process(redis_url) as b:
        await asyncio.gather(a.ready(), b.ready())
        async with worker(redis_url) as w, asyncio.TaskGroup() as group:
            working = group.create_task(w.run())
            accepted: set[str] = set()
            async with client(a.address) as before:
                await before.send("resume", chat="a", after=0)
                for n in range(20):
                    await before.send("message", id=f"m{n}", chat="a", text=f"text {n}")
                    if n == 10:
                        await before.next("accepted", id="m5")
                        a.popen.kill()
                        break
                await before.closed()
                accepted = {frame["id"] for frame in before.seen if frame["type"] == "accepted"}
            known = before.seqs("a")
            assert known == list(range(1, len(known) + 1))
            assert len(accepted) >= 6
            async with client(b.address) as after:
                await after.send("resume", chat="a", after=len(known))
                for n in range(20):
                    if f"m{n}" not in accepted:
                        await after.send("message", id=f"m{n}", chat="a", text=f"text {n}")
                await after.shown("a", 40)
            working.cancel()
        assert known + after.seqs("a") == list(range(1, 41))
        lines = before.lines("a") + after.lines("a")
        sent = [line["id"] for line in lines if line["type"] == "message"]
        assert sent == [f"m{n}" for n in range(20)]
        assert [line["in_reply_to"] for line in lines if line["type"] == "reply"] == [[id] for id in sent]
        assert [id for _, id in w.turns] == sent


async def test_one_message_sent_through_both_at_once_is_one_turn(redis_url: str) -> None:
    """Whoever comes second gets the first one's answer."""
    with process(redis_url) as a, process(redis_url) as b:
        await asyncio.gather(a.ready(), b.ready())
        async with client(a.address) as one, client(b.address) as two, worker(redis_url) as w:
            for n in range(20):
                first, second = await asyncio.gather(
                    one.say("a", f"text {n}", id=f"m{n}"), two.say("a", f"text {n}", id=f"m{n}")
                )
                assert first["turn"] == second["turn"] == n + 1
            redis = RedisClient(redis_url)
            assert await redis.command("XLEN", keys.inbox(session_of("a"))) == 20
            await redis.close()
            while await w.run_once():
                pass
            assert len(w.turns) == 20
            for device in (one, two):
                await device.shown("a", 40)
                assert device.seqs("a") == list(range(1, 41))


async def test_two_gateways_have_one_feed(redis_url: str) -> None:
    """A person's devices may be connected anywhere, and go from one to the other."""
    with process(redis_url) as a, process(redis_url) as b:
        await asyncio.gather(a.ready(), b.ready())
        async with client(a.address) as phone, worker(redis_url) as w:
            async with client(b.address) as laptop:
                await laptop.send("feed")
                cursor = (await laptop.next("feed", whole=True))["cursor"]
                await phone.say("a", "hello")
                assert [row["chat"] for row in (await laptop.next("feed", whole=False))["chats"]] == ["a"]
            await w.run_once()
            async with client(a.address) as laptop:
                await laptop.send("feed", after=cursor)
                asked, answered = (await laptop.next("feed", whole=False))["facts"]
                assert (asked["seq"], asked["running"]) == (1, True)
                assert (answered["seq"], answered["running"]) == (2, False)
