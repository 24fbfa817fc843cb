"""Messages that kill the process they run in, among others that do not: `python -m proof.chaos.poison --poisons 10`.

Each must be found out and put aside within a minute of being sent, and nobody else with it.
"""

from __future__ import annotations

import argparse
import random
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from proof.chaos.fleet import Fleet
from proof.chaos.load import Chat, Crowd
from proof.chaos.recovery import times_of
from proof.chaos.stage import Row, perform, stage
from proof.chaos.verdict import debris
from shared.store import keys
from tests.helpers.openai_server import Answer, Call, ScriptedOpenAI

TOOLS = Path(__file__).parents[2] / "tests" / "helpers" / "crash_tools"
CHATS = 20
VERDICT_WITHIN_S = 60.0


async def poisons(folder: Path, *, planted: int, messages: int, seed: int) -> Sequence[Row]:
    """Plant them, wait for all answers, judge."""
    rng = random.Random(seed)
    each = -(-messages // CHATS)
    names = [f"c{i}" for i in range(CHATS)]
    bad = set(rng.sample([f"{name}-{n}" for name in names for n in range(each)], planted))

    def words(chat: str, n: int) -> str:
        id = f"{chat}-{n}"
        return f"{'poison' if id in bad else 'hello'} {id}"

    with ScriptedOpenAI() as model:
        model.script(
            Answer(match="^poison", calls=[Call("die", '{"word": "exit"}')], delta_s=0.2, times=0),
            Answer(match="^hello", total_s=1.0, times=0),
        )
        env = {
            "SHOAL_MODEL__NAME": "openai/scripted",
            "SHOAL_MODEL__API_BASE": model.base_url,
            "SHOAL_MODEL__API_KEY": "none",
            "SHOAL_MODEL__CLIENT": "direct",
            "PYTHONPATH": str(TOOLS),
        }
        async with stage(folder, workers=2, env=env) as on:
            crowd = Crowd(on.client, names, words)
            crowd.start(each)
            never = await crowd.ended()
            left = await debris(on.client, besides=[keys.DEAD])
            letters = [letter[1][-1] for letter in await on.client.command("XRANGE", keys.DEAD, "-", "+")]
            guilty = sum(b"poison" in record for record in letters)
            verdicts = times_of([wait for chat in crowd.chats for wait in _waits(chat, bad)])
            wrongs = await crowd.wrongs()
            apologies = wrongs.pop("apologies")
            return [
                Row("messages", each * CHATS),
                Row("poisons among them", planted),
                Row("put aside", guilty, guilty == planted),
                Row("innocents put aside", len(letters) - guilty, len(letters) == guilty),
                Row("dead letters in the logs", logged := _logged(on.fleet, '"dead letter"'), logged == planted),
                Row("apologies", apologies, apologies == planted),
                Row("from sending to the verdict, p50 s", verdicts.p50),
                Row("max s", verdicts.worst, verdicts.worst <= VERDICT_WITHIN_S),
                Row("workers that died", _logged(on.fleet, '"worker ended"')),
                Row("never answered", never, never == 0),
                *(Row(name, count, count == 0) for name, count in wrongs.items()),
                Row("stale writes accepted", on.witness.stale_accepted, on.witness.stale_accepted == 0),
                Row("left behind", ", ".join(left) or 0, not left),
            ]


def _waits(chat: Chat, ids: set[str]) -> list[float]:
    return [wait for id, wait in zip(chat.sent, chat.waits, strict=False) if id in ids]


def _logged(fleet: Fleet, event: str) -> int:
    return sum(member.log.count(event) for member in fleet.workers)


def main() -> int:
    """Run and print."""
    parser = argparse.ArgumentParser(prog="python -m proof.chaos.poison")
    parser.add_argument("--poisons", type=int, default=3)
    parser.add_argument("--messages", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    play = partial(poisons, planted=given.poisons, messages=given.messages, seed=given.seed)
    return perform("poisoned", play, within_s=300 + 60 * given.poisons)


if __name__ == "__main__":
    sys.exit(main())
