"""A hostile MCP server that is a process: it finds none of our secrets, and no process but its own."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import msgspec
import pytest

from shared.settings import McpServerSettings, load
from tests.helpers.need import need
from tests.worker.mcp.peers import PEER, noted, peer, working
from worker.mcp.server_sandbox import confined, hidden_paths

KEY: Final = "sk-canary-of-the-model"


@pytest.fixture
def place() -> Iterator[Path]:
    """A folder that is not below /tmp, which a server does not see anyway, and where a checkout may lie."""
    checkout = Path(__file__).parents[3]
    above = Path.home() if checkout.is_relative_to("/tmp") else checkout
    folder = above / f".try-{os.getpid()}-{time.monotonic_ns()}"
    folder.mkdir()
    yield folder
    shutil.rmtree(folder)


def run(line: str, hidden: list[str], *, cwd: str = "", sandbox: bool = True, env: dict[str, str] | None = None) -> str:
    """What a server that is this shell line prints."""
    server = confined(McpServerSettings(command=("sh", "-c", line), cwd=cwd, sandbox=sandbox), hidden)
    result = subprocess.run(
        server.command, capture_output=True, text=True, cwd=cwd or None, timeout=30, check=False, env=env
    )
    return result.stdout + result.stderr


@pytest.fixture
def bubblewrap() -> None:
    need("bubblewrap", found="not confined" not in run("true", []), install="bubblewrap, and user namespaces")


def attempts(place: Path) -> str:
    """Where a key of ours may be."""
    return (
        f"cat {place}/shoal.toml {place}/data/media/file {place}/key /run/secrets/* ~/.aws/credentials; "
        "cat /proc/[0-9]*/environ | tr '\\0' ' '; for one in /proc/[0-9]*; do cat $one/cmdline; done; "
        f"ls {place}/data /tmp; kill -0 {os.getpid()} && echo rea''ched; touch {place}/written /usr/written"
    )


@pytest.mark.usefixtures("bubblewrap")
def test_a_hostile_server_reads_no_key_no_data_and_no_other_process(
    place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither from files, nor from processes of the same user, nor by signals; control: without, it does."""
    (place / "data/media").mkdir(parents=True)
    (place / "data/media/file").write_text(KEY)
    (place / "key").write_text(KEY)
    (place / "home/.aws").mkdir(parents=True)
    (place / "home/.aws/credentials").write_text(KEY)
    (tmp_path / "of-others").touch()
    toml = f'[data]\ndir = "{place}/data"\n[model]\nname = "x"\napi_key_file = "{place}/key"\n# {KEY}\n'
    (place / "shoal.toml").write_text(toml)
    monkeypatch.setenv("HOME", str(place / "home"))
    monkeypatch.setenv("SHOAL_CONFIG", str(place / "shoal.toml"))
    hidden = hidden_paths(load())
    # A process of the same user with the key in its environment, as a worker that has just begun.
    with subprocess.Popen(["sleep", "60"], env={"SHOAL_MODEL__API_KEY": KEY}) as other:
        env = {"PATH": os.environ["PATH"], "HOME": str(place / "home")}
        try:
            open_output = run(attempts(place), hidden, sandbox=False, env=env)
            (place / "written").unlink()
            Path("/usr/written").unlink(missing_ok=True)
            output = run(attempts(place), hidden, env=env)
        finally:
            other.kill()
    assert open_output.count(KEY) >= 4
    assert "reached" in open_output
    assert KEY not in output
    assert "reached" not in output
    assert "sleep" not in output
    assert "of-others" not in output
    assert not (place / "written").exists()
    assert not Path("/usr/written").exists()


@pytest.mark.usefixtures("bubblewrap")
def test_a_server_has_its_own_folder_and_its_programs(place: Path) -> None:
    """What servers need: to write into `cwd`, to read what the machine has, and a /tmp of its own."""
    line = f"touch mine && pwd && {sys.executable} -c 'import mcp' && echo >/tmp/x; cat /etc/passwd"
    output = run(line, [], cwd=str(place))
    assert str(place) in output
    assert (place / "mine").exists()
    assert "Error" not in output
    assert "root:" in output


@pytest.mark.usefixtures("bubblewrap")
async def test_a_server_in_the_sandbox_answers_and_ends_like_any_other(place: Path) -> None:
    """The supervisor, its limits and its end are the same."""
    program = shutil.copy(PEER, place)
    server = msgspec.structs.replace(
        peer(place, cwd=str(place), sandbox=True), command=(sys.executable, program, str(place))
    )
    async with working(peer=confined(server, [])) as worker:
        assert (await worker.call("mcp_peer_add", a=1, b=2)).content.split("\n")[2] == "3"
        assert await noted(place, "started") not in ("", str(os.getpid()))


def test_where_bubblewrap_does_not_work_a_server_runs_as_before(place: Path) -> None:
    """And says so in its log."""
    server = confined(McpServerSettings(command=("echo", "hello")), [])
    command = [*server.command[:4], "/nowhere/bwrap", *server.command[5:]]
    result = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
    assert result.stdout == "hello\n"
    assert "the server is not confined" in result.stderr


def test_a_program_that_is_not_there_is_named() -> None:
    """Not bubblewrap's words for it."""
    server = confined(McpServerSettings(command=("no-such-program",)), [])
    result = subprocess.run(server.command, capture_output=True, text=True, timeout=30, check=False)
    assert "'no-such-program' cannot be started" in result.stderr


def test_a_server_without_a_sandbox_or_a_command_stays_as_it_is() -> None:
    """`sandbox = false`, and servers that are reached over HTTP."""
    for server in (McpServerSettings(command=("a",), sandbox=False), McpServerSettings(url="https://h/mcp")):
        assert confined(server, ["/x"]) is server
