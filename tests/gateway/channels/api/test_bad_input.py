"""Whatever is wrong with a request: one form of error, the thing by its name, no turn."""

from __future__ import annotations

import json
from base64 import b64encode
from pathlib import Path
from typing import Any

import openai as official
import pytest

from gateway.channels.web.api.completion import ApiLimits
from gateway.channels.web.api.errors import ApiError
from gateway.channels.web.api.files import SentFile, store_files
from gateway.channels.web.api.request import HISTORY_LIMIT_BYTES, MESSAGES_LIMIT
from shared.ids import session_id
from shared.media.disk import DiskFloor
from shared.media.store import MediaStore
from shared.messages.inbound import TEXT_LIMIT_BYTES
from shared.settings import MediaSettings
from shared.store import keys
from shared.store.client.redis_client import RedisClient
from shared.store.sessions.listing import row_of
from tests.gateway.channels.api.asking import HELLO, asker, named, post, read, stream_of, user, waiting_message, working
from tests.gateway.channels.api.asking import asking as asking_for
from tests.gateway.harness import TOKENS, gateway
from tests.helpers.media_files import PDF, png
from tests.helpers.wait import eventually

BODY_BYTES = ApiLimits().body_bytes


def data_url(data: bytes, type: str = "image/png") -> str:
    return f"data:{type};base64,{b64encode(data).decode()}"


def talk(*messages: Any) -> dict[str, Any]:
    return {"model": "shoal", "messages": list(messages)}


def part(**fields: Any) -> dict[str, Any]:
    """A message of one part."""
    return talk({"role": "user", "content": [fields]})


def schema_of(schema: Any) -> dict[str, Any]:
    """A message whose answer shall fit a schema."""
    form = {"type": "json_schema", "json_schema": {"name": "a", "schema": schema}}
    return {**HELLO, "response_format": form}


def deep(levels: int) -> bytes:
    objects = b'{"a":' * levels + b"1" + b"}" * levels
    return b'{"model":"shoal","messages":[{"role":"user","content":"hi"}],"metadata":' + objects + b"}"


BAD: dict[str, tuple[Any, int, str | None]] = {
    "no JSON": (b"hello", 400, None),
    "nothing": (b"", 400, None),
    "a list": ([1], 400, None),
    "cut off": (b'{"model": "shoal", "mess', 400, None),
    "not UTF-8": (b'{"model": "\xff"}', 400, None),
    "half a surrogate": (b'{"model": "\\ud800"}', 400, None),
    "a bare NUL": (b'{"model": "sho\0al"}', 400, None),
    "nested too deeply": (deep(100_000), 400, None),
    "no model": ({"messages": HELLO["messages"]}, 400, "model"),
    "no messages": ({"model": "shoal"}, 400, "messages"),
    "another model": (HELLO | {"model": "gpt-4o"}, 404, "model"),
    "a model with a NUL": (HELLO | {"model": "shoal\0"}, 404, "model"),
    "a number for a model": (HELLO | {"model": 7}, 400, "model"),
    "a text for messages": (HELLO | {"messages": "hello"}, 400, "messages"),
    "a text for a message": (HELLO | {"messages": ["hello"]}, 400, "messages"),
    "no message": (talk(), 400, "messages"),
    "only a system text": (talk({"role": "system", "content": "be nice"}), 400, "messages"),
    "an answer last": (talk(user("a"), {"role": "assistant", "content": "b"}), 400, "messages[1].role"),
    "a role that is none": (talk({"role": "boss", "content": "a"}), 400, "messages[0].role"),
    "no role": (talk({"content": "a"}), 400, "messages[0].role"),
    "tool calls that are no list": (
        talk({"role": "assistant", "tool_calls": 1}, user("a")),
        400,
        "messages[0].tool_calls",
    ),
    "a limit of nothing": (HELLO | {"max_tokens": 0}, 400, "max_tokens"),
    "a hot model": (HELLO | {"temperature": 2.1}, 400, "temperature"),
    "many stops": (HELLO | {"stop": ["a"] * 17}, 400, "stop"),
    "a long stop": (HELLO | {"stop": "a" * 257}, 400, "stop"),
    "a stop that is no text": (HELLO | {"stop": [1]}, 400, "stop"),
    "a form that is none": (HELLO | {"response_format": {"type": "xml"}}, 400, "response_format"),
    "a schema that is no object": (schema_of([]), 400, "response_format.json_schema.schema"),
    "a large schema": (schema_of({"enum": ["a" * 2**16]}), 400, "response_format.json_schema.schema"),
    "no text": (talk(user("")), 400, "messages[0].content"),
    "white space": (talk(user(" \n")), 400, "messages[0].content"),
    "null": (talk({"role": "user", "content": None}), 400, "messages[0].content"),
    "a number": (talk({"role": "user", "content": 7}), 400, "messages[0].content"),
    "a part that is none": (part(type="video"), 400, "messages[0].content[0]"),
    "a part without a type": (part(text="a"), 400, "messages[0].content[0]"),
    "a text part without text": (part(type="text"), 400, "messages[0].content[0]"),
    "sound": (part(type="input_audio", input_audio={"data": "", "format": "wav"}), 400, "messages[0].content[0]"),
    "a picture elsewhere": (
        part(type="image_url", image_url={"url": "http://169.254.169.254/x.png"}),
        400,
        "messages[0].content[0].image_url.url",
    ),
    "a picture that is none": (
        part(type="image_url", image_url={"url": data_url(b"MZ\0\0")}),
        400,
        "messages[0].content[0].image_url.url",
    ),
    "a picture that is not base64": (
        part(type="image_url", image_url={"url": "data:image/png;base64,???"}),
        400,
        "messages[0].content[0].image_url.url",
    ),
    "a file by its id": (part(type="file", file={"file_id": "f-1"}), 400, "messages[0].content[0].file.file_data"),
    "too many files": (
        talk({"role": "user", "content": [{"type": "image_url", "image_url": {"url": data_url(png())}}] * 5}),
        400,
        "messages",
    ),
    "too many messages": (talk(*[user("a")] * (MESSAGES_LIMIT + 1)), 400, "messages"),
    "a text that is too long": (talk(user("x" * (TEXT_LIMIT_BYTES + 1))), 413, "messages"),
    "a conversation that is too long": (talk(user("x" * (HISTORY_LIMIT_BYTES + 1)), user("a")), 413, "messages"),
    "a name that is a path": (HELLO | {"user": "a/b"}, 400, "user"),
    "a name that is too long": (HELLO | {"user": "x" * 300}, 400, None),
    "two answers": (HELLO | {"n": 2}, 400, "n"),
    "a tool that must be called": (
        HELLO | {"tools": [], "tool_choice": "required"},
        400,
        "tool_choice",
    ),
    "tools that are a text": (HELLO | {"tools": "all"}, 400, "tools"),
    "functions that are texts": (HELLO | {"functions": ["f"]}, 400, "functions"),
    "logprobs": (HELLO | {"logprobs": True}, 400, "logprobs"),
    "sound back": (HELLO | {"modalities": ["text", "audio"]}, 400, "modalities"),
    "a word for a number": (HELLO | {"temperature": "hot"}, 400, "temperature"),
    "a number for a switch": (HELLO | {"stream": 1}, 400, "stream"),
    "options without a stream": (HELLO | {"stream_options": {"include_usage": True}}, 400, "stream_options"),
}


@pytest.mark.parametrize("case", BAD)
async def test_a_bad_request_is_refused_by_name(redis_url: str, client: RedisClient, case: str, tmp_path: Path) -> None:
    """Status, and the parameter that is meant; nothing of it becomes a message."""
    body, status, param = BAD[case]
    async with gateway(redis_url, media=MediaSettings(dir=tmp_path)) as at:
        result = await post(at.address, body)
        assert (result.status, result.error["param"]) == (status, param), result.error
        assert result.error["type"] == "invalid_request_error"
    assert await client.command("KEYS", "shoal:{0ax}:inbox:*") == []


async def test_a_body_over_the_limit_is_not_read(redis_url: str) -> None:
    """Announced or not: 413 with the number, and the connection ends."""
    async with gateway(redis_url) as at:
        announced = {"Content-Length": str(BODY_BYTES + 1)}
        result = await post(at.address, b"{", headers=announced)
        assert (result.status, result.error["code"], result.headers["connection"]) == (413, "too_big", "close")
        async with asker(at.address) as ask:
            with pytest.raises(official.APIStatusError) as refused:
                await ask.chat.completions.create(**talk(user("x" * (BODY_BYTES + 1))))
            assert refused.value.status_code == 413
        async with stream_of(
            at.address, chunked(b"x" * (BODY_BYTES + 1)), headers={"Transfer-Encoding": "chunked"}
        ) as reader:
            assert (await read(reader)).status == 413


def chunked(data: bytes) -> bytes:
    return b"%x\r\n" % len(data) + data + b"\r\n0\r\n\r\n"


async def test_a_body_that_does_not_come_is_given_up(redis_url: str) -> None:
    """408; nobody holds a place by sending nothing."""
    async with gateway(redis_url, api_limits=ApiLimits(body_s=0.2)) as at:
        result = await post(at.address, b"{", headers={"Content-Length": "100"})
    assert result.status == 408


@pytest.mark.parametrize(
    ("headers", "status", "code"),
    [
        ({"Authorization": "Bearer wrong"}, 401, "invalid_api_key"),
        ({"Authorization": "Basic c2VzYW1l"}, 401, "invalid_api_key"),
        ({"Authorization": ""}, 401, "invalid_api_key"),
        ({"Origin": "https://evil.example"}, 403, "origin_not_allowed"),
        ({"Origin": "null"}, 403, "origin_not_allowed"),
        ({"Content-Type": "text/plain"}, 415, None),
        ({"Content-Type": ""}, 415, None),
        ({"Content-Encoding": "gzip"}, 415, None),
    ],
)
async def test_a_client_without_permission_gets_an_error(
    redis_url: str, headers: dict[str, str], status: int, code: str | None
) -> None:
    """Before the body is looked at."""
    async with gateway(redis_url) as at:
        result = await post(at.address, HELLO, headers=headers)
    assert (result.status, result.error["code"]) == (status, code)
    assert ("www-authenticate" in result.headers) == (status == 401)


async def test_a_token_in_the_address_is_none(redis_url: str) -> None:
    """It would stand in the log of every proxy."""
    async with gateway(redis_url) as at:
        for name in ("api_key", "token", "access_token"):
            path = f"/v1/chat/completions?{name}={TOKENS['owner']}"
            assert (await post(at.address, HELLO, token=None, path=path)).status == 401
        assert (
            await post(at.address, token=None, path=f"/v1/models?token={TOKENS['owner']}", method="GET")
        ).status == 401


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/v1/chat/completions", 405),
        ("OPTIONS", "/v1/chat/completions", 405),
        ("POST", "/v1/models", 405),
        ("POST", "/v1/completions", 404),
        ("POST", "/v1/embeddings", 404),
        ("GET", "/v1/", 404),
        ("DELETE", "/v1/models/shoal", 405),
    ],
)
async def test_what_is_not_there_is_an_error_in_the_same_form(
    redis_url: str, method: str, path: str, status: int
) -> None:
    """Also what the router refuses; outside of /v1 it is a problem, as before."""
    async with gateway(redis_url) as at:
        result = await post(at.address, method=method, path=path)
        assert (result.status, result.error["type"]) == (status, "invalid_request_error")
        assert ("allow" in result.headers) == (status == 405)
        beside = await post(at.address, method="GET", path="/v2/models")
        assert beside.headers["content-type"] == "application/problem+json"


async def test_a_fault_of_ours_is_an_error_in_the_same_form(redis_url: str, client: RedisClient) -> None:
    """Without a word of what broke. Here it is a key of Redis that holds something else."""
    await client.command("SET", keys.session(named("a")), "secret detail")
    async with gateway(redis_url) as at:
        result = await post(at.address, HELLO | {"user": "a"})
    assert (result.status, result.error["type"], result.error["code"]) == (503, "server_error", "broken")
    assert b"secret" not in result.body
    assert b"WRONGTYPE" not in result.body


async def test_a_nul_in_a_text_is_text(redis_url: str) -> None:
    """As anywhere in Shoal: it harms nothing, and comes back."""
    async with gateway(redis_url) as at, working(redis_url):
        result = await post(at.address, talk(user("a\0b")))
    assert result.json["choices"][0]["message"]["content"] == "you said: a\0b"


async def test_what_means_nothing_is_accepted(redis_url: str) -> None:
    """Every parameter with the value that asks for nothing, and those without effect."""
    quiet = {
        "n": 1, "tools": [], "tool_choice": "auto", "functions": None, "response_format": {"type": "text"},
        "modalities": ["text"], "stop": None, "logprobs": False, "top_logprobs": 0, "logit_bias": {}, "audio": None,
        "temperature": 1, "top_p": 0.5, "max_tokens": 10, "seed": 7, "store": False, "metadata": {"a": "b"},
        "service_tier": "auto", "reasoning_effort": "low", "parallel_tool_calls": True, "user": "",
    }  # fmt: skip
    async with gateway(redis_url) as at, working(redis_url):
        assert (await post(at.address, HELLO | quiet)).status == 200


async def test_metadata_is_noted_about_a_named_session(redis_url: str, client: RedisClient) -> None:
    """Merged with what is there, and seen by operators; it is no part of the message."""
    async with gateway(redis_url) as at, working(redis_url):
        assert (await post(at.address, HELLO | {"user": "ann", "metadata": {"customer": "4711"}})).status == 200
        assert (await post(at.address, HELLO | {"user": "ann", "metadata": {"admin": "1"}})).status == 200
        session = session_id("api", "owner/ann")
        assert (await row_of(client, session)).details.metadata == {"customer": "4711", "admin": "1"}
        for wrong in ({"a": 1}, {"a=b": "x"}, {"a": "x" * 5000}):
            refused = await post(at.address, HELLO | {"user": "ann", "metadata": wrong})
            assert (refused.status, refused.json["error"]["param"]) == (400, "metadata")


async def test_pictures_and_files_come_with_the_message(redis_url: str, client: RedisClient, tmp_path: Path) -> None:
    """As data: URLs, into the store of files; of earlier messages their names stay."""
    picture = {"type": "image_url", "image_url": {"url": data_url(png())}}
    plan = {"type": "file", "file": {"filename": "../plan.pdf", "file_data": data_url(PDF, "application/pdf")}}
    messages = [
        {"role": "user", "content": [picture, {"type": "text", "text": "what is it?"}]},
        {"role": "assistant", "content": "a dot"},
        {
            "role": "user",
            "content": [{"type": "text", "text": "and"}, {"type": "text", "text": "this?"}, picture, plan],
        },
    ]
    async with gateway(redis_url, media=MediaSettings(dir=tmp_path)) as at:
        async with asking_for(at.address, talk(*messages)):
            message = await waiting_message(client)
    assert message.content == "and\nthis?"
    assert [one.split(";")[-1] for one in message.media] == ["picture-1", "plan.pdf"]
    assert [entry.content for entry in message.history] == ["what is it?\n[picture]", "a dot"]


async def test_too_many_requests_at_once_are_refused(redis_url: str) -> None:
    """So that one token cannot hold every place there is."""
    async with gateway(redis_url, api_limits=ApiLimits(at_once_each=2, at_once=3)) as at:
        async with asking_for(at.address, HELLO), asking_for(at.address, HELLO):
            await eventually(lambda: at.channel.facts()["web.requests"] == "2")
            result = await post(at.address, HELLO)
            assert (result.status, result.error["code"], result.headers["retry-after"]) == (429, "too_many_open", "1")
            async with asking_for(at.address, HELLO, token="anns-secret"):
                await eventually(lambda: at.channel.facts()["web.requests"] == "3")
                assert (await post(at.address, HELLO, token="anns-secret")).status == 429


async def test_who_asks_faster_than_anybody_may_is_refused_before_anything_is_done(redis_url: str) -> None:
    """Also what would be refused anyway costs something."""
    async with gateway(redis_url, api_limits=ApiLimits(burst=2, per_s=0.1)) as at:
        result = [await post(at.address, b"no JSON") for _ in range(3)]
    assert [one.status for one in result] == [400, 400, 429]
    assert (result[2].error["code"], result[2].headers["retry-after"]) == ("rate_limited", "10")


def test_the_errors_are_json_that_names_four_things() -> None:
    """The table above is not empty of any kind."""
    assert {status for _, status, _ in BAD.values()} == {400, 404, 413}
    assert all(isinstance(body, bytes) or json.dumps(body) for body, _, _ in BAD.values())


async def test_a_full_disk_refuses_the_file(tmp_path: Path) -> None:
    """A text without a file would be answered; asking again soon helps nobody."""
    store = MediaStore(MediaSettings(dir=tmp_path / "media"), floor=DiskFloor(2**62, 1.0))
    with pytest.raises(ApiError, match="disk of this server is almost full") as refused:
        await store_files(store, "api:owner/x", [SentFile("messages[0]", "a.txt", b"text")], 4)
    assert (refused.value.status, refused.value.code) == (507, "disk_full")
