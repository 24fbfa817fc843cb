"""docs/operations.md, done as it says: each of its blocks is run as it is written, in order, in an empty folder."""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import signal
import subprocess
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Final, NamedTuple

import psutil
import pytest

from shared.ids import nonce
from shared.messages.live import TurnEvent
from shared.messages.outbound import OutboundMessage
from shared.store.client.redis_client import RedisClient
from shared.store.turns.inbox import Inbox
from shared.store.turns.queue import LeaseQueue
from shared.store.turns.turn_writes import DeadLetter, Turns
from shared.version import VERSION
from tests.gateway.harness import free_port
from tests.helpers.build import say
from tests.helpers.need import need
from tests.helpers.wait import eventually, eventually_sync

ROOT: Final = Path(__file__).parents[2]
DOC: Final = (ROOT / "docs" / "operations.md").read_text()
NEEDS: Final = ("Docker", "Grafana", "a cluster")
"""What a block may need that the test has not."""

PROGRAMS: Final = ("curl", "make", "openssl", "prometheus", "prometheus-alertmanager", "redis-server")
PORTS: Final = ("REDIS_PORT", "WEB_PORT", "GATEWAY_METRICS", "PROMETHEUS_PORT", "ALERTMANAGER_PORT")
NEXT: Final = "0.3.0"
DONE: Final = "--- done:"


class Block(NamedTuple):
    """What stands between fences, and the heading above it."""

    heading: str
    text: str

    @property
    def needs(self) -> str:
        """What its first line says that it needs; nothing for most."""
        found = re.match(r"# needs (.+)\n", self.text)
        return found[1] if found else ""


def blocks(text: str) -> list[Block]:
    """All of them, in order."""
    found, heading = [], ""
    for part in re.finditer(r"^#+ (?P<heading>[^\n]+)$|^```sh\n(?P<text>.*?)^```$", text, re.MULTILINE | re.DOTALL):
        if part["heading"] is not None and part["text"] is None:
            heading = part["heading"]
        else:
            found.append(Block(heading, part["text"]))
    return found


class Shell:
    """A shell that a person sits at. Everything that it starts ends with it."""

    def __init__(self, folder: Path, variables: Mapping[str, str]) -> None:
        clean = {key: value for key, value in os.environ.items() if not key.startswith(("SHOAL_", "MAKE", "PYTHON"))}
        self.log = folder / "shell.log"
        self._out = self.log.open("wb")
        self._process = subprocess.Popen(
            ["bash", "--norc", "-e", "-o", "pipefail"],
            cwd=folder,
            env={**clean, **variables},
            stdin=subprocess.PIPE,
            stdout=self._out,
            stderr=self._out,
            start_new_session=True,
        )
        self._done = 0
        # Its end is that of all it started, also when this process is killed: then its input ends.
        self.run("trap 'kill -KILL 0' EXIT", within_s=60)

    def run(self, text: str, within_s: float) -> str:
        """Type it, and wait until it is done; what it says. Raises AssertionError when a command of it fails."""
        assert self._process.stdin is not None
        before = len(self.log.read_text(errors="replace"))
        self._done += 1
        mark = f"{DONE} {self._done}"
        self._process.stdin.write(f"{text}\necho '{mark}' $?\n".encode())
        self._process.stdin.flush()

        def over() -> str:
            message = self.log.read_text(errors="replace")[before:]
            if self._process.poll() is None and mark not in message:
                return ""
            return message

        message = eventually_sync(over, within_s=within_s, every_s=0.1, what=f"the end of\n{text}")
        assert f"{mark} 0\n" in message, f"{text}\n{message[-4000:]}\n{self._logs()}"
        return message

    def end(self) -> list[str]:
        """End it and all that it left behind; the commands of those."""
        left = [one for one in psutil.process_iter() if self._ours(one)]
        names = [" ".join(one.cmdline()) for one in left if one.pid != self._process.pid and _lives(one)]
        for one in left:
            if one.is_running():
                one.send_signal(signal.SIGKILL)
        psutil.wait_procs([one for one in left if one.pid != self._process.pid], timeout=20)
        self._process.wait(20)
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._out.close()
        return names

    def _logs(self) -> str:
        found = sorted((self.log.parent / "installation" / "log").glob("*"))
        return "\n".join(f"{path.name}: {path.read_text(errors='replace')[-1500:]}" for path in found)

    def _ours(self, process: psutil.Process) -> bool:
        try:
            return os.getsid(process.pid) == self._process.pid
        except OSError:
            return False


def _lives(process: psutil.Process) -> bool:
    return bool(process.is_running() and process.status() != psutil.STATUS_ZOMBIE)


def release(folder: Path, version: str) -> None:
    """The sources as they are unpacked, compiled already, and an environment in which all packages are there."""
    made = folder / f"shoal-{version}"
    unwanted = shutil.ignore_patterns("secrets", ".env", "*.pyc.*")  # the last is a file that is being compiled
    for name in (".ci", "console", "deploy", "gateway", "proof", "shared", "shoal", "worker"):
        shutil.copytree(ROOT / name, made / name, ignore=unwanted)
    for name in ("Makefile", "LICENSE", "requirements.txt"):
        shutil.copy(ROOT / name, made / name)
    file = made / "shared" / "version.py"
    file.write_text(file.read_text().replace(f'"{VERSION}"', f'"{version}"'))
    (made / ".venv" / "bin").mkdir(parents=True)
    shutil.copy(ROOT / ".venv" / "pyvenv.cfg", made / ".venv")
    (made / ".venv" / "lib").symlink_to(ROOT / ".venv" / "lib")
    (made / ".venv" / "bin" / "python").symlink_to(ROOT / ".venv" / "bin" / "python")
    subprocess.run(["make", "--silent", "-C", made, ".venv/bin/shoal"], check=True)
    (made / ".venv" / ".stamp-base").touch()


@pytest.fixture
def ports() -> dict[str, str]:
    """The variables by which the document is told other ports, and not to wait for Prometheus."""
    found = {name: str(free_port()) for name in PORTS}
    return found | {"WORKER_METRICS": " ".join(str(free_port()) for _ in range(3)), "SCRAPE_EVERY": "1s"}


@pytest.fixture
def shell(tmp_path: Path, ports: dict[str, str]) -> Iterator[Shell]:
    """A person in a folder with two releases and nothing else."""
    for name in PROGRAMS:
        need(name)
    for version in (VERSION, NEXT):
        release(tmp_path, version)
    made = Shell(tmp_path, ports)
    yield made
    made.end()


def a_dead_letter(folder: Path, ports: Mapping[str, str]) -> None:
    """Somebody's message could not be answered; the workers stand still while it is put aside."""
    installation = folder / "installation"
    workers = [psutil.Process(int(file.read_text())) for file in installation.glob("run/worker-*")]
    held = [one for worker in workers for one in (worker, *worker.children(recursive=True))]

    async def put_aside() -> None:
        password = (installation / "secrets" / "redis-admin").read_text().strip()
        client = RedisClient(f"redis://admin:{password}@127.0.0.1:{ports['REDIS_PORT']}/0")

        async def nobody_waits() -> bool:
            return b"\nblocked_clients:0\r" in await client.command("INFO", "clients")

        await eventually(nobody_waits, what="the end of the waits of those who stand still")
        await say(Inbox(client), "What is 3 * 5?", chat="owner/unlucky")
        [claim] = await LeaseQueue(client, "turns", owner=nonce(), lease_s=30).acquire(1)
        assert claim.turn is not None
        sorry = OutboundMessage(content="Sorry.", turn=claim.turn.n, kind="apology")
        event, dead = TurnEvent(claim.turn.n, "failed"), DeadLetter("error", claim.turn.record)
        await Turns(client).commit(claim, history=[], lines=[sorry], event=event, dead=dead)
        await client.close()

    for one in held:
        one.suspend()
    try:
        asyncio.run(put_aside())
    finally:
        for one in held:
            one.resume()


BEFORE: Final[Mapping[str, Callable[[Path, Mapping[str, str]], None]]] = {"Replay dead letters": a_dead_letter}
"""What must have happened before a part of the document can be done."""

SHOWN: Final = {
    "The first answer": ["391", "#token="],
    "Prometheus and alerts": ["rules found", "ShoalNoWorkers"],
    "Look": ['shoal_queue_oldest_due_seconds{queue="turns"} 0.0'],
    "Change the token of the page": ["42"],
    "More workers, or fewer": ["\n3\n"],
    "Replay dead letters": ["error", "No dead letters."],
    "Upgrade": ["72", f"  {NEXT}  "],
    "Roll back": ["81", f"  {VERSION}  "],
    "Silence an alert": ["new machine"],
}
"""What one must see on the way."""


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_every_block_does_what_it_says_and_nothing_is_left(shell: Shell, ports: dict[str, str], tmp_path: Path) -> None:
    """From two unpacked releases to a fleet, through everything of every day, to its end."""
    shown: dict[str, str] = {}
    for block in blocks(DOC):
        if block.needs:
            continue
        if block.heading not in shown and block.heading in BEFORE:
            BEFORE[block.heading](tmp_path, ports)
        shown[block.heading] = shown.get(block.heading, "") + shell.run(block.text, within_s=180)
    assert shell.end() == [], "the document stops what it started"
    missing = {heading: word for heading, words in SHOWN.items() for word in words if word not in shown[heading]}
    assert missing == {}, shown
    assert len(shown) == 19


def test_what_is_not_run_is_in_the_table() -> None:
    """Each block that needs what is not here, and no other."""
    needed = [(block.heading, block.needs) for block in blocks(DOC) if block.needs]
    assert {what for _, what in needed} == set(NEEDS)
    [table] = re.findall(r"^\| step \| needs \|\n\|[-|]+\|\n((?:\|.*\|\n)+)", DOC, re.MULTILINE)
    rows = [tuple(cell.strip() for cell in line.strip("|").split("|")) for line in table.splitlines()]
    assert rows == needed


def test_every_link_leads_to_a_place() -> None:
    """To a file, and to a heading in it."""
    for target in re.findall(r"\]\((?!https?:)([^)\s]+)\)", DOC):
        path, _, anchor = target.partition("#")
        file = (ROOT / "docs" / path) if path else ROOT / "docs" / "operations.md"
        assert file.exists(), target
        if anchor:
            headings = re.findall(r"^#+ (.+)$", file.read_text(), re.MULTILINE)
            assert anchor in {re.sub(r"[^a-z0-9 -]", "", one.lower()).replace(" ", "-") for one in headings}, target
