"""The runner for real: another user's process, a socket, and commands that do what they should not."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import psutil
import pytest

from shared.confinement import landlock
from tests.helpers import pod
from tests.helpers.need import need
from tests.helpers.runner import AS_ROOT, RunnerProcess
from tests.helpers.wait import eventually
from worker.sandbox.command import CommandLimits, SandboxBroken, SandboxCommand
from worker.sandbox.runner.client import RunnerSandbox

pytestmark = pytest.mark.timeout(180)

SLOW_S = 30.0
MIB = 1024 * 1024


@pytest.fixture(scope="module", params=["plain", "pod"])
def runner(request: pytest.FixtureRequest) -> Iterator[RunnerProcess]:
    """One runner for tests that leave it as it was: on a plain machine, and as in a pod of the restricted standard."""
    need("Landlock", found=landlock.abi() >= landlock.NEEDED_ABI, install="Linux 6.2 or newer with Landlock on")
    if request.param == "pod":
        need("libseccomp2", found=pod.library() is not None)
    made = RunnerProcess(profile=request.param == "pod")
    yield made
    made.close()


@pytest.fixture
async def sandbox(runner: RunnerProcess) -> AsyncIterator[RunnerSandbox]:
    made = await runner.ready()
    yield made
    await made.close()
    await eventually(lambda: nobody_in(runner), SLOW_S, what="a runner without commands")


@pytest.fixture
def own() -> Iterator[RunnerProcess]:
    """A runner that the test may break."""
    need("Landlock", found=landlock.abi() >= landlock.NEEDED_ABI, install="Linux 6.2 or newer with Landlock on")
    made = RunnerProcess()
    yield made
    made.close()


def nobody_in(runner: RunnerProcess) -> bool:
    return runner.process.children() == [] and not inside(runner)


def inside(runner: RunnerProcess) -> list[int]:
    """Processes that work in a workspace of this runner, whoever their parents are."""
    found = []
    for process in psutil.process_iter():
        try:
            if process.cwd().startswith(str(runner.root)):
                found.append(process.pid)
        except (psutil.Error, OSError):
            continue
    return found


async def started(path: Path) -> int:
    """The number that a command wrote into a file, once it has."""

    def number() -> int:
        text = path.read_text() if path.exists() else ""
        return int(text) if text.endswith("\n") else 0  # a shell makes the file before it writes

    return await eventually(number, SLOW_S, what=f"{path.name} written")


DAEMON = "setsid sh -c 'echo $$ > daemon; exec sleep 1000' & while [ ! -s daemon ]; do :; done; "


async def test_a_command_runs_in_its_workspace(runner: RunnerProcess, sandbox: RunnerSandbox) -> None:
    """Output of both streams in order, the exit code, a working folder that is also $HOME, files the worker can use."""
    workspace = runner.workspace()
    finished = await sandbox.run(
        runner.command('pwd; echo "$HOME"; echo out; echo err >&2; cat; echo new > made; exit 3', stdin=b"fed\n")
    )
    assert (finished.ended, finished.code, finished.signal) == ("exit", 3, None)
    assert finished.output.decode() == f"{workspace}\n{workspace}\nout\nerr\nfed\n"
    made = workspace / "made"
    assert made.read_text() == "new\n"
    assert (made.stat().st_uid, made.stat().st_gid) == (runner.uid, runner.group)
    assert made.stat().st_mode & 0o777 == 0o660


async def test_words_are_run_without_a_shell(runner: RunnerProcess, sandbox: RunnerSandbox) -> None:
    """And a program that is not there is 127, as a shell says it."""
    finished = await sandbox.run(runner.command(("printf", "%s", "$HOME;")))
    assert (finished.code, finished.output) == (0, b"$HOME;")
    finished = await sandbox.run(runner.command(("no-such-program",)))
    assert (finished.code, finished.output) == (127, b"no-such-program: not found\n")
    finished = await sandbox.run(runner.command("kill -9 $$"))
    assert (finished.ended, finished.code, finished.signal) == ("signal", None, 9)


async def test_a_command_is_another_user_with_an_environment_of_its_own(
    runner: RunnerProcess, sandbox: RunnerSandbox
) -> None:
    """Nothing of the runner's variables, no capability, no way to a new privilege, the filter on."""
    what = "env; id -u; umask; "
    finished = await sandbox.run(runner.command(what, environment={"GIVEN": "yes", "HOME": "/elsewhere"}))
    lines = finished.output.decode().splitlines()
    names = {line.partition("=")[0] for line in lines if "=" in line}
    assert names <= {"PATH", "HOME", "LANG", "TMPDIR", "TERM", "GIVEN", "PWD", "SHLVL", "_", "OLDPWD"}
    assert f"HOME={runner.workspace()}" in lines
    assert lines[-2:] == [str(runner.uid), "0007"]
    assert not AS_ROOT or runner.uid != os.getuid()


async def test_memory_is_seen_and_cannot_be_changed(runner: RunnerProcess, sandbox: RunnerSandbox) -> None:
    """Under its name in the workspace; gone after, also when the command put something else there."""
    shown = {"MEMORY.md": b"Likes tea.\n", "HISTORY.md": b"Yesterday.\n"}
    what = (
        "cat MEMORY.md HISTORY.md; echo forged > MEMORY.md; echo $?; chmod 777 MEMORY.md; echo x >> MEMORY.md; "
        "cat MEMORY.md; rm HISTORY.md; mkdir HISTORY.md; echo mine > HISTORY.md/kept"
    )
    finished = await sandbox.run(runner.command(what, shown=shown))
    text = finished.output.decode()
    assert text.startswith("Likes tea.\nYesterday.\n")
    assert "forged" not in text
    assert finished.code == 0
    left = sorted(path.name for path in runner.workspace().iterdir() if path.name.startswith(("MEMORY", "HISTORY")))
    assert len(left) == 1
    assert left[0].startswith("HISTORY.md.")  # what the command made is its own, out of the way
    again = await sandbox.run(runner.command("cat HISTORY.md", shown=shown))
    assert again.output == b"Yesterday.\n"


@pytest.mark.parametrize(
    ("what", "limits", "ended"),
    [
        ("sleep 1000", CommandLimits(wall_s=0.5), "wall"),
        ("setsid sleep 1000 & sleep 1000", CommandLimits(wall_s=0.5), "wall"),
        ("while :; do :; done", CommandLimits(cpu_s=1), "cpu"),
        ("yes", CommandLimits(output_bytes=100_000), "output"),
        ("for i in $(seq 40); do sleep 1000 & done; wait", CommandLimits(processes=20), "processes"),
        ("bomb() { bomb | bomb & }; bomb; sleep 1000", CommandLimits(processes=20), "processes"),
        (
            "echo 'setsid sh bomb & setsid sh bomb & wait' > bomb; setsid sh bomb & sleep 1000",
            CommandLimits(processes=20),
            "processes",
        ),
        (
            "hold() { head -c 60000000 /dev/zero | tail | sleep 1000; }; hold & hold & hold & wait",
            CommandLimits(memory_bytes=120 * MIB),
            "memory",
        ),
    ],
)
async def test_a_limit_ends_it_and_all_of_it(
    runner: RunnerProcess, sandbox: RunnerSandbox, what: str, limits: CommandLimits, ended: str
) -> None:
    """Time, work, output, processes, memory of all together: killed, named, and the runner is as well as before."""
    finished = await sandbox.run(runner.command(what, limits=limits))
    assert finished.ended == ended, finished
    assert (finished.code, finished.signal) == (None, None)
    assert len(finished.output) <= limits.output_bytes
    assert not inside(runner)
    assert (await sandbox.run(runner.command("echo well"))).output == b"well\n"


async def test_a_file_and_the_memory_of_one_process_are_limited_by_the_kernel(
    runner: RunnerProcess, sandbox: RunnerSandbox
) -> None:
    """A gigabyte ends at the limit, and a greedy program gets no memory rather than a kill."""
    limits = CommandLimits(file_bytes=MIB, memory_bytes=200 * MIB)
    finished = await sandbox.run(runner.command("head -c 1000000000 /dev/zero > big", limits=limits))
    assert finished.code != 0
    assert (runner.workspace() / "big").stat().st_size == MIB
    need("python3")
    finished = await sandbox.run(runner.command("/usr/bin/python3 -c 'bytearray(10**9)' || echo none", limits=limits))
    assert b"none" in finished.output


async def test_nothing_is_left_when_a_command_has_ended(runner: RunnerProcess, sandbox: RunnerSandbox) -> None:
    """Also no daemon in a session of its own, and no temporary file, however it was hidden."""
    what = DAEMON + "mkdir -p $TMPDIR/a/b; touch $TMPDIR/a/b/c; ln -s / $TMPDIR/a/link; chmod 0 $TMPDIR/a/b $TMPDIR/a"
    finished = await sandbox.run(runner.command(what))
    assert finished.code == 0, finished
    assert not psutil.pid_exists(await started(runner.workspace() / "daemon"))
    [left] = runner.scratch.iterdir()
    assert list(left.iterdir()) == []


async def test_a_closed_connection_kills_the_command_and_its_daemon(own: RunnerProcess) -> None:
    """A worker that dies closes its socket; so does a turn that is cancelled, which waits until all is dead."""
    sandbox = await own.ready()
    running = asyncio.create_task(sandbox.run(own.command(DAEMON + "sleep 1000")))
    daemon = await started(own.workspace() / "daemon")
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert not psutil.pid_exists(daemon)
    assert not inside(own)


CLIENT = """
import asyncio, sys
from worker.sandbox.command import SandboxCommand
from worker.sandbox.runner.client import RunnerSandbox
command = SandboxCommand(what=sys.argv[3], folder=sys.argv[2], session="session", token=1)
asyncio.run(RunnerSandbox(sys.argv[1]).run(command))
"""


async def test_a_killed_worker_takes_its_commands_with_it(own: RunnerProcess) -> None:
    """SIGKILL: nobody says anything any more, and the kernel closes the socket."""
    await own.ready()
    workspace = own.workspace()
    words = ["-c", CLIENT, str(own.socket), str(workspace), DAEMON + "sleep 1000"]
    client = await asyncio.create_subprocess_exec(sys.executable, *words, cwd=Path(__file__).parents[3])
    daemon = await started(workspace / "daemon")
    client.kill()
    await client.wait()
    await eventually(lambda: not psutil.pid_exists(daemon) and nobody_in(own), SLOW_S, what="all dead")


async def test_a_killed_runner_takes_its_commands_with_it_and_the_worker_learns_of_it(own: RunnerProcess) -> None:
    """SIGKILL to the runner alone; the next one on the same socket works, and finds no old files."""
    sandbox = await own.ready()
    running = asyncio.create_task(sandbox.run(own.command(DAEMON + "sleep 1000")))
    daemon = await started(own.workspace() / "daemon")
    os.kill(own.process.pid, signal.SIGKILL)
    with pytest.raises(SandboxBroken, match="runner"):
        await running
    await eventually(lambda: not psutil.pid_exists(daemon) and not inside(own), SLOW_S, what="all dead")
    with pytest.raises(SandboxBroken, match="python -m worker runner"):
        await sandbox.run(own.command("echo nobody"))
    own.process.wait()
    own.start()
    sandbox = await own.ready()
    assert (await sandbox.run(own.command("echo again"))).output == b"again\n"


async def test_a_killed_supervisor_leaves_nothing(own: RunnerProcess) -> None:
    """Its command dies with it, and what that put aside falls to the runner, which kills it."""
    sandbox = await own.ready()
    running = asyncio.create_task(sandbox.run(own.command(DAEMON + "sleep 1000")))
    daemon = await started(own.workspace() / "daemon")
    supervisor = own.process.children()[0]
    supervisor.kill()
    with pytest.raises(SandboxBroken, match="was lost"):
        await running
    await eventually(lambda: not psutil.pid_exists(daemon) and nobody_in(own), SLOW_S, what="all dead")
    assert (await sandbox.run(own.command("echo well"))).output == b"well\n"


async def test_sigterm_ends_the_runner_with_0_after_its_commands(own: RunnerProcess) -> None:
    """And its socket is gone, so that nobody waits at it."""
    sandbox = await own.ready()
    running = asyncio.create_task(sandbox.run(own.command(DAEMON + "sleep 1000")))
    daemon = await started(own.workspace() / "daemon")
    own.process.terminate()
    with pytest.raises(SandboxBroken, match="the runner stops"):
        await running
    assert await asyncio.to_thread(own.process.wait, SLOW_S) == 0
    assert not psutil.pid_exists(daemon)
    assert not own.socket.exists()
    assert list(own.scratch.iterdir()) == []


async def test_an_older_turns_command_is_dead_before_a_newer_ones_starts(own: RunnerProcess) -> None:
    """A turn that was taken over: no command of two tokens of one session ever runs at once."""
    sandbox = await own.ready()
    old = asyncio.create_task(sandbox.run(own.command(DAEMON + "sleep 1000", token=7)))
    other = asyncio.create_task(sandbox.run(own.command("echo $$ > pid; sleep 1000", session="other", token=1)))
    daemon = await started(own.workspace() / "daemon")
    await started(own.workspace("other") / "pid")
    for supervisor in own.process.children():
        if supervisor.parent() == psutil.Process(own.process.pid):
            supervisor.suspend()  # it will not hear that it is to end, and the newer command must wait all the same
            break
    new = await sandbox.run(own.command(f"kill -0 {daemon} 2>&1; echo $?", token=8))
    assert b"No such process" in new.output
    with pytest.raises(SandboxBroken, match="was lost"):
        await old
    with pytest.raises(SandboxBroken, match="newer turn"):
        await sandbox.run(own.command("touch late", token=7))
    assert not (own.workspace() / "late").exists()
    assert not other.done()  # another session's token is another session's
    other.cancel()
    with pytest.raises(asyncio.CancelledError):
        await other


async def test_commands_of_one_turn_run_side_by_side(runner: RunnerProcess, sandbox: RunnerSandbox) -> None:
    """An equal token is not an older one."""
    what = "mkdir {mine}; until [ -d {other} ]; do sleep 0.01; done; rmdir {other}"
    pair = (runner.command(what.format(mine=a, other=b)) for a, b in (("left", "right"), ("right", "left")))
    assert [one.code for one in await asyncio.gather(*map(sandbox.run, pair))] == [0, 0]


async def test_only_so_many_run_at_once_and_the_others_wait() -> None:
    """Each in its turn; who gives up while waiting is forgotten."""
    need("Landlock", found=landlock.abi() >= landlock.NEEDED_ABI, install="Linux 6.2 or newer with Landlock on")
    own = RunnerProcess(RUNNER__COMMANDS="1")
    try:
        sandbox = await own.ready()
        first = asyncio.create_task(sandbox.run(own.command("echo $$ > pid; until [ -e go ]; do sleep 0.01; done")))
        await started(own.workspace() / "pid")
        second = asyncio.create_task(sandbox.run(own.command("touch second")))
        third = asyncio.create_task(sandbox.run(own.command("ls", session="third")))
        for _ in range(3):
            assert (await sandbox.ping()).running == 1
        second.cancel()
        (own.workspace() / "go").touch()
        assert (await first).code == 0
        assert (await third).code == 0
        with pytest.raises(asyncio.CancelledError):
            await second
        assert not (own.workspace() / "second").exists()
    finally:
        own.close()


async def test_one_session_reaches_nothing_of_another(runner: RunnerProcess, sandbox: RunnerSandbox) -> None:
    """Neither its files, nor its processes, nor its temporary files, while both run."""
    workspace = runner.workspace("victim")
    (workspace / "canary").write_text("secret-canary")
    what = "echo x > $TMPDIR/canary; echo $TMPDIR > where; echo $$ > pid; until [ -e go ]; do sleep 0.01; done"
    victim = asyncio.create_task(sandbox.run(runner.command(what, session="victim")))
    pid = await started(workspace / "pid")
    where = (workspace / "where").read_text().strip()
    attack = (
        f"cat {workspace}/canary ../victim/canary {where}/canary /proc/{pid}/environ /proc/{pid}/cwd/canary; "
        f"ls .. /proc {where}; echo x > {workspace}/planted; rm {workspace}/canary; mv {workspace}/canary .; "
        f"truncate -s 0 {workspace}/canary; kill -9 {pid}; kill -9 -1; kill -STOP {os.getpid()}; echo survived"
    )
    finished = await sandbox.run(runner.command(attack, session="attacker"))
    text = finished.output.decode()
    assert "secret-canary" not in text
    if (await sandbox.ping()).landlock >= landlock.SIGNALS_ABI:
        assert text.rstrip().endswith("survived")
    assert not victim.done()
    assert (workspace / "canary").read_text() == "secret-canary"
    assert not (workspace / "planted").exists()
    (workspace / "go").touch()
    assert (await victim).code == 0


async def test_kill_minus_one_ends_neither_the_runner_nor_others(runner: RunnerProcess, sandbox: RunnerSandbox) -> None:
    """Every signal that ends a process, to everybody: the same user's runner and supervisor do not hear it."""
    what = "for s in HUP INT TERM KILL STOP USR1; do kill -$s -1; kill -$s $PPID; done; echo here"
    before = runner.process.pid
    finished = await sandbox.run(runner.command(f"trap '' HUP INT TERM USR1; {what}", limits=CommandLimits(wall_s=20)))
    assert finished.ended in ("exit", "signal")
    assert runner.process.alive
    assert runner.process.pid == before
    assert (await sandbox.run(runner.command("echo well"))).output == b"well\n"


async def test_a_workspace_that_is_none_is_refused(runner: RunnerProcess, sandbox: RunnerSandbox) -> None:
    """Names that lead elsewhere, a link in its place, and one that is not there: a reason, and nothing is run."""
    for session in ("..", ".", "a/b", "/etc", "", "x\0y", "missing", "a" * 200):
        with pytest.raises(SandboxBroken, match="workspace"):
            await sandbox.run(SandboxCommand(what="echo no", folder="/", session=session))
    runner.workspace()
    (runner.root / "link").symlink_to("/etc")
    with pytest.raises(SandboxBroken, match="workspace"):
        await sandbox.run(SandboxCommand(what="echo no", folder="/", session="link"))
    with pytest.raises(SandboxBroken, match="cannot keep a command's network"):
        await sandbox.run(runner.command("echo no", network=True))
