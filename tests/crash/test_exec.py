"""Commands on real workers that are stopped, drained, killed or cut off from Redis: nothing runs on, nothing twice."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import psutil
import pytest

from shared.confinement import landlock
from shared.embedded import EmbeddedValkey
from shared.ids import folder_name
from shared.messages.outbound import OutboundMessage
from shared.messages.transcript import ToolEntry
from shared.store.client.redis_client import RedisClient
from shared.store.delivery.outbox import Outbox
from shared.store.subagents.subagents import Subagents
from shared.store.turns.inbox import Inbox
from tests.helpers import pod
from tests.helpers.build import say
from tests.helpers.fleet import history, holder, replies, warm
from tests.helpers.fleet_fixtures import Spawn
from tests.helpers.need import need
from tests.helpers.openai_server import Answer, Call, ScriptedOpenAI
from tests.helpers.processes import Process
from tests.helpers.runner import RunnerProcess
from tests.helpers.wait import eventually
from tests.worker.sandbox.conftest import tier

pytestmark = pytest.mark.timeout(180)

SESSION = "web:owner/a"
SLOW_S = 40.0
DOUBT_LEASE_S = 30.0
"""A command in doubt has less than three quarters of it. The rest is for a machine that stalls."""


class Place:
    """Workers with one tier, and what their commands leave."""

    def __init__(self, spawn: Spawn, root: Path, tier: str, runner: RunnerProcess | None = None) -> None:
        self._spawn = spawn
        self._runner = runner
        self.root = root
        self.tier = tier
        self.mark = f"71{os.getpid() % 1000000}"

    async def worker(self, *queues: str, **settings: str) -> Process:
        """One that offers exec."""
        given = {"MODEL__CLIENT": "direct", "WORKSPACE__ROOT": str(self.root), **settings}
        if self._runner is None:
            made = self._spawn("worker", *queues, **given)
        else:  # as in a pod, where bubblewrap cannot start
            given |= {"WORKSPACE__GROUP": str(self._runner.group), "TOOLS__EXEC_RUNNER": str(self._runner.socket)}
            words = ["--uid", "0", "--gid", "0", "--groups", str(self._runner.group), "--profile", str(pod.PROFILE)]
            made = self._spawn("tests.helpers.pod", *words, "tests.helpers.worker_main", *queues, **given)
        await warm(made)
        await eventually(lambda: "sandbox ready" in made.log, SLOW_S, what="a sandbox")
        assert f'"tier": "{self.tier}"' in made.log, made.log
        return made

    @property
    def folder(self) -> Path:
        return self.root / folder_name(SESSION)

    def command(self, then: str) -> Call:
        """It counts itself, puts a daemon aside, and does the rest."""
        line = f"echo ran >>effects; setsid -f sleep {self.mark}; touch began; {then}"
        return Call("exec", json.dumps({"command": line, "timeout_s": 300}), "c1")

    async def began(self) -> None:
        await eventually((self.folder / "began").exists, SLOW_S, what="the command")
        assert self.left()

    def left(self) -> list[int]:
        """What runs of the commands."""
        found = psutil.process_iter(["cmdline"])
        return [one.pid for one in found if self.mark in " ".join(one.info["cmdline"] or [])]

    @property
    def effects(self) -> int:
        return len((self.folder / "effects").read_text().split())


@pytest.fixture(params=["bubblewrap", "runner"])
async def place(request: pytest.FixtureRequest, spawn: Spawn) -> AsyncIterator[Place]:
    """One for each tier; the worker of the second lives as in a pod, its runner is another user."""
    if request.param == "bubblewrap":
        await tier("bubblewrap")
        top = Path(tempfile.mkdtemp(prefix="shoal-exec-"))  # closed to others
        yield Place(spawn, top / "workspaces", "bubblewrap")
        shutil.rmtree(top)
        return
    need("Landlock", found=landlock.abi() >= landlock.NEEDED_ABI, install="Linux 6.2 or newer with Landlock on")
    need("libseccomp2", found=pod.library() is not None)
    runner = RunnerProcess(profile=True)
    await runner.ready()
    yield Place(spawn, runner.root, "runner", runner)
    runner.close()


@pytest.fixture
def frozen(valkey: EmbeddedValkey) -> Iterator[int]:
    """The process id of Redis, which goes on afterwards whatever happens."""
    assert valkey.pid is not None
    yield valkey.pid
    os.kill(valkey.pid, signal.SIGCONT)


def results(entries: list[object]) -> list[str]:
    return [entry.content for entry in entries if isinstance(entry, ToolEntry)]


async def test_stop_ends_a_command(client: RedisClient, place: Place, model: ScriptedOpenAI) -> None:
    """All of its processes, also what it put aside; what was said before is kept, and the next message is answered.
    They would have slept for days; that their end takes a second at most is for `proof.chaos.stops` to measure."""
    model.script(
        Answer(match="next", text="answered", times=0),
        Answer(match="first", text="let me see", calls=[place.command(f"sleep {place.mark}")], times=0),
    )
    await place.worker()
    inbox = Inbox(client)
    await say(inbox, "first", id="x1")
    await place.began()
    await inbox.stop(SESSION, 1)
    await eventually(lambda: not place.left(), SLOW_S, what="the end of all of it")
    await say(inbox, "next", id="x2")
    await eventually(lambda: _sent(client, 2), SLOW_S, what="both answers")
    lines = [one.line for one in await Outbox(client).read_after(SESSION, after=0)]
    first, second = [one for one in lines if isinstance(one, OutboundMessage)]
    assert first.kind == "stopped"
    assert "let me see" in first.content
    assert second.content == "answered"
    assert place.effects == 1


async def test_a_drain_lets_a_command_end(client: RedisClient, place: Place, model: ScriptedOpenAI) -> None:
    """Within worker.drain_s; its result is in the ledger, and a successor goes on behind it."""
    go = "until [ -e go ]; do sleep 0.05; done; echo made it"
    model.script(
        Answer(match="first", role="tool", text="done", times=0),
        Answer(match="first", calls=[place.command(go)], times=0),
    )
    worker = await place.worker(WORKER__DRAIN_S="60")
    await say(Inbox(client), "first")
    await place.began()
    worker.terminate()
    await eventually(lambda: '"draining"' in worker.log or "drain" in worker.log, SLOW_S, what="a drain")
    assert place.left()
    (place.folder / "go").touch()
    assert await asyncio.to_thread(worker.wait, SLOW_S) == 0
    await place.worker()
    await eventually(lambda: replies(client, SESSION), SLOW_S, what="the answer")
    assert await replies(client, SESSION) == ["done"]
    [result] = results(list(await history(client, SESSION)))
    assert result.startswith("exit code 0")
    assert "made it" in result
    assert place.effects == 1


async def test_a_command_that_is_too_slow_for_a_drain_is_killed(
    client: RedisClient, place: Place, model: ScriptedOpenAI
) -> None:
    """The successor is told that nobody knows how it ended, and does not run it again."""
    await _scripted(model, place)
    worker = await place.worker(WORKER__DRAIN_S="1")
    await say(Inbox(client), "first")
    await place.began()
    worker.terminate()
    await asyncio.to_thread(worker.wait, SLOW_S)
    assert not place.left()
    await place.worker()
    await _unknown(client, place)


async def test_a_killed_worker_takes_its_command_with_it(
    client: RedisClient, place: Place, model: ScriptedOpenAI
) -> None:
    """SIGKILL: the daemon goes, too; the successor says that the outcome is unknown, and the effect was there once."""
    await _scripted(model, place)
    await place.worker()
    await say(Inbox(client), "first")
    await place.began()
    (await holder(client, SESSION)).kill()
    await eventually(lambda: not place.left(), SLOW_S, what="the end of all of it")
    await _unknown(client, place)


async def test_a_lease_in_doubt_ends_the_command(
    client: RedisClient, place: Place, model: ScriptedOpenAI, frozen: int
) -> None:
    """Redis stands still for longer than three quarters of a lease: the command is dead before another may have it."""
    model.script(
        Answer(match="first", role="tool", text="cut", times=0),
        Answer(match="first", calls=[place.command(f"sleep {place.mark}")], times=0),
    )
    await place.worker(WORKER__LEASE_S=str(DOUBT_LEASE_S))
    await say(Inbox(client), "first")
    await place.began()
    os.kill(frozen, signal.SIGSTOP)
    began = time.monotonic()
    await eventually(lambda: not place.left(), SLOW_S, what="the end of all of it")
    assert time.monotonic() - began < DOUBT_LEASE_S
    os.kill(frozen, signal.SIGCONT)
    await eventually(lambda: replies(client, SESSION), SLOW_S, what="the answer")
    [result] = results(list(await history(client, SESSION)))
    assert "not certain that this worker still has the turn" in result or "outcome unknown" in result
    assert place.effects == 1


async def test_a_subagent_runs_commands_beside_its_parent(
    client: RedisClient, place: Place, model: ScriptedOpenAI
) -> None:
    """Each has a fence of its own: the token of one ends nothing of the other; both work in the same files."""
    parent = "touch parent; until [ -e child ]; do sleep 0.05; done; echo parent made it"
    child = "until [ -e parent ]; do sleep 0.05; done; touch child; echo child made it"
    task = Call("spawn", json.dumps({"task": "dig", "label": "dig", "wait": False}), "s1")

    def run(line: str) -> Call:
        return Call("exec", json.dumps({"command": line}), "e1")

    model.script(
        Answer(match=r"^\[Subagent", text="reported", times=0),
        Answer(match="^dig", role="tool", text="gold", times=0),
        Answer(match="^dig", calls=[run(child)], times=0),
        Answer(match="^please", role="tool", calls=[run(parent)]),
        Answer(match="^please", role="tool", text="both", times=0),
        Answer(match="^please", calls=[task]),
    )
    await place.worker()
    await say(Inbox(client), "please")
    await eventually(lambda: _sent(client, 2), SLOW_S, what="the answer and the report")
    assert await replies(client, SESSION) == ["both", "reported"]
    assert any("parent made it" in result for result in results(list(await history(client, SESSION))))
    assert [one.state for one in await Subagents(client).of_session(SESSION)] == ["ok"]


async def _scripted(model: ScriptedOpenAI, place: Place) -> None:
    model.script(
        Answer(match="first", role="tool", text="I do not know", times=0),
        Answer(match="first", calls=[place.command(f"sleep {place.mark}")], times=0),
    )


async def _unknown(client: RedisClient, place: Place) -> None:
    await eventually(lambda: replies(client, SESSION), SLOW_S, what="the answer")
    assert await replies(client, SESSION) == ["I do not know"]
    [result] = results(list(await history(client, SESSION)))
    assert result.startswith("outcome unknown")
    assert place.effects == 1


async def _sent(client: RedisClient, many: int) -> bool:
    return len(await replies(client, SESSION)) >= many
