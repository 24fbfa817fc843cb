"""The official MCP client against a gateway and a tiny worker."""

from __future__ import annotations

import asyncio

import pytest
from mcp.shared.exceptions import MCPError

from gateway.channels.web.api.completion import ApiLimits
from shared.messages.outbound import TokensUsed
from shared.store.client.redis_client import RedisClient
from tests.gateway.channels.api.asking import answering, named, none_left, post, stream_of, waiting_message, working
from tests.gateway.channels.mcp.calling import ACCEPT, INITIALIZE, MODERN, caller, text_of
from tests.gateway.harness import TOKENS, gateway
from tests.helpers.wait import eventually


@pytest.mark.parametrize("mode", ["auto", "legacy", MODERN])
async def test_there_is_one_tool_and_it_answers(redis_url: str, mode: str) -> None:
    """Clients of each generation of the protocol list it and call it."""
    async with gateway(redis_url, mcp=True) as at, working(redis_url), caller(at.address, mode=mode) as client:
        [tool] = (await client.list_tools()).tools
        assert (tool.name, tool.input_schema["required"]) == ("ask", ["message"])
        result = await client.call_tool("ask", {"message": "hello"})
    assert (result.is_error, text_of(result)) == (False, "you said: hello")
    assert result.structured_content == {"session": None, "usage": {"input_tokens": 0, "output_tokens": 0}}


async def test_a_call_without_a_session_leaves_nothing(redis_url: str, client: RedisClient) -> None:
    """Its session ends with its answer."""
    async with gateway(redis_url, mcp=True) as at, working(redis_url), caller(at.address) as mcp:
        await mcp.call_tool("ask", {"message": "hello"})
        await eventually(lambda: none_left(client))


async def test_a_session_is_one_of_the_principal(redis_url: str, client: RedisClient) -> None:
    """The same name is the same conversation for one token, and another one for another; usage is that of the turn."""
    line = {"content": "four", "usage": TokensUsed(prompt=7, completion=2)}
    async with gateway(redis_url, mcp=True) as at, answering(client, line) as asked:
        async with caller(at.address) as owner, caller(at.address, TOKENS["ann"]) as ann:
            for mcp in (owner, owner, ann):
                result = await mcp.call_tool("ask", {"message": "2 + 2?", "session": "sums"})
    assert result.structured_content == {"session": "sums", "usage": {"input_tokens": 7, "output_tokens": 2}}
    assert [message.chat_id for message in asked] == ["owner/sums", "owner/sums", "ann/sums"]


async def test_wrong_arguments_and_refusals_are_results(redis_url: str) -> None:
    """The model of the client can read them; an unknown tool is an error of the protocol."""
    async with gateway(redis_url, mcp=True) as at, caller(at.address) as client:
        for arguments in ({}, {"message": " "}, {"message": "a", "session": "a/b"}, {"message": "a" * 70_000}):
            result = await client.call_tool("ask", arguments)
            assert result.is_error
            assert text_of(result)
        with pytest.raises(MCPError, match="there is no tool 'run'"):
            await client.call_tool("run", {"message": "hello"})


async def test_a_failed_turn_is_an_error_of_the_tool(redis_url: str, client: RedisClient) -> None:
    """With the words for people, and its reference."""
    line = {"content": "It did not work (ab12).", "kind": "apology"}
    async with gateway(redis_url, mcp=True) as at, answering(client, line), caller(at.address) as mcp:
        result = await mcp.call_tool("ask", {"message": "hello"})
    assert (result.is_error, text_of(result)) == (True, "It did not work (ab12).")


@pytest.mark.parametrize("session", [None, "work"])
async def test_a_client_that_leaves_takes_its_message_back(
    redis_url: str, client: RedisClient, session: str | None
) -> None:
    """Closing the request is how the protocol cancels: no worker sees the message."""
    arguments = {"message": "hello"} | ({"session": session} if session else {})
    async with gateway(redis_url, mcp=True) as at, caller(at.address, mode=MODERN) as mcp:
        call = asyncio.create_task(mcp.call_tool("ask", arguments))
        await waiting_message(client, named(session) if session else "")
        call.cancel()
        await asyncio.wait([call])
        await eventually(lambda: at.channel.facts()["web.requests"] == "0")
        async with answering(client, {"content": "here"}) as asked:
            await mcp.call_tool("ask", {"message": "again"})
    assert [message.content for message in asked] == ["again"]


async def test_an_older_client_that_leaves_takes_its_message_back(redis_url: str, client: RedisClient) -> None:
    """There the library answers in a task of its own, which ends with the connection, too."""
    params = {"name": "ask", "arguments": {"message": "hello", "session": "work"}}
    body = {"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": params}
    async with gateway(redis_url, mcp=True) as at:
        async with stream_of(at.address, body, path="/mcp", headers=ACCEPT):
            await waiting_message(client, named("work"))
        await eventually(lambda: at.channel.facts()["web.requests"] == "0")
        async with answering(client, {"content": "here"}) as asked, caller(at.address) as mcp:
            await mcp.call_tool("ask", {"message": "again", "session": "work"})
    assert [message.content for message in asked] == ["again"]


async def test_token_origin_and_size_are_looked_at_before_the_protocol(redis_url: str) -> None:
    """As for the API."""
    origin = {"Origin": "https://strange.example"}
    limits = ApiLimits(body_bytes=2000)
    async with gateway(redis_url, mcp=True, api_limits=limits) as at:
        wrong = await post(at.address, INITIALIZE, path="/mcp", headers=ACCEPT, token="wrong")
        none = await post(at.address, INITIALIZE, path="/mcp", headers=ACCEPT, token=None)
        strange = await post(at.address, INITIALIZE, path="/mcp", headers=ACCEPT | origin)
        large = await post(at.address, INITIALIZE | {"more": "a" * 2000}, path="/mcp", headers=ACCEPT)
        right = await post(at.address, INITIALIZE, path="/mcp", headers=ACCEPT)
        got = await post(at.address, path="/mcp", method="GET", headers=ACCEPT)
    assert [one.status for one in (wrong, none, strange, large, right, got)] == [401, 401, 403, 413, 200, 405]
    assert strange.error["code"] == "origin_not_allowed"


async def test_calls_have_the_rate_of_the_api(redis_url: str) -> None:
    """One bucket for a token, however it asks."""
    async with gateway(redis_url, mcp=True, api_limits=ApiLimits(burst=1, per_s=0.001)) as at:
        statuses = [(await post(at.address, INITIALIZE, path="/mcp", headers=ACCEPT)).status for _ in range(2)]
    assert statuses == [200, 429]


async def test_there_is_no_such_address_unless_it_is_on(redis_url: str) -> None:
    """It is off by default."""
    async with gateway(redis_url) as at:
        assert (await post(at.address, INITIALIZE, path="/mcp", headers=ACCEPT)).status == 404
