from __future__ import annotations

import contextlib
import os
import re
import signal
import socket
import stat
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from console.up.supervisor import RestartBackoff, Terminal
from tests.helpers.valkey import command
from tests.helpers.wait import eventually_sync

ROOT = Path(__file__).parents[2]

GATEWAY = """
import http.server, os, signal, sys
sys.stderr.write("gateway pid %d\\n" % os.getpid())
signal.signal(signal.SIGTERM, lambda *_: (print("gateway got SIGTERM", flush=True), os._exit(0)))
class Page(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200); self.send_header("content-length", "0"); self.end_headers()
    def log_message(self, *_): pass
http.server.HTTPServer(("127.0.0.1", int(os.environ["SHOAL_WEB__PORT"])), Page).serve_forever()
"""

WORKER = """
import os, signal, sys, time
print("worker pid %d" % os.getpid(), flush=True)
print("worker sees", *(f"{k}={v}" for k, v in sorted(os.environ.items()) if k.startswith("SHOAL_")), flush=True)
stuck = "stuck" in sys.argv
signal.signal(signal.SIGTERM, lambda *_: (print("worker got SIGTERM", flush=True), stuck or os._exit(0)))
if "leaving" in sys.argv:
    sys.exit(3)
while True: time.sleep(3600)
"""


class Up:
    """A running `shoal up`, with every line it printed."""

    def __init__(self, folder: Path, **environ: str) -> None:
        self.folder = folder
        clean = {key: value for key, value in os.environ.items() if not key.startswith("SHOAL_")}
        self.process = subprocess.Popen(
            [sys.executable, "-m", "console", "up"],
            cwd=folder,
            env={**clean, "PYTHONPATH": str(ROOT), "SHOAL_WEB__PORT": "0", **environ},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        self.lines: list[str] = []
        self._reading = True
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.lines.append(line.rstrip("\n"))
            if not self._reading:
                self.process.stdout.close()
                return

    def stop_reading(self) -> None:
        """Close our end of its output at the next line."""
        self._reading = False

    def line(self, pattern: str, *, count: int = 1) -> re.Match[str]:
        """Wait for the `count`th line that matches."""

        def found() -> re.Match[str] | None:
            matches = [match for line in self.lines if (match := re.search(pattern, line))]
            return matches[count - 1] if len(matches) >= count else None

        match = eventually_sync(found, within_s=60, what=lambda: f"line {count} with {pattern!r} among {self.lines}")
        assert match is not None
        return match

    def pid(self, name: str, *, count: int = 1) -> int:
        """The process id that a child printed."""
        return int(self.line(rf"^{name} +\| {name} pid (\d+)$", count=count)[1])

    def valkey_pid(self) -> int:
        """The process id of the embedded Valkey."""
        return int((self.folder / ".shoal/valkey.pid").read_text())

    def end(self, sig: signal.Signals = signal.SIGINT) -> int:
        """Send a signal, wait for the end, give the exit code."""
        self.process.send_signal(sig)
        code = self.process.wait(20)
        self._reader.join(10)
        return code

    def clean_up(self) -> None:
        """Leave nothing, whatever the test did."""
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        self._reader.join(10)
        if self.process.stdout:
            self.process.stdout.close()


Start = Callable[..., Up]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Starts `shoal up` in an own folder, with a small gateway and worker."""
    started: list[Up] = []

    def begin(*, worker: str = "", **environ: str) -> Up:
        (tmp_path / "gateway.py").write_text(GATEWAY)
        (tmp_path / "worker.py").write_text(WORKER)
        (tmp_path / "Procfile").write_text(f"# ours\ngateway: python gateway.py\nworker: python worker.py {worker}\n")
        started.append(Up(tmp_path, **environ))
        return started[-1]

    yield begin
    for one in started:
        one.clean_up()


def gone(*pids: int) -> bool:
    """Whether none of these processes runs; a zombie that nobody collects does not run."""

    def runs(pid: int) -> bool:
        try:
            return bool(psutil.Process(pid).status() != psutil.STATUS_ZOMBIE)
        except psutil.NoSuchProcess:
            return False

    return not any(runs(pid) for pid in pids)


def test_one_line_gives_the_address_of_the_page_with_the_token(start: Start) -> None:
    """Printed once the page answers; the token never leaves the browser in a request line."""
    up = start()
    address = up.line(r"^Shoal is ready: http://127\.0\.0\.1:(\d+)/#token=([\w-]{32})$")
    token_file = up.folder / ".shoal/web.token"
    assert token_file.read_text().strip() == address[2]
    assert stat.S_IMODE(token_file.stat().st_mode) == 0o600
    up.line(r"^The built-in demo model answers\. For a real one choose one on the page, or run `shoal init`\.$")
    with socket.create_connection(("127.0.0.1", int(address[1]))):
        pass
    assert command((up.folder / ".shoal/valkey.url").read_text().strip(), "PING") == "PONG"


def test_ctrl_c_stops_the_gateway_then_the_worker_then_valkey_and_exits_with_0(start: Start) -> None:
    """No message is taken that nobody will answer, and whoever drains still has Redis."""
    up = start()
    up.line("Shoal is ready")
    pids = up.pid("gateway"), up.pid("worker"), up.valkey_pid()
    assert up.end(signal.SIGINT) == 0
    result = [line for line in up.lines if "SIGTERM" in line]
    assert result == ["gateway | gateway got SIGTERM", "worker  | worker got SIGTERM"]
    assert gone(*pids)
    assert "ready to exit" in (up.folder / ".shoal/valkey.log").read_text()


@pytest.mark.parametrize("sig", [signal.SIGTERM, signal.SIGHUP])
def test_the_other_ways_to_say_stop_are_as_orderly(start: Start, sig: signal.Signals) -> None:
    """A service manager sends SIGTERM, a closed terminal SIGHUP."""
    up = start()
    up.line("Shoal is ready")
    pids = up.pid("gateway"), up.pid("worker"), up.valkey_pid()
    assert up.end(sig) == 0
    assert gone(*pids)


def test_a_second_start_finds_data_address_and_token_of_the_first(start: Start) -> None:
    """Data lives in .shoal/ and survives a restart."""
    first = start()
    token = first.line("Shoal is ready: .*#token=(.*)")[1]
    url = (first.folder / ".shoal/valkey.url").read_text().strip()
    command(url, "SET", "a", "1")
    first.end()
    second = start()
    assert second.line("Shoal is ready: .*#token=(.*)")[1] == token
    assert command((second.folder / ".shoal/valkey.url").read_text().strip(), "GET", "a") == "1"


def test_a_child_that_dies_is_started_again_and_that_is_reported(start: Start) -> None:
    """A killed worker unnoticed, but not unreported."""
    up = start()
    os.kill(up.pid("worker"), signal.SIGKILL)
    up.line(r"^shoal   \| worker was killed by SIGKILL; it starts again at once$")
    assert up.pid("worker", count=2) != up.pid("worker")
    assert up.end() == 0


def test_a_child_that_keeps_ending_is_started_ever_more_slowly(start: Start) -> None:
    """0.2 s, 0.4 s, 0.8 s: a broken worker does not eat the machine, and Ctrl-C still works."""
    up = start(worker="leaving")
    for wait in ("0.2", "0.4", "0.8"):
        up.line(rf"worker ended with code 3; it starts again in {re.escape(wait)} s$")
    assert up.end() == 0


def test_back_off_is_capped_and_starts_over_after_a_good_life() -> None:
    """A process that was killed is back at once, one that cannot live does not keep the machine busy."""
    backoff = RestartBackoff()
    assert [backoff.after(0.1) for _ in range(10)] == [0.0, 0.0, 0.0, 0.2, 0.4, 0.8, 1.6, 3.2, 5.0, 5.0]
    assert [backoff.after(60), *(backoff.after(0.1) for _ in range(3))] == [0.0, 0.0, 0.0, 0.2]


def test_a_valkey_that_dies_comes_back_with_its_address_and_its_data(start: Start) -> None:
    """The processes keep the address they know; what was answered is on the disk."""
    up = start()
    up.line("Shoal is ready")
    file = up.folder / ".shoal/valkey.url"
    url = file.read_text().strip()
    command(url, "SET", "a", "1")
    before = up.valkey_pid()
    os.kill(before, signal.SIGKILL)
    up.line(r"valkey ended; it starts again at once with the data it had")

    def back() -> bool:
        try:
            return command(url, "GET", "a") == "1"
        except OSError:
            return False

    eventually_sync(back, within_s=60)
    assert file.read_text().strip() == url
    assert up.end() == 0
    assert gone(before, up.valkey_pid())


def test_a_valkey_that_cannot_start_now_is_tried_until_it_can(start: Start) -> None:
    """A full disk ends the server, and its files cannot be written until there is room again."""
    up = start()
    up.line("Shoal is ready")
    url = (up.folder / ".shoal/valkey.url").read_text().strip()
    assert command(url, "SET", "a", "1") == "OK"
    # Every write of that file fails, as on a full disk.
    obstacle = up.folder / ".shoal/valkey.conf"
    obstacle.unlink()
    obstacle.mkdir()
    before = up.valkey_pid()
    os.kill(before, signal.SIGKILL)
    up.line(r"^valkey +\| .*valkey\.conf", count=2)
    obstacle.rmdir()
    eventually_sync(lambda: up.valkey_pid() != before, within_s=60)
    eventually_sync(lambda: _answer(url, "GET", "a") == "1", within_s=60)
    assert up.end() == 0


def _answer(url: str, *words: str) -> str:
    with contextlib.suppress(OSError):
        return command(url, *words)
    return ""


def test_a_full_disk_under_the_output_is_no_wish_to_stop() -> None:
    """Unlike a reader that went away: `make up` into a file goes on."""
    stops: list[str] = []
    with open("/dev/full", "w") as full, open(os.devnull, "w") as null:
        Terminal(full, colours=False, closed=lambda: stops.append("closed")).say("shoal", "starting")
        os.dup2(null.fileno(), full.fileno())  # or closing it would fail, too
    assert stops == []


def test_nothing_is_left_when_the_supervisor_itself_is_killed(start: Start) -> None:
    """Also not a worker that ignores SIGTERM, nor Valkey."""
    up = start(worker="stuck")
    up.line("Shoal is ready")
    pids = up.pid("gateway"), up.pid("worker"), up.valkey_pid()
    up.end(signal.SIGKILL)
    eventually_sync(lambda: gone(*pids), within_s=60, what=f"the end of {pids}")


def test_a_second_ctrl_c_does_not_wait_for_the_drain(start: Start) -> None:
    """Whoever presses twice wants the prompt back; Valkey still writes what it holds."""
    up = start(worker="stuck")
    up.line("Shoal is ready")
    pids = up.pid("gateway"), up.pid("worker"), up.valkey_pid()
    up.process.send_signal(signal.SIGINT)
    up.line("worker got SIGTERM")
    assert up.end(signal.SIGINT) == 130
    assert gone(*pids)


def test_a_worker_that_does_not_end_in_time_is_killed(start: Start) -> None:
    """`worker.drain_s` and five seconds; its leases are taken over."""
    up = start(worker="stuck", SHOAL_WORKER__DRAIN_S="0")
    up.line("Shoal is ready")
    worker = up.pid("worker")
    assert up.end() == 0
    assert any("worker did not end within 5 s and is killed" in line for line in up.lines)
    assert gone(worker)


def test_a_page_port_in_use_ends_the_start_with_one_line(start: Start) -> None:
    """Before anything was started."""
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        up = start(SHOAL_WEB__PORT=str(port))
        assert up.process.wait(20) == 2
        up.line(rf"^web\.port {port} on '127\.0\.0\.1' is taken; stop what uses it .* SHOAL_WEB__PORT=8081 shoal up$")
    assert not (up.folder / ".shoal/valkey.conf").exists()


def test_a_page_host_that_is_no_address_ends_the_start_with_one_line(start: Start) -> None:
    """No traceback for a slip of the pen."""
    up = start(SHOAL_WEB__HOST="127.0.0.999")
    assert up.process.wait(20) == 2
    up.line(r"^web\.host is '127\.0\.0\.999', which is not an address here: .*; try 127\.0\.0\.1$")


def test_a_reader_that_goes_away_ends_it_in_order(start: Start) -> None:
    """`make up | head` leaves nothing running."""
    up = start()
    up.line("Shoal is ready")
    pids = up.pid("gateway"), up.pid("worker"), up.valkey_pid()
    up.stop_reading()
    os.kill(up.pid("worker"), signal.SIGUSR1)
    assert up.process.wait(20) == 0
    assert gone(*pids)


def test_two_starts_in_one_folder_are_refused_with_the_first_ones_pid(start: Start) -> None:
    """Two servers on one data directory would lose both."""
    first = start()
    first.line("Shoal is ready")
    second = start()
    assert second.process.wait(20) == 1
    second.line(rf"a Valkey server \(pid {first.valkey_pid()}\) already runs on ")
    assert first.end() == 0


def test_wrong_settings_end_the_start_with_their_lines(start: Start) -> None:
    """Nothing is started that would only die."""
    up = start(SHOAL_WORKER__TURNS="x")
    assert up.process.wait(20) == 2
    up.line(r"^worker\.turns \(from SHOAL_WORKER__TURNS\) must be a whole number of at least 1, not 'x'$")
    assert not (up.folder / ".shoal").exists()


def test_a_given_redis_and_a_given_token_are_used_as_they_are(start: Start, redis_url: str) -> None:
    """No second Valkey, no token of our own, and with a real model no word about the demo."""
    up = start(SHOAL_REDIS__URL=redis_url, SHOAL_WEB__TOKEN="mine", SHOAL_MODEL__NAME="openai/x")
    assert up.line("Shoal is ready: .*#token=(.*)")[1] == "mine"
    assert not (up.folder / ".shoal/valkey.conf").exists()
    assert not (up.folder / ".shoal/web.token").exists()
    assert up.end() == 0
    assert not any("demo" in line for line in up.lines)


def test_children_get_a_readable_log_and_free_ports_for_their_metrics(start: Start) -> None:
    """Their output is a pipe, but a person reads it; two Shoals on one machine both have metrics."""
    with socket.socket() as other:
        other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            other.bind(("127.0.0.1", 9465))
            other.listen()
        except OSError:
            pass  # somebody else has it: as good for this test
        sees = start().line(r"worker sees (.*)")[1].split()
    assert "SHOAL_METRICS__PORT=0" in sees
    assert "SHOAL_LOG__FORMAT=console" in sees
    assert "SHOAL_LOG__COLOUR=never" in sees
    assert "SHOAL_BUDGET__TOKENS_PER_DAY=2000000" in sees, "nobody's first bill is without an end"
