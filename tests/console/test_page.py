"""`shoal open` and `shoal token` where nothing runs; tests/e2e/test_wheel.py has them beside a running `shoal up`."""

from __future__ import annotations

import socket
import stat
from pathlib import Path

import pytest
from click.testing import CliRunner

from console.main import cli
from console.page import _write_link
from tests.gateway.harness import free_port


@pytest.fixture(autouse=True)
def _empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_without_a_page_there_is_nothing_to_open() -> None:
    """One line with the address and what to do, and no browser with an error page."""
    port = free_port()
    result = CliRunner().invoke(cli, ["open"], env={"SHOAL_WEB__PORT": str(port), "SHOAL_WEB__TOKEN": "x" * 32})
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr.startswith(f"nothing answers at http://127.0.0.1:{port}/; start `shoal up`")
    assert "x" * 32 not in result.stderr


def test_the_address_of_a_running_one_comes_first_and_a_stale_one_is_passed_over(tmp_path: Path) -> None:
    """`shoal up` may have another port than the settings say; killed, it leaves its address behind."""
    (tmp_path / ".shoal").mkdir()
    with socket.create_server(("127.0.0.1", 0)) as running, socket.create_server(("127.0.0.1", 0)) as other:
        port, usual = running.getsockname()[1], other.getsockname()[1]
        env = {"SHOAL_WEB__PORT": str(usual), "SHOAL_WEB__TOKEN": "x" * 32}
        for written, expected in ((port, port), (free_port(), usual)):
            (tmp_path / ".shoal/web.address").write_text(f"http://127.0.0.1:{written}/\n")
            result = CliRunner().invoke(cli, ["open", "--no-browser"], env=env)
            assert result.stdout == f"http://127.0.0.1:{expected}/#token={'x' * 32}\n"


def test_the_file_that_leads_to_the_page_is_its_users_alone(tmp_path: Path) -> None:
    """Also where one lay that others could read, and whatever the token is made of."""
    old = tmp_path / "data/open.html"
    old.parent.mkdir()
    old.write_text("")
    old.chmod(0o644)
    file = _write_link(old, 'http://127.0.0.1:8080/#token="><script>')
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert "<script>" not in file.read_text()


def test_a_token_that_is_not_made_yet_is_named_with_the_way_to_it() -> None:
    """Before the first start there is none."""
    result = CliRunner().invoke(cli, ["token"])
    assert result.exit_code == 2
    assert "start `shoal up` here" in result.stderr
