"""What one prompt that its provider always fails costs others, and a provider that is down: `python -m
proof.chaos.breaker --minutes 10`.

Two fleets of one worker group each run side by side, so that the machine is the same for both: 50 chats talk to a
model that answers in 0.4 s. In one of them a 51st chat says, by turns, something that its provider answers with 500
each time, and hello. Promised: the p99 of the 50 grows at most 1.2-fold, none of them gets an apology, the breaker
stays open for nobody, and the 51st is given up after `agent.give_up_alone_s`, with what the provider said, and goes on.

Then the provider of all is down for a while. Promised: nobody asks it any more 10 s later, but one call every 5 s; 2 s
after its first answer everybody may ask again; nothing is lost. The exit code is 1 when a promise is broken.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import math
import sys
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Final, NamedTuple

from proof.chaos.load import Crowd
from proof.chaos.recovery import times_of
from proof.chaos.stage import Row, Stage, perform, stage, zero
from shared.store.client.redis_client import RedisClient
from shared.store.fleet.presence import list_processes
from shared.store.fleet.provider_limits import PROBE_S, read_routes
from shared.store.turns.dead_letters import DeadLetters
from shared.store.turns.inbox import Inbox
from shared.tasks import cancel_all
from tests.helpers.openai_server import Answer, ScriptedOpenAI
from tests.helpers.wait import eventually

CHATS: Final = 50
PAUSE_S: Final = 1.0
ANSWER_S: Final = 0.4
REFUSAL: Final = "The server had an error while processing your request"
GROWS: Final = 1.2
OPENS_S, CLOSES_S = 10.0, 2.0
LAST_TRY_S: Final = 20.0  # the tries of the first attempt and of the last one, and some
FORGET_EVERY_S: Final = 5.0


class Side(NamedTuple):
    """A fleet, and the model that it asks."""

    on: Stage
    model: ScriptedOpenAI

    def script(self, *first: Answer) -> None:
        """Answer so from now on, after `first`."""
        self.model.reset()
        self.model.script(*first, Answer(text="fine, thank you", total_s=ANSWER_S, times=0))


@asynccontextmanager
async def side(folder: Path, give_up_alone_s: float) -> AsyncIterator[Side]:
    """A fleet of one worker group."""
    folder.mkdir()
    with ScriptedOpenAI() as model:
        env = {
            "SHOAL_MODEL__NAME": "openai/scripted",
            "SHOAL_MODEL__API_BASE": model.base_url,
            "SHOAL_MODEL__API_KEY": "none",
            "SHOAL_MODEL__CLIENT": "direct",
            "SHOAL_AGENT__GIVE_UP_ALONE_S": str(give_up_alone_s),
        }
        async with stage(folder, workers=1, env=env, watched=False) as on:
            made = Side(on, model)
            made.script(Answer(match="poison", status=500, error={"message": REFUSAL}, times=0))
            yield made


def hello(chat: str, n: int) -> str:
    """What a healthy chat says."""
    return f"hello {n} from {chat}"


def by_turns(_chat: str, n: int) -> str:
    """What the ill chat says."""
    return f"hello {n}" if n % 2 else f"poison {n}"


async def breaker(folder: Path, *, seconds: float, chats: int, give_up_alone_s: float, down_s: float) -> list[Row]:
    """Both parts."""
    async with AsyncExitStack() as stack:
        well, ill = [await stack.enter_async_context(side(folder / name, give_up_alone_s)) for name in ("well", "ill")]
        rows = await beside(well, ill, seconds=seconds, chats=chats, give_up_alone_s=give_up_alone_s)
        return rows + await outage(ill, chats=chats, down_s=down_s)


async def beside(well: Side, ill: Side, *, seconds: float, chats: int, give_up_alone_s: float) -> list[Row]:
    """What the healthy chats of both sides met."""
    names = [f"c{n}" for n in range(chats)]
    crowds = [Crowd(one.on.client, names, hello, pause_s=PAUSE_S) for one in (well, ill)]
    patient = Crowd(ill.on.client, ["ill"], by_turns)
    forgetting = [asyncio.create_task(_forget(one.model)) for one in (well, ill)]
    for crowd in (*crowds, patient):
        crowd.start()
    await asyncio.sleep(seconds)
    never = sum([await crowd.finish() for crowd in (*crowds, patient)])
    await cancel_all(forgetting)
    without, beside_it = [times_of([wait for chat in crowd.chats for wait in chat.waits[1:]]) for crowd in crowds]
    [chat] = patient.chats
    poisons, hellos = chat.waits[::2], chat.waits[1::2]
    letters = [letter async for letter in DeadLetters(ill.on.client, Inbox(ill.on.client)).all()]
    unexplained = sum(letter.reason != "model_fails" or REFUSAL not in letter.why for letter in letters)
    wrongs, closings = await crowds[1].wrongs(), _logged(ill.on, "provider closed")
    return [
        Row("turns of the healthy chats, without and beside it", f"{without.many:,} and {beside_it.many:,}"),
        Row("their wait without it, p50 and p99, s", f"{without.p50:.2f} and {without.p99:.2f}"),
        Row("their wait beside it, p50 and p99, s", f"{beside_it.p50:.2f} and {beside_it.p99:.2f}"),
        Row("its p99 grows, times", beside_it.p99 / without.p99, beside_it.p99 <= GROWS * without.p99),
        Row(
            "times that the breaker closed the provider", closings := _logged(ill.on, "provider closed"), closings == 0
        ),
        Row("poisonous messages given up", chat.apologies, chat.apologies == len(poisons)),
        Row("after at most, s", max(poisons), max(poisons) <= give_up_alone_s + LAST_TRY_S),
        Row("wait of the hello after it, s", max(hellos, default=math.nan), max(hellos, default=0) < LAST_TRY_S),
        *zero({"dead letters that do not say what the provider said": unexplained, "never answered": never}),
        *zero({f"healthy: {name}": count for name, count in wrongs.items()}),
    ]


async def outage(one: Side, *, chats: int, down_s: float) -> list[Row]:
    """What a provider that is down is asked, and how all go on."""
    client = one.on.client
    crowd = Crowd(client, [f"d{n}" for n in range(chats)], hello, pause_s=PAUSE_S)
    before = await client.command("XLEN", "shoal:{0ax}:dead")
    crowd.start()
    way: str = await eventually(lambda: _way(client), within_s=30)
    await eventually(lambda: all(chat.waits for chat in crowd.chats), within_s=60)
    one.script(Answer(status=500, error={"message": REFUSAL}, times=0))
    opens_s = await _becomes(client, way, "closed")
    await asyncio.sleep(1)  # what was under way then has failed
    one.model.forget()
    await asyncio.sleep(down_s)
    probes = len(one.model.requests())
    one.script()
    back = time.time()
    await eventually(one.model.requests, within_s=60, every_s=0.02)
    asked = one.model.requests()[0].at
    await _becomes(client, way, "open")
    closes_s = time.time() - asked
    missing = [chat for chat in crowd.chats if len(chat.sent) > len(chat.waits)]
    await eventually(lambda: all(len(chat.waits) > 1 for chat in missing), within_s=120)
    all_s = time.time() - asked
    never = await crowd.finish()
    dead = await client.command("XLEN", "shoal:{0ax}:dead") - before
    return [
        Row("down: the breaker opens after, s", opens_s, opens_s <= OPENS_S),
        Row(f"calls in {down_s:g} s", probes, probes <= down_s / PROBE_S + 1),
        Row("back: asked after, s", asked - back, asked - back <= 2 * PROBE_S),
        Row("the breaker closes after that call, s", closes_s, closes_s <= CLOSES_S),
        Row("all that waited are answered after it, s", all_s),
        *zero({"dead letters of the outage": dead, "never answered after it": never}),
        *zero({f"outage: {name}": count for name, count in (await crowd.wrongs()).items()}),
    ]


async def _becomes(client: RedisClient, way: str, state: str) -> float:
    """Wait until the route has this state; how long that took."""
    began = time.monotonic()

    async def there() -> bool:
        return [one.state for one in await read_routes(client, [way])] == [state]

    await eventually(there, within_s=90, every_s=0.02)
    return time.monotonic() - began


async def _way(client: RedisClient) -> str:
    """The only route; "" while no worker is seen."""
    ways = [way for one in await list_processes(client) for way in one.provider_routes.values()]
    return ways[0] if ways else ""


async def _forget(model: ScriptedOpenAI) -> None:
    """What was asked is of no use, and would fill the memory."""
    while True:
        await asyncio.sleep(FORGET_EVERY_S)
        with contextlib.suppress(OSError):
            await asyncio.to_thread(model.forget)


def _logged(on: Stage, event: str) -> int:
    return sum(member.log.count(f'"event": "{event}"') for member in on.fleet.workers)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run, print."""
    parser = argparse.ArgumentParser(prog="python -m proof.chaos.breaker", description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=float, default=10.0, help="beside the poisonous chat (default: %(default)s)")
    parser.add_argument("--chats", type=int, default=CHATS)
    parser.add_argument("--down", type=float, default=60.0, help="seconds for which the provider is down then")
    parser.add_argument("--give-up-alone", type=float, default=120.0, help="seconds (default: %(default)s)")
    given = parser.parse_args(arguments)
    seconds = given.minutes * 60

    async def play(folder: Path) -> Sequence[Row]:
        return await breaker(
            folder, seconds=seconds, chats=given.chats, give_up_alone_s=given.give_up_alone, down_s=given.down
        )

    title = f"One poisonous chat beside {given.chats}, then a provider that is down"
    return perform(title, play, within_s=seconds + given.down + given.give_up_alone + 600)


if __name__ == "__main__":
    sys.exit(main())
