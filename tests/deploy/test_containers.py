"""The image, the compose file and the units. No container runtime is there to run them: what can be checked is."""

from __future__ import annotations

import configparser
import fnmatch
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml  # type: ignore[import-untyped]

from shared.settings import Settings, load
from shared.version import VERSION
from tests.helpers.manifests import tool
from tests.helpers.need import need
from tests.helpers.redis_server import ROLES

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
DOCKERFILE = (DEPLOY / "Dockerfile").read_text()
UNITS = tuple(sorted(path.name for path in (DEPLOY / "systemd").glob("*.service")))
OURS = ("gateway", "worker", "runner", "console")
GUARDIAN_S = 5


def compose() -> dict[str, Any]:
    """The compose file as it is read, with what it merges."""
    found: dict[str, Any] = yaml.safe_load((DEPLOY / "compose.yaml").read_text())
    return found


def test_hadolint_has_nothing_against_the_dockerfile() -> None:
    """With no rule switched off."""
    result = subprocess.run([tool("hadolint"), DEPLOY / "Dockerfile"], capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stdout
    assert "hadolint ignore" not in DOCKERFILE


def test_the_image_is_small_exact_and_nobodys_root() -> None:
    """Two stages of one base by exact tag, no digest that nobody has seen, exec form, a user by number."""
    bases = re.findall(r"^FROM (\S+)", DOCKERFILE, re.MULTILINE)
    assert len(bases) == 2
    assert len(set(bases)) == 1
    assert re.fullmatch(r"python:\d+\.\d+\.\d+-slim-[a-z]+", bases[0])
    assert re.findall(r"^USER (.+)$", DOCKERFILE, re.MULTILINE) == ["10001:10001"]
    for line in re.findall(r"^(?:CMD|ENTRYPOINT) (.+)$", DOCKERFILE, re.MULTILINE):
        assert line.startswith('["')
    assert "ADD " not in DOCKERFILE
    assert "apt-get" not in DOCKERFILE


def test_the_image_installs_as_the_makefile_does() -> None:
    """By hash, wheels only, and looked at before anything of it runs; each variant from a lock of ours."""
    run = DOCKERFILE.replace("\\\n", " ")
    assert re.search(r'pip install [^&]*--require-hashes --only-binary=:all: -r "\$lock"', run)
    assert re.findall(r"lock=(\S+)", run) == ["requirements-channels.txt", "requirements.txt"]
    assert "--index-url" not in run
    check = run.index('&& python -I -S check_packages.py /opt/shoal requirements.txt "$lock"')
    assert run.index("pip install") < check < min(map(run.index, ("slim.py /opt", "sbom.py /opt", "compileall")))


def test_two_builds_of_one_commit_can_be_the_same_bytes() -> None:
    """No time gets into a file: bytecode is by hash of its source, no cache stays, no list of users keeps a date."""
    assert DOCKERFILE.count("compileall -q --invalidation-mode unchecked-hash") == DOCKERFILE.count("compileall") == 2
    assert "--no-compile" in DOCKERFILE
    assert DOCKERFILE.count("useradd") == DOCKERFILE.count("useradd --no-log-init")
    assert "ARG SOURCE_DATE_EPOCH" in DOCKERFILE
    for name in ("passwd-", "group-", "shadow-", "gshadow-"):
        assert f"/etc/{name}" in DOCKERFILE


def test_the_image_says_what_it_is_and_is_for_no_one_platform() -> None:
    """Labels from arguments, the version by default this release's; arm64 is built from the same file."""
    for name in ("title", "licenses", "version", "revision", "source"):
        assert f"org.opencontainers.image.{name}=" in DOCKERFILE
    assert set(re.findall(r"^ARG VERSION=(.+)$", DOCKERFILE, re.MULTILINE)) == {VERSION}
    assert not re.search(r"amd64|x86_64|--platform", DOCKERFILE)


def test_the_larger_lock_has_all_of_the_smaller_one() -> None:
    """At the same versions: what the image installs is what runs without it, and more."""
    names = ("requirements.txt", "requirements-channels.txt")
    few, many = (set(re.findall(r"^[\w.\[\]-]+==\S+", (ROOT / name).read_text(), re.MULTILINE)) for name in names)
    assert few < many


def test_what_is_copied_is_there_and_nothing_else_is_sent() -> None:
    """The list of what a build may see names what the Dockerfile copies, and no folder with secrets or history."""
    lines = [line for line in (ROOT / ".dockerignore").read_text().splitlines() if line and not line.startswith("#")]
    assert lines[0] == "*"
    sent = {line.removeprefix("!").rstrip("/") for line in lines if line.startswith("!")}
    copied = set()
    for words in re.findall(r"^COPY (?!--from)(.+)$", DOCKERFILE, re.MULTILINE):
        copied |= {word.rstrip("/") for word in words.split()[:-1]}
    assert copied == sent
    assert all((ROOT / path).exists() for path in copied)
    assert {"console", "gateway", "shared", "shoal", "worker"} <= copied
    assert any(fnmatch.fnmatch("shared/__pycache__", line) for line in lines)


def test_the_copied_folders_are_a_whole_shoal(tmp_path: Path) -> None:
    """Each process and the console begin from what is in the image, without the rest of the checkout."""
    for name in ("console", "gateway", "shared", "shoal", "worker"):
        shutil.copytree(ROOT / name, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__"))
    python = ROOT / ".venv" / "bin" / "python"
    environment = {"PYTHONPATH": str(tmp_path), "PYTHONDONTWRITEBYTECODE": "1", "SHOAL_REDIS__URL": "nonsense"}
    for words in (("gateway", "web"), ("worker",), ("console", "--help")):
        result = subprocess.run(
            [python, "-P", "-m", *words], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
        )
        if words[0] == "console":
            assert result.returncode == 0
            assert "Usage: " in result.stdout
        else:
            assert (result.returncode, result.stderr.count("\n")) == (2, 1), result.stderr
            assert result.stderr.startswith("redis.url")


@pytest.mark.parametrize("name", OURS)
def test_a_service_of_ours_is_confined_and_reads_settings_that_exist(name: str) -> None:
    """As in the cluster: read-only, no capability, no new privileges; each variable is a setting; secrets are files."""
    service = compose()["services"][name]
    assert service["image"] == f"${{SHOAL_IMAGE:-shoal:{VERSION}}}"
    assert service["read_only"] is True
    assert service["cap_drop"] == ["ALL"]
    assert service["security_opt"] == ["no-new-privileges:true"]
    variables = {key: filled(str(value)) for key, value in service["environment"].items()}
    files = {key: value for key, value in variables.items() if key.endswith("_FILE")}
    mounted = {f"/run/secrets/{secret}" for secret in service.get("secrets", ())}
    assert {value for value in files.values() if value} <= mounted
    rest = {key: value for key, value in variables.items() if key not in files}
    if "SHOAL_REDIS__USER" in rest:
        rest["SHOAL_REDIS__PASSWORD"] = "x"
        assert rest["SHOAL_REDIS__USER"] == name
    load(rest, path=Path("/dev/null"))
    for key in files:
        section, _, setting = key.removeprefix("SHOAL_").removesuffix("_FILE").lower().partition("__")
        assert setting in type(getattr(Settings(), section)).__struct_fields__


def filled(text: str) -> str:
    """With what stands there when nothing is set."""
    return re.sub(r"\$\{\w+(?::-([^}]*))?\}", lambda found: found[1] or "", text)


def test_the_compose_file_names_only_what_is_there() -> None:
    """Volumes, secrets, files, and other services; images by exact tag."""
    whole = compose()
    for name, service in whole["services"].items():
        tag = filled(service["image"]).rpartition(":")[2]
        assert re.fullmatch(r"v?\d+\.\d+\.\d+", tag), name
        for mount in service.get("volumes", ()):
            source = mount.partition(":")[0]
            if source == "./agent":
                continue  # made by whoever installs
            assert (DEPLOY / source).exists() if source.startswith(".") else source in whole["volumes"], mount
        for secret in service.get("secrets", ()):
            assert (secret["source"] if isinstance(secret, dict) else secret) in whole["secrets"]
        assert set(service.get("depends_on", ())) <= whole["services"].keys()
        for port in service.get("ports", ()):
            assert filled(port).startswith("127.0.0.1:"), "open to the machine alone, until somebody decides"
        assert isinstance(service.get("command", []), list)
    assert whole["services"]["runner"]["network_mode"] == "none"
    assert "secrets" not in whole["services"]["runner"]
    used = set(re.findall(r"\$\{(\w+)", (DEPLOY / "compose.yaml").read_text()))
    offered = set(re.findall(r"^#?(\w+)=", (DEPLOY / "env.example").read_text(), re.MULTILINE))
    assert used == offered


def test_stopping_takes_as_long_as_a_drain() -> None:
    """Compose and systemd wait for the drain and the guardian's patience before they kill."""
    needed_s = Settings().worker.drain_s + GUARDIAN_S
    assert int(compose()["services"]["worker"]["stop_grace_period"].removesuffix("s")) > needed_s
    assert int(unit("shoal-worker.service")["Service"]["TimeoutStopSec"]) > needed_s
    for name in UNITS:
        assert unit(name)["Service"]["KillMode"] == "mixed"


class _Unit(configparser.RawConfigParser):
    def optionxform(self, optionstr: str) -> str:
        return optionstr


def unit(name: str) -> configparser.RawConfigParser:
    """A unit; of what stands there twice, the last."""
    found = _Unit(strict=False, comment_prefixes=("#",))
    found.read(DEPLOY / "systemd" / name)
    return found


@pytest.mark.parametrize("name", UNITS)
def test_a_unit_reads_settings_that_exist_and_holds_no_secret(name: str) -> None:
    """Its variables are settings; what is secret comes as a credential."""
    text = (DEPLOY / "systemd" / name).read_text()
    credentials = set(re.findall(r"^LoadCredential=([\w-]+):", text, re.MULTILINE))
    for line in re.findall(r"^Environment=(.+)$", text, re.MULTILINE):
        for variable in line.split():
            key, _, value = variable.partition("=")
            if not key.startswith("SHOAL_") or key == "SHOAL_CONFIG":
                continue
            section, _, setting = key.removeprefix("SHOAL_").lower().partition("__")
            if setting.endswith("_file"):
                assert value.removeprefix("%d/") in credentials
                setting = setting.removesuffix("_file")
            assert setting in type(getattr(Settings(), section)).__struct_fields__, key
    assert not (name == "shoal-runner.service" and credentials)


@pytest.mark.parametrize("name", UNITS)
def test_systemd_understands_a_unit_and_finds_it_confined(name: str, tmp_path: Path) -> None:
    """No line that it does not know; its own judgement is at most "OK" (a service as such is 9.6 of 10)."""
    need("systemd-analyze", install="Debian: apt-get install systemd")
    command = tmp_path / "python"
    command.write_text("#!/bin/sh\n")
    command.chmod(0o755)
    copy = tmp_path / name
    copy.write_text((DEPLOY / "systemd" / name).read_text().replace("/opt/shoal/.venv/bin/python", str(command)))
    result = subprocess.run(["systemd-analyze", "verify", copy], capture_output=True, text=True, check=False)
    about = [line for line in result.stderr.splitlines() if name in line]
    assert about == []
    judged = subprocess.run(
        ["systemd-analyze", "security", "--offline=true", "--threshold=40", copy],
        capture_output=True,
        text=True,
        check=False,
    )
    assert judged.returncode == 0, judged.stdout.splitlines()[-1:]


def test_make_secrets_makes_what_the_others_name(tmp_path: Path) -> None:
    """Each file once, never the same twice, never anew; a certificate that a strict client believes."""
    need("openssl")
    script = DEPLOY / "make-secrets"
    folder = tmp_path / "secrets"
    subprocess.run([script, folder, "shoal-redis", "localhost"], check=True, capture_output=True)
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    subprocess.run([script, folder, "shoal-redis", "localhost"], check=True, capture_output=True)
    assert before == {path.name: path.read_bytes() for path in folder.iterdir()}
    named = {Path(secret["file"]).name for secret in compose()["secrets"].values()}
    assert named <= before.keys()
    assert before["model-key"] == b"", "the model's key is not ours to make"
    assert {f"redis-{role}" for role in ROLES} <= before.keys()
    assert len({before[f"redis-{role}"] for role in ROLES}) == len(ROLES)
    assert folder.stat().st_mode & 0o777 == 0o700
    for key in ("ca.key", "tls.key"):
        assert (folder / key).stat().st_mode & 0o077 == 0
    message = subprocess.run(
        ["openssl", "verify", "-x509_strict", "-verify_hostname", "shoal-redis", "-CAfile", "ca.crt", "tls.crt"],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    assert message.returncode == 0, message.stderr
