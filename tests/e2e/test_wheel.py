"""The wheel, as `uv tool install`, `pipx install` and `pip install` put it on a machine: no checkout is near."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import sysconfig
import urllib.request
import venv
import zipfile
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tests.gateway.harness import free_port
from tests.helpers.wait import eventually_sync

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built with the backend that `pyproject.toml` names, as pip and uv would."""
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    [built] = folder.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def shoal(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The command of a fresh environment with the wheel. Its libraries are those of this run: an index is not asked."""
    folder = tmp_path_factory.mktemp("tool")
    venv.create(folder, with_pip=False)
    pip = [sys.executable, "-m", "pip", "--python", str(folder / "bin/python"), "--disable-pip-version-check"]
    install = ["install", "--quiet", "--no-deps", "--no-index", str(wheel)]
    subprocess.run([*pip, *install], check=True, capture_output=True)
    [packages] = folder.glob("lib/python*/site-packages")
    (packages / "libraries.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return folder / "bin/shoal"


class Installed:
    """`shoal` in an empty folder of somebody who has nothing else of ours."""

    def __init__(self, shoal: Path, folder: Path) -> None:
        self._shoal = str(shoal)
        self.folder = folder / "empty"
        self.folder.mkdir()
        kept = {"PATH": os.environ["PATH"], "LANG": "C.UTF-8"}
        self.env = {**kept, "HOME": str(folder), "SHOAL_WEB__PORT": str(free_port()), "SHOAL_METRICS__PORT": "0"}
        browser = folder / "browser"
        browser.write_text(f'#!/bin/sh\necho "$1" >{folder}/opened\n')
        browser.chmod(0o755)
        self.env["BROWSER"] = str(browser)
        self.log = folder / "up.log"
        with self.log.open("wb") as out:
            self.up = subprocess.Popen(
                [self._shoal, "up"], cwd=self.folder, env=self.env, stdout=out, stderr=out, start_new_session=True
            )

    def run(self, *arguments: str) -> str:
        """What another command prints in the same folder."""
        command = [self._shoal, *arguments]
        result = subprocess.run(command, cwd=self.folder, env=self.env, capture_output=True, text=True, check=False)
        assert result.returncode == 0, result.stderr
        return result.stdout.strip()

    def end(self) -> list[psutil.Process]:
        """Ctrl-C; the processes that were there before."""
        processes: list[psutil.Process] = psutil.Process(self.up.pid).children(recursive=True)
        self.up.send_signal(signal.SIGINT)
        assert self.up.wait(30) == 0
        return processes


@pytest.fixture
def installed(shoal: Path, tmp_path: Path) -> Iterator[Installed]:
    """Running, and gone afterwards, whatever the test did."""
    one = Installed(shoal, tmp_path)
    yield one
    if one.up.poll() is None:
        os.killpg(one.up.pid, signal.SIGINT)
        one.up.wait(30)


def test_the_wheel_has_every_file_of_the_packages_and_the_procfile(wheel: Path) -> None:
    """Scripts of Redis, the page, skills: a file that is left out is missed when it is too late."""
    packages = ("console", "gateway", "shared", "shoal", "worker")
    wanted = {
        str(path.relative_to(ROOT))
        for package in packages
        for path in (ROOT / package).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert zipfile.ZipFile(wheel).namelist()
    assert wanted | {"console/up/Procfile"} <= set(zipfile.ZipFile(wheel).namelist())


def test_it_answers_from_an_empty_folder(installed: Installed) -> None:
    """The page, one answer of the demo model, the address again, and a clean end."""
    (installed.folder / "gateway.py").write_text("raise SystemExit('the folder of somebody else')\n")
    found = eventually_sync(
        lambda: re.search(r"^Shoal is ready: (http://\S+/)#token=(\S+)$", installed.log.read_text(), re.MULTILINE),
        within_s=60,
        what="the address",
    )
    assert found is not None
    for path in ("", "static/app.js"):
        with urllib.request.urlopen(found[1] + path) as response:
            assert (response.status, len(response.read()) > 500) == (200, True)
    assert "391" in installed.run("chat", "-m", "Calculate 17 * 23")
    assert installed.run("open", "--no-browser") == f"{found[1]}#token={found[2]}"
    assert installed.run("token") == found[2]
    installed.run("open")
    opened = eventually_sync((installed.log.parent / "opened").read_text).strip()
    assert opened == (installed.folder / ".shoal/open.html").as_uri(), "a token on a command line can be read by others"
    assert f"url={found[1]}#token={found[2]}" in (installed.folder / ".shoal/open.html").read_text()
    assert installed.run("doctor", "--probe").count("failed") == 0
    left = installed.end()
    eventually_sync(lambda: not any(process.is_running() for process in left))
    assert {path.name for path in installed.folder.iterdir()} == {".shoal", "gateway.py"}
