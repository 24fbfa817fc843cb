"""The owner of a demo may kill the worker that answers, and nobody else may."""

from __future__ import annotations

import asyncio

import pytest

from shared.store import keys
from shared.store.delivery.fanout import Fanout
from shared.tasks import cancel_all
from tests.gateway.harness import TOKENS, gateway, session_of, stranger
from tests.helpers.wait import eventually


async def test_the_owner_of_a_demo_asks_for_a_kill(redis_url: str) -> None:
    """Every worker hears which chat it is about; the one that has its turn dies."""
    asked, listening = list[bytes](), asyncio.Event()

    async def ready() -> None:
        listening.set()

    async with gateway(redis_url, demo=True) as gw, stranger(gw.address) as owner:
        control = Fanout(gw.client, on_gap=ready)
        await control.subscribe(keys.CONTROL, asked.append)
        reading = asyncio.create_task(control.run())
        await listening.wait()
        await owner.send("hello", token=TOKENS["owner"])
        assert (await owner.next("welcome"))["kill"] is True
        await owner.send("kill", chat="a")
        await eventually(lambda: asked)
        assert asked == [f"{keys.turn(session_of('a'))} {keys.KILL}".encode()]
        await cancel_all([reading])


@pytest.mark.parametrize(("demo", "person"), [(True, "ann"), (False, "owner")])
async def test_nobody_else_kills_anything(redis_url: str, demo: bool, person: str) -> None:
    """Not another person of the demo, and not the owner of anything else."""
    async with gateway(redis_url, demo=demo) as gw, stranger(gw.address) as client:
        await client.send("hello", token=TOKENS[person])
        assert (await client.next("welcome"))["kill"] is False
        await client.send("kill", chat="a")
        assert (await client.next("error"))["code"] == "not_offered"
