"""Operators and people read which tools of servers cannot be offered, and why."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

from click.testing import CliRunner

from console.main import cli
from gateway.commands.registry import build_commands
from gateway.ingress.ingest import Ingress
from shared.ids import nonce
from shared.messages.outbound import OutboundMessage
from shared.settings import Settings
from shared.store.client.redis_client import RedisClient
from shared.store.delivery.outbox import Outbox
from shared.store.fleet.presence import Presence, announce
from tests.helpers.build import message
from tests.worker.mcp.peers import raw_peer, working
from worker.mcp.servers import REASONS_SHOWN

OBJECT = {"type": "object"}


async def details_of(notes: Path, *tools: Any) -> dict[str, str]:
    async with working(peer=raw_peer(notes, *tools)) as worker:
        worker.servers.start()
        await worker.up()
        return worker.servers.details()


async def test_status_and_doctor_name_what_is_left_out(client: RedisClient, redis_url: str, tmp_path: Path) -> None:
    """Without any turn, and once for all workers that say the same."""
    details = await details_of(tmp_path, {"name": "good", "inputSchema": OBJECT}, {"name": "[bad](x)"})
    for name in ("w1", "w2"):
        one = Presence(kind="worker", name=name, host="h", pid=1, started_at=1, version="0", details=details)
        await announce(client, one)
    why = "'_bad_(x)' of the MCP server 'peer': it has no schema of its parameters"
    asked = message("/status", id=nonce())
    await Ingress(client, build_commands(Settings(), client)).ingest(asked, show=None, principal="owner")
    line = (await Outbox(client).read_after(asked.session, after=0))[-1].line
    assert isinstance(line, OutboundMessage)
    assert line.content.count(f"**Tools left out:** {why}") == 1

    def run_doctor() -> Any:
        result = CliRunner().invoke(cli, ["doctor", "--json"], env={"SHOAL_REDIS__URL": redis_url})
        return json.loads(result.output)["checks"]

    [check] = [one for one in await asyncio.to_thread(run_doctor) if one["name"] == "tools left out"]
    assert check["outcome"] == "skipped"
    assert check["found"].startswith(why)


async def test_the_list_of_reasons_is_bounded(tmp_path: Path) -> None:
    """A presence record is written every few seconds; the log has them all."""
    details = await details_of(tmp_path, *({"name": f"t{number}"} for number in range(REASONS_SHOWN + 3)))
    assert details["tools_left_out.why"].endswith("; 3 more, which the worker's log names")
    assert details["mcp.peer"] == "0 tools"


async def test_no_reason_is_shown_where_all_are_offered(tmp_path: Path) -> None:
    """Nor of tools that an operator did not choose."""
    settings = raw_peer(tmp_path, {"name": "good", "inputSchema": OBJECT}, {"name": "bad"}, tools=("good",))
    async with working(peer=settings) as worker:
        worker.servers.start()
        await worker.up()
        assert worker.servers.details() == {"mcp.peer": "1 tools"}
