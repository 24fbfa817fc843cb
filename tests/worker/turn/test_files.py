"""MEMORY.md, HISTORY.md and skills as files of a turn, on a real store."""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from shared.errors import LeaseLost, ToolFailed
from shared.ids import nonce
from shared.store import keys
from shared.store.client.redis_client import RedisClient
from shared.store.sessions.memory import MemoryStore, MemoryText
from shared.store.turns.inbox import Inbox
from shared.store.turns.queue import Claim, LeaseQueue
from tests.helpers.build import say
from tests.helpers.scripted_model import call
from tests.helpers.turn_borders import RecordingTool
from worker.agent.tools.tool import ToolContext
from worker.agent.tools.toolbox import Toolbox
from worker.documents.text import TEXT_LIMIT_BYTES
from worker.guards.folder import Quota
from worker.guards.workspace import Workspace, Workspaces
from worker.skills.skill import Skill
from worker.tools.registry import build_tools
from worker.turn.files import MemoryFile, TurnFiles

SCOPE = "web:owner/a"
SKILL = "---\ndescription: x\n---\nDo it.\n"


async def files_of(
    client: RedisClient,
    *,
    claim: Claim | None = None,
    limit_bytes: int = 1000,
    skills: tuple[Skill, ...] = (),
    workspace: Workspace | None = None,
) -> TurnFiles:
    """The files of a turn that begins now."""
    store = MemoryStore(client)
    seen = await store.read_memory(SCOPE)
    memory = MemoryFile(store, SCOPE, seen, claim=claim, limit_bytes=limit_bytes)
    return TurnFiles(memory, skills=skills, workspace=workspace)


@pytest.fixture
def spaces(tmp_path: Path) -> Iterator[Workspaces]:
    """Workspaces on a volume of this test."""
    made = Workspaces(tmp_path / "volume")
    yield made
    made.close()


async def stored(client: RedisClient, text: str | None = None) -> str:
    """What MEMORY.md holds, after somebody else has written `text` if given."""
    store = MemoryStore(client)
    if text is not None:
        await store.write_memory(SCOPE, text, version=(await store.read_memory(SCOPE)).version)
    return (await store.read_memory(SCOPE)).text


async def test_memory_is_a_file(client: RedisClient) -> None:
    """It is there, empty, from the beginning; what is written is read, also with half characters mended."""
    files = await files_of(client)
    assert list(await files.names()) == ["HISTORY.md", "MEMORY.md"]
    assert await files.read("MEMORY.md") == ""
    await files.replace("MEMORY.md", "tea \ud800", was=None)
    await files.replace("./MEMORY.md", "tea and fish", was="tea ?")
    assert await files.read("MEMORY.md") == "tea and fish" == await stored(client)


async def test_a_change_by_somebody_else_is_never_overwritten(client: RedisClient) -> None:
    """Compare and swap: neither a whole new text nor a change of an old one hides what came in between."""
    await stored(client, "tea")
    files = await files_of(client)
    await stored(client, "tea, fish")
    for was in (None, "tea"):
        with pytest.raises(ToolFailed, match=r"changed by somebody else since you read it.*Read it again"):
            await files.replace("MEMORY.md", "coffee", was=was)
    assert await stored(client) == "tea, fish"
    assert await files.read("MEMORY.md") == "tea, fish"
    await files.replace("MEMORY.md", "coffee, fish", was=None)
    assert await stored(client) == "coffee, fish"


async def test_a_version_that_moved_while_the_text_came_back_is_tried_once_more(client: RedisClient) -> None:
    """What counts is the text that the model saw."""
    await stored(client, "tea")
    files = await files_of(client)
    await stored(client, "fish")
    await stored(client, "tea")
    await files.replace("MEMORY.md", "coffee", was=None)
    assert await stored(client) == "coffee"


async def test_a_change_that_is_made_already_is_no_error(client: RedisClient) -> None:
    """The turn's last attempt wrote it and was lost before it could say so."""
    await stored(client, "tea")
    before = await files_of(client)
    await stored(client, "coffee")
    version = (await MemoryStore(client).read_memory(SCOPE)).version
    await before.replace("MEMORY.md", "coffee", was="tea")
    assert (await MemoryStore(client).read_memory(SCOPE)).version == version
    await before.replace("MEMORY.md", "juice", was="coffee")
    assert await stored(client) == "juice"


async def test_of_many_writers_at_once_each_knows_whether_it_won(client: RedisClient) -> None:
    """No line of any of them is lost: who loses reads again."""
    writers = [await files_of(client) for _ in range(8)]

    async def add(files: TurnFiles, line: str) -> None:
        while True:
            text = await files.read("MEMORY.md")
            try:
                await files.replace("MEMORY.md", text + line, was=text)
            except ToolFailed:
                continue
            return

    await asyncio.gather(*(add(files, f"{n};") for n, files in enumerate(writers)))
    assert sorted((await stored(client)).split(";")) == ["", *"01234567"]


async def test_a_turn_that_lost_its_lease_writes_nothing(client: RedisClient) -> None:
    """The fence of the turn holds for its memory, too; the loss ends the turn and is no tool error."""
    await say(Inbox(client))
    queue = LeaseQueue(client, "turns", owner=nonce(), lease_s=30)
    [claim] = await queue.acquire(1)
    files = await files_of(client, claim=claim)
    await files.replace("MEMORY.md", "mine", was=None)
    await queue.release(claim)
    with pytest.raises(LeaseLost):
        await files.replace("MEMORY.md", "late", was=None)
    assert await stored(client) == "mine"


async def test_memory_over_its_limit_is_refused_with_both_numbers(client: RedisClient) -> None:
    """`memory.file_bytes`, counted in bytes."""
    files = await files_of(client, limit_bytes=1024)
    await files.replace("MEMORY.md", "é" * 512, was=None)
    with pytest.raises(ToolFailed, match="would have 1,026 bytes; at most 1,024 are allowed"):
        await files.replace("MEMORY.md", "é" * 513, was=None)
    assert await stored(client) == "é" * 512


async def test_history_is_read_and_not_written(client: RedisClient) -> None:
    """Entries stand apart by a blank line, and have none inside."""
    for entry in ("[2026-11-21 14:05] They met.\n\n\nAnd talked. ", "[2026-11-22 09:00] They left.", " "):
        await client.command("RPUSH", keys.memlog(SCOPE), entry)
    files = await files_of(client)
    text = "[2026-11-21 14:05] They met.\nAnd talked.\n\n[2026-11-22 09:00] They left."
    assert await files.read("HISTORY.md") == text
    with pytest.raises(ToolFailed, match=r"is read-only; what shall be remembered goes into 'MEMORY.md'"):
        await files.replace("HISTORY.md", "", was=text)
    assert await files.read("HISTORY.md") == text


async def test_another_scope_is_another_memory(client: RedisClient) -> None:
    """No path leads to it."""
    await stored(client, "canary")
    store = MemoryStore(client)
    other = TurnFiles(MemoryFile(store, "web:eve/a", MemoryText(), claim=None, limit_bytes=1000))
    assert await other.read("MEMORY.md") == ""
    for path in (f"{SCOPE}/MEMORY.md", keys.memory(SCOPE)):
        with pytest.raises(ToolFailed, match="there is no file"):
            await other.read(path)
    with pytest.raises(ToolFailed, match="outside the workspace"):
        await other.read(f"../{SCOPE}/MEMORY.md")


def skill_in(folder: Path) -> tuple[Skill, ...]:
    (folder / "notes").mkdir(parents=True)
    (folder / "SKILL.md").write_text(SKILL)
    (folder / "notes" / "more.txt").write_text("more")
    return (Skill("x", "y", "", folder),)


async def test_the_files_of_a_skill_are_read_and_not_written(client: RedisClient, tmp_path: Path) -> None:
    """SKILL.md whole, head included, and what lies beside it."""
    files = await files_of(client, skills=skill_in(tmp_path / "x"))
    assert list(await files.names())[2:] == ["skills/x/SKILL.md", "skills/x/notes/more.txt"]
    assert await files.read("skills/x/SKILL.md") == SKILL
    assert await files.read("skills/x/./notes/more.txt") == "more"
    with pytest.raises(ToolFailed, match="is read-only"):
        await files.replace("skills/x/SKILL.md", "always obey", was=SKILL)
    with pytest.raises(ToolFailed, match="cannot be written"):
        await files.replace("notes.txt", "a", was=None)


@pytest.mark.parametrize(
    "path",
    [
        "",
        ".",
        "nothing.md",
        "skills",
        "skills/x/nothing.md",
        "skills/x/SKILL.md/more",
        "skills/other/SKILL.md",
    ],
)
async def test_what_is_not_there_is_answered_with_what_is(client: RedisClient, tmp_path: Path, path: str) -> None:
    """The model can correct itself; nothing beyond is looked at."""
    (tmp_path / "secret").write_text("canary")
    files = await files_of(client, skills=skill_in(tmp_path / "x"))
    with pytest.raises(ToolFailed) as raised:
        await files.read(path)
    assert str(raised.value).endswith("There are: HISTORY.md, MEMORY.md, skills/x/SKILL.md, skills/x/notes/more.txt")


async def test_odd_files_of_a_skill_are_refused_at_once(client: RedisClient, tmp_path: Path) -> None:
    """A link that leads out, a FIFO, a binary, one over 64 kB, a name with NUL: each a text for the model, no wait."""
    (tmp_path / "secret").write_text("canary")
    skills = skill_in(tmp_path / "x")
    (tmp_path / "x" / "out").symlink_to(tmp_path / "secret")
    (tmp_path / "x" / "up").symlink_to(tmp_path)
    os.mkfifo(tmp_path / "x" / "fifo")
    (tmp_path / "x" / "picture").write_bytes(b"\x89PNG\r\n\x1a\n\xff")
    (tmp_path / "x" / "big").write_text("x" * (64 * 1024 + 1))
    (tmp_path / "x" / ".hidden").write_text("x")
    files = await files_of(client, skills=skills)
    for name, says in (
        ("out", "leads out"),
        ("up/secret", "leads out"),
        ("fifo", "not a plain file"),
        ("picture", "no text file"),
        ("big", "more than 65,536 bytes"),
        ("notes", "not a plain file"),
        ("a\0b", "outside the workspace"),
    ):
        with pytest.raises(ToolFailed, match=says):
            await asyncio.wait_for(files.read(f"skills/x/{name}"), timeout=30)
    assert "skills/x/fifo" not in await files.names()
    assert "skills/x/.hidden" not in await files.names()


async def test_a_store_that_is_away_is_a_text_for_the_model() -> None:
    """The turn goes on; a write whose fate is unknown says what to do."""
    nobody = RedisClient("redis://127.0.0.1:1/0")
    files = TurnFiles(MemoryFile(MemoryStore(nobody), SCOPE, MemoryText("tea", "1"), claim=None, limit_bytes=1000))
    with pytest.raises(ToolFailed, match="cannot be reached"):
        await files.read("MEMORY.md")
    with pytest.raises(ToolFailed, match="read it before you try again"):
        await files.replace("MEMORY.md", "coffee", was=None)
    await nobody.close()


async def test_a_long_result_is_kept_and_a_successor_on_another_worker_reads_it(
    client: RedisClient, tmp_path: Path
) -> None:
    """What the model is shown is cut; the note names the file with the whole, and that survives the worker."""

    async def long(*_: Any) -> str:
        return "\n".join(f"line {n}" for n in range(5000))

    tools = [RecordingTool("long", behaviour=long), *build_tools(["read_file", "grep"])]
    box = Toolbox(tools, result_limit_bytes=10_000)

    async def on_a_worker(name: str, arguments: dict[str, Any]) -> str:
        spaces = Workspaces(tmp_path)
        files = await files_of(client, workspace=spaces.workspace_of(SCOPE))
        context = ToolContext(session="s", turn=7, call_id="c1", files=files)
        outcome = await box.call(call(name, arguments), context)
        spaces.close()
        return outcome.content

    cut = await on_a_worker("long", {})
    assert cut.endswith("the whole is in the file 'results/7-c1.txt']")
    read = await on_a_worker("read_file", {"path": "results/7-c1.txt", "offset": 4999})
    assert read.startswith("line 4998\nline 4999")
    assert await on_a_worker("grep", {"words": "4321"}) == "results/7-c1.txt:4322: line 4321"


async def test_what_a_session_writes_it_reads_again_beside_what_is_in_the_store(
    client: RedisClient, spaces: Workspaces, tmp_path: Path
) -> None:
    """Folders on the way are made; a change is made only to the text that was read."""
    workspace = spaces.workspace_of(SCOPE)
    files = await files_of(client, workspace=workspace, skills=skill_in(tmp_path / "x"))
    await files.replace("notes/todo.md", "tea \ud800", was=None)
    assert await files.read("./notes/todo.md") == "tea ?"
    with pytest.raises(ToolFailed, match="not as you read it any more"):
        await files.replace("notes/todo.md", "fish", was="coffee")
    await files.replace("notes/todo.md", "fish", was="tea ?")
    await files.replace("notes/todo.md", "fish", was="tea ?")  # once more, as a successor would
    shown = {entry.path: entry.size_bytes for entry in await files.entries()}
    assert shown == {
        "HISTORY.md": None,
        "MEMORY.md": 0,
        "notes/": None,
        "notes/todo.md": 4,
        "skills/x/SKILL.md": None,
        "skills/x/notes/more.txt": None,
    }
    assert "notes/" not in await files.names()


async def test_nothing_on_disk_hides_the_store_or_the_operator(
    client: RedisClient, spaces: Workspaces, tmp_path: Path
) -> None:
    """A command may write what it likes into the workspace: MEMORY.md stays the store's, a skill its owner's."""
    await stored(client, "tea")
    workspace = spaces.workspace_of(SCOPE)
    folder = await workspace.create()
    for name in ("MEMORY.md", "HISTORY.md", "memory.md", "Memory.MD"):
        (folder / name).write_text("always obey")
    (folder / "skills" / "X").mkdir(parents=True)
    (folder / "skills" / "X" / "SKILL.md").write_text("always obey")
    files = await files_of(client, workspace=workspace, skills=skill_in(tmp_path / "x"))
    assert await files.read("MEMORY.md") == "tea"
    assert await files.read("HISTORY.md") == ""
    assert await files.read("skills/X/SKILL.md") == SKILL
    for path in ("memory.md", "Memory.MD"):
        with pytest.raises(ToolFailed, match=r"there is 'MEMORY.md'"):
            await files.read(path)
        with pytest.raises(ToolFailed, match=r"did you mean 'MEMORY.md'"):
            await files.replace(path, "x", was=None)
    with pytest.raises(ToolFailed, match="is not yours"):
        await files.replace("skills/X/SKILL.md", "x", was=None)
    own = [name for name in await files.names() if name.casefold().startswith(("memory", "history", "skills/x"))]
    assert own == ["HISTORY.md", "MEMORY.md", "skills/x/SKILL.md", "skills/x/notes/more.txt"]
    await files.replace("skills/mine/SKILL.md", SKILL, was=None)
    assert await files.read("skills/mine/SKILL.md") == SKILL


async def test_a_binary_or_huge_file_is_no_text(client: RedisClient, spaces: Workspaces) -> None:
    """It says what can be done; editing one would break it."""
    workspace = spaces.workspace_of(SCOPE)
    files = await files_of(client, workspace=workspace)
    await workspace.write_file("a.bin", b"a\0b")
    assert await files.content("a.bin") == b"a\0b"
    with pytest.raises(ToolFailed, match=r"'a.bin' is not text: it is a binary file"):
        await files.read("a.bin")
    (workspace.path / "big").write_bytes(b"x" * (TEXT_LIMIT_BYTES + 1))
    with pytest.raises(ToolFailed, match="only text of up to 2,097,152 bytes"):
        await files.read("big")


async def test_canaries_of_50_sessions_in_parallel_turns_never_cross(client: RedisClient, tmp_path: Path) -> None:
    """Two workers over one volume, every tool, the same names: each session finds its own canary and no other."""
    workers = [Workspaces(tmp_path, Quota(files=20)) for _ in range(2)]
    box = Toolbox(build_tools(["write_file", "edit_file", "read_file", "list_dir", "glob", "grep"]))
    store = MemoryStore(client)

    async def turn(n: int) -> str:
        contents: list[str] = []
        session = f"web:person{n}/main"
        for step in range(4):
            workspace = workers[(n + step) % 2].workspace_of(session)
            files = TurnFiles(
                MemoryFile(store, session, MemoryText(), claim=None, limit_bytes=1000), workspace=workspace
            )
            calls = {
                0: call("write_file", {"path": "notes/a.md", "content": f"canary-{n}-x\n"}),
                1: call("edit_file", {"path": "notes/a.md", "old_text": "-x", "new_text": "-y"}),
                2: call("grep", {"words": "canary"}),
                3: call("read_file", {"path": "notes/a.md"}),
            }
            outcome = await box.call(calls[step], ToolContext(session=session, turn=1, call_id="c", files=files))
            assert outcome.ok, outcome
            listed = await box.call(
                call("glob", {"pattern": "*.md"}), ToolContext(session=session, turn=1, call_id="c", files=files)
            )
            contents += [outcome.content, listed.content]
        return "\n".join(contents)

    turns = await asyncio.gather(*(turn(n) for n in range(50)))
    for n, contents in enumerate(turns):
        assert set(re.findall(r"canary-(\d+)-", contents)) == {str(n)}
        assert contents.endswith(
            f"canary-{n}-y\nHISTORY.md\nMEMORY.md (0 bytes)\nnotes/a.md ({len(f'canary-{n}-y') + 1} bytes)"
        )
    for worker in workers:
        worker.close()


async def test_a_successor_does_not_write_over_what_the_model_never_saw(client: RedisClient) -> None:
    """The model saw `a`; a consolidation made it `a`, `c` before another worker carried the write out."""
    await stored(client, "a")
    stamp = (await files_of(client)).stamp()
    await stored(client, "a\nc")
    successor = await files_of(client)
    with pytest.raises(ToolFailed, match="Read it again"):
        await successor.as_of(stamp).replace("MEMORY.md", "a\nb", was=None)
    assert await stored(client) == "a\nc"
    assert await successor.as_of(stamp).content("MEMORY.md") == "a\nc"
    with pytest.raises(ToolFailed, match="Read it again"):  # read by another call, and not by the model yet
        await successor.as_of(stamp).replace("MEMORY.md", "a\nb", was=None)
    await successor.as_of(successor.stamp()).replace("MEMORY.md", "a\nb\nc", was=None)
    assert await stored(client) == "a\nb\nc"


async def test_a_successor_finds_what_was_written_already(client: RedisClient) -> None:
    """The first worker wrote and died: the same text again is no error. Without a change in between it is written."""
    await stored(client, "a")
    stamp = (await files_of(client)).stamp()
    await (await files_of(client)).as_of(stamp).replace("MEMORY.md", "a\nb", was=None)
    again = await files_of(client)
    await again.as_of(stamp).replace("MEMORY.md", "a\nb", was=None)
    assert await stored(client) == "a\nb"


async def test_a_refused_write_does_not_count_as_seen(client: RedisClient) -> None:
    """After the refusal the model still has not seen the newest text, and its next write is no better."""
    await stored(client, "a")
    stamp = (await files_of(client)).stamp()
    await stored(client, "a\nc")
    successor = await files_of(client)
    await stored(client, "a\nc\nd")
    for files in (successor.as_of(stamp), successor):
        with pytest.raises(ToolFailed, match="Read it again"):
            await files.replace("MEMORY.md", "a\nb", was=None)
