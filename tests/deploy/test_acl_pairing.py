"""Pairing and the audit record with the rights that each role has in Redis."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from shared.messages.outbound import OutboundMessage
from shared.store.access.audit import Audit
from shared.store.access.pairing import PairedPerson, PairingFailed, Pairings, let_in_line
from shared.store.client.redis_client import RedisClient
from tests.helpers.need import need
from tests.helpers.redis_server import ROLES, RedisServer, redis_server


@pytest.fixture
def server(tmp_path: Path) -> Iterator[RedisServer]:
    need("redis-server")
    with redis_server(tmp_path) as running:
        yield running


async def test_people_are_let_in_and_only_the_console_reads_the_record(server: RedisServer) -> None:
    """All of a pairing by a gateway and by the console; workers leave lines too."""
    clients = {role: RedisClient(server.url(role)) for role in ROLES}
    codes: list[str] = []

    def reported(code: str) -> OutboundMessage:
        codes.append(code)
        return OutboundMessage(content="", turn=0, kind="notice")

    for n, role in enumerate(("gateway", "console")):
        person = PairedPerson(channel="telegram", sender=f"{n}", session=f"telegram:{n}")
        gateway, pairings = Pairings(clients["gateway"]), Pairings(clients[role])
        assert (await gateway.offer_code(person, reported, reason="unknown_sender")).outcome == "told"
        with pytest.raises(PairingFailed):
            await pairings.approve("WRONG", let_in_line(0), by=role, request=f"w{n}")
        await pairings.approve(codes[-1], let_in_line(0), by=role, request=f"r{n}")
        assert await gateway.is_let_in("telegram", f"{n}")
    console = Pairings(clients["console"])
    assert [len(await console.people()), len(await console.waiting())] == [2, 0]
    assert await console.revoke("telegram", "1", by="console")
    await Audit(clients["worker"]).record("exec", "run")
    assert len(await Audit(clients["console"]).newest(9)) == 8
    for role in ("gateway", "worker"):
        with pytest.raises(Exception, match="no permissions"):
            await Audit(clients[role]).newest(1)
    for redis in clients.values():
        await redis.close()
