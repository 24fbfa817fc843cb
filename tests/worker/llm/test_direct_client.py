"""What is the direct client's alone; everything that it shares with LiteLLM's is in tests/contracts."""

from __future__ import annotations

import asyncio
import datetime
import gc
import ipaddress
import json
import socket
import ssl
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from shared.errors import ModelError, SettingsError
from shared.settings import ModelSettings, Secret
from tests.helpers.openai_bytes import ByteServer, byte_server
from tests.helpers.stream_server import stream_server
from worker.agent.model.model import LLMResponse, ModelRequest, ToolSpec
from worker.agent.tools.toolbox import Toolbox
from worker.llm.clients.direct_client import DirectModel
from worker.llm.routes import choose
from worker.tools.registry import build_tools

KEY = "sk-canary"
HELLO: list[dict[str, Any]] = [{"role": "system", "content": "be brief"}, {"role": "user", "content": "canary said hi"}]
WHOLE = b'{"choices":[{"index":0,"message":{"role":"assistant","content":"hello"},"finish_reason":"stop"}]}'
FIRST = b'data: {"choices":[{"delta":{"content":"one "},"finish_reason":null}]}\n\n'
LAST = b'data: {"choices":[{"delta":{"content":"two"},"finish_reason":"stop"}]}\n\n'
DONE = b"data: [DONE]\n\n"


class Asker:
    """A direct model at a server of bytes."""

    def __init__(self, server: ByteServer) -> None:
        self.server = server
        self.deltas: list[str] = []
        self.model = self.made()

    def made(self, **settings: Any) -> DirectModel:
        chosen: dict[str, Any] = {
            "name": "openai/x",
            "api_base": self.server.base_url,
            "api_key": Secret(KEY),
        } | settings
        return DirectModel(ModelSettings(**chosen))

    async def note(self, delta: str) -> None:
        self.deltas.append(delta)

    async def ask(self, *pieces: bytes, streamed: bool = True, **answer: Any) -> LLMResponse:
        self.server.answer(*pieces, **answer)
        return await self.model.chat(ModelRequest(HELLO), self.note if streamed else None)

    async def fail(self, *pieces: bytes, streamed: bool = True, **answer: Any) -> ModelError:
        with pytest.raises(ModelError) as raised:
            await self.ask(*pieces, streamed=streamed, **answer)
        assert "canary" not in f"{raised.value!r} {raised.value}"
        return raised.value


@pytest.fixture
async def asker() -> AsyncIterator[Asker]:
    async with byte_server() as server:
        asker = Asker(server)
        yield asker
        await asker.model.close()


# --- answers of every shape


async def test_a_whole_answer_to_a_request_for_a_stream_is_shown_at_once(asker: Asker) -> None:
    """Some servers cannot stream."""
    reply = await asker.ask(WHOLE, content_type="application/json; charset=utf-8")
    assert (reply.content, asker.deltas) == ("hello", ["hello"])


async def test_a_stream_to_a_request_for_a_whole_answer_is_put_together(asker: Asker) -> None:
    """Some gateways only stream."""
    reply = await asker.ask(FIRST, LAST, DONE, streamed=False)
    assert (reply.content, asker.deltas) == ("one two", [])


@pytest.mark.parametrize("content_type", ["text/plain", "application/octet-stream", "text/event-stream;charset=utf-8"])
async def test_a_stream_may_be_called_otherwise(asker: Asker, content_type: str) -> None:
    """As long as it is one."""
    assert (await asker.ask(FIRST, LAST, DONE, content_type=content_type)).content == "one two"


async def test_a_stream_is_whole_with_a_finish_reason_or_with_done(asker: Asker) -> None:
    """Either is said by somebody who means it. Of the end of a body whose length nobody gave, nobody can tell."""
    assert (await asker.ask(FIRST, LAST)).content == "one two"
    reply = await asker.ask(FIRST, DONE)
    assert (reply.content, reply.finish_reason) == ("one ", "stop")
    reply = await asker.ask(FIRST)
    assert (reply.content, reply.finish_reason) == ("one ", "stop")
    reply = await asker.ask(FIRST, chunked=False)
    assert (reply.content, reply.finish_reason) == ("one ", "")
    error = await asker.fail(FIRST, whole=False)
    assert (error.kind, error.retryable) == ("connection", True)
    error = await asker.fail(b": ping\n\n")
    assert error.kind == "connection"


async def test_what_comes_after_done_is_not_read(asker: Asker) -> None:
    """The reply is over."""
    assert (await asker.ask(FIRST, LAST, DONE + b"data: nonsense\n\n")).content == "one two"


@pytest.mark.parametrize(
    ("piece", "kind"),
    [
        (b'data: {"error":{"message":"canary","code":429}}\n\n', "rate_limit"),
        (b'data: {"error":{"message":"canary","type":"server_error","code":null}}\n\n', "connection"),
        (b'event: error\ndata: {"error":"canary"}\n\n', "connection"),
        (
            b'data: {"error":{"code":502},"choices":[{"delta":{"content":""},"finish_reason":"error"}]}\n\n',
            "overloaded",
        ),
        (b'data: {"error":{"message":"maximum context length is 5 tokens"}}\n\n', "context_length"),
        (b'data: {"choices":[{"delta":{"content":"canary\n\n', "bad_reply"),
        (b'data: {"choices":[{"delta":canary}]}\n\n', "bad_reply"),
    ],
)
async def test_a_fault_inside_a_stream_has_its_kind(asker: Asker, piece: bytes, kind: str) -> None:
    """In the first event and after text."""
    assert (await asker.fail(piece)).kind == kind
    assert (await asker.fail(FIRST, piece, LAST, DONE)).kind == kind
    assert asker.deltas == ["one "]


@pytest.mark.parametrize(
    "piece",
    [b'{"choices":"canary"}', b"canary", b"[1]", b"[" * 100_000, b"null", b"<html>canary</html>"],
)
async def test_an_event_that_is_no_part_of_an_answer_spoils_nothing(asker: Asker, piece: bytes) -> None:
    """What is around it is the answer; alone it is none."""
    event = b"data: " + piece + b"\n\n"
    assert (await asker.ask(FIRST, event, LAST, DONE)).content == "one two"
    assert (await asker.fail(event)).kind == "bad_reply"


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        (b'{"error":{"message":"canary","code":429}}', "rate_limit"),
        (b'{"choices":[]}', "bad_reply"),
        (b'{"choices":null}', "bad_reply"),
        (b'{"choices":[{}]}', "bad_reply"),
        (b"{}", "bad_reply"),
        (b"", "bad_reply"),
        (b"<html>canary", "bad_reply"),
    ],
)
@pytest.mark.parametrize("streamed", [True, False])
async def test_an_answer_that_is_none_has_its_kind(asker: Asker, body: bytes, kind: str, streamed: bool) -> None:
    """With status 200, as some gateways and every wrong address do it."""
    content_type = "text/html" if body.startswith(b"<") else "application/json"
    assert (await asker.fail(body, streamed=streamed, content_type=content_type)).kind == kind


async def test_an_answer_without_end_does_not_fill_the_memory(asker: Asker) -> None:
    """A whole one, one event of a stream, and the text of a refusal."""
    megabyte = b" " * 1024 * 1024
    error = await asker.fail(b"{", *[megabyte] * 65, content_type="application/json", streamed=False)
    assert error.kind == "bad_reply"
    assert (await asker.fail(FIRST, b"data: ", *[megabyte] * 17)).kind == "bad_reply"
    assert (await asker.fail(megabyte, status=500)).kind == "overloaded"


# --- the way there


async def test_a_redirect_is_not_followed(asker: Asker) -> None:
    """The key is for the address in the settings."""
    error = await asker.fail(b"", status=307, headers={"Location": f"{asker.server.base_url}/elsewhere"})
    assert (error.kind, len(asker.server.requests)) == ("bad_request", 1)
    assert "check model.name and model.api_base" in str(error)


async def test_a_connection_is_used_again(asker: Asker) -> None:
    """After a whole answer, after a stream and after a refusal; never after half of one."""
    for _ in range(3):
        await asker.ask(WHOLE, streamed=False, content_type="application/json")
        await asker.ask(FIRST, LAST, DONE)
        await asker.fail(b"{}", status=400, content_type="application/json")
    assert asker.server.connections == 1
    await asker.fail(FIRST, b'data: {"nonsense\n\n', LAST, DONE)
    await asker.ask(FIRST, LAST, DONE)
    assert asker.server.connections == 2


async def test_two_models_share_their_connections(asker: Asker) -> None:
    """One pool a process."""
    await asker.ask(WHOLE, streamed=False, content_type="application/json")
    await asker.made(name="openai/y").chat(ModelRequest(HELLO))
    assert asker.server.connections == 1


async def test_a_closed_model_leaves_nothing_open(asker: Asker) -> None:
    """Warnings about forgotten sockets are errors here."""
    await asker.ask(FIRST, LAST, DONE)
    await asker.model.close()
    await asker.model.close()
    gc.collect()


def test_another_loop_gets_connections_of_its_own() -> None:
    """A process that starts a new loop does not trip over the old one's."""

    async def once() -> str | None:
        async with byte_server() as server:
            asker = Asker(server)
            reply = await asker.ask(FIRST, LAST, DONE)
            await asker.model.close()
            return reply.content

    assert [asyncio.run(once()) for _ in range(2)] == ["one two", "one two"]


async def test_no_proxy_of_the_environment_is_used(asker: Asker, monkeypatch: pytest.MonkeyPatch) -> None:
    """What people write goes where the settings say."""
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    assert (await asker.ask(FIRST, LAST, DONE)).content == "one two"


async def test_a_certificate_that_nobody_signed_is_refused(asker: Asker, tmp_path: Path) -> None:
    """The key is not even sent; there is no switch for that."""
    received: list[bytes] = []

    async def hear(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        received.append(await reader.read())
        writer.close()

    async with stream_server(hear, ssl=self_signed(tmp_path)) as port:
        asker.model = asker.made(api_base=f"https://127.0.0.1:{port}/v1")
        assert (await asker.fail()).kind == "connection"
    assert b"".join(received) == b""


def self_signed(folder: Path) -> ssl.SSLContext:
    """A server's context with a certificate for 127.0.0.1 that it signed itself."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "127.0.0.1")])
    now = datetime.datetime.now(datetime.UTC)
    address = x509.IPAddress(ipaddress.ip_address("127.0.0.1"))
    made = x509.CertificateBuilder(name, name, key.public_key(), 1, now, now + datetime.timedelta(days=1))
    signed = made.add_extension(x509.SubjectAlternativeName([address]), critical=False).sign(key, hashes.SHA256())
    file = folder / "server.pem"
    secret = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    file.write_bytes(secret + signed.public_bytes(Encoding.PEM))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(file)
    return context


async def test_a_server_that_hangs_up_is_a_connection_fault(asker: Asker) -> None:
    """Before its headers, by a reset."""

    async def reset(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        writer.close()

    async with stream_server(reset) as port:
        asker.model = asker.made(api_base=f"http://127.0.0.1:{port}/v1")
        for streamed in (True, False):
            assert (await asker.fail(streamed=streamed)).kind == "connection"


@pytest.mark.parametrize("key", ["sk\nx", "sk-ключ", "sk\x00"])
def test_a_key_that_no_header_holds_ends_the_start(key: str) -> None:
    """With a line that does not repeat it."""
    with pytest.raises(SettingsError, match=r"model\.api_key has characters") as raised:
        DirectModel(ModelSettings(name="openai/x", api_key=Secret(key)))
    assert key not in str(raised.value)


async def test_without_a_key_no_header_is_sent(asker: Asker) -> None:
    """A local server needs none."""
    asker.model = asker.made(api_key=None)
    await asker.ask(FIRST, LAST, DONE)
    assert "authorization" not in asker.server.requests[0][0].lower()


# --- the request


async def test_system_text_and_tools_are_written_once_and_stay_the_same(asker: Asker) -> None:
    """A provider's prompt cache lives on bytes that do not change; a list that may change is read each time."""
    specs = Toolbox(build_tools()).specs()
    asker.server.answer(WHOLE, content_type="application/json")
    for tools in (specs, specs, list(specs), specs[:1], ()):
        await asker.model.chat(ModelRequest(HELLO, tools))
    bodies = [body for _, body in asker.server.requests]
    assert bodies[0] == bodies[1] == bodies[2]
    asked = [json.loads(body) for body in bodies]
    assert [len(body.get("tools", ())) for body in asked] == [len(specs)] * 3 + [1, 0]
    assert asked[0]["messages"] == HELLO
    assert asked[0]["tools"][0]["function"]["parameters"] == specs[0].parameters


async def test_kept_bytes_are_never_those_of_another_text(asker: Asker) -> None:
    """Texts and tools come and go, and new ones may lie where old ones lay."""
    asker.server.answer(WHOLE, content_type="application/json")
    for n in range(200):
        tools = (ToolSpec(f"tool_{n}", "d", {"type": "object"}),)
        await asker.model.chat(ModelRequest([{"role": "system", "content": f"system {n}"}, HELLO[1]], tools))
    for n, (_, body) in enumerate(asker.server.requests):
        asked = json.loads(body)
        assert asked["messages"][0] == {"role": "system", "content": f"system {n}"}
        assert asked["tools"][0]["function"]["name"] == f"tool_{n}"


async def test_a_cache_gets_its_marks_where_it_needs_them(asker: Asker) -> None:
    """On the system text and on the last tool; nothing else changes, and the caller's messages never do."""
    asker.model = asker.made(name="openrouter/anthropic/claude-sonnet-4.5")
    before = repr(HELLO)
    specs = Toolbox(build_tools(["calculate", "roll_dice"])).specs()
    asker.server.answer(WHOLE, content_type="application/json")
    await asker.model.chat(ModelRequest(HELLO, specs))
    asked = json.loads(asker.server.requests[0][1])
    mark = {"cache_control": {"type": "ephemeral"}}
    assert asked["model"] == "anthropic/claude-sonnet-4.5"
    assert asked["messages"] == [
        {"role": "system", "content": [{"type": "text", "text": "be brief", **mark}]},
        HELLO[1],
    ]
    assert asked["tools"][0].keys() == {"type", "function"}
    assert asked["tools"][1] == asked["tools"][1] | mark
    assert repr(HELLO) == before


@pytest.mark.parametrize(
    ("name", "streamed", "sent", "absent"),
    [
        ("moonshot/kimi-k2.5", False, {"temperature": 1.0}, {"max_completion_tokens"}),
        ("openai/gpt-5", False, {"max_completion_tokens": 9}, {"temperature", "max_tokens"}),
        ("mistral/x", True, {"max_tokens": 9, "stream": True}, {"stream_options"}),
        ("groq/x", True, {"stream_options": {"include_usage": True}}, set()),
    ],
)
async def test_a_provider_gets_the_parameters_that_it_takes(
    asker: Asker, name: str, streamed: bool, sent: dict[str, Any], absent: set[str]
) -> None:
    """As the registry says."""
    asker.model = asker.made(name=name)
    asker.server.answer(WHOLE, content_type="application/json")
    await asker.model.chat(ModelRequest(HELLO, max_tokens=9), asker.note if streamed else None)
    asked = json.loads(asker.server.requests[0][1])
    assert asked == asked | sent
    assert not absent & asked.keys()


@pytest.mark.parametrize("content", ["\ud800", object()])
async def test_what_cannot_be_written_is_a_bad_request(asker: Asker, content: object) -> None:
    """Nothing is sent, and the turn learns of it."""
    with pytest.raises(ModelError) as raised:
        await asker.model.chat(ModelRequest([{"role": "user", "content": content}]))
    assert (raised.value.kind, asker.server.requests) == ("bad_request", [])


def test_a_route_may_be_written_down() -> None:
    """For a log or a test: it holds no key."""
    route = choose(ModelSettings(name="groq/x", api_key=Secret(KEY)))
    assert KEY not in msgspec.json.encode(route).decode()
