from __future__ import annotations

import base64
import hashlib
import re
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
LOCKS = ("requirements.txt", "requirements-dev.txt")
CHECK = ROOT / ".ci/check_packages.py"
COMPROMISED = ("1.82.7", "1.82.8", "1.107.0", "1.107.3")


def entries(lock: str) -> dict[str, tuple[str, list[str]]]:
    """Each requirement of a lock: name -> (its line, its hashes)."""
    found: dict[str, tuple[str, list[str]]] = {}
    name = ""
    for line in (ROOT / lock).read_text().splitlines():
        text = line.removesuffix("\\").strip()
        if line.startswith(" "):
            found[name][1].append(text)
        else:
            name = re.split(r"[=\[ ]", text)[0]
            assert name not in found, f"{lock} has {name!r} twice"
            found[name] = (text, [])
    return found


def version(line: str) -> str:
    """The version in a lock's line."""
    return line.partition("==")[2].split()[0]


@pytest.mark.parametrize("lock", LOCKS)
def test_every_package_is_pinned_with_hashes(lock: str) -> None:
    """Nothing is installed that we did not see when the lock was made."""
    packages = entries(lock)
    assert len(packages) > 50
    for name, (line, hashes) in packages.items():
        assert re.fullmatch(r"[a-z0-9][a-z0-9._-]*(\[[a-z,]+\])?==[^\s;]+( ; .+)?", line), line
        assert hashes, f"{name} has no hash"
        assert all(re.fullmatch(r"--hash=sha256:[0-9a-f]{64}", one) for one in hashes)


@pytest.mark.parametrize("lock", LOCKS)
def test_a_lock_names_no_host(lock: str) -> None:
    """Where packages come from is the machine's to say, in pip's own configuration."""
    text = (ROOT / lock).read_text()
    assert "://" not in text
    assert not re.search(r"^\s*(-i|--index-url|--extra-index-url|--find-links|-f|--trusted-host)\b", text, re.MULTILINE)
    assert not re.search(r"@ (git|https?|file)", text)


def test_what_is_tested_is_what_runs() -> None:
    """The test lock has every package of the other one, in the same version with the same hashes."""
    base, dev = entries("requirements.txt"), entries("requirements-dev.txt")
    assert base.keys() <= dev.keys()
    assert {name: (version(base[name][0]), base[name][1]) for name in base} == {
        name: (version(dev[name][0]), dev[name][1]) for name in base
    }


@pytest.mark.parametrize("lock", LOCKS)
def test_litellm_is_one_exact_version_that_nobody_has_tampered_with(lock: str) -> None:
    """Three releases were reported as compromised."""
    pinned = version(entries(lock)["litellm"][0])
    assert pinned not in COMPROMISED
    assert not pinned.startswith("1.107.")
    assert f'"litellm=={pinned}"' in (ROOT / "pyproject.toml").read_text()


def wheel(folder: Path, *, payload: str = "x = 1\n") -> Path:
    """A wheel of our own, so that nothing needs a network."""
    path = folder / "tinyfish-1.0-py3-none-any.whl"
    files = {
        "tinyfish.py": payload,
        "tinyfish-1.0.dist-info/METADATA": "Metadata-Version: 2.1\nName: tinyfish\nVersion: 1.0\n",
        "tinyfish-1.0.dist-info/WHEEL": "Wheel-Version: 1.0\nGenerator: t\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    record = "".join(
        f"{name},sha256={base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).decode().rstrip('=')},"
        f"{len(text.encode())}\n"
        for name, text in files.items()
    )
    with zipfile.ZipFile(path, "w") as archive:
        for name, text in files.items():
            archive.writestr(name, text)
        archive.writestr("tinyfish-1.0.dist-info/RECORD", f"{record}tinyfish-1.0.dist-info/RECORD,,\n")
    return path


def install_options() -> list[str]:
    """The options of the Makefile's own install command."""
    text = (ROOT / "Makefile").read_text().replace("\\\n", " ")
    found = re.search(r"^INSTALL := \$\(PY\) -m pip install (.+)$", text, re.MULTILINE)
    assert found is not None
    return found[1].split()


def pip_install(folder: Path, lock: str) -> subprocess.CompletedProcess[str]:
    """What the Makefile does, with wheels from `folder` instead of an index."""
    (folder / "lock.txt").write_text(lock)
    command = [sys.executable, "-I", "-m", "pip", "install", *install_options(), "-r", str(folder / "lock.txt")]
    command += ["--no-index", "--find-links", str(folder), "--target", str(folder / "into"), "--no-cache-dir"]
    return subprocess.run(command, capture_output=True, text=True, check=False, cwd=folder)


def test_a_changed_package_stops_the_install(tmp_path: Path) -> None:
    """One byte of difference to what the lock knows, and nothing is installed."""
    lock = f"tinyfish==1.0 --hash=sha256:{hashlib.sha256(wheel(tmp_path).read_bytes()).hexdigest()}\n"
    assert pip_install(tmp_path, lock).returncode == 0
    assert (tmp_path / "into/tinyfish.py").exists()
    shutil.rmtree(tmp_path / "into")
    wheel(tmp_path, payload="x = 2\n")
    refused = pip_install(tmp_path, lock)
    assert refused.returncode != 0
    assert "THESE PACKAGES DO NOT MATCH THE HASHES" in refused.stderr
    assert not (tmp_path / "into").exists()


def test_a_package_without_a_hash_stops_the_install(tmp_path: Path) -> None:
    """A line added by hand is not enough."""
    wheel(tmp_path)
    refused = pip_install(tmp_path, "tinyfish==1.0\n")
    assert refused.returncode != 0
    assert "Hashes are required in --require-hashes mode" in refused.stderr


def test_nothing_is_built_on_the_way(tmp_path: Path) -> None:
    """A source package runs code while it is installed; only wheels are taken."""
    assert "--only-binary=:all:" in install_options()
    assert "--require-hashes" in install_options()


@pytest.fixture
def venv(tmp_path: Path) -> Path:
    """What a virtual environment looks like to the check: litellm as pinned, and the .pth that venv brings along."""
    packages = tmp_path / "venv/lib/python3.11/site-packages"
    packages.mkdir(parents=True)
    pinned = version(entries("requirements.txt")["litellm"][0])
    install_litellm(tmp_path / "venv", pinned)
    (packages / "distutils-precedence.pth").write_text(
        "import os; var = 'SETUPTOOLS_USE_DISTUTILS'; enabled = os.environ.get(var, 'local') == 'local'; "
        "enabled and __import__('_distutils_hack').add_shim(); "
    )
    return tmp_path / "venv"


def install_litellm(venv: Path, version: str) -> None:
    """Leave nothing but the metadata of this version."""
    packages = venv / "lib/python3.11/site-packages"
    for old in packages.glob("litellm-*"):
        shutil.rmtree(old)
    info = packages / f"litellm-{version}.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: litellm\nVersion: {version}\n")


def check(venv: Path, *locks: Path) -> tuple[int, str]:
    """Run the check as the Makefile does."""
    names = [str(lock) for lock in locks or [ROOT / lock for lock in LOCKS]]
    result = subprocess.run(
        [sys.executable, "-I", "-S", str(CHECK), str(venv), *names], capture_output=True, text=True, check=False
    )
    return result.returncode, result.stderr


def test_a_clean_environment_passes(venv: Path) -> None:
    """So does the one that runs this test."""
    assert check(venv) == (0, "")


def test_the_environment_of_this_run_passes() -> None:
    """Looked at again here, because packages may have come after the install."""
    assert check(Path(sysconfig.get_path("data"))) == (0, "")


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("litellm_init.pth", "import os; os.system('true')\n"),
        ("harmless.pth", "/some/folder\n"),
        ("distutils-precedence.pth", "import os; os.system('true')\n"),
        ("sitecustomize.py", ""),
        ("usercustomize.py", ""),
    ],
)
def test_an_unknown_file_that_runs_at_every_start_fails_the_build(venv: Path, name: str, content: str) -> None:
    """This is how the compromised releases got hold of machines."""
    (venv / "lib/python3.11/site-packages" / name).write_text(content)
    code, message = check(venv)
    assert code == 1
    assert name in message


@pytest.mark.parametrize("bad", COMPROMISED)
def test_a_compromised_litellm_fails_the_build_whatever_the_lock_says(venv: Path, tmp_path: Path, bad: str) -> None:
    """Also when somebody pins it."""
    install_litellm(venv, bad)
    lock = tmp_path / "lock.txt"
    lock.write_text(f"litellm=={bad} \\\n    --hash=sha256:{'0' * 64}\n")
    code, message = check(venv, lock)
    assert code == 1
    assert f"litellm {bad} was reported as compromised" in message


def test_a_litellm_that_the_lock_does_not_name_fails_the_build(venv: Path) -> None:
    """Installed by hand, or left from another branch."""
    install_litellm(venv, "1.0.0")
    code, message = check(venv)
    assert code == 1
    assert "litellm 1.0.0 is installed, but" in message


def test_a_missing_litellm_or_environment_fails_the_build(venv: Path, tmp_path: Path) -> None:
    """A check that finds nothing to check is no check."""
    shutil.rmtree(next((venv / "lib/python3.11/site-packages").glob("litellm-*")))
    assert "litellm is not installed" in check(venv)[1]
    assert check(tmp_path / "nowhere")[0] == 1


def test_both_commands_run_the_check() -> None:
    """Before the stamp that lets `make up` and `make test` go on."""
    rules = re.findall(
        r"^\$\(VENV\)/\.stamp-(?:base|dev):.*\n((?:\t.*\n)+)", (ROOT / "Makefile").read_text(), re.MULTILINE
    )
    assert len(rules) == 2
    for rule in rules:
        install, checked, stamped = (rule.index(part) for part in ("$(call install,", "check_packages.py", "touch"))
        assert install < checked < stamped
