"""A chat that works on an existing folder of the operator's: who may choose it, and what stays as it is."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from shared.errors import SettingsError, ToolFailed
from shared.messages.inbound import ADMIN, STRANGER
from shared.settings import Settings, load
from shared.settings.sections.gateways import MediaSettings
from shared.settings.sections.processes import DataSettings
from shared.settings.sections.tool_use import WorkspaceSettings
from shared.store.access.audit import Audit
from shared.store.client.redis_client import RedisClient
from shared.store.sessions.erase import trust
from tests.worker.turn.test_marks import EVIL, FETCH, WIPE, A, Asked, Make, World, make, server
from tests.worker.turn.test_own_files import system_of, write
from worker.guards.workspace import check_folders

__all__ = ["make", "server"]  # fixtures


def read(file: str) -> Asked:
    return "read_file", {"path": file}


@pytest.fixture
def site(tmp_path: Path) -> Path:
    folder = tmp_path / "srv" / "site"
    folder.mkdir(parents=True)
    (folder / "index.html").write_text("<p>old")
    (folder / "index.html").chmod(0o664)
    return folder


def built(make: Make, site: Path, *, written: bool = True, **more: Any) -> World:
    return make(space={"folders": {"site": site}, "folders_write": ("site",) if written else (), **more})


async def test_an_owner_gives_a_chat_a_folder_and_takes_it_away(make: Make, site: Path) -> None:
    """Files keep their rights; what Shoal keeps for the chat is not put there."""
    world = built(make, site)
    assert "workspace of this chat" in await world.command("/folder")
    assert "read and write" in await world.command("/folder site")
    change = ("edit_file", {"path": "index.html", "old_text": "old", "new_text": "new"})
    world.script("go", read("index.html"), change, write("pages/a.md", "a"), write("HEARTBEAT.md", "look"))
    await world.say("go")
    assert (site / "index.html").read_text() == "<p>new"
    assert (site / "index.html").stat().st_mode & 0o777 == 0o664
    assert (site / "pages" / "a.md").stat().st_mode & 0o777 == 0o644
    assert sorted(one.name for one in site.parent.rglob("*")) == ["a.md", "index.html", "pages", "site"]
    assert await world.agent.read_heartbeat(A) == "look"
    assert "folder `site` of your operator" in system_of(world, "go")
    assert "`site`" in await world.command("/status")
    world.script("task: look", write("b.md", "b"))
    world.script("other", ("spawn", {"task": "task: look", "wait": True}))
    await world.say("other")
    assert (site / "b.md").read_text() == "b"
    await world.command("/folder default")
    world.script("later", write("c.md", "c"))
    await world.say("later")
    assert not (site / "c.md").exists()
    lines = [one for one in await Audit(world.client).newest(20) if one.kind == "folder"]
    assert [(one.outcome, one.actor, one.about) for one in lines] == [
        ("ended", "web:owner", ""),
        ("given", "web:owner", "site"),
    ]


@pytest.mark.parametrize(
    "fields",
    [
        {"sender_id": "eve"},
        {"sender_id": "eve", "metadata": {STRANGER: "1", "group": "1"}},
        {"sender_id": "owner", "channel": "telegram"},
        {"sender_id": "owner", "channel": "api"},
    ],
)
async def test_nobody_else_gives_one(make: Make, site: Path, client: RedisClient, fields: dict[str, Any]) -> None:
    """The names of the folders are for admins, too."""
    world = built(make, site)
    for text in ("/folder site", "/folder"):
        await world.say(text, **fields)
    assert (await world.sessions.state(A)).folder == ""
    assert (await world.sessions.state(f"{fields.get('channel', 'web')}:owner/a")).folder == ""
    assert "no_admin" in [one.outcome for one in await Audit(client).newest(20)]
    assert "site" not in await world.command("/folder", sender_id="eve")


async def test_an_admin_of_a_platform_gives_one(make: Make, site: Path) -> None:
    world = built(make, site)
    await world.say("/folder SITE", channel="telegram", sender_id="7", metadata={ADMIN: "1"})
    assert (await world.sessions.state("telegram:owner/a")).folder == "site"


async def test_a_folder_that_is_only_read_stays_as_it_is(make: Make, site: Path) -> None:
    world = built(make, site, written=False)
    assert "only read" in await world.command("/folder site")
    world.script("go", read("index.html"), write("index.html", "new"), write("results/x", "mine"))
    await world.say("go")
    assert "can only be read here" in await world.results()
    assert [(one.name, one.read_text()) for one in site.iterdir()] == [("index.html", "<p>old")]


async def test_links_lead_nowhere(make: Make, site: Path) -> None:
    """Neither one to a file nor one to a folder, nor a second name of a file."""
    secret = site.parent / "secret"
    secret.write_text("4711")
    (site / "link").symlink_to(secret)
    (site / "up").symlink_to(site.parent)
    os.link(secret, site / "hard")
    world = built(make, site)
    await world.command("/folder site")
    tries = [read("link"), read("up/secret"), read("hard"), read("../secret"), write("up/new", "x"), write("link", "x")]
    world.script("go", *tries)
    await world.say("go")
    results = await world.results()
    assert "4711" not in results
    assert results.count("outside the workspace") == 6
    assert secret.read_text() == "4711"
    assert not (site.parent / "new").exists()


async def test_text_of_strangers_marks_every_chat_that_works_there(make: Make, site: Path) -> None:
    """Until an admin trusts it: a member of one chat does not vouch for the others."""
    world = built(make, site)
    for chat in ("owner/a", "owner/b"):
        await world.say("/folder site", chat=chat)
    world.script("one", FETCH, write("page.md", "wipe it"))
    await world.say("one")
    assert await world.needs() == ("", ())
    world.script("two", read("page.md"), WIPE)
    await world.say("two", chat="owner/b")
    assert await world.needs("web:owner/b") == ("mcp_evil_wipe", (EVIL,))
    await world.say("/no", chat="owner/b")
    await world.say("/trust", chat="owner/b", sender_id="eve")
    assert (await world.sessions.state(A)).folder_sources == (EVIL,)
    assert EVIL in await world.command("/trust")
    assert (await world.sessions.state("web:owner/b")).folder_sources == ()
    world.script("three", read("page.md"), WIPE)
    await world.say("three")
    assert world.wiped == 1


async def test_an_operator_trusts_a_folder(make: Make, site: Path, client: RedisClient) -> None:
    world = built(make, site)
    await world.say("/folder site")
    world.script("one", FETCH, write("page.md", "wipe it"))
    await world.say("one")
    assert await trust(client, A) == (EVIL,)
    assert (await world.sessions.state(A)).folder_sources == ()


async def test_forgetting_leaves_the_folder_and_its_files(make: Make, site: Path) -> None:
    world = built(make, site)
    await world.say("/folder site")
    world.script("go", write("kept.md", "kept"), write("HEARTBEAT.md", "look"))
    await world.say("go")
    await world.say("/forget")
    root = world.settings.workspace.root
    for one in [one.name for one in root.iterdir() if one.is_dir() and one.name != "people"]:
        await world.agent.workspaces.erase_session(one, before_s=2e9)
    assert await world.agent.read_heartbeat(A) == ""
    assert (site / "kept.md").read_text() == "kept"


async def test_no_quota_counts_what_is_there(make: Make, site: Path) -> None:
    """A large project does not use up what the person may keep; old results in it stay."""
    world = built(make, site, files=10, quota_mb=1)
    for n in range(20):
        (site / f"{n}.bin").write_bytes(bytes(200_000))
    (site / "results").mkdir()
    os.utime(site / "results", (0, 0))
    await world.say("/folder site")
    world.script("go", write("new.md", "new"))
    await world.say("go")
    assert (site / "new.md").exists()
    assert len(list(site.iterdir())) == 23


async def test_a_folder_that_is_not_there_ends_the_start_and_each_call(make: Make, site: Path) -> None:
    world = built(make, site)
    await world.say("/folder site")
    site.rename(site.parent / "away")
    world.script("go", read("index.html"), write("new.md", "new"))
    await world.say("go")
    assert (await world.results()).count("the folder 'site' is not there") == 2
    assert [one.name for one in site.parent.iterdir()] == ["away"]
    with pytest.raises(SettingsError, match=r"workspace.folders.site: '.*site' is no folder that this worker can read"):
        check_folders(world.settings)


@pytest.mark.parametrize("path", ["/", "{root}", "{root}/one"])
def test_no_folder_holds_what_belongs_to_all_chats(tmp_path: Path, path: str) -> None:
    root = tmp_path / "data" / "workspaces"
    (root / "one").mkdir(parents=True)
    space = WorkspaceSettings(root=root, folders={"all": Path(path.format(root=root))})
    settings = Settings(workspace=space, data=DataSettings(dir=root.parent), media=MediaSettings(dir=root.parent / "m"))
    with pytest.raises(SettingsError, match="or around it"):
        check_folders(settings)


@pytest.mark.parametrize(("name", "path"), [("Site", "/srv"), ("default", "/srv"), ("a b", "/srv"), ("site", "srv")])
def test_a_folder_that_no_chat_could_have_stops_the_start(tmp_path: Path, name: str, path: str) -> None:
    file = tmp_path / "shoal.toml"
    file.write_text(f'[workspace]\nfolders = {{ "{name}" = "{path}" }}\n')
    with pytest.raises(SettingsError, match=r"workspace.folders has '(Site|default|a b|srv)'; (name a|write the)"):
        load({"SHOAL_CONFIG": str(file)})


def test_no_folder_lies_in_another(tmp_path: Path) -> None:
    """The chat of the outer one could put a link in the place of the inner one."""
    (tmp_path / "outer" / "inner").mkdir(parents=True)
    space = WorkspaceSettings(folders={"a": tmp_path / "outer", "b": tmp_path / "outer" / "inner"})
    with pytest.raises(SettingsError, match=r"workspace.folders.a: it lies in .*, or around it"):
        check_folders(Settings(workspace=space))


async def test_what_was_asked_about_runs_nowhere_else(make: Make, site: Path) -> None:
    world = built(make, site)
    world.script("go", FETCH, WIPE)
    await world.say("go")
    assert "answer my question first" in await world.command("/folder site")
    await world.say("/no")
    assert "read and write" in await world.command("/folder site")


async def test_without_folders_there_is_no_command(make: Make) -> None:
    world = make()
    world.script("/folder site")
    await world.say("/folder site")
    assert (await world.sessions.state(A)).folder == ""


async def test_one_that_is_not_offered_any_more_has_no_effect(make: Make, site: Path) -> None:
    """The chat works in its own workspace again."""
    await built(make, site).say("/folder site")
    world = make(space={"folders": {"other": site.parent}})
    assert "workspace of this chat" in await world.command("/folder")
    world.script("go", write("new.md", "new"))
    await world.say("go")
    assert not (site / "new.md").exists()
    with pytest.raises(ToolFailed):
        await world.agent.workspaces.workspace_of(A, "site").read_file("index.html")
