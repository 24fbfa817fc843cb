"""The bad day on a real Kubernetes: `python -m proof.cluster --image shoal:0.2.0`, on the cluster of KUBECONFIG.

Installs the dev overlay in a namespace of its own, lets people chat, does one bad thing after the other, and counts:
every accepted message must be answered exactly once. The exit code is 1 otherwise. It takes away what it made.
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import json
import os
import random
import sys
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from functools import partial

from proof.chaos.verdict import Verdict, judge_person
from proof.cluster import bucket, day_two, primary
from proof.cluster.faults import FAULTS
from proof.cluster.installation import Installation
from proof.cluster.load import ClusterPerson, Forwards
from shared.tasks import cancel_all

Steps = Mapping[str, Callable[[Installation], None]]

ACCEPT_LIMIT_S = 20.0
WANTED_S = {False: ACCEPT_LIMIT_S, True: 5.0}
"""The longest wait that is wanted without and with Sentinels. On a busy machine a single wait of some
seconds more is the machine's, so that is told and fails nothing; the limit is the same for both."""

QUIET_S = 120.0
ROTATION_S = 150.0


async def bad_day(at: Installation, people: int, steps: Steps, *, rotation: bool) -> int:
    """Do all steps to an installation while people chat, and return the exit code."""
    began = time.monotonic()
    async with chatting(at, people) as crowd:
        await everybody_answered(crowd)
        is_well = True
        for name, step in steps.items():
            is_well &= await do(name, step, at, crowd)
        # Gateways notice a new token one after the other, so a person may be refused for up to a minute: not counted.
        waits = [wait for person in crowd for wait in person.accept_waits]
        if rotation:
            await rotate(at, crowd)
        for person in crowd:
            person.finish()
        give_up_at = time.monotonic() + QUIET_S
        while time.monotonic() < give_up_at and any(person.waiting for person in crowd):
            await asyncio.sleep(0.5)
    verdict = Verdict()
    for person in crowd:
        judge_person(person, verdict)
    verdict.left_behind = sum(len(person.waiting) for person in crowd)
    wrongs = {name: count for name, count in verdict.wrongs.items() if count}
    worst = max(waits, default=0.0)
    answered, took_s = sum(len(person.waits) for person in crowd), time.monotonic() - began
    sys.stdout.write(f"{verdict.accepted} accepted, {answered} answered, wrongs: {wrongs or 'none'}\n")
    sys.stdout.write(f"longest wait for accepted {worst:.1f} s; {took_s:.0f} s in all\n")
    if worst > WANTED_S[at.sentinels]:
        sys.stdout.write(f"MORE than the {WANTED_S[at.sentinels]:.0f} s that are wanted\n")
    return 0 if is_well and not wrongs and worst <= ACCEPT_LIMIT_S and verdict.accepted else 1


async def afterwards(at: Installation, steps: Steps) -> int:
    """Do what people cannot chat through; each time somebody gets an answer then. Return the exit code."""
    is_well = True
    for name, step in steps.items():
        is_well &= await do(name, step, at, [])
        async with chatting(at, 1) as crowd:
            await everybody_answered(crowd)
    return 0 if is_well else 1


async def do(name: str, step: Callable[[Installation], None], at: Installation, crowd: list[ClusterPerson]) -> bool:
    """Do one step, say what people noticed, and return whether it went well."""
    start = time.monotonic()
    before = [len(person.accept_waits) for person in crowd]
    error = ""
    try:
        await asyncio.to_thread(step, at)
    except Exception as exc:  # the others are done all the same, and the run fails
        error = f"; {type(exc).__name__}: {exc}"
    # Who sent something meanwhile noticed this step, and not the next one.
    sent = [(person, person.sent_at.keys() - person.accepted.keys()) for person in crowd]
    give_up_at = time.monotonic() + ACCEPT_LIMIT_S
    while time.monotonic() < give_up_at and any(ids - person.accepted.keys() for person, ids in sent):
        await asyncio.sleep(0.1)
    new = [wait for person, count in zip(crowd, before, strict=True) for wait in person.accept_waits[count:]]
    noticed = f"; longest wait for accepted {max(new):.1f} s" if new else ""
    sys.stdout.write(f"{name}: {time.monotonic() - start:.0f} s{noticed}{error}\n")
    sys.stdout.flush()
    return not error


@asynccontextmanager
async def chatting(at: Installation, people: int) -> AsyncIterator[list[ClusterPerson]]:
    """People who chat until the end."""
    forwards, tokens = Forwards(at.kubectl, "gateway-web", 8080), [at.token()]
    await asyncio.to_thread(forwards.keep)
    names = [f"p{i}" if people > 1 else f"q{os.urandom(4).hex()}" for i in range(people)]
    crowd = [ClusterPerson(name, forwards.addresses, random.Random(name), tokens) for name in names]
    tasks = [asyncio.create_task(keep(forwards)), *(asyncio.create_task(person.run()) for person in crowd)]
    try:
        yield crowd
    finally:
        await cancel_all(tasks)
        await asyncio.to_thread(forwards.close)


async def everybody_answered(crowd: list[ClusterPerson]) -> None:
    """Return once everybody had an answer: who is not there yet notices nothing."""
    give_up_at = time.monotonic() + QUIET_S
    while not all(person.waits for person in crowd):
        if time.monotonic() > give_up_at:
            raise TimeoutError("somebody had no answer before anything was done")
        await asyncio.sleep(0.2)


async def keep(forwards: Forwards) -> None:
    while True:
        await asyncio.to_thread(forwards.keep)
        await asyncio.sleep(0.3)


async def rotate(at: Installation, crowd: list[ClusterPerson]) -> None:
    """Change the page's token; return once everybody was let in with the new one."""
    new = f"{random.SystemRandom().getrandbits(256):064x}"
    crowd[0].tokens.append(new)
    (at.folder / "secrets" / "web-token").write_text(new)
    data = {"data": {"token": base64.b64encode(new.encode()).decode()}}
    await asyncio.to_thread(at.kubectl, "patch", "secret", "shoal-web", "-p", json.dumps(data))
    start = time.monotonic()
    while any(person.welcomed_with != new for person in crowd):
        if time.monotonic() - start > ROTATION_S:
            raise TimeoutError("gateways still take the old token")
        await asyncio.sleep(0.5)
    sys.stdout.write(f"token rotation: {time.monotonic() - start:.0f} s\n")


def main() -> int:
    """Install, break, count, take away."""
    parser = argparse.ArgumentParser(prog="python -m proof.cluster", description=__doc__.splitlines()[0])
    parser.add_argument("--image", required=True, help="Shoal's image, which the cluster has or can get")
    parser.add_argument("--valkey", help="another image of Valkey than the manifests name")
    parser.add_argument("--people", type=int, default=8)
    parser.add_argument("--only", action="append", default=[], help="one of the faults, by name; no new token")
    parser.add_argument("--chart", action="store_true", help="install by Helm's chart and not by kustomize")
    parser.add_argument("--sentinels", action="store_true", help="with three servers of Redis and three Sentinels")
    parser.add_argument("--s3", help="an image with rclone and moto's server, for a copy in an S3")
    given = parser.parse_args()
    at = Installation(given.image, given.valkey, chart=given.chart, sentinels=given.sentinels)
    steps = {**primary.FAULTS, **day_two.WITH_SENTINELS} if given.sentinels else {**FAULTS, **day_two.STEPS}
    if given.s3:
        steps["backup in an S3"] = partial(bucket.back_up, image=given.s3)
    last = day_two.AFTERWARDS_WITH_SENTINELS if given.sentinels else day_two.AFTERWARDS
    if given.only:
        steps, last = ({name: step for name, step in some.items() if name in given.only} for some in (steps, last))
    try:
        start = time.monotonic()
        at.install()
        sys.stdout.write(f"installed in {time.monotonic() - start:.0f} s\n")
        sys.stdout.flush()
        rotation = not given.only and not given.sentinels
        return asyncio.run(bad_day(at, given.people, steps, rotation=rotation)) or asyncio.run(afterwards(at, last))
    finally:
        at.remove()


if __name__ == "__main__":
    sys.exit(main())
