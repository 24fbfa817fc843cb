"""Escapes that a command may try, on every tier: it is contained, the reason is reported, and the worker lives."""

from __future__ import annotations

import asyncio
import os
import socket
from pathlib import Path

import msgspec
import psutil
import pytest

from tests.helpers.wait import eventually
from worker.sandbox.command import CommandLimits, Ending, Finished, Sandbox, SandboxBroken, SandboxCommand

pytestmark = pytest.mark.timeout(180)

SLOW_S = 30.0
MIB = 1024 * 1024
SMALL = CommandLimits(
    cpu_s=20, memory_bytes=128 * MIB, processes=24, file_bytes=8 * MIB, wall_s=60, output_bytes=64 * 1024
)
CANARY = "canary-4f1d9"


def command(folder: Path, what: str, limits: CommandLimits = SMALL, **more: object) -> SandboxCommand:
    return SandboxCommand(what=what, folder=str(folder), session=folder.name, limits=limits, **more)  # type: ignore[arg-type]


async def run(sandbox: Sandbox, folder: Path, what: str, limits: CommandLimits = SMALL) -> Finished:
    return await sandbox.run(command(folder, what, limits))


def python(*lines: str) -> str:
    """A script for the shell."""
    return "python3 - <<'END'\n" + "\n".join(lines) + "\nEND"


REFUSED = {
    "environment of every process": "cat /proc/[0-9]*/environ | tr '\\0' '\\n' | grep SHOAL_PLANTED",
    "own environment": "env | grep SHOAL_PLANTED",
    "a process of the worker": "test -e /proc/{pid}/cmdline && tr '\\0' ' ' </proc/{pid}/cmdline | grep pytest",
    "another session by its path": "cat {other}/canary | grep canary-",
    "another session by ..": "cat ../yours/canary | grep canary-",
    "another session by a link": "ln -s {other}/canary link; cat link | grep canary-",
    "another session by a hard link": "ln {other}/canary hard && cat hard | grep canary-",
    "another session by a quoted path": "c'a't \"{other}\"/can?ry | grep canary-",
    "another session by a coded path": "echo {coded} | base64 -d | sh | grep canary-",
    "another session by the root of a process": "cat /proc/[0-9]*/root{other}/canary | grep -a canary-",
    "writing to programs": "touch /usr/bin/canary-1 || cp /bin/true /usr/local/bin/canary-1",
    "writing to settings of the kernel": "echo 0 >/proc/sys/vm/overcommit_kbytes",
    "writing beside the workspace": "touch ../canary-1 && test -e {top}/canary-1",
    "metadata service": "timeout 5 bash -c ': </dev/tcp/169.254.169.254/80'",
    "server of the host": "timeout 5 bash -c ': </dev/tcp/127.0.0.1/{port}'",
    "mounting": "mount -t tmpfs none /tmp",
    "a namespace inside": "unshare -Ur true",
    "giving files away": "touch f && chown 0:0 f",
    "being root by a file": 'cp /bin/id ./id && chmod 4755 ./id && test "$(./id -u)" = 0',
    "a device": "mknod disk b 254 0",
    "tracing the first process": python(
        "import ctypes, sys", "sys.exit(0 if ctypes.CDLL(None).ptrace(16, 1, 0, 0) == 0 else 1)"
    ),
    "more processor time than allowed": "ulimit -t 100000",
    "more files than allowed": "ulimit -n 1000000",
}


@pytest.mark.parametrize("attempt", REFUSED)
async def test_what_is_outside_is_neither_seen_nor_changed(
    walled: Sandbox, folder: Path, attempt: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each attempt would end with 0 if it came through (security rows 1, 3, 4 and 8)."""
    monkeypatch.setenv("SHOAL_PLANTED", CANARY)
    other = folder.parent / "yours"
    other.mkdir()
    (other / "canary").write_text(f"{CANARY}\n")
    for way in (folder.parent, other, other / "canary"):
        way.chmod(0o755 if way.is_dir() else 0o644)  # it is the sandbox that must refuse, not the mode
    coded = __import__("base64").b64encode(f"cat {other}/canary".encode()).decode()
    with socket.create_server(("127.0.0.1", 0)) as server:
        line = REFUSED[attempt]
        given = {"pid": os.getpid(), "other": other, "top": folder.parent, "coded": coded}
        for name, value in {**given, "port": server.getsockname()[1]}.items():
            line = line.replace(f"{{{name}}}", str(value))
        finished = await run(walled, folder, line)
    assert finished.ended == "exit", finished
    assert finished.code != 0, finished.output
    assert CANARY.encode() not in finished.output


ENDED: dict[str, tuple[str, set[Ending], str]] = {
    "sleeping on": ("sleep 1000", {"wall"}, "wall"),
    "endless output": ("yes", {"output"}, "output"),
    "working on": ("while :; do :; done", {"cpu"}, "cpu"),
    "working on in spite of the signal": ("trap '' XCPU; while :; do :; done", {"cpu", "exit"}, "cpu"),
    "memory": (python("x = bytearray(10**9)"), {"exit", "memory"}, ""),
    "memory of many": (
        "for i in 1 2 3 4 5 6; do python3 -c 'import time; x = b\"x\" * (60 * 2**20); time.sleep(100)' & done; wait",
        {"memory"},
        "",
    ),
    "shared memory": (
        python("import mmap", "m = mmap.mmap(-1, 10**9)", "for at in range(0, 10**9, 4096): m[at] = 1"),
        {"memory"},
        "",
    ),
    "memory without a name": (
        python("import os", "for n in range(99):", "    os.write(os.memfd_create('x'), bytes(8 * 2**20))"),
        {"exit", "memory"},
        "",
    ),
    "a big file": ("dd if=/dev/zero of=big bs=1M count=1000", {"exit"}, ""),
    "a full /tmp": ("dd if=/dev/zero of=/tmp/big bs=1M count=1000", {"exit"}, ""),
    "a fork bomb": ("bomb() { bomb | bomb & bomb; }; bomb", {"exit", "wall", "processes", "cpu", "output"}, "wall"),
}
TIGHT: dict[str, dict[str, float]] = {
    "wall": {"wall_s": 2.0},
    "output": {},
    "cpu": {"cpu_s": 1},
    "": {},
}


@pytest.mark.parametrize("attempt", ENDED)
async def test_what_has_no_end_is_ended(walled: Sandbox, folder: Path, attempt: str) -> None:
    """Every limit is one that a command meets and the worker does not (security row 1)."""
    line, endings, tight = ENDED[attempt]
    finished = await run(walled, folder, line, msgspec.structs.replace(SMALL, **TIGHT[tight]))
    assert finished.ended in endings, finished
    assert finished.code != 0
    assert len(finished.output) <= SMALL.output_bytes
    assert all(path.stat().st_size <= SMALL.file_bytes for path in folder.rglob("*") if path.is_file())
    assert (await run(walled, folder, "echo alive")).output == b"alive\n"


LEFT = {
    "in the background": "sleep 987{n} & echo left",
    "in a session of its own": "setsid -f sleep 987{n}; echo left",
    "deaf to signals": "(trap '' TERM HUP INT; setsid -f sleep 987{n}) ; echo left",
    "adopted": "(sh -c 'setsid -f sh -c \"sleep 987{n}; true\" &' &) ; echo left",
}


def left(mark: str) -> list[int]:
    """Processes of this machine with that word in their command."""
    return [one.pid for one in psutil.process_iter(["cmdline"]) if mark in (one.info["cmdline"] or [])]


@pytest.mark.parametrize("way", LEFT)
async def test_nothing_outlives_its_command(walled: Sandbox, folder: Path, way: str) -> None:
    """When run() returns nothing of the command is left, also when it was put aside."""
    mark = f"{os.getpid() % 100000}{list(LEFT).index(way)}"
    finished = await run(walled, folder, LEFT[way].replace("{n}", mark))
    assert (finished.code, finished.output) == (0, b"left\n")
    assert left(f"987{mark}") == []


async def test_a_cancelled_command_is_dead_when_the_cancellation_is(walled: Sandbox, folder: Path) -> None:
    """Stop, drain and the self-fence cancel: whatever they do next, nothing runs any more."""
    mark = f"876{os.getpid() % 100000}"
    running = asyncio.create_task(run(walled, folder, f"setsid -f sleep {mark}; touch began; sleep {mark}"))
    await eventually((folder / "began").exists, SLOW_S, what="the command")
    assert left(mark)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert left(mark) == []


async def test_killing_everything_kills_only_what_is_inside(walled: Sandbox, folder: Path) -> None:
    """`kill -9 -1` reaches no process of the machine."""
    other = await asyncio.create_subprocess_exec("sleep", "100")
    try:
        await run(walled, folder, "kill -9 -1; exit 3")
        assert other.returncode is None
        assert psutil.Process(other.pid).status() != psutil.STATUS_ZOMBIE
    finally:
        other.kill()
        await other.wait()


async def test_shown_files_are_seen_and_cannot_be_changed(walled: Sandbox, folder: Path) -> None:
    """MEMORY.md is a copy: a change of it would be lost, so it is refused; nothing of it stays behind."""
    line = "cat MEMORY.md; echo x >MEMORY.md; echo y >>MEMORY.md; chmod 777 MEMORY.md; cat MEMORY.md; true"
    finished = await walled.run(command(folder, line, shown={"MEMORY.md": b"fact\n"}))
    assert finished.output.count(b"fact\n") == 2
    assert not (folder / "MEMORY.md").exists()


def _open_to_group(place: Path) -> None:
    """As a worker makes a folder where a runner is another user."""
    os.chown(place, -1, place.parent.stat().st_gid)
    place.chmod(0o2770)


async def test_files_of_skills_are_run_and_cannot_be_changed(walled: Sandbox, folder: Path) -> None:
    """Under the name by which the agent reads them; its own skills are there beside them, and nothing stays behind."""
    (folder / "skills" / "mine").mkdir(parents=True)
    (folder / "skills" / "mine" / "SKILL.md").write_text("own")
    (folder / "skills" / "taken").mkdir()
    _open_to_group(folder / "skills")
    skills = {"sums/run.sh": b"#!/bin/sh\necho $((17 * $1))\n", "sums/lib/x": b"\xff", "taken/run.sh": b"no"}
    line = (
        "sh skills/sums/run.sh 23; skills/sums/run.sh 2; cat skills/mine/SKILL.md; wc -c <skills/sums/lib/x; "
        "ls skills/taken; echo x >skills/sums/run.sh; echo x >skills/sums/new; rm -f skills/sums/run.sh; "
        "sh skills/sums/run.sh 3"
    )
    finished = await walled.run(command(folder, line, skills=skills))
    words = finished.output.decode().split()
    assert [word for word in words if word in ("391", "34", "own1", "51")] == ["391", "34", "own1", "51"]
    assert "run.sh" not in words, "a skill of its own under that name stays as it is"
    assert sorted(path.name for path in (folder / "skills").iterdir()) == ["mine", "taken"]


@pytest.mark.parametrize("there", ["nothing", "a link out", "a file", "a link left behind"])
async def test_the_place_of_skills_leads_nowhere(walled: Sandbox, folder: Path, there: str) -> None:
    """What an agent put there is neither followed nor lost; without a place a command has no skills."""
    outside = folder.parent / "outside"
    outside.mkdir()
    place = folder / "skills"
    if there == "a link out":
        place.symlink_to(outside)
    elif there == "a file":
        place.write_text("mine")
    elif there == "a link left behind":
        place.mkdir()
        (place / "sums").symlink_to(outside)
        _open_to_group(place)
    finished = await walled.run(command(folder, "cat skills/sums/x", skills={"sums/x": b"yes"}))
    assert (finished.output == b"yes") is (there in ("nothing", "a link left behind"))
    assert list(outside.iterdir()) == []
    assert place.exists() is (there in ("a link out", "a file"))


@pytest.mark.parametrize("path", ["x", "../x", "a/../../x", "/x", "a//x", "a/\0"])
async def test_a_file_of_no_skill_is_refused(walled: Sandbox, folder: Path, path: str) -> None:
    """Before anything is written."""
    with pytest.raises(SandboxBroken):
        await walled.run(command(folder, "true", skills={path: b""}))
    assert list(folder.parent.rglob("x")) == []


async def test_a_replaced_name_of_a_shown_file_leads_nowhere(walled: Sandbox, folder: Path) -> None:
    """A link that an earlier command left under that name is not followed."""
    target = folder.parent / "target"
    target.write_text("kept")
    (folder / "MEMORY.md").symlink_to(target)
    finished = await walled.run(command(folder, "cat MEMORY.md", shown={"MEMORY.md": b"fact\n"}))
    assert (finished.code, finished.output) == (0, b"fact\n")
    assert target.read_text() == "kept"


async def test_no_descriptor_of_the_worker_is_inside(walled: Sandbox, folder: Path, tmp_path: Path) -> None:
    """A handle that leaks is a way out."""
    with open(tmp_path / "secret", "w") as held:
        os.set_inheritable(held.fileno(), True)
        there = ("def there(fd):", "    try: os.fstat(fd)", "    except OSError: return False", "    return True")
        finished = await run(walled, folder, python("import os", *there, "print(list(filter(there, range(1024))))"))
    assert finished.output == b"[0, 1, 2]\n", finished.output
