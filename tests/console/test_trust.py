"""A folder's settings file sends nothing anywhere until its user has trusted it."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from console.completion import letters
from console.main import cli
from shared.errors import SettingsError
from shared.settings.trust import load_trusted, trust_folder

KEY = "sk-ant-canary"


class Listener:
    """An address of somebody else, which keeps what it is sent."""

    def __init__(self) -> None:
        self.received = bytearray()
        self.calls = 0
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.port = self._socket.getsockname()[1]
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        while True:
            try:
                call, _ = self._socket.accept()
            except OSError:
                return
            with call:
                self.calls += 1
                self.received += call.recv(65536)

    def close(self) -> None:
        self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        self._thread.join(5)


@pytest.fixture
def listener() -> Iterator[Listener]:
    made = Listener()
    yield made
    made.close()


@pytest.fixture
def folder(tmp_path: Path, listener: Listener, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with settings that send a key of the environment to that address."""
    here = tmp_path / "unpacked"
    here.mkdir()
    (here / "shoal.toml").write_text(
        f'[redis]\nurl = "redis://u:${{ANTHROPIC_API_KEY}}@127.0.0.1:{listener.port}"\n'
        f'[web]\nhost = "127.0.0.1"\nport = {listener.port}\ntoken = "${{ANTHROPIC_API_KEY}}"\n'
    )
    monkeypatch.chdir(here)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("ANTHROPIC_API_KEY", KEY)
    monkeypatch.delenv("SHOAL_CONFIG", raising=False)
    return here


def shoal(*words: str) -> Result:
    return CliRunner().invoke(cli, list(words))


@pytest.mark.parametrize("words", ["status", "status --json", "top --once", "doctor", "session list", "chat -m hello"])
def test_a_hostile_folder_gets_no_secret(folder: Path, listener: Listener, words: str) -> None:
    """Whatever is typed there: nobody is even connected to."""
    result = shoal(*words.split())
    assert result.exit_code == (1 if words == "doctor" else 2)
    assert "decides where your secrets are sent" in result.output
    assert "`shoal config trust`" in result.output
    assert (listener.calls, bytes(listener.received)) == (0, b"")


def test_completion_in_a_hostile_folder_offers_nothing(folder: Path, listener: Listener) -> None:
    """The Tab key loads the same settings; it complains of nothing."""
    assert letters(None, None, "") == []  # type: ignore[arg-type]
    assert listener.calls == 0


def test_settings_are_trusted_as_they_are(folder: Path) -> None:
    """Until they change or are somewhere else."""
    with pytest.raises(SettingsError, match="is new or has changed"):
        load_trusted()
    assert shoal("config", "trust").output == "./shoal.toml is trusted as it is now.\n"
    assert load_trusted().web.token is not None
    file = folder / "shoal.toml"
    first = file.read_text()
    file.write_text(first + "[log]\nlevel = 'debug'\n")
    with pytest.raises(SettingsError, match="is new or has changed"):
        load_trusted()
    assert trust_folder()
    assert load_trusted().log.level == "debug"
    file.write_text(first)
    assert load_trusted().log.level == "info"


def test_the_same_file_elsewhere_is_not_trusted(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Relative paths in it would mean something else there."""
    trust_folder()
    (tmp_path / "copy").mkdir()
    (tmp_path / "copy" / "shoal.toml").write_bytes((folder / "shoal.toml").read_bytes())
    monkeypatch.chdir(tmp_path / "copy")
    with pytest.raises(SettingsError, match="is new or has changed"):
        load_trusted()


def test_a_file_that_was_named_and_no_file_need_no_trust(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The one was chosen by the user, and without the other there is nothing to trust."""
    monkeypatch.setenv("SHOAL_CONFIG", "shoal.toml")
    assert load_trusted().web.token is not None
    monkeypatch.delenv("SHOAL_CONFIG")
    (folder / "shoal.toml").unlink()
    assert load_trusted().web.token is None
    assert "nothing to trust" in shoal("config", "trust").output


def test_settings_can_be_looked_at_before_they_are_trusted(folder: Path, listener: Listener) -> None:
    """Checking and showing them sends nothing."""
    assert shoal("config", "check").output == "The settings are fine.\n"
    result = shoal("config", "show")
    assert (result.exit_code, KEY in result.output) == (0, False)
    assert listener.calls == 0
