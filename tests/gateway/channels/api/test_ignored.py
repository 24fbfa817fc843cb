"""Requests in the form of front ends and agent libraries: what cannot be served is ignored and named."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.channels.web.api.parameters import NAMED_LIMIT, ignored_header
from shared.store.client.redis_client import RedisClient
from tests.gateway.channels.api.asking import HELLO, asker, post, working
from tests.gateway.harness import gateway

WEATHER: Any = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "The weather of a city.",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    },
}
CUSTOM = {"type": "custom", "custom": {"name": "c"}}
USAGE = {"stream": True, "stream_options": {"include_usage": True}}

# Written by hand after what these clients are known to send, not recorded from them.
BODIES: dict[str, tuple[dict[str, Any], str]] = {
    "Open WebUI": (HELLO | USAGE | {"chat_id": "c-1", "top_k": 40}, "chat_id, top_k"),
    "tools that are no functions": (HELLO | {"tools": [CUSTOM], "tool_choice": "auto"}, "tools"),
    "functions, the older form": (HELLO | {"functions": [WEATHER["function"]], "function_call": "auto"}, "functions"),
    "a name that tries to begin a header": (
        HELLO | {"x\r\nSet-Cookie: a": 1, "é": 2},
        "x%0D%0ASet-Cookie%3A%20a, %C3%A9",
    ),
}


@pytest.mark.parametrize("case", BODIES)
async def test_what_cannot_be_served_is_ignored_and_named(redis_url: str, case: str) -> None:
    """The answer comes, whole or as a stream, and its header says what had no part in it."""
    body, named = BODIES[case]
    async with gateway(redis_url) as at, working(redis_url):
        result = await post(at.address, body)
    assert result.status == 200, result.body
    assert result.headers["shoal-ignored"] == named
    assert "set-cookie" not in result.headers
    assert b"hello" in result.body


@pytest.mark.parametrize("case", BODIES)
async def test_strict_refuses_it_by_name(redis_url: str, client: RedisClient, case: str) -> None:
    """With `api.strict` nothing of such a request becomes a message."""
    body, named = BODIES[case]
    async with gateway(redis_url, strict_api=True) as at:
        result = await post(at.address, body)
    assert (result.status, ignored_header((result.error["param"],))) == (400, named.partition(",")[0])
    assert result.error["code"] in ("unsupported_parameter", "unknown_parameter")
    assert await client.command("KEYS", "shoal:{0ax}:inbox:*") == []


async def test_an_ordinary_request_has_no_such_header(redis_url: str) -> None:
    """Also with an empty list of tools, and with null for an unknown name."""
    async with gateway(redis_url) as at, working(redis_url):
        for tools in ([], [WEATHER]):
            wishes = {"tools": tools, "tool_choice": "none", "functions": None, "top_k": None}
            result = await post(at.address, HELLO | wishes)
            assert (result.status, "shoal-ignored" in result.headers) == (200, False)


async def test_a_preset_of_that_name_does_not_take_the_place_of_shoal(redis_url: str) -> None:
    """`shoal` always stands for the chat's own choice, once, and first."""
    async with gateway(redis_url, presets=("fast", "shoal")) as at, asker(at.address) as client:
        assert [model.id for model in (await client.models.list()).data] == ["shoal", "fast"]


@given(st.lists(st.text(st.characters(exclude_categories=["Cs"])), max_size=100))
def test_any_names_make_one_small_header(names: list[str]) -> None:
    """Clients chose them: printable ASCII, and small enough for every HTTP library."""
    value = ignored_header(tuple(names))
    assert value.isascii()
    assert value.isprintable()
    assert len(value) <= (NAMED_LIMIT + 1) * 66
