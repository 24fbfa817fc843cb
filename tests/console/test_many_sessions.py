"""Commands that take long: a bar for who looks, an end between two things for who presses Ctrl-C."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, TypeVar

import pytest
from click.testing import CliRunner, Result

from console import session_files
from console.main import cli
from console.progress import run_each
from console.session_files import file_name
from shared.errors import RedisAway
from shared.ids import log_id
from shared.messages.codec import encode
from shared.store import keys
from shared.store.client.redis_client import RedisClient
from shared.store.sessions.backup import SessionBackup
from shared.store.sessions.memory import MemoryStore
from shared.store.turns.dead_letters import DeadLetters
from shared.store.turns.inbox import Inbox
from tests.helpers.build import message, say
from tests.helpers.terminal import ROOT, OnTerminal

T = TypeVar("T")
Shoal = Callable[..., Result]


def on(url: str, work: Callable[[RedisClient], Awaitable[T]]) -> T:
    """Run something with a client."""

    async def inner() -> T:
        client = RedisClient(url)
        try:
            return await work(client)
        finally:
            await client.close()

    return asyncio.run(inner())


async def bury(client: RedisClient, many: int) -> None:
    """Dead letters of as many chats."""
    for n in range(many):
        sent = message(f"text {n}", chat=f"owner/c{n}")
        fields = ("member", keys.turn(sent.session), "n", 1, "reason", f"error {n:08x}", "m", encode(sent))
        await client.command("XADD", keys.DEAD, "*", *fields)


async def chats(client: RedisClient, many: int) -> None:
    """Sessions with something to remember."""
    for n in range(many):
        await say(Inbox(client), f"hello {n}", chat=f"owner/c{n}")
        store, scope = MemoryStore(client), f"chat:web:owner/c{n}"
        await store.write_memory(scope, f"Likes tea {n}.", version=(await store.read_memory(scope)).version)


async def empty(client: RedisClient) -> None:
    """Nothing is left."""
    await client.command("FLUSHALL")


async def letters(client: RedisClient) -> int:
    found: int = await client.command("XLEN", keys.DEAD)
    return found


async def waiting(client: RedisClient) -> int:
    """Messages in all inboxes."""
    names = await client.command("KEYS", keys.inbox("*"))
    return sum([await client.command("XLEN", name) for name in names])


@pytest.fixture
def shoal(redis_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Shoal:
    monkeypatch.chdir(tmp_path)

    def run(*arguments: str, input: str | None = None) -> Result:
        return CliRunner().invoke(cli, list(arguments), input=input, env={"SHOAL_REDIS__URL": redis_url})

    return run


def ctrl_c_at(monkeypatch: pytest.MonkeyPatch, owner: Any, name: str, count: int) -> None:
    """Press Ctrl-C while the `count`th thing is under work."""
    original, seen = getattr(owner, name), [0]

    async def pressed(*arguments: Any, **keywords: Any) -> Any:
        seen[0] += 1
        if seen[0] == count:
            os.kill(os.getpid(), signal.SIGINT)
            await asyncio.sleep(0)  # the loop hears of it
        return await original(*arguments, **keywords)

    monkeypatch.setattr(owner, name, pressed)


# One after the other.


async def test_everything_is_done_in_order() -> None:
    """And it came to its end."""
    done: list[int] = []

    async def work(n: int) -> None:
        done.append(n)

    assert await run_each(range(5), work, what="counting", total=5, shown=False)
    assert done == [0, 1, 2, 3, 4]


async def test_ctrl_c_ends_it_between_two_things() -> None:
    """What is under work is done; what Ctrl-C does elsewhere it does again afterwards."""
    done: list[int] = []
    before = signal.getsignal(signal.SIGINT)

    async def work(n: int) -> None:
        if n == 2:
            os.kill(os.getpid(), signal.SIGINT)
        for _ in range(3):
            await asyncio.sleep(0)
        done.append(n)

    assert not await run_each(range(5), work, what="counting", total=5, shown=False)
    assert done == [0, 1, 2]
    assert signal.getsignal(signal.SIGINT) is before


async def test_ctrl_c_during_the_last_thing_changes_nothing() -> None:
    """All was done: it would be a lie to say it was interrupted."""

    async def work(n: int) -> None:
        os.kill(os.getpid(), signal.SIGINT)
        await asyncio.sleep(0)

    assert await run_each([1], work, what="counting", total=1, shown=False)


async def test_a_redis_that_goes_meanwhile_is_reported_with_how_far_it_came() -> None:
    """Whoever does it again knows what is left."""

    async def work(n: int) -> None:
        if n == 2:
            raise RedisAway("Redis is away: ConnectionError")

    with pytest.raises(RedisAway, match="Redis is away: ConnectionError, after 2 of 5"):
        await run_each(range(5), work, what="counting", total=5, shown=False)
    with pytest.raises(RedisAway, match=r"ConnectionError$"):
        await run_each([2], work, what="counting", total=1, shown=False)


# The commands.


@pytest.mark.parametrize("as_json", [False, True])
def test_a_replay_that_is_cut_can_be_done_again(
    shoal: Shoal, redis_url: str, monkeypatch: pytest.MonkeyPatch, as_json: bool
) -> None:
    """Exit code 130, how far it came, nothing twice and nothing lost."""
    on(redis_url, lambda client: bury(client, 5))
    with monkeypatch.context() as patched:
        ctrl_c_at(patched, DeadLetters, "replay", 2)
        cut = shoal("dead", "replay", "--all", *(["--json"] if as_json else []))
    assert cut.exit_code == 130
    assert cut.stderr == "Interrupted: 2 of 5 letters put back, the others are where they were.\n"
    if as_json:
        assert json.loads(cut.stdout) == {"replayed": 2, "left": [], "interrupted": True}
    else:
        assert cut.stdout == "Put back 2 messages.\n"
    assert (on(redis_url, letters), on(redis_url, waiting)) == (3, 2)
    assert shoal("dead", "replay", "--all").exit_code == 0
    assert (on(redis_url, letters), on(redis_url, waiting)) == (0, 5)


def test_a_drop_that_is_cut_says_how_far_it_came(shoal: Shoal, redis_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is not dropped is there."""
    on(redis_url, lambda client: bury(client, 4))
    original = RedisClient.command

    async def pressed(self: RedisClient, *parts: Any) -> Any:
        if parts[0] == "XDEL":
            os.kill(os.getpid(), signal.SIGINT)
            await asyncio.sleep(0)
        return await original(self, *parts)

    with monkeypatch.context() as patched:
        patched.setattr(RedisClient, "command", pressed)
        cut = shoal("dead", "drop", "--all", "--yes")
    assert (cut.exit_code, on(redis_url, letters)) == (130, 3)
    assert cut.stderr == "Interrupted: 1 of 4 letters dropped, the others are where they were.\n"


def test_sessions_go_into_a_folder_and_come_back(shoal: Shoal, redis_url: str, tmp_path: Path) -> None:
    """A file each, readable by their owner alone, whose names can be read."""
    on(redis_url, lambda client: chats(client, 3))
    result = shoal("session", "export", "--all", "--folder", "kept/all")
    assert (result.exit_code, result.stdout) == (0, "Wrote 3 sessions into 'kept/all'.\n")
    files = sorted((tmp_path / "kept" / "all").iterdir())
    assert [file.name for file in files] == [file_name(f"web:owner/c{n}") for n in range(3)]
    assert {file.stat().st_mode & 0o777 for file in files} == {0o600}
    assert json.loads(files[1].read_text())["memory_md"] == "Likes tea 1."

    on(redis_url, empty)
    restored = json.loads(shoal("session", "import", "kept/all", "--json").stdout)
    assert [one["session"] for one in restored["restored"]] == [f"web:owner/c{n}" for n in range(3)]
    assert (restored["left"], restored["interrupted"]) == ([], False)

    async def remembered(client: RedisClient) -> str:
        return (await MemoryStore(client).read_memory("chat:web:owner/c2")).text

    assert on(redis_url, remembered) == "Likes tea 2."


def test_some_sessions_by_name(shoal: Shoal, redis_url: str, tmp_path: Path) -> None:
    """One that there is not is listed; the others are written, and the exit code is 1."""
    on(redis_url, lambda client: chats(client, 2))
    result = shoal("session", "export", "web:owner/c1", "web:owner/none", "--folder", "kept", "--json")
    assert result.exit_code == 1
    answer = json.loads(result.stdout)
    assert [one["session"] for one in answer["written"]] == ["web:owner/c1"]
    assert [one["session"] for one in answer["left"]] == ["web:owner/none"]
    assert result.stderr.startswith("'web:owner/none': there is no session")
    assert len(list((tmp_path / "kept").iterdir())) == 1


def test_what_cannot_be_restored_is_listed_and_the_rest_is(shoal: Shoal, redis_url: str, tmp_path: Path) -> None:
    """Somebody else's file, and a session that has something already."""
    on(redis_url, lambda client: chats(client, 2))
    shoal("session", "export", "--all", "--folder", "kept")
    (tmp_path / "kept" / "note.json").write_text("{}")
    (tmp_path / "kept" / "read.me").write_text("not looked at")

    async def forget_one(client: RedisClient) -> None:
        await client.command("FLUSHALL")
        await chats(client, 1)

    on(redis_url, forget_one)
    result = shoal("session", "import", "kept")
    assert (result.exit_code, result.stdout) == (1, "Restored 1 session.\n")
    lines = result.stderr.splitlines()
    assert len(lines) == 2
    assert any("note.json" in line for line in lines)
    assert any(file_name("web:owner/c0") in line for line in lines)


@pytest.mark.parametrize(("command", "owner", "work"), [
    ("export", session_files, "_load_session"), ("import", SessionBackup, "restore"),
])  # fmt: skip
def test_sessions_that_are_cut_are_whole_or_not_there(
    shoal: Shoal, redis_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str, owner: Any, work: str
) -> None:
    """Between two files: exit code 130, and how far it came."""
    on(redis_url, lambda client: chats(client, 4))
    shoal("session", "export", "--all", "--folder", "kept")
    if command == "import":
        on(redis_url, empty)
    with monkeypatch.context() as patched:
        ctrl_c_at(patched, owner, work, 3)
        words = ("--all", "--folder", "again") if command == "export" else ("kept",)
        cut = shoal("session", command, *words)
    assert cut.exit_code == 130
    result = "3 of 4 sessions written, each file whole." if command == "export" else "3 of 4 files restored"
    assert cut.stderr.startswith(f"Interrupted: {result}")
    if command == "import":
        assert len(json.loads(shoal("session", "list", "--json").stdout)["sessions"]) == 3
    else:
        assert all(json.loads(file.read_text()) for file in (tmp_path / "again").iterdir())
        assert len(list((tmp_path / "again").iterdir())) == 3


@pytest.mark.parametrize(
    "arguments",
    [
        ("export",), ("export", "web:owner/a", "--all", "--folder", "x"), ("export", "a:b", "c:d"), ("export", "--all"),
        ("export", "a:b", "--folder", "x", "-o", "y"), ("import",), ("import", "no-such-file"),
        ("import", ".", "--session", "web:owner/a"),
    ],
)  # fmt: skip
def test_what_is_not_clear_is_wrong_usage(shoal: Shoal, arguments: tuple[str, ...]) -> None:
    """Exit code 2, before anything is read or written."""
    assert shoal("session", *arguments).exit_code == 2


def test_a_folder_that_cannot_be_made_is_one_line(shoal: Shoal, tmp_path: Path) -> None:
    """Before the store is asked for anything."""
    (tmp_path / "file").write_text("")
    result = shoal("session", "export", "--all", "--folder", "file/kept")
    assert result.exit_code == 1
    assert result.stderr == "the folder 'file/kept' cannot be made: Not a directory\n"


def test_names_of_files_differ_when_names_of_sessions_do() -> None:
    """However alike they are when what no file may be called is taken out, and however long."""
    names = ["web:owner/a b", "web:owner/a-b", f"web:owner/{'x' * 190}", f"web:owner/{'x' * 189}y"]
    files = {file_name(name) for name in names}
    assert len(files) == len(names)
    assert all(len(name) < 120 and "/" not in name for name in files)
    assert file_name(names[0]).endswith(f"-{log_id(names[0])}.json")


def test_a_bar_is_for_a_terminal_and_not_for_json(redis_url: str, tmp_path: Path) -> None:
    """On standard error; a program that reads JSON gets JSON."""
    on(redis_url, lambda client: bury(client, 3))
    for words, barred in ((("--json",), False), ((), True)):
        on(redis_url, lambda client: bury(client, 3))
        terminal = OnTerminal("dead", "replay", "--all", *words, cwd=tmp_path, SHOAL_REDIS__URL=redis_url)
        try:
            assert terminal.ended() == 0
            terminal.shows('"interrupted": false' if words else "Put back")
            assert ("replaying" in terminal.text) is barred
        finally:
            terminal.close()
    result = subprocess.run(
        [sys.executable, "-m", "console", "dead", "drop", "--all", "--yes"],
        env={"PYTHONPATH": str(ROOT), "SHOAL_REDIS__URL": redis_url}, cwd=tmp_path, capture_output=True, text=True,
        check=True,
    )  # fmt: skip
    assert result.stderr == ""


def test_any_command_that_is_interrupted_says_so(shoal: Shoal, monkeypatch: pytest.MonkeyPatch) -> None:
    """Exit code 130, one line."""

    async def pressed(self: RedisClient, *parts: Any) -> Any:
        raise KeyboardInterrupt

    monkeypatch.setattr(RedisClient, "command", pressed)
    result = shoal("jobs", "list")
    assert (result.exit_code, result.stdout, result.stderr) == (130, "", "Interrupted.\n")
