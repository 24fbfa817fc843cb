"""Chat platforms by name: ours, those of installed packages, and what is wrong with either in one line."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from gateway.platform import registry
from gateway.platform.access import AccessSettings
from gateway.platform.registry import BuiltPlatform, PlatformContext, is_on, make_platform, platform_names
from shared.errors import SettingsError
from shared.settings import PluginSettings, Settings
from tests.gateway.fake_platform import FakePlatform
from tests.helpers.plugins import Site
from tests.helpers.pond_package import EXAMPLE
from tests.helpers.processes import ROOT

MADE = """
from gateway.platform.access import AccessSettings
from gateway.platform.registry import BuiltPlatform
from tests.gateway.fake_platform import FakePlatform

def make(given):
    return BuiltPlatform(FakePlatform({name}), AccessSettings())
"""


class NoCursor:
    def read(self) -> bytes:
        return b""

    async def save(self, value: bytes) -> None:
        pass


def context_of(name: str = "frog", *, off: tuple[str, ...] = (), **table: Any) -> PlatformContext:
    settings = Settings(plugins=PluginSettings(off=off))
    return PlatformContext(name=name, table=table, settings=settings, cursor=NoCursor())


def refused(asked: PlatformContext) -> str:
    with pytest.raises(SettingsError) as problem:
        make_platform(asked)
    return str(problem.value)


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Site:
    return Site(tmp_path / "site", monkeypatch)


def test_a_package_brings_a_platform(site: Site) -> None:
    """Its entry point is called with the settings; nothing else names it."""
    before = platform_names()
    site.install("shoal-frog", MADE.format(name="given.name"), channels="frog=make")
    assert platform_names() == sorted([*before, "frog"])
    assert make_platform(context_of()).platform.name == "frog"


def test_a_package_is_imported_only_when_its_channel_is_wanted(site: Site) -> None:
    """One that breaks at import harms no other channel."""
    site.install("shoal-frog", "raise RuntimeError('at import')", channels="frog=make")
    site.install("shoal-toad", MADE.format(name="given.name"), channels="toad=make")
    assert make_platform(context_of("toad")).platform.name == "toad"
    assert "shoal_frog" not in sys.modules
    assert refused(context_of()).startswith(
        "the channel 'frog' of the package 'shoal-frog 1.0' cannot be made: RuntimeError"
    )


def test_a_package_that_is_turned_off_is_not_there(site: Site) -> None:
    """`plugins.off`."""
    site.install("shoal-frog", MADE.format(name="given.name"), channels="frog=make")
    assert "there is no chat platform of this name" in refused(context_of(off=("frog",)))


@pytest.mark.parametrize("name", ["web", "api", "cli", "system"])
def test_a_package_takes_no_name_of_ours(site: Site, name: str) -> None:
    """Nobody stands in for the web chat."""
    site.install("shoal-frog", MADE.format(name="given.name"), channels=f"{name}=make")
    assert "has the name of a built-in one" in refused(context_of())


def test_what_a_package_makes_is_looked_at(site: Site) -> None:
    """Not by the first message."""
    site.install("shoal-frog", MADE.format(name="'toad'"), channels="frog=make")
    assert refused(context_of()) == "the channel 'frog' calls itself 'toad'; both names must be the same"


def test_a_run_mode_that_the_platform_cannot_do_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """With those that it can."""
    monkeypatch.setitem(registry.PLATFORMS, "fake", f"{__name__}:make_exclusive")
    assert refused(context_of("fake")) == "channels.fake.run is 'exclusive', which it cannot do; it can: webhook"


def make_exclusive(_: PlatformContext) -> BuiltPlatform:
    return BuiltPlatform(FakePlatform(run_modes=("webhook",)), AccessSettings())


def test_a_library_that_is_not_installed_is_named_with_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    """The libraries of channels are no part of the first steps."""
    monkeypatch.setitem(registry.PLATFORMS, "fake", "no_such_library.channel:make")
    output = refused(context_of("fake"))
    assert output.startswith("channels.fake needs the library 'no_such_library', which is missing: run `make channels`")


@pytest.mark.parametrize("name", sorted(registry.PLATFORMS))
def test_every_platform_of_ours_is_there(name: str) -> None:
    """What PLATFORMS names can be imported, and wants its settings."""
    output = refused(context_of(name))
    assert all(line.startswith(f"channels.{name}.") for line in output.splitlines())


@pytest.mark.parametrize(
    ("table", "on"), [({}, True), ({"on": True}, True), ({"on": False}, False), ({"on": "False "}, False)]
)
def test_a_channel_with_a_section_is_on_unless_it_says_no(table: dict[str, Any], on: bool) -> None:
    """In the file, or by a variable."""
    assert is_on(table) is on


def test_the_example_of_the_docs_can_be_installed(tmp_path: Path) -> None:
    """With pip, as its readers will; then a gateway knows the channel by its entry point."""
    site = tmp_path / "site"
    source = tmp_path / "shoal-pond"
    subprocess.run(["cp", "-r", str(EXAMPLE), str(source)], check=True)  # nothing is built in the checkout
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index", "--no-build-isolation"]
    subprocess.run([*pip, "--disable-pip-version-check", "--target", str(site), str(source)], check=True)
    output = subprocess.run(
        [sys.executable, "-m", "gateway", "--check", "pond"],
        cwd=tmp_path,
        env={
            **{name: value for name, value in os.environ.items() if not name.startswith("SHOAL_")},
            "PYTHONPATH": os.pathsep.join([str(site), str(ROOT)]),
            "SHOAL_CHANNELS__POND__API": "http://127.0.0.1:1",
            "SHOAL_CHANNELS__POND__TOKEN": "x",
        },
        capture_output=True,
        text=True,
        check=False,
    )
    assert (output.returncode, output.stdout) == (0, "ok\n"), output.stderr
