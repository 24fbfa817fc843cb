"""Every channel behind a proxy: its calls, its sockets and its files, and nothing past it."""

from __future__ import annotations

from urllib.parse import urlsplit

import pytest

from tests.contracts.channels.stage import Stage, text_file
from tests.helpers.egress_proxy import behind, connected_ports, egress_proxy

NOBODY = "http://127.0.0.1:9"


@pytest.mark.parametrize("way", ["of all", "its own", "its own of SOCKS"])
async def test_nothing_of_a_channel_goes_past_the_proxy(
    stage: Stage, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A message with a file, and its answer: every connection but those to Redis is one to the proxy."""
    chat = stage.bench.chat(0)
    async with egress_proxy() as proxy:
        ports = connected_ports(monkeypatch)
        address = proxy.url("socks5" if "SOCKS" in way else "http", "shoal:p%40ss")
        own = {} if way == "of all" else {f"channels.{stage.bench.name}": {"proxy": address}}
        with behind(NOBODY if own else address):
            replica = await stage.gateway(**own)
            hooks = int(replica.hooks.address.rpartition(":")[2] or 0)
            await stage.say(chat, "hello", files=(text_file(),))
            await stage.sees(chat, "echo: hello")
            await replica.drain()
    assert [port for port in ports if port not in {proxy.port, urlsplit(stage.redis_url).port, hooks}] == []
    assert proxy.asked
    assert set(proxy.logins) == {"shoal:p@ss"}
