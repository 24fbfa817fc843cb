"""Commands of installed packages: found, checked at the start, answered like Shoal's own."""

from __future__ import annotations

from itertools import count
from pathlib import Path

import pytest

from gateway.commands.registry import OWN, build_commands, plugin_commands
from gateway.ingress.ingest import Ingress
from shared.errors import SettingsError
from shared.settings import PluginSettings, Settings
from shared.store.client.redis_client import RedisClient
from shared.store.delivery.outbox import Outbox
from tests.helpers.build import message

COMMAND = """
from gateway.commands.command import CommandAnswer

class Made:
    name = {name!r}
    about = {about}
    {answer}
"""
ANSWER = "async def answer(self, context): return CommandAnswer(f'{context.argument.upper()}!')"
_packages = count(1)


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> InstalledPackages:
    """A folder of packages that Python finds."""
    monkeypatch.syspath_prepend(str(tmp_path))
    return InstalledPackages(tmp_path)


class InstalledPackages:
    """Makes packages that bring one command each."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def add(self, entry: str, *, name: str | None = None, about: str = "'shout'", answer: str = ANSWER) -> str:
        """The package's name."""
        package = f"shoal_shout_{next(_packages)}"
        code = COMMAND.format(name=entry if name is None else name, about=about, answer=answer)
        (self._folder / f"{package}.py").write_text(code)
        info = self._folder / f"{package}-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n")
        (info / "entry_points.txt").write_text(f"[shoal.commands]\n{entry} = {package}:Made\n")
        return package


async def test_a_command_of_an_installed_package_is_answered(client: RedisClient, installed: InstalledPackages) -> None:
    """Nothing else is needed than that the package is there."""
    installed.add("shout")
    ingress = Ingress(client, build_commands(Settings(), client, plugin_commands(PluginSettings())))
    assert [row.name for row in ingress.commands] == [*OWN, "shout"]
    await ingress.ingest(message("/shout hello"))
    [line] = await Outbox(client).read_after("web:owner/a", after=0)
    assert getattr(line.line, "content", "") == "HELLO!"


def test_one_that_is_turned_off_is_not_there(installed: InstalledPackages) -> None:
    """`plugins.off`."""
    installed.add("shout")
    assert plugin_commands(PluginSettings(off=("shout",))) == []


@pytest.mark.parametrize("word", OWN)
def test_the_words_of_shoal_are_reserved(installed: InstalledPackages, word: str) -> None:
    """A package cannot put itself before `/forget`."""
    installed.add(word)
    with pytest.raises(SettingsError, match="built-in"):
        plugin_commands(PluginSettings())


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"entry": "Shout"}, "nobody can say"),
        ({"entry": "s" * 33}, "nobody can say"),
        ({"entry": "shout", "name": "whisper"}, "one name"),
        ({"entry": "shout", "about": "''"}, "no help of one line"),
        ({"entry": "shout", "about": "'two\\nlines'"}, "no help of one line"),
        ({"entry": "shout", "answer": "def answer(self, context): return None"}, "async def answer"),
        ({"entry": "shout", "answer": ""}, "has no 'answer'"),
        ({"entry": "shout", "answer": "def __init__(self): raise ValueError('broken')"}, "ValueError: broken"),
    ],
)
def test_a_command_that_cannot_work_ends_the_start_with_one_line(
    installed: InstalledPackages, options: dict[str, str], why: str
) -> None:
    """It names the command, the package and the setting that turns it off."""
    package = installed.add(**options)
    with pytest.raises(SettingsError, match=why) as refused:
        plugin_commands(PluginSettings())
    text = str(refused.value)
    assert package in text
    assert "plugins.off" in text
    assert "\n" not in text
