"""SIGTERM to a worker with turns under work: `python -m proof.chaos.drain --rounds 20`.

Each turn is a model call, a tool and another model call. A drained worker lets the call that runs end and gives the
turn back at that border; another one must have it within a second, nothing counts as a crash, and no model call is made
again. One chat in eight has calls longer than the time to drain: those are cut, repeated and counted apart.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import re
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

from proof.chaos.load import Crowd
from proof.chaos.recovery import Blow, times_of
from proof.chaos.stage import Row, Stage, perform, stage, zero
from proof.chaos.verdict import debris
from proof.chaos.witness import Event
from shared.store import keys
from tests.helpers.fleet import workers as present_workers
from tests.helpers.openai_answer import last_user_text
from tests.helpers.openai_server import Answer, Call, Request, ScriptedOpenAI
from tests.helpers.wait import eventually

WORKERS = 3
CHATS = 24
CALL_S = 0.8
DRAIN_S = 8.0
CUT_AFTER_S = DRAIN_S - 5
"""A worker cuts what is left so long after the signal, to be gone in time."""

LONG_S = DRAIN_S + 4
ACCEPTED_WITHIN_S = 1.0
CALLS_A_TURN = 2


class Asked(NamedTuple):
    """A model call: when it began (wall clock), for which message, and how long it takes."""

    at: float
    message: str
    lasts_s: float


class HandedOver(NamedTuple):
    """A turn that a drained worker gave back. `cut`: in the middle of a call, after the time to drain."""

    message: str
    waited_s: float
    cut: bool


def words(chat: str, n: int) -> str:
    kind = "long" if int(chat[1:]) % 8 == 7 else "work"
    return f"{kind} {chat}-{n}"


def script(model: ScriptedOpenAI) -> None:
    """A call of a tool, then an answer."""
    for kind, lasts_s in (("work", CALL_S), ("long", LONG_S)):
        calls = [Call("calculate", '{"expression": "2+2"}')]
        model.script(
            Answer(match=f"^{kind}", role="tool", text="It is four.", total_s=CALL_S, times=0),
            Answer(match=f"^{kind}", role="user", text="Let me see.", calls=calls, total_s=lasts_s, times=0),
        )


async def drains(folder: Path, *, rounds: int, seed: int) -> Sequence[Row]:
    """Drain one after the other, judge."""
    rng = random.Random(seed)
    with ScriptedOpenAI() as model:
        script(model)
        env = {
            "SHOAL_MODEL__NAME": "openai/scripted",
            "SHOAL_MODEL__API_BASE": model.base_url,
            "SHOAL_MODEL__API_KEY": "none",
            "SHOAL_MODEL__CLIENT": "direct",
        }
        async with stage(folder, workers=WORKERS, drain_s=DRAIN_S, env=env) as on:
            crowd = Crowd(on.client, [f"c{i}" for i in range(CHATS)], words)
            crowd.start()
            codes: Counter[int] = Counter()
            for _ in range(rounds):
                await asyncio.sleep(rng.uniform(1, 2))
                codes[await _drain(on, rng)] += 1
            never = await crowd.finish()
            asked = [_asked(request.at, text, request.body) for request, text in _of_turns(model)]
            handed = handed_over(on.fleet.blows, on.witness.events, asked)
            return [
                *_judged(handed, asked, rounds),
                Row("counted as crashes", on.witness.counted_crashes, on.witness.counted_crashes == 0),
                Row("exit codes other than 0", codes.total() - codes[0], codes[0] == rounds),
                Row("never answered", never, never == 0),
                *zero(await crowd.wrongs()),
                Row("dead letters", found := await on.client.command("XLEN", keys.DEAD), found == 0),
                Row("stale writes accepted", on.witness.stale_accepted, on.witness.stale_accepted == 0),
                Row("left behind", ", ".join(left := await debris(on.client)) or 0, not left),
            ]


async def _drain(on: Stage, rng: random.Random) -> int:
    member = rng.choice(on.fleet.workers)
    on.fleet.note("drain", await on.fleet.owners([child.pid for child in member.process.children()]), "handed over")
    member.process.terminate()
    await eventually(lambda: not member.process.alive, within_s=DRAIN_S + 20, every_s=0.05, what="the end of a drain")
    code = member.process.wait()
    member.keep()
    await present_workers(on.client, WORKERS, within_s=60)
    return code


def _of_turns(model: ScriptedOpenAI) -> Iterator[tuple[Request, str]]:
    """The calls of turns; memory asks the model, too."""
    for request in model.requests():
        text = last_user_text(request.body["messages"])
        if re.fullmatch(r"(work|long) c\d+-\d+", text):
            yield request, text


def _asked(at: float, message: str, body: Mapping[str, object]) -> Asked:
    messages = body["messages"]
    assert isinstance(messages, list)
    first = messages[-1]["role"] == "user"
    return Asked(at, message, LONG_S if first and message.startswith("long") else CALL_S)


def handed_over(
    blows: Sequence[Blow], events: Mapping[str, Sequence[Event]], asked: Sequence[Asked]
) -> list[HandedOver]:
    """Every turn that was given back by a worker under SIGTERM, and how long after its border another one had it."""
    calls: dict[str, list[Asked]] = defaultdict(list)
    for call in asked:
        calls[f"web:owner/{call.message.split()[1].partition('-')[0]}"].append(call)
    found = []
    for blow in blows:
        for session, own in events.items():
            given = _given_back(own, blow)
            accepted = next((e for e in own if given and e.kind == "acquired" and e.at > given.at), None)
            if given is None or accepted is None:
                continue
            call = [call for call in calls[session] if call.at < given.at][-1]
            ended = call.at + call.lasts_s
            cut = ended > given.at
            found.append(HandedOver(call.message, accepted.at - (given.at if cut else max(ended, blow.at)), cut))
    return found


def _given_back(events: Sequence[Event], blow: Blow) -> Event | None:
    """The moment at which the turn that `blow` hit was given back before its end."""
    before = [event for event in events if event.at <= blow.at]
    if not before or before[-1].kind in ("commit", "given back") or not before[-1].lease.startswith(blow.owner):
        return None
    for event in events[len(before) :]:
        if event.lease != before[-1].lease or event.kind == "commit":
            return None
        if event.kind == "given back":
            return event
    return None


def _judged(handed: Sequence[HandedOver], asked: Sequence[Asked], rounds: int) -> list[Row]:
    whole, cut = [turn for turn in handed if not turn.cut], [turn for turn in handed if turn.cut]
    allowed: Counter[str] = Counter(turn.message for turn in cut)
    made = Counter(call.message for call in asked)
    again = sum(max(0, many - CALLS_A_TURN - allowed[message]) for message, many in made.items())
    times = times_of([turn.waited_s for turn in whole])
    return [
        Row("drains", rounds),
        Row("turns handed over at a border", times.many, times.many > 0),
        Row("from the border to the next worker, p50 s", times.p50),
        Row("p99 s", times.p99),
        Row("max s", times.worst, times.worst <= ACCEPTED_WITHIN_S),
        Row("model calls", len(asked)),
        Row("model calls made again", again, again == 0),
        Row(f"not at a border after {CUT_AFTER_S:g} s: cut, call made again", len(cut)),
    ]


def main() -> int:
    """Run and print."""
    parser = argparse.ArgumentParser(prog="python -m proof.chaos.drain")
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    play = partial(drains, rounds=given.rounds, seed=given.seed)
    return perform("drained", play, within_s=420 + given.rounds * 40)


if __name__ == "__main__":
    sys.exit(main())
