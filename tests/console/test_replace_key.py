"""`shoal init --replace-key`, and how `shoal up` learns of another key."""

from __future__ import annotations

import asyncio
import stat
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from console.main import cli
from console.up.key_file import new_keys
from shared.embedded import write_private
from shared.settings import load, own_key_file
from tests.helpers.openai_server import Answer, ScriptedOpenAI

OLD, NEW = "sk-old-0123456789", "sk-new-0123456789"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """With a key of its own, at an address where nobody listens."""
    place = tmp_path / "place"
    (place / "secrets").mkdir(parents=True)
    (place / "secrets" / "model.key").write_text(f"{OLD}\n")
    write_settings(place, "http://127.0.0.1:9/v1")
    monkeypatch.chdir(place)
    monkeypatch.setenv("HOME", str(tmp_path))
    return place


def write_settings(place: Path, address: str, key: str = "secrets/model.key") -> None:
    lines = ["[model]", 'name = "custom/m"', f'api_base = "{address}"', f'api_key_file = "{key}"']
    (place / "shoal.toml").write_text("\n".join(lines))


def replace() -> Result:
    result = CliRunner().invoke(cli, ["init", "--replace-key", "--key-file=-", "--json"], input=NEW)
    assert NEW not in result.output
    return result


def test_a_key_that_answers_is_kept_in_its_file(folder: Path) -> None:
    """The settings stay as they are; the file is its user's alone."""
    with ScriptedOpenAI(in_thread=True) as server:
        write_settings(folder, server.base_url)
        before = (folder / "shoal.toml").read_text()
        assert replace().exit_code == 0
        assert server.requests()[-1].headers["authorization"] == f"Bearer {NEW}"
    file = folder / "secrets" / "model.key"
    assert (file.read_text(), stat.S_IMODE(file.stat().st_mode)) == (f"{NEW}\n", 0o600)
    assert (folder / "shoal.toml").read_text() == before


def test_a_key_that_is_refused_is_not_kept(folder: Path) -> None:
    with ScriptedOpenAI(in_thread=True) as server:
        server.script(Answer(status=401))
        write_settings(folder, server.base_url)
        result = replace()
    assert (result.exit_code, "the key is wrong" in result.output) == (1, True)
    assert (folder / "secrets" / "model.key").read_text() == f"{OLD}\n"


def test_a_file_of_somebody_else_is_not_written(folder: Path, tmp_path: Path) -> None:
    """As a mounted secret: its owner replaces it."""
    elsewhere = tmp_path / "model.key"
    elsewhere.write_text(OLD)
    write_settings(folder, "http://127.0.0.1:9/v1", str(elsewhere))
    assert own_key_file(load()) is None
    result = replace()
    assert (result.exit_code, "no file of this folder" in result.output) == (2, True)
    assert elsewhere.read_text() == OLD


async def test_each_other_key_is_noticed_once(folder: Path) -> None:
    """Not the one that is there, and not a file that is being replaced."""
    keys = new_keys(look_s=0.001)
    first = asyncio.ensure_future(anext(keys))
    await asyncio.sleep(0)
    write_private(folder / "secrets" / "model.key", NEW)
    assert await asyncio.wait_for(first, 10) == ""
    (folder / "secrets" / "model.key").unlink()
    second = asyncio.ensure_future(anext(keys))
    await asyncio.sleep(0)
    assert not second.done()
    write_private(folder / "secrets" / "model.key", OLD)
    await asyncio.wait_for(second, 10)
    await keys.aclose()


async def test_a_bad_save_of_the_key_is_reported_and_the_next_good_one_counts(folder: Path) -> None:
    """An editor empties a file before it writes it."""
    file = folder / "secrets" / "model.key"
    keys = new_keys(look_s=0.001)
    change = asyncio.ensure_future(anext(keys))
    await asyncio.sleep(0)
    file.write_text("")
    assert "model.api_key_file" in await asyncio.wait_for(change, 10)
    change = asyncio.ensure_future(anext(keys))
    await asyncio.sleep(0)
    file.write_text(NEW)
    assert await asyncio.wait_for(change, 10) == ""
    await keys.aclose()


async def test_a_bad_save_is_looked_at_again_when_its_mode_changes(folder: Path) -> None:
    """A file that could not be read may be readable then, although nobody wrote it again."""
    file = folder / "secrets" / "model.key"
    keys = new_keys(look_s=0.001)
    change = asyncio.ensure_future(anext(keys))
    await asyncio.sleep(0)
    file.write_bytes(b"")
    assert await asyncio.wait_for(change, 10)
    change = asyncio.ensure_future(anext(keys))
    await asyncio.sleep(0)
    file.chmod(0o640)
    assert await asyncio.wait_for(change, 10)
    await keys.aclose()


async def test_without_a_key_of_this_folder_nothing_is_watched(folder: Path) -> None:
    (folder / "shoal.toml").write_text('[model]\nname = "demo"\n')
    assert [one async for one in new_keys()] == []
