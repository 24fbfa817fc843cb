from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.helpers.need import need

ROOT = Path(__file__).parents[1]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A checkout that was never built, in a folder with a space in its name."""
    return checkout(tmp_path)


def checkout(parent: Path) -> Path:
    """What the Makefile needs of a checkout, with locks that name nothing."""
    need("make")
    place = parent / "a folder"
    (place / ".ci").mkdir(parents=True)
    for name in ("Makefile", ".ci/check_packages.py", ".ci/install.py"):
        shutil.copy(ROOT / name, place / name)
    for name in ("requirements.txt", "requirements-dev.txt"):
        (place / name).write_text("")
    return place


def make(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run make there, as a person would."""
    clean = {key: value for key, value in os.environ.items() if not key.startswith(("MAKE", "MFLAGS", "PYTHON"))}
    return subprocess.run(["make", *arguments], cwd=folder, env=clean, capture_output=True, text=True, check=False)


def python(folder: Path, body: str) -> Path:
    """Something that is called like Python and is not all of it."""
    path = folder / "python"
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(0o755)
    return path


def test_links_to_the_runbook_are_set_in_one_place(folder: Path) -> None:
    """In rules, manifests and dashboards at once, and again elsewhere; anchors stay."""
    linked = ["deploy/prometheus/rules/alerts.yaml", "k8s/components/monitoring/prometheus-rule.yaml"]
    linked += [str(path.relative_to(ROOT)) for path in (ROOT / "deploy/grafana/dashboards").iterdir()]
    for name in linked:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, folder / name)
    before = {name: (folder / name).read_text() for name in linked}
    assert make(folder, "runbook-links").returncode != 0, "without an address"
    for base in ("https://wiki.example.org/a", "https://other.example.org/shoal/RUNBOOK.md"):
        assert make(folder, "runbook-links", f"URL={base}").returncode == 0
        for name in linked:
            assert (folder / name).read_text() == before[name].replace("deploy/RUNBOOK.md#", f"{base}#"), name
    assert "https://other.example.org/shoal/RUNBOOK.md#shoalredisaway" in (folder / linked[0]).read_text()


@pytest.mark.parametrize("target", ["up", "test"])
def test_a_python_that_is_too_old_is_named_with_the_way_out(folder: Path, target: str) -> None:
    """Not a syntax error three minutes later."""
    result = make(folder, f"PYTHON={python(folder, 'exit 1')}", target)
    assert result.returncode != 0
    assert "Shoal needs Python 3.11 or newer; none of these is one:" in result.stdout
    assert f"make PYTHON=/path/to/python3.12 {target}" in result.stdout
    assert not (folder / ".venv").exists()


def test_a_python_without_venv_is_named_with_the_way_out(folder: Path) -> None:
    """Debian ships Python without it."""
    result = make(folder, f"PYTHON={python(folder, 'case $2 in *ensurepip*) exit 1;; esac; exit 0')}", "up")
    assert result.returncode != 0
    assert "its venv module is missing" in result.stdout
    assert "apt-get install python3-venv" in result.stdout
    assert not (folder / ".venv").exists()


class Built(NamedTuple):
    """A checkout that was built twice: in vain, because its packages failed their check, and then without it."""

    folder: Path
    refused: subprocess.CompletedProcess[str]
    environment_after: bool
    stamp_after: bool


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Built:
    """One environment for all tests that look at one: it takes seconds."""
    folder = checkout(tmp_path_factory.mktemp("built"))
    refused = make(folder, f"PYTHON={sys.executable}", "up")
    after = (folder / ".venv/bin/python").exists(), (folder / ".venv/.stamp-base").exists()
    (folder / ".ci/check_packages.py").write_text("")
    made = make(folder, f"PYTHON={sys.executable}", ".venv/.stamp-base")
    assert made.returncode == 0, made.stderr
    return Built(folder, refused, *after)


def test_nothing_runs_when_the_packages_fail_their_check(built: Built) -> None:
    """An environment without the locked litellm leaves no stamp, so the next try checks again."""
    assert built.refused.returncode != 0
    assert "supply chain: litellm is not installed" in built.refused.stderr
    assert built.environment_after
    assert not built.stamp_after


def test_what_is_built_is_not_built_again(built: Built) -> None:
    """The second `make up` starts at once; a changed lock is installed."""
    stamp = f"PYTHON={sys.executable}", ".venv/.stamp-base"
    assert "is up to date" in make(built.folder, *stamp).stdout
    later = (built.folder / ".venv/.stamp-base").stat().st_mtime + 10
    os.utime(built.folder / "requirements.txt", (later, later))
    assert "Installing" in make(built.folder, *stamp).stdout


def test_the_shoal_command_finds_its_checkout_from_anywhere(built: Built, tmp_path: Path) -> None:
    """No build step, and a moved or spaced folder is no trouble."""
    package = built.folder / "console"
    package.mkdir(parents=True)
    (package / "__main__.py").write_text("import sys; print('console', *sys.argv[1:])")
    result = subprocess.run(
        [built.folder / ".venv/bin/shoal", "status", "--json"], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert result.stdout == "console status --json\n"


@pytest.mark.parametrize("code", [0, 3])
def test_an_installation_says_how_far_it_is_and_why_it_failed(tmp_path: Path, code: int) -> None:
    """A minute of silence is when people press Ctrl-C."""
    lock = tmp_path / "requirements.txt"
    lock.write_text("".join(f"p{n}==1 \\\n    --hash=sha256:0\n" for n in range(45)))
    pip = tmp_path / "bin/pip"
    pip.parent.mkdir()
    pip.write_text(
        "#!/bin/sh\nfor n in $(seq 45); do echo Collecting p$n==1; done\necho Installing collected packages: p1\n"
        f'echo "ERROR: the disk is full" >&2\nexit {code}\n'
    )
    pip.chmod(0o755)
    command = [sys.executable, "-I", "-S", str(ROOT / ".ci/install.py"), str(lock), str(pip), "--quiet"]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert result.returncode == code
    stages = [line.strip() for line in result.stdout.splitlines()]
    assert stages[:3] == [
        "20 of 45 packages fetched and checked against their hashes",
        "40 of 45 packages fetched and checked against their hashes",
        "All are there; unpacking them",
    ]
    assert ("the disk is full" in result.stderr) == (code != 0)
