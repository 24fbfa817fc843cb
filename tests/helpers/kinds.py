"""Which tests `make test` runs, and which are left to `make test-all`: by path, so that a test file says nothing of it.

An entry is a folder (`tests/crash/`), a file, or `file::part` for the tests in it whose name has `part`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

FAST: Final = "not process and not slow"
"""The marker expression of `make test`."""

PROCESS: Final = (
    "proof/",
    "tests/budget/test_commands.py",
    "tests/console/test_channels.py::test_config_check",
    "tests/console/test_completion.py",
    "tests/console/test_console.py::test_help_comes_at_once",
    "tests/console/test_console.py::test_it_runs_as_a_module_too",
    "tests/console/test_grid.py::test_a_table_on_a_terminal_fits_it",
    "tests/console/test_many_sessions.py::test_a_bar_is_for_a_terminal_and_not_for_json",
    "tests/console/test_screen.py",
    "tests/console/test_up.py",
    "tests/contracts/test_every_tool.py::[a tool of an MCP server",
    "tests/contracts/test_every_tool.py::[exec",
    "tests/contracts/test_every_tool_ends.py::[a tool of an MCP server",
    "tests/contracts/test_every_tool_ends.py::[exec",
    "tests/contracts/test_every_tool_ends.py::[web_fetch",
    "tests/crash/",
    "tests/deploy/",
    "tests/e2e/",
    "tests/gateway/channels/api/test_idempotency.py::test_a_killed_gateway",
    "tests/gateway/channels/email/test_real_servers.py",
    "tests/gateway/channels/feishu/test_sdk.py",
    "tests/gateway/channels/matrix/test_real_synapse.py",
    "tests/gateway/channels/slack/test_wire.py::test_reading_needs_no_sdk",
    "tests/gateway/test_chat_channel.py",
    "tests/gateway/test_start.py",
    "tests/records/test_rollback.py",
    "tests/test_makefile.py",
    "tests/worker/mcp/",
    "tests/worker/sandbox/",
    "tests/worker/process/test_guardian.py",
    "tests/worker/arq/test_lease_worker.py",
    "tests/worker/process/test_worker_process.py",
)
"""They start processes, browsers, peers or containers. Each failure is repeated once: other load on the machine can
hold a process for seconds."""

SLOW: Final = (
    "tests/contracts/channels/test_burst.py",
    "tests/contracts/channels/test_limits.py",
    "tests/contracts/channels/test_live.py",
    "tests/contracts/channels/test_out.py",
    "tests/contracts/channels/test_replicas.py",
)
"""They start nothing and take longer than two seconds, by the clock of a platform or by the number of cases."""

AGAINST_THE_CLOCK: Final = ("tests/contracts/channels/",)
"""Servers in this process die and come back against the clock of the machine: repeated once, like processes."""

ALONE: Final = ("proof/chaos/", "tests/crash/")
"""Whole fleets: one at a time, beside one of the others."""

SCENERY: Final[tuple[str, ...]] = ()
"""Redis is scenery here: fakeredis instead of a real Valkey."""


def among(entries: Iterable[str], path: str, name: str = "") -> bool:
    """Whether a test, or without `name` a whole file, is one of the entries."""
    for entry in entries:
        where, _, part = entry.partition("::")
        if path == where or (where.endswith("/") and path.startswith(where)):
            if not part or (name and part in name):
                return True
    return False
