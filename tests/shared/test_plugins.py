"""Plugins are found by the entry points of installed packages, and made or refused before anything runs."""

from __future__ import annotations

import re
import sys
import tomllib
from configparser import ConfigParser
from pathlib import Path

import pytest

from shared.errors import SettingsError
from shared.plugins import KINDS, load_plugins
from tests.helpers.plugins import EXAMPLE, Site
from tests.helpers.processes import ROOT

MADE = "def make():\n    return __name__\n"


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Site:
    return Site(tmp_path / "site", monkeypatch)


def refused(reserved_names: tuple[str, ...] = ()) -> str:
    with pytest.raises(SettingsError) as problem:
        load_plugins("shoal.tools", reserved=reserved_names)
    text = str(problem.value)
    assert "\n" not in text
    return text


def test_without_packages_there_is_nothing() -> None:
    """Shoal's own tools are no plugins."""
    assert [load_plugins(group) for group in KINDS] == [[]] * len(KINDS)


def test_what_packages_bring_is_made_in_the_order_of_names(site: Site) -> None:
    """Whatever the order of the packages: every worker has the same, told with where it is from."""
    site.install("letters-one", MADE, tools="zeta=make beta=make", hooks="other=make")
    site.install("letters-two", MADE, version="2.5", tools="alpha=make")
    loaded = load_plugins("shoal.tools")
    assert [(one.name, one.package, one.version, one.made) for one in loaded] == [
        ("alpha", "letters-two", "2.5", "letters_two"),
        ("beta", "letters-one", "1.0", "letters_one"),
        ("zeta", "letters-one", "1.0", "letters_one"),
    ]


def test_what_is_switched_off_is_not_even_imported(site: Site) -> None:
    """A package that breaks at import can be lived with."""
    site.install("letters-broken", "raise RuntimeError('at import')", tools="broken=make")
    site.install("letters-fine", MADE, tools="fine=make")
    assert [one.name for one in load_plugins("shoal.tools", off=("broken",))] == ["fine"]
    assert "letters_broken" not in sys.modules


@pytest.mark.parametrize(
    ("source", "entry", "logged"),
    [
        ("raise RuntimeError('at\\nimport')", "make", "RuntimeError: at import"),
        ("import no_such_library", "make", "ModuleNotFoundError: No module named 'no_such_library'"),
        (MADE, "gone", "AttributeError"),
        ("def make(needed):\n    return needed", "make", "TypeError"),
        ("make = 5", "make", "TypeError: 'int' object is not callable"),
        ("def make():\n    raise ValueError('x' * 5000)", "make", "ValueError: xxx"),
    ],
)
def test_a_plugin_that_cannot_be_made_stops_the_start(site: Site, source: str, entry: str, logged: str) -> None:
    """One line: the entry point, its package, what is wrong, and how to live without it."""
    site.install("letters-broken", source, version="3.1", tools=f"broken={entry}")
    text = refused()
    assert text.startswith("the tool 'broken' of the package 'letters-broken 3.1' cannot be made: ")
    assert logged in text
    assert text.endswith("mend or remove the package, or add 'broken' to plugins.off")
    assert len(text) < 500


def test_two_plugins_with_one_name_are_refused(site: Site) -> None:
    """Which of them it would be could differ from worker to worker."""
    site.install("letters-one", MADE, tools="same=make")
    site.install("letters-two", MADE, tools="same=make")
    assert re.search(r"'same' of the package 'letters-(one|two) 1.0' has the name of one of the package", refused())


def test_a_built_in_name_is_refused(site: Site) -> None:
    """Nothing stands in for what Shoal brings."""
    site.install("letters-one", MADE, tools="read_file=make")
    assert "'read_file' of the package 'letters-one 1.0' has the name of a built-in one" in refused(("read_file",))


def test_the_example_of_the_docs_is_the_example_of_the_tests() -> None:
    """docs/plugins.md shows the very files that are tested, and they say the same in both forms of metadata."""
    text = (ROOT / "docs" / "plugins.md").read_text()
    shown = dict(re.findall(r"^`([\w/]+\.\w+)`\n\n```\w+\n(.*?)```$", text, re.DOTALL | re.MULTILINE))
    files = {
        path.relative_to(EXAMPLE).as_posix(): path.read_text()
        for path in EXAMPLE.rglob("*")
        if path.suffix in (".py", ".toml") and path.read_text()
    }
    assert shown == files
    project = tomllib.loads(files["pyproject.toml"])["project"]
    installed = ConfigParser()
    installed.read(EXAMPLE / "shoal_letters-1.0.dist-info" / "entry_points.txt")
    written = {
        group: {name: value.replace(" ", "") for name, value in installed[group].items()}
        for group in installed.sections()
    }
    assert written == project["entry-points"]
    assert set(written) == set(KINDS) - {"shoal.channels"}  # the example of that one is docs/examples/shoal-pond


def test_every_group_is_documented() -> None:
    """A package's author finds each of them on one page."""
    text = (ROOT / "docs" / "plugins.md").read_text()
    assert [group for group in KINDS if f"| `{group}` |" not in text] == []
