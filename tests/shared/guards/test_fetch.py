"""Fetching from hostile servers: real HTTP on loopback, which the operator's list allows, and nothing else."""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import zlib
from collections.abc import AsyncIterator, Sequence
from ipaddress import ip_address
from typing import Any

import aiohttp
import pytest

from shared.errors import ToolFailed
from shared.guards.addresses import WebPolicy
from shared.guards.fetch import Fetcher
from shared.guards.request import connector_to
from shared.guards.response import WebResponse
from tests.helpers.wait import eventually
from tests.helpers.web_server import Asked, Send, WebServer, head, redirect, reply, web_server

LIMIT_BYTES = 100_000
HTML = ("text/html",)


@pytest.fixture
async def web() -> AsyncIterator[WebServer]:
    async with web_server() as server:
        yield server


class Names:
    """A name server: for each name the answers in order, the last one for ever."""

    def __init__(self, **answers: Sequence[Sequence[str]]) -> None:
        self._answers = {name.replace("_", "."): list(answer) for name, answer in answers.items()}
        self.asked: list[str] = []

    async def __call__(self, host: str, port: int) -> Sequence[str]:
        self.asked.append(host)
        answers = self._answers.get(host)
        if answers is None:
            raise OSError("no such name")
        return answers.pop(0) if len(answers) > 1 else answers[0]


def fetcher(web: WebServer, **options: Any) -> Fetcher:
    """May reach the test's server by its address, and the public web by a name server that knows nothing."""
    given = {"body_bytes": LIMIT_BYTES, "look_up": Names(), "total_s": 20.0, **options}
    return Fetcher(WebPolicy.from_settings([f"127.0.0.1:{web.port}"]), **given)


async def get(web: WebServer, path: str = "/", **options: Any) -> WebResponse:
    return await fetcher(web, **options).fetch_url(web.url(path), types=HTML)


async def test_a_page_comes_with_its_type_and_where_it_was(web: WebServer) -> None:
    """The plain case, and what the server learns of us: no cookie, our own name, gzip at most."""
    web.pages["/a"] = reply("hello", Set_Cookie="a=b")
    web.pages["/b"] = redirect("/a?x=y")
    assert await get(web, "/b") == WebResponse(web.url("/a?x=y"), 200, "text/html", "utf-8", b"hello")
    await get(web, "/a")
    for asked in web.asked:
        assert asked.headers["user-agent"].startswith("Shoal/")
        assert asked.headers["accept-encoding"] == "gzip"
        assert asked.headers["host"] == f"127.0.0.1:{web.port}"
        assert "cookie" not in asked.headers


async def test_the_name_stays_in_the_request_and_the_address_is_the_checked_one(web: WebServer) -> None:
    """One look-up a hop: what the name says afterwards is not heard."""
    web.pages["/"] = reply("hello")
    names = Names(page_example=[["127.0.0.1"], ["169.254.169.254"]])
    answer = await fetcher(web, look_up=names).fetch_url(web.url("/", "page.example"), types=HTML)
    assert answer.body == b"hello"
    assert names.asked == ["page.example"]
    assert web.asked[0].headers["host"] == f"page.example:{web.port}"


async def test_a_name_that_changes_its_answer_is_blocked_at_the_redirect(web: WebServer) -> None:
    """Each hop is checked from the start."""
    web.pages["/"] = redirect("/again")
    names = Names(page_example=[["127.0.0.1"], ["10.0.0.1"]])
    with pytest.raises(ToolFailed, match=r"blocked address: 'page\.example' does not lead") as failure:
        await fetcher(web, look_up=names).fetch_url(web.url("/", "page.example"), types=HTML)
    assert "10.0.0.1" not in str(failure.value)
    assert len(web.asked) == 1


async def test_a_connection_goes_to_a_checked_address_or_nowhere(web: WebServer) -> None:
    """The last look: neither another name nor an address that the library takes as it stands gets a socket."""
    web.pages["/"] = reply("hello")
    connector = connector_to("page.example", (ip_address("127.0.0.1"),))
    async with aiohttp.ClientSession(connector=connector) as session:
        async with session.get(web.url("/", "page.example")) as response:
            assert response.status == 200
        for host in ("127.0.0.2", "localhost", "other.example", "[::1]"):
            with pytest.raises(aiohttp.ClientConnectorError):
                await session.get(web.url("/", host))
    async with aiohttp.ClientSession(connector=connector_to("page.example", (ip_address("8.8.8.8"),))) as session:
        with pytest.raises(aiohttp.ClientConnectorError):
            await session.get(web.url("/"))
    assert len(web.asked) == 1


async def test_one_blocked_address_among_good_ones_is_enough(web: WebServer) -> None:
    """Nobody may pick the bad one later."""
    web.pages["/"] = reply("hello")
    names = Names(page_example=[["127.0.0.1", "::1"]])
    with pytest.raises(ToolFailed, match="blocked address"):
        await fetcher(web, look_up=names).fetch_url(web.url("/", "page.example"), types=HTML)
    assert web.asked == []


async def test_a_name_without_an_answer_is_not_asked(web: WebServer) -> None:
    """No answer, nonsense or silence from the name server: the request is denied."""
    hang = asyncio.Event()

    async def silent(_host: str, _port: int) -> Sequence[str]:
        await hang.wait()
        return ["127.0.0.1"]

    for names in (Names(), Names(page_example=[[]]), Names(page_example=[["nonsense"]])):
        with pytest.raises(ToolFailed, match=r"host 'page\.example' was not found"):
            await fetcher(web, look_up=names).fetch_url(web.url("/", "page.example"), types=HTML)
    with pytest.raises(ToolFailed, match="was not found"):
        await fetcher(web, look_up=silent, connect_s=0.05).fetch_url(web.url("/", "page.example"), types=HTML)
    assert web.asked == []


@pytest.mark.parametrize(
    ("target", "text"),
    [
        ("http://169.254.169.254/latest/meta-data/", "blocked address 169.254.169.254"),
        ("http://2852039166/", "blocked address 169.254.169.254"),
        ("//[::ffff:a9fe:a9fe]/", "blocked address ::ffff"),
        ("http://127.0.0.1:6379/", "blocked port 6379"),
        ("http://localhost/", "blocked address 'localhost'"),
        ("file:///etc/passwd", "not a web address"),
        ("http://user:pass@example.org/", "user name or password"),
        ("http://[", "no valid URL"),
        ("http://\udcff\udcfe/", "no"),
    ],
)
async def test_a_redirect_to_a_forbidden_place_is_not_followed(web: WebServer, target: str, text: str) -> None:
    """Metadata, other spellings, other ports and other schemes."""
    web.pages["/"] = redirect(target)
    with pytest.raises(ToolFailed, match=text.replace("[", r"\[")):
        await get(web)


async def test_redirects_end(web: WebServer) -> None:
    """Five are followed, a loop is not."""
    web.pages["/loop"] = redirect("/loop")
    with pytest.raises(ToolFailed, match="redirects too often"):
        await get(web, "/loop")
    assert len(web.asked) == 6
    for number in range(5):
        web.pages[f"/{number}"] = redirect(f"/{number + 1}", 307)
    web.pages["/5"] = reply("there")
    assert (await get(web, "/0")).body == b"there"


async def test_a_request_with_a_key_is_not_redirected(web: WebServer) -> None:
    """A caller with headers of its own allows 0 redirects: the headers reach no other server."""
    web.pages["/"] = redirect("/other")
    with pytest.raises(ToolFailed, match="redirects too often"):
        await fetcher(web).fetch_url(web.url("/"), types=HTML, headers={"X-Key": "k"}, redirects=0)
    assert len(web.asked) == 1


async def for_ever(_asked: Asked, send: Send, data: bytes = b"x" * 65536, encoding: str = "identity") -> None:
    await send(head(200, {"Content-Type": "text/html", "Content-Encoding": encoding}))
    while True:
        await send(data)


async def test_a_body_without_an_end_is_cut_and_its_connection_closed(web: WebServer) -> None:
    """Ten gigabytes announced, or nothing announced: only so many bytes are taken."""

    async def announced(_asked: Asked, send: Send) -> None:
        await send(head(200, {"Content-Type": "text/html"}, size=10 * 1024**3))
        await for_ever(_asked, send)

    web.pages["/endless"] = for_ever
    web.pages["/announced"] = announced
    for path in ("/endless", "/announced"):
        answer = await get(web, path)
        assert answer.cut
        assert len(answer.body) == LIMIT_BYTES
        await eventually(lambda: web.open == 0)


async def test_a_body_of_just_the_limit_is_not_cut(web: WebServer) -> None:
    """The border itself, plain and packed."""
    body = b"x" * LIMIT_BYTES
    web.pages["/plain"] = reply(body)
    web.pages["/packed"] = reply(gzip.compress(body), Content_Encoding="gzip")
    web.pages["/more"] = reply(gzip.compress(body + b"y"), Content_Encoding="gzip")
    assert not (await get(web, "/plain")).cut
    assert not (await get(web, "/packed")).cut
    assert (await get(web, "/more")).cut


async def test_a_gzip_bomb_is_cut(web: WebServer) -> None:
    """A gigabyte in a megabyte, also as a thousand members, is never unpacked; nor is a packed stream without end."""
    packer = zlib.compressobj(9, wbits=31)
    bomb = b"".join(packer.compress(bytes(1024**2)) for _ in range(256)) + packer.flush()
    web.pages["/bomb"] = reply(bomb, Content_Encoding="gzip")
    web.pages["/members"] = reply(gzip.compress(bytes(1024)) * 1000, Content_Encoding="x-gzip")
    web.pages["/empty"] = lambda asked, send: for_ever(asked, send, gzip.compress(b"") * 1000, "gzip")
    for path, size in (("/bomb", LIMIT_BYTES), ("/members", LIMIT_BYTES), ("/empty", 0)):
        answer = await get(web, path)
        assert answer.cut
        assert len(answer.body) == size


async def test_packed_pages_are_unpacked(web: WebServer) -> None:
    """Several members are one body; a broken one is an error, and so is an encoding that nobody asked for."""
    web.pages["/two"] = reply(gzip.compress(b"one ") + gzip.compress(b"two"), Content_Encoding="gzip")
    web.pages["/broken"] = reply(b"no gzip at all", Content_Encoding="gzip")
    web.pages["/br"] = reply(b"...", Content_Encoding="br")
    assert (await get(web, "/two")).body == b"one two"
    with pytest.raises(ToolFailed, match="not valid"):
        await get(web, "/broken")
    with pytest.raises(ToolFailed, match="encoding 'br'"):
        await get(web, "/br")


async def test_a_server_that_is_too_slow_is_left(web: WebServer) -> None:
    """Silence before the first byte, in the head, and a byte now and then for ever."""

    async def silent(_asked: Asked, _send: Send) -> None:
        await asyncio.Event().wait()

    async def loris(_asked: Asked, send: Send) -> None:
        await send(head(200, {"Content-Type": "text/html"}))
        while True:
            await send(b"x")
            await asyncio.sleep(0.02)

    async def slow_head(_asked: Asked, send: Send) -> None:
        await send(b"HTTP/1.1 200 OK\r\n")
        while True:
            await send(b"X-A: b\r\n")
            await asyncio.sleep(0.05)

    web.pages |= {"/silent": silent, "/loris": loris, "/head": slow_head}
    with pytest.raises(ToolFailed, match="took too long"):
        await get(web, "/silent", silence_s=0.1, total_s=600.0)
    with pytest.raises(ToolFailed, match="took too long"):
        await get(web, "/loris", total_s=0.3)
    with pytest.raises(ToolFailed, match=r"took too long|not valid"):
        await get(web, "/head", total_s=0.3)
    await eventually(lambda: web.open == 0)


@pytest.mark.parametrize("type", ["image/png", "application/octet-stream", "text/html2", "", "nonsense", "video/*"])
async def test_another_type_is_refused_by_its_name(web: WebServer, type: str) -> None:
    """And its body is not read."""
    web.pages["/"] = reply(b"data", type)
    with pytest.raises(ToolFailed, match="cannot be read here"):
        await get(web)


@pytest.mark.parametrize(
    "bytes_",
    [
        b"",
        b"nonsense\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: 100\r\n\r\nshort",
        b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nX: " + b"x" * 100_000 + b"\r\n\r\n",
        b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * 10_000 + b"\r\n",
    ],
)
async def test_an_answer_that_is_no_http_is_an_error_of_the_tool(web: WebServer, bytes_: bytes) -> None:
    """Broken off, broken, or a head without measure."""

    async def send_it(_asked: Asked, send: Send) -> None:
        await send(bytes_)

    web.pages["/"] = send_it
    with pytest.raises(ToolFailed, match=r"not valid|took too long"):
        await get(web, total_s=5.0)


async def test_an_error_status_comes_without_its_body(web: WebServer) -> None:
    """The caller decides what it means."""
    web.pages["/"] = reply("secret trace", status=500)
    assert await get(web) == WebResponse(web.url("/"), 500, "text/html")


async def test_a_server_that_is_not_there_is_named_plainly(web: WebServer) -> None:
    """A closed port; and a server that speaks no TLS."""
    async with web_server() as other:
        pass
    with pytest.raises(ToolFailed, match=f"cannot be reached on port {other.port}"):
        await get(other)
    with pytest.raises(ToolFailed, match=r"cannot be reached|certificate|not valid|took too long"):
        await fetcher(web, connect_s=0.2).fetch_url(f"https://127.0.0.1:{web.port}/", types=HTML)


async def test_a_cancelled_fetch_leaves_no_connection_open(web: WebServer) -> None:
    """A stopped turn stops its fetch, in the head and in the body."""

    async def silent(_asked: Asked, _send: Send) -> None:
        await asyncio.Event().wait()

    async def drip(_asked: Asked, send: Send) -> None:
        await send(head(200, {"Content-Type": "text/html"}) + b"x")
        await asyncio.Event().wait()

    for handler in (silent, drip):
        web.pages["/"] = handler
        task = asyncio.create_task(get(web))
        await eventually(lambda: web.open == 1)
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
        assert task.cancelled()
        await eventually(lambda: web.open == 0)


async def test_fifty_fetches_at_once_do_not_mix(web: WebServer) -> None:
    """Each gets its own page."""

    async def own(asked: Asked, send: Send) -> None:
        await send(head(200, {"Content-Type": "text/html"}, size=len(asked.target)) + asked.target.encode())

    for number in range(50):
        web.pages[f"/{number}"] = own
    one = fetcher(web)
    answers = await asyncio.gather(*(one.fetch_url(web.url(f"/{number}"), types=HTML) for number in range(50)))
    assert [answer.body.decode() for answer in answers] == [f"/{number}" for number in range(50)]
    await eventually(lambda: web.open == 0)


async def test_no_proxy_of_the_environment_is_asked(web: WebServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """A proxy would connect for us, past every check."""
    async with web_server() as proxy:
        for name in ("http_proxy", "HTTP_PROXY", "ALL_PROXY", "all_proxy"):
            monkeypatch.setenv(name, proxy.url(""))
        web.pages["/"] = reply("direct")
        assert (await get(web)).body == b"direct"
        assert proxy.asked == []


async def test_the_system_knows_names_too() -> None:
    """The look-up that is used outside of tests: what it finds is checked like everything else."""
    policy = WebPolicy.from_settings(["localhost:8080"])
    async with web_server() as web:
        web.pages["/"] = reply("hello")
        allowed = Fetcher(WebPolicy.from_settings([f"localhost:{web.port}", "[::1]"]))
        assert (await allowed.fetch_url(web.url("/", "localhost"), types=HTML)).body == b"hello"
    with pytest.raises(ToolFailed, match="blocked address"):
        await Fetcher(policy).fetch_url("http://localhost/", types=HTML)
