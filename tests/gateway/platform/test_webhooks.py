"""The server of all webhooks: what it passes on, and what it answers itself."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import msgspec
import pytest
from structlog.testing import capture_logs

from gateway.platform.protocol import HookAnswer, HookRequest
from gateway.platform.webhooks import PlacedInlet, WebhookHandler, WebhookServer
from shared.errors import RedisAway, Refused, SettingsError
from shared.settings.sections.gateways import HooksSettings
from tests.helpers.wait import eventually


class Site:
    """Webhooks that are served."""

    def __init__(self, hooks: WebhookServer, draining: asyncio.Event, http: aiohttp.ClientSession) -> None:
        self.hooks, self.draining, self._http = hooks, draining, http
        self.asked: list[HookRequest] = []

    async def call(self, path: str = "/hooks/pond", *, method: str = "POST", body: bytes = b"hi") -> tuple[int, bytes]:
        status, _, answer = await self.whole(path, method=method, body=body)
        return status, answer

    async def whole(
        self, path: str = "/hooks/pond", *, method: str = "POST", body: bytes = b"hi"
    ) -> tuple[int, dict[str, str], bytes]:
        async with self._http.request(method, f"http://{self.hooks.address}{path}", data=body) as answer:
            return answer.status, {name.lower(): value for name, value in answer.headers.items()}, await answer.read()

    async def echo(self, request: HookRequest) -> HookAnswer:
        self.asked.append(request)
        return HookAnswer(body=request.body)

    def raising(self, exc: Exception) -> WebhookHandler:
        async def answer(_: HookRequest) -> HookAnswer:
            raise exc

        return answer


@contextlib.asynccontextmanager
async def site(**settings: float) -> AsyncIterator[Site]:
    draining = asyncio.Event()
    hooks = WebhookServer(HooksSettings(port=0, **settings), draining)  # type: ignore[arg-type]
    hooks.expect("pond")
    running = asyncio.create_task(hooks.run())
    async with aiohttp.ClientSession() as http:
        made = Site(hooks, draining, http)
        try:
            await eventually(lambda: hooks.address, within_s=60)
            yield made
        finally:
            draining.set()
            await running


async def test_a_call_is_passed_on_as_it_came() -> None:
    """Bytes of the body, headers in lower case, the query, the path below the channel's."""
    async with site() as s:
        s.hooks.set_handler("pond", s.echo)
        assert await s.call("/hooks/pond/events?a=1%202", body=b"\x00\xff") == (200, b"\x00\xff")
        [asked] = s.asked
        assert (asked.method, asked.path, dict(asked.query)) == ("POST", "/hooks/pond/events", {"a": "1 2"})
        assert asked.headers["content-length"] == "2"
        assert await s.call(method="GET", body=b"") == (200, b"")


async def test_whatever_is_no_webhook_is_not_found() -> None:
    """And only the two methods that platforms use."""
    async with site() as s:
        s.hooks.set_handler("pond", s.echo)
        for path in ("/", "/hooks", "/hooks/", "/hooks/other", "/pond", "/hooks/pond2"):
            assert (await s.call(path))[0] == 404
        assert (await s.call(method="PUT"))[0] == 405
        assert s.asked == []


@pytest.mark.parametrize(
    ("exc", "after"), [(RedisAway("away"), "1"), (Refused("overloaded", "too much", 60), "60"), (TimeoutError(), "1")]
)
async def test_what_cannot_be_accepted_now_is_to_be_sent_again(exc: Exception, after: str) -> None:
    """503 and when: the platform keeps it for us."""
    async with site() as s:
        s.hooks.set_handler("pond", s.raising(exc))
        status, headers, _ = await s.whole()
        assert (status, headers["retry-after"]) == (503, after)


async def test_a_channel_that_is_not_open_is_called_again() -> None:
    """Before it is connected, and while it is off."""
    async with site() as s:
        assert (await s.call())[0] == 503
        s.hooks.set_handler("pond", s.echo)
        assert (await s.call())[0] == 200
        s.hooks.set_handler("pond", None)
        assert (await s.call())[0] == 503


async def test_a_bug_of_a_channel_is_answered_without_details() -> None:
    """500; the next call is answered."""
    async with site() as s:
        s.hooks.set_handler("pond", s.raising(KeyError("secret")))
        status, body = await s.call()
        assert status == 500
        assert b"secret" not in body
        s.hooks.set_handler("pond", s.echo)
        assert (await s.call())[0] == 200


@pytest.mark.parametrize("body", [b"{", b"[" * 100_000, b"\xff", b'"x"', b'{"a":"\xff"}'])
async def test_a_body_that_cannot_be_read_is_refused(body: bytes) -> None:
    """400, also for one that is nested too deep; no channel has to think of that itself."""
    async with site() as s:

        async def read(request: HookRequest) -> HookAnswer:
            msgspec.json.decode(request.body, type=dict[str, Any])
            return HookAnswer()

        s.hooks.set_handler("pond", read)
        assert (await s.call(body=body))[0] == 400


async def test_a_body_over_the_limit_is_not_read() -> None:
    """413, however it is sent."""

    async def pieces() -> AsyncIterator[bytes]:
        for _ in range(64):
            yield b"x" * 1024

    async with site(body_kb=16) as s:
        s.hooks.set_handler("pond", s.echo)
        assert (await s.call(body=b"x" * 16 * 1024))[0] == 200
        assert (await s.call(body=b"x" * (16 * 1024 + 1)))[0] == 413
        async with aiohttp.ClientSession() as http:
            async with http.post(f"http://{s.hooks.address}/hooks/pond", data=pieces()) as answer:
                assert answer.status == 413
        assert len(s.asked) == 1


async def test_a_call_has_its_time() -> None:
    """Whoever sends a body byte by byte, or a channel that hangs, holds nothing up for ever."""
    async with site(answer_s=0.3) as s:

        async def hang(_: HookRequest) -> HookAnswer:
            await asyncio.Event().wait()
            raise AssertionError

        s.hooks.set_handler("pond", hang)
        assert (await s.call())[0] == 503


async def test_more_calls_than_are_answered_at_once_come_again() -> None:
    """One that is flooded still answers, quickly."""
    go = asyncio.Event()

    async def wait(_: HookRequest) -> HookAnswer:
        with s.hooks.place():
            await go.wait()
        return HookAnswer()

    async with site(calls=2) as s:
        s.hooks.set_handler("pond", wait)
        first = [asyncio.create_task(s.call()) for _ in range(2)]
        await eventually(lambda: s.hooks.under_way == 2, within_s=60)
        assert (await s.call())[0] == 503
        go.set()
        assert [status for status, _ in await asyncio.gather(*first)] == [200, 200]
        assert (await s.call())[0] == 200


async def drip(site: Site, count: int) -> list[asyncio.StreamWriter]:
    """Connections whose bodies do not come whole."""
    host, port = site.hooks.address.split(":")
    writers = [(await asyncio.open_connection(host, int(port)))[1] for _ in range(count)]
    for writer in writers:
        writer.write(b"POST /hooks/pond HTTP/1.1\r\nHost: h\r\nContent-Length: 1000\r\n\r\nx")
    return writers


async def test_slow_strangers_take_no_place_of_others() -> None:
    """Neither of the calls under way nor of bodies: the oldest of an address that has half of these gives way."""
    async with site(calls=4, body_s=60.0) as s:
        s.hooks.set_handler("pond", s.echo)
        slow = await drip(s, 30)
        await eventually(lambda: s.hooks._bodies._slow._count_strangers() == 2)
        assert [await s.call() for _ in range(20)] == [(200, b"hi")] * 20
        assert s.hooks.under_way == 0
        for writer in slow:
            writer.close()
        await eventually(lambda: s.hooks._bodies._slow._count_strangers() == 0)


async def test_a_slow_body_has_its_own_time() -> None:
    """408, and the connection is closed; no line in the log for strangers to write."""
    async with site(body_s=0.1) as s:
        s.hooks.set_handler("pond", s.echo)
        with capture_logs() as logs:
            host, port = s.hooks.address.split(":")
            reader, writer = await asyncio.open_connection(host, int(port))
            writer.write(b"POST /hooks/pond HTTP/1.1\r\nHost: h\r\nContent-Length: 1000\r\n\r\nx")
            async with asyncio.timeout(5):
                answer = await reader.read()
            writer.close()
        assert answer.startswith(b"HTTP/1.1 408 ")
        assert logs == []
        assert s.asked == []


async def test_a_place_is_for_calls_whose_signature_is_right() -> None:
    """An unsigned call is refused as such while all places are in use, and holds none itself."""
    go = asyncio.Event()

    class WaitingInlet:
        async def take(self, event: object) -> object:
            await go.wait()
            return None

        async def on_delete(self, deleted: object) -> None:
            await go.wait()

    async with site(calls=1) as s:
        inlet: Any = PlacedInlet(WaitingInlet(), s.hooks)  # type: ignore[arg-type]

        async def signed(request: HookRequest) -> HookAnswer:
            if request.body != b"signed":
                return HookAnswer(401)
            await (inlet.take(None) if request.method == "POST" else inlet.on_delete(None))
            return HookAnswer()

        s.hooks.set_handler("pond", signed)
        first = asyncio.create_task(s.call(body=b"signed"))
        await eventually(lambda: s.hooks.under_way == 1)
        assert (await s.call(body=b"unsigned"))[0] == 401
        assert (await s.call(body=b"signed"))[0] == 503
        assert (await s.call(method="GET", body=b"signed"))[0] == 503
        go.set()
        assert (await first)[0] == 200
        assert (await s.call(body=b"signed"))[0] == 200


async def test_a_gateway_that_ends_answers_the_calls_under_way() -> None:
    """What comes then is told elsewhere."""
    go = asyncio.Event()

    async def wait(_: HookRequest) -> HookAnswer:
        with s.hooks.place():
            await go.wait()
        return HookAnswer()

    async with site() as s:
        s.hooks.set_handler("pond", wait)
        under_way = asyncio.create_task(s.call())
        await eventually(lambda: s.hooks.under_way, within_s=60)
        s.draining.set()
        go.set()
        assert (await under_way)[0] == 200


async def test_without_a_channel_nothing_listens() -> None:
    """Most gateways have none."""
    hooks = WebhookServer(HooksSettings(port=0), asyncio.Event())
    await hooks.run()
    assert hooks.address == ""


async def test_a_port_in_use_is_one_clear_line() -> None:
    """It names the setting."""
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        hooks = WebhookServer(HooksSettings(port=other.getsockname()[1]), asyncio.Event())
        hooks.expect("pond")
        with pytest.raises(SettingsError, match=r"^hooks.port \d+ on '127.0.0.1' is taken"):
            await hooks.run()
