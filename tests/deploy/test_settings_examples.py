"""Every example of settings, wherever it stands, is loaded: README, docs, the file with all of them, our manifests."""

from __future__ import annotations

import importlib
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from gateway.choice import problems_of
from gateway.platform.access import AccessSettings
from gateway.platform.registry import PLATFORMS
from shared.settings import load
from tests.deploy.test_docs import ROOT

PAGES: Final = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
FILES: Final = [ROOT / "deploy" / "shoal.example.toml", *sorted((ROOT / "k8s").rglob("shoal.toml"))]

SECRETS: Final = {
    "TELEGRAM_TOKEN": "123456789:AAbbCCddEEffGGhhIIjjKKllMMnnOOppQQr",
    "DISCORD_TOKEN": "MTIzNDU2Nzg5MDEyMzQ1Njc4.GabcDE.abcdefghijklmnopqrstuvwxyz0123456789",
    "SLACK_BOT_TOKEN": "xoxb-0123456789-0123456789",
    "SLACK_APP_TOKEN": "xapp-1-0123456789",
    "WHATSAPP_APP_SECRET": "0123456789abcdef0123456789abcdef",
    "ERP_SECRET": "whsec_MDEyMzQ1Njc4OWFiY2RlZmdoaWprbG1ub3BxcnN0dXY=",
    "ALERTS_SECRET": "whsec_MDEyMzQ1Njc4OWFiY2RlZmdoaWprbG1ub3BxcnN0dXY=",
}
"""Those that are known by their form."""

ANY_SECRET: Final = "0123456789abcdefghijklmnopqrstuv"


def examples() -> Iterator[tuple[str, str]]:
    """Where it stands, and the example; of a whole file also what is marked as a comment, block by block."""
    for page in PAGES:
        for number, block in enumerate(re.findall(r"```toml\n(.*?)```", page.read_text(), re.DOTALL), 1):
            if "[project" not in block:  # of a package
                yield f"{page.relative_to(ROOT)}, {number}", block
    for file in FILES:
        text = file.read_text()
        yield f"{file.relative_to(ROOT)}", text
        for block in re.findall(r"^# \[[\w.]+\].*\n(?:# .*\n)*", text, re.MULTILINE):
            name = re.search(r"\[([\w.]+)\]", block)
            assert name is not None
            yield f"{file.relative_to(ROOT)}, {name[1]}", re.sub(r"^# ", "", block, flags=re.MULTILINE)


ALL: Final = dict(examples())


@pytest.mark.parametrize("where", ALL)
async def test_an_example_is_loaded_as_an_operator_would_copy_it(where: str, tmp_path: Path) -> None:
    """Whole, with secrets in the place of their names; each chat platform in it by its own settings. A manifest, and a
    page that is about something else, may leave the secrets out."""
    text = ALL[where]
    (tmp_path / "secret").write_text(ANY_SECRET)
    (tmp_path / "telegram").write_text(SECRETS["TELEGRAM_TOKEN"])
    for named in re.findall(r'_file = "([^"]*)"', text):
        file = tmp_path / ("telegram" if named == "secrets/telegram" else "secret")
        text = text.replace(f'_file = "{named}"', f'_file = "{file}"')
    (tmp_path / "shoal.toml").write_text(text)
    environ = {name: SECRETS.get(name, ANY_SECRET) for name in re.findall(r"\$\{(\w+)\}", text)}
    settings = load(environ, path=tmp_path / "shoal.toml")
    for name in settings.channels:
        if name in PLATFORMS:
            problems = await problems_of([name], settings)
            if not where.startswith((f"docs/channels/{name}.md", "deploy/")):
                problems = [line for line in problems if " is missing; " not in line]
            assert problems == []


def test_every_platform_has_an_example_in_the_file_and_on_its_page() -> None:
    """What can be set up says how."""
    found = {where: tomllib.loads(text).get("channels", {}).keys() for where, text in ALL.items()}
    for name in PLATFORMS:
        assert [where for where in found if where.startswith(f"docs/channels/{name}.md") and name in found[where]]
        assert [where for where in found if where.startswith("deploy/shoal.example.toml") and name in found[where]]


@pytest.mark.parametrize("name", PLATFORMS)
def test_every_setting_of_a_platform_is_on_its_page(name: str) -> None:
    """One that is not there is one that nobody finds."""
    kind = next(one for one in every(AccessSettings) if one.__module__ == f"gateway.channels.{name}.settings")
    page = (ROOT / "docs" / "channels" / f"{name}.md").read_text()
    result = {word for line in page.splitlines() if line.startswith("| `") for word in re.findall(r"`(\w+)`", line)}
    assert set(kind.__struct_fields__) - set(AccessSettings.__struct_fields__) <= result


def every(kind: type[AccessSettings]) -> Iterator[type[AccessSettings]]:
    """The kinds of settings that the platforms' modules have made of it."""
    for name in PLATFORMS:
        importlib.import_module(f"gateway.channels.{name}.settings")
    yield from kind.__subclasses__()
