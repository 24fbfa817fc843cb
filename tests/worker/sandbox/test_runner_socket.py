"""The socket of a runner: its peers, and the frames it refuses."""

from __future__ import annotations

import asyncio
import json
import os
import pickle
import struct
import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from shared.confinement import landlock
from tests.helpers.manifests import overlay, pods
from tests.helpers.need import need
from tests.helpers.processes import Process
from tests.helpers.runner import AS_ROOT, RunnerProcess
from tests.helpers.wait import eventually
from worker.sandbox.command import Finished, SandboxBroken, SandboxCommand
from worker.sandbox.runner import frames
from worker.sandbox.runner.client import RunnerSandbox

ROOT = Path(__file__).parents[3]
SLOW_S = 30.0

pytestmark = pytest.mark.timeout(180)


@pytest.fixture(scope="module")
def runner() -> Iterator[RunnerProcess]:
    need("Landlock", found=landlock.abi() >= landlock.NEEDED_ABI, install="Linux 6.2 or newer with Landlock on")
    made = RunnerProcess()
    yield made
    made.close()


def framed(body: bytes, *, version: int = frames.VERSION, length: int | None = None) -> bytes:
    return struct.pack("!BI", version, len(body) if length is None else length) + body


async def exchange(runner: RunnerProcess, data: bytes) -> frames.RunnerReply:
    """The runner's one answer to these bytes; then it must hang up."""
    reader, writer = await asyncio.open_unix_connection(str(runner.socket))
    writer.write(data)
    async with asyncio.timeout(SLOW_S):
        received = await reader.read()
    writer.close()
    [body] = frames.FrameBodies(frames.REPLY_LIMIT_BYTES).feed(received)
    return frames.decode_reply(body)


DEEP = b"\x91" * 100_000
COMMAND = SandboxCommand(what="touch bad", folder="/", session="session")


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (framed(pickle.dumps({"type": "run"})), "not a request"),
        (framed(b""), "not a request"),
        (framed(DEEP), "not a request"),
        (framed(msgspec.msgpack.encode({"type": "run", "command": {"what": 7}})), "not a request"),
        (framed(msgspec.msgpack.encode({"type": "exec", "command": "id"})), "not a request"),
        (framed(msgspec.msgpack.encode({"type": "ping", "more": 1})), "not a request"),
        (framed(b"x", version=2), "version 2"),
        (framed(b"x", length=frames.REQUEST_LIMIT_BYTES + 1), "at most"),
        (b"GET / HTTP/1.1\r\n\r\n", "version 71"),
        (frames.encode(frames.RunRequest(COMMAND)) * 2, "second request"),
    ],
)
async def test_what_is_no_request_is_refused_with_a_reason(runner: RunnerProcess, data: bytes, reason: str) -> None:
    """Pickle, depth, wrong kinds, another version, too long a frame, a second request: nothing is run, all goes on."""
    sandbox = await runner.ready()
    workspace = runner.workspace()
    answer = await exchange(runner, data)
    assert isinstance(answer, frames.RequestRefused)
    assert reason in answer.reason
    assert not (workspace / "bad").exists()
    assert (await sandbox.ping()).running == 0


async def test_a_visitor_that_says_nothing_or_half_keeps_nobody_waiting(runner: RunnerProcess) -> None:
    """Connections without a request stand beside the others, and one that goes is forgotten."""
    sandbox = await runner.ready()
    silent = [await asyncio.open_unix_connection(str(runner.socket)) for _ in range(20)]
    for _, writer in silent[:10]:
        writer.write(frames.encode(frames.RunRequest(COMMAND))[:7])
    assert (await sandbox.run(runner.command("echo here"))).output == b"here\n"
    for _, writer in silent:
        writer.close()
    assert (await sandbox.run(runner.command("echo here"))).output == b"here\n"


ASK = """
import asyncio, os, sys
from worker.sandbox.command import SandboxBroken
from worker.sandbox.runner.client import RunnerSandbox
asyncio.new_event_loop().close()  # with all it imports: the user below may not read it
os.setgroups([int(sys.argv[3])]); os.setgid(1); os.setuid(int(sys.argv[2]))
try:
    print(asyncio.run(RunnerSandbox(sys.argv[1]).ping()))
except SandboxBroken as exc:
    print(exc)
"""


@pytest.mark.skipif(not AS_ROOT, reason="this check needs root: it is several users")
async def test_strangers_are_refused_by_the_socket_and_by_the_kernels_word_for_who_they_are() -> None:
    """Its own user, the worker's user; nobody else, in the group or not."""
    own = RunnerProcess(RUNNER__WORKER_UID="2001")
    try:
        own.socket.parent.chmod(0o2755)
        await eventually(own.socket.exists, SLOW_S, what=f"a socket; {own.process.log}")
        assert own.socket.stat().st_mode & 0o777 == 0o660

        async def reply_to(uid: int, group: int) -> str:
            pipe = asyncio.subprocess.PIPE
            command = (sys.executable, "-c", ASK, str(own.socket), str(uid), str(group))
            child = await asyncio.create_subprocess_exec(*command, cwd=ROOT, stdout=pipe)
            return (await child.communicate())[0].decode()

        assert "Pong" in await reply_to(2001, own.group)
        assert "Permission denied" in await reply_to(2001, 9999)
        assert "user 2002 is not the worker" in await reply_to(2002, own.group)
        assert "Permission denied" in await reply_to(2002, 9999)
    finally:
        own.close()


async def test_health_says_whether_a_runner_answers(runner: RunnerProcess) -> None:
    """The command of a container's probe."""
    await runner.ready()

    async def health(socket: Path) -> int:
        words = ("-m", "worker", "runner", "--health", "--socket", str(socket))
        quiet = asyncio.subprocess.DEVNULL
        child = await asyncio.create_subprocess_exec(sys.executable, *words, cwd=ROOT, stdout=quiet, stderr=quiet)
        return await child.wait()

    assert await health(runner.socket) == 0
    assert await health(runner.top / "nothing") == 1


async def test_the_probe_of_the_manifests_sees_a_runner_that_lives_and_one_that_stands_still(
    runner: RunnerProcess,
) -> None:
    """The heartbeat file is as old as the last pass of its loop; a shell reads it for next to nothing of CPU."""
    await runner.ready()
    [pod] = [pod for name, pod in pods(overlay("dev")) if name == "worker-turns"]
    command = pod["initContainers"][0]["livenessProbe"]["exec"]["command"]
    alive = runner.socket.with_suffix(".alive")
    words = [word.replace("/run/shoal/runner.alive", str(alive)) for word in command]

    async def probe() -> bool:
        return await (await asyncio.create_subprocess_exec(*words)).wait() == 0

    await eventually(probe)
    before = os.times()
    for _ in range(10):
        assert await probe()
    after = os.times()
    children_s = after.children_user + after.children_system - before.children_user - before.children_system
    assert children_s / 10 < 0.02
    os.utime(alive, (0, 0))
    assert not await probe()
    await eventually(probe, SLOW_S, what="the next beat")


@pytest.mark.parametrize(
    ("settings", "code", "words"),
    [
        ({"RUNNER__COMMANDS": "0"}, 2, ["runner.commands"]),
        ({"RUNNER__SOKCET": "x"}, 2, ["runner.sokcet"]),
        ({"RUNNER__SOCKET": "/" + "x" * 200}, 2, ["runner.socket", "too long"]),
        ({"RUNNER__SCRATCH": "/proc/none"}, 2, ["runner.scratch"]),
    ],
)
async def test_wrong_settings_end_it_with_one_line(settings: dict[str, str], code: int, words: list[str]) -> None:
    """The line names the key."""
    made = RunnerProcess(profile=False, **settings)
    try:
        assert await asyncio.to_thread(made.process.wait, SLOW_S) == code
        line = made.process.log.strip()
        assert len(line.splitlines()) == 1
        assert all(word in line for word in words), line
    finally:
        made.close()


async def test_a_second_runner_does_not_take_the_socket(runner: RunnerProcess) -> None:
    """A listening runner keeps its socket; that of a killed one is replaced."""
    await runner.ready()
    first = runner.process
    try:
        second = runner.start()
        assert await asyncio.to_thread(second.wait, SLOW_S) == 2
        assert "another runner listens" in second.log
    finally:
        runner.process = first
    sandbox = await runner.ready()
    assert (await sandbox.run(runner.command("echo here"))).output == b"here\n"


@pytest.mark.skipif(not AS_ROOT, reason="this check needs root: it is about root")
async def test_root_is_no_runner(tmp_path: Path) -> None:
    """Its commands would be root, too."""
    process = Process("worker", "runner", env={"SHOAL_RUNNER__SOCKET": str(tmp_path / "s")}, log=tmp_path / "log")
    assert await asyncio.to_thread(process.wait, SLOW_S) == 2
    assert "must not be root" in process.log


async def test_a_runner_knows_no_secret_and_opens_no_settings_file(tmp_path: Path) -> None:
    """It starts beside a settings file that it could not read, with variables of others that are wrong for it."""
    need("Landlock", found=landlock.abi() >= landlock.NEEDED_ABI, install="Linux 6.2 or newer with Landlock on")
    config = tmp_path / "shoal.toml"
    config.write_text("this is = = no toml")
    made = RunnerProcess(CONFIG=str(config), MODEL__API_KEY_FILE="/not/there", WEB__PORT="no port")
    try:
        sandbox = await made.ready()
        finished = await sandbox.run(made.command("cat /proc/$PPID/environ; env"))
        assert b"SHOAL" not in finished.output
        assert b"/not/there" not in finished.output
        lines = [json.loads(line) for line in made.process.log.splitlines()]
        assert [line["event"] for line in lines] == ["runner started"]
    finally:
        made.close()


async def test_what_comes_back_is_held_to_the_same_rules(tmp_path: Path) -> None:
    """Another program on the socket: no answer of it is believed."""
    answers = [
        (b"HTTP/1.1 200 OK\r\n\r\n", "not understood"),
        (framed(b"\xff"), "not understood"),
        (framed(b"", length=2**31), "not understood"),
        (frames.encode(frames.PongReply(7, 0)), "another request"),
        (frames.encode(frames.OutputPiece(b"half")), "was lost"),
        (b"", "was lost"),
    ]
    for number, (data, reason) in enumerate(answers):
        path = tmp_path / str(number)

        async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, data: bytes = data) -> None:
            await reader.read(4)
            writer.write(data)
            writer.close()

        server = await asyncio.start_unix_server(answer, path)
        with pytest.raises(SandboxBroken, match=reason):
            await RunnerSandbox(path).run(COMMAND)
        server.close()


def test_frames_come_whole_however_they_are_cut() -> None:
    """A stream has no borders of its own."""
    records: list[frames.RunnerReply] = [
        frames.OutputPiece(os.urandom(70_000)),
        frames.PongReply(7, 3),
        frames.CommandDone(Finished(ended="signal", signal=9, seconds=1.5)),
        frames.RequestRefused("no"),
    ]
    stream = b"".join(map(frames.encode, records))
    for step in (1, 7, 4096, len(stream)):
        bodies = frames.FrameBodies(frames.REPLY_LIMIT_BYTES)
        cut = [stream[at : at + step] for at in range(0, len(stream), step)]
        assert [frames.decode_reply(body) for piece in cut for body in bodies.feed(piece)] == records
