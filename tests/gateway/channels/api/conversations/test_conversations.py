"""Conversations by OpenAI's own client, in front of real gateways; what is wrong, by bare HTTP."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import openai as official
import pytest

from shared.messages.codec import encode
from shared.messages.transcript import AssistantEntry, ToolCall, ToolEntry, UserEntry, decode_transcript
from shared.store import keys
from shared.store.client.redis_client import RedisClient
from shared.store.sessions.erase import forget
from shared.store.turns.inbox import InboxLimits
from tests.gateway.channels.api.asking import answering, asker, asking, named, post, user, waiting_message, working
from tests.gateway.channels.api.by_hand import turn_by_hand
from tests.gateway.harness import TOKENS, Gateway, gateway

PATH = "/v1/conversations"
FUNCTION_CALL: Any = {"type": "function_call", "call_id": "c1", "name": "f", "arguments": "{}"}
OUTPUT: Any = {"type": "function_call_output", "call_id": "c1", "output": "rain"}


@pytest.fixture
async def at(redis_url: str) -> AsyncIterator[Gateway]:
    async with gateway(redis_url) as made:
        yield made


@pytest.fixture
async def one(at: Gateway) -> AsyncIterator[official.AsyncOpenAI]:
    async with asker(at.address) as made:
        yield made


def says(text: str, role: str = "user") -> Any:
    return {"type": "message", "role": role, "content": text}


def session_of(id: str) -> str:
    return named(id.removeprefix("conv_"))


async def texts(one: official.AsyncOpenAI, id: str, **query: Any) -> list[str]:
    """The texts of all items, oldest first."""
    found = one.conversations.items.list(id, order="asc", **query)
    return [text_of(item) async for item in found]


def text_of(item: Any) -> str:
    return str(item.content[0].text if item.type == "message" else item.type)


async def test_a_conversation_is_begun_read_changed_and_deleted(one: official.AsyncOpenAI, client: RedisClient) -> None:
    """Nothing of it is left; then it is as unknown as one that never was."""
    made = await one.conversations.create(metadata={"topic": "tides", "by": "ann"})
    assert made.object == "conversation"
    assert made.id.startswith("conv_c")
    assert made.metadata == {"topic": "tides", "by": "ann"}
    assert await one.conversations.retrieve(made.id) == made
    changed = await one.conversations.update(made.id, metadata={"topic": "moon"})
    assert (changed.id, changed.metadata) == (made.id, {"topic": "moon"})
    assert (await one.conversations.update(made.id, metadata=None)).metadata == {}
    page = await one.conversations.items.list(made.id)
    assert (page.data, page.has_more) == ([], False)
    gone = await one.conversations.delete(made.id)
    assert (gone.id, gone.object, gone.deleted) == (made.id, "conversation.deleted", True)
    assert await client.command("KEYS", f"*{session_of(made.id)}*") == []
    assert await client.command("ZCARD", keys.chats("api", "owner")) == 0


async def test_responses_are_its_items(one: official.AsyncOpenAI, redis_url: str) -> None:
    """By its id and as an object, beside chat completions of the same name; items come in pages and by their ids."""
    made = await one.conversations.create(items=[says("before"), says("so it was", "assistant")])
    async with working(redis_url):
        answer = await one.responses.create(model="shoal", input="a", conversation=made.id)
        assert answer.conversation is not None
        assert (answer.output_text, answer.conversation.id) == ("you said: a", made.id)
        await one.responses.create(model="shoal", input="b", conversation={"id": made.id})
        name = made.id.removeprefix("conv_")
        await one.chat.completions.create(model="shoal", user=name, messages=[user("c")])
    everything = ["before", "so it was", *(f"{who}{text}" for text in "abc" for who in ("", "you said: "))]
    assert await texts(one, made.id) == everything
    assert await texts(one, made.id, limit=3) == everything
    newest: Any = await one.conversations.items.list(made.id, limit=2)
    assert [text_of(item) for item in newest.data] == ["you said: c", "c"]
    assert (newest.has_more, newest.first_id, newest.last_id) == (True, newest.data[0].id, newest.data[1].id)
    following = await one.conversations.items.list(made.id, limit=2, after=newest.last_id)
    assert [text_of(item) for item in following.data] == ["you said: b", "b"]
    for item in newest.data:
        assert await one.conversations.items.retrieve(item.id, conversation_id=made.id) == item
    roles = [(item.role, item.content[0].type) for item in newest.data]
    assert roles == [("assistant", "output_text"), ("user", "input_text")]


async def test_a_named_session_is_a_conversation(one: official.AsyncOpenAI, redis_url: str) -> None:
    """Begun by its first message; the name is the program's own."""
    async with working(redis_url):
        await one.responses.create(model="shoal", input="a", conversation="support 4711")
    found = await one.conversations.retrieve("conv_support 4711")
    assert found.created_at > 1_700_000_000
    assert await texts(one, found.id) == ["a", "you said: a"]


async def test_the_model_reads_what_was_added(one: official.AsyncOpenAI, redis_url: str, client: RedisClient) -> None:
    """Marked as text that a program may have made up; equal texts are items of their own."""
    made = await one.conversations.create(items=[says("x"), says("x"), says("be brief", "system")])
    added = await one.conversations.items.create(made.id, items=[FUNCTION_CALL, OUTPUT, says("x", "assistant")])
    assert [item.type for item in added.data] == ["function_call", "function_call_output", "message"]
    assert await texts(one, made.id) == ["x", "x", "be brief", "function_call", "function_call_output", "x"]
    ids = [item.id async for item in one.conversations.items.list(made.id, order="asc")]
    assert len(set(ids)) == 6
    assert [item.id for item in added.data] == ids[3:]
    record = await client.command("LRANGE", keys.history(session_of(made.id)), 0, -1)
    first, *_, call, result, last = [decode_transcript(one) for one in record]
    assert (first.turn, first.sources, last.turn) == (1, ("messages of the API",), 2)
    assert isinstance(call, AssistantEntry)
    assert isinstance(result, ToolEntry)
    assert (result.name, result.client, result.sources) == ("f", True, ("messages of the API", "tools of the client"))
    marks = await client.command("HGET", keys.session(session_of(made.id)), "sources")
    assert marks.split(b"\n") == [b"messages of the API", b"tools of the client"]
    async with working(redis_url):
        await one.responses.create(model="shoal", input="a", conversation=made.id)
    assert (await texts(one, made.id))[-2:] == ["a", "you said: a"]


async def test_calls_of_own_tools_are_no_items(one: official.AsyncOpenAI, client: RedisClient) -> None:
    """Those of a program's functions are, also in the same reply."""
    made = await one.conversations.create()
    calls = (ToolCall("own", "exec", '{"secret": 1}'), ToolCall("theirs", "f", "{}"))
    entries = [
        UserEntry(content="a", turn=1),
        AssistantEntry(content="let me look", turn=1, tool_calls=calls),
        ToolEntry(call_id="own", name="exec", content="secret", turn=1),
        ToolEntry(call_id="theirs", name="f", content="rain", turn=1, client=True),
        AssistantEntry(content="rain", turn=1),
    ]
    for entry in entries:
        await client.command("RPUSH", keys.history(session_of(made.id)), encode(entry))
    await client.command("RPUSH", keys.history(session_of(made.id)), b"\x00")
    found: list[Any] = [item async for item in one.conversations.items.list(made.id, order="asc")]
    assert [item.type for item in found] == ["message", "message", "function_call", "function_call_output", "message"]
    assert (found[2].call_id, found[3].output) == ("theirs", "rain")


async def test_an_item_is_removed(one: official.AsyncOpenAI, client: RedisClient, redis_url: str) -> None:
    """The model does not read it any more; what belongs to calls stays whole."""
    items = [says("a"), says("b"), FUNCTION_CALL, OUTPUT]
    made = await one.conversations.create(items=items)
    found: list[Any] = [item async for item in one.conversations.items.list(made.id, order="asc")]
    assert await one.conversations.items.delete(found[0].id, conversation_id=made.id) == made
    with pytest.raises(official.NotFoundError) as gone:
        await one.conversations.items.delete(found[0].id, conversation_id=made.id)
    assert gone.value.code == "item_not_found"
    for call in found[2:]:
        with pytest.raises(official.BadRequestError) as refused:
            await one.conversations.items.delete(call.id, conversation_id=made.id)
        assert refused.value.code == "unsupported_item"
    left = await client.command("LRANGE", keys.history(session_of(made.id)), 0, -1)
    assert await client.command("HGET", keys.session(session_of(made.id)), "history") == b"%d" % sum(map(len, left))
    assert await client.command("HGET", keys.session(session_of(made.id)), "mark") == b"1"
    assert [item.id async for item in one.conversations.items.list(made.id, order="asc")] == [
        item.id for item in found[1:]
    ]


async def test_a_conversation_that_is_answered_is_not_changed(
    at: Gateway, one: official.AsyncOpenAI, client: RedisClient
) -> None:
    """The turn has read it; OpenAI's client asks again by itself."""
    made = await one.conversations.create(items=[says("a")])
    page: Any = await one.conversations.items.list(made.id)
    [item] = page.data
    body = {"model": "shoal", "input": "b", "conversation": made.id}
    async with asking(at.address, body, path="/v1/responses") as asked, turn_by_hand(client) as turn:
        for attempt in (
            one.conversations.items.create(made.id, items=[says("c")]),
            one.conversations.items.delete(item.id, conversation_id=made.id),
        ):
            with pytest.raises(official.ConflictError) as busy:
                await attempt
            assert busy.value.code == "conversation_busy"
        assert (await one.conversations.update(made.id, metadata={"a": "b"})).metadata == {"a": "b"}
        await turn.end("done")
        assert (await asked).status == 200
    await one.conversations.items.create(made.id, items=[says("c")])


async def test_deleting_ends_the_turn_that_runs(at: Gateway, one: official.AsyncOpenAI, client: RedisClient) -> None:
    made = await one.conversations.create()
    body = {"model": "shoal", "input": "b", "conversation": made.id}
    async with asking(at.address, body, path="/v1/responses") as asked:
        await waiting_message(client, session_of(made.id))
        await one.conversations.delete(made.id)
        assert (await asked).status == 409
    assert await client.command("EXISTS", keys.session(session_of(made.id))) == 0


async def missing(one: official.AsyncOpenAI, id: str) -> set[str]:
    """The codes of everything that can be asked of a conversation that is not there."""
    codes = set()
    for attempt in (
        one.conversations.retrieve(id),
        one.conversations.update(id, metadata={}),
        one.conversations.delete(id),
        one.conversations.items.list(id),
        one.conversations.items.create(id, items=[says("a")]),
        one.conversations.items.retrieve("msg_1", conversation_id=id),
        one.conversations.items.delete("msg_1", conversation_id=id),
        one.responses.create(model="shoal", input="a", conversation=id),
    ):
        with pytest.raises(official.NotFoundError) as refused:
            await attempt
        codes.add(f"{refused.value.code} {refused.value.message.partition('message')[2][:60]}")
    return codes


async def test_foreign_expired_deleted_and_unknown_ones_are_the_same(
    at: Gateway, one: official.AsyncOpenAI, client: RedisClient
) -> None:
    """Nobody learns which of these it was, and nothing is begun by asking."""
    foreign, expired, deleted = [await one.conversations.create(items=[says("secret")]) for _ in range(3)]
    await client.command("DEL", keys.session(session_of(expired.id)))
    await one.conversations.delete(deleted.id)
    async with asker(at.address, TOKENS["ann"]) as ann:
        found = [await missing(ann, foreign.id), await missing(one, expired.id), await missing(one, deleted.id)]
        found.append(await missing(one, "conv_c" + "0" * 32))
        assert found == [found[0]] * 4
        assert len(found[0]) == 1
        assert await client.command("KEYS", keys.session("*ann*")) == []
        mine = await ann.conversations.create(items=[says("mine")])
    assert await texts(one, foreign.id) == ["secret"]
    for id in ("nonsense", "conv_", "conv_~-x", "conv_a#b", "conv_" + "x" * 300, mine.id):
        assert (await post(at.address, path=f"{PATH}/{id.replace('#', '%23')}", method="GET")).status == 404


async def test_a_key_begins_one_conversation_and_adds_once(redis_url: str, one: official.AsyncOpenAI) -> None:
    """At once through two gateways, and later; other items under the key are refused, and a deleted one stays so."""
    body = {"items": [says("a")], "metadata": {"k": "v"}}
    more = {"items": [says("b"), says("b")]}
    first = {"Idempotency-Key": "k1"}
    second = {"Idempotency-Key": "k2"}
    async with gateway(redis_url) as a, gateway(redis_url) as b:
        made = await asyncio.gather(*(post(to.address, body, path=PATH, headers=first) for to in (a, b, a, b)))
        assert [one.status for one in made] == [200] * 4
        assert len({one.body for one in made}) == 1
        id = made[0].json["id"]
        path = f"{PATH}/{id}/items"
        added = await asyncio.gather(*(post(to.address, more, path=path, headers=second) for to in (a, b, a, b)))
        assert len({one.body for one in added}) == 1
        await one.conversations.items.create(id, items=[says("c")])
        assert (await post(b.address, more, path=path, headers=second)).body == added[0].body
        assert await texts(one, id) == ["a", "b", "b", "c"]
        for headers, other in ((first, PATH), (second, path)):
            refused = await post(a.address, {"items": [says("x")]}, path=other, headers=headers)
            assert (refused.status, refused.error["code"]) == (422, "idempotency_key_reused")
        await one.conversations.delete(id)
        again = await post(a.address, body, path=PATH, headers=first)
        assert (again.status, again.error["code"]) == (404, "conversation_not_found")


WRONG: dict[str, tuple[Any, str, str | None]] = {
    "no items": ({}, "items", "missing_required_parameter"),
    "items of another type": ({"items": "a"}, "items", "invalid_type"),
    "a reference": ({"items": [{"type": "item_reference", "id": "msg_1"}]}, "items[0]", "item_not_found"),
    "a hosted call": ({"items": [says("a"), {"type": "web_search_call"}]}, "items[1]", "unsupported_item"),
    "an unknown role": ({"items": [says("a"), says("a", "robot")]}, "items[1].role", None),
    "a result without its call": ({"items": [OUTPUT]}, "items[0]", "no_such_call"),
    "a call without its result": ({"items": [FUNCTION_CALL]}, "items", "missing_output"),
    "too much": ({"items": [says("x" * 600_000)]}, "items", "too_big"),
}


@pytest.mark.parametrize("kind", WRONG)
async def test_wrong_items_are_refused(at: Gateway, one: official.AsyncOpenAI, kind: str) -> None:
    """With their place in the request; nothing is added."""
    body, param, code = WRONG[kind]
    made = await one.conversations.create()
    refused = await post(at.address, body, path=f"{PATH}/{made.id}/items")
    assert (refused.status, refused.error["code"]) == (413 if code == "too_big" else 400, code)
    assert refused.error["param"] == param
    assert "input" not in refused.error["message"]
    assert "messages[" not in refused.error["message"]
    assert await texts(one, made.id) == []


async def test_other_wrong_requests_are_refused(at: Gateway, one: official.AsyncOpenAI) -> None:
    """Metadata that is too much, an unknown parameter where it is strict, a parent beside a conversation."""
    made = await one.conversations.create()
    path = f"{PATH}/{made.id}"
    for body, param in (({"metadata": {"a": "x" * 5000}}, "metadata"), ({}, "metadata"), ({"metadata": 1}, "metadata")):
        refused = await post(at.address, body, path=path)
        assert (refused.status, refused.error["param"]) == (400, param)
    ignored = await post(at.address, {"colour": "blue"}, path=PATH)
    assert (ignored.status, ignored.headers["shoal-ignored"]) == (200, "colour")
    parent = {"model": "shoal", "input": "a", "conversation": made.id, "previous_response_id": "resp_" + "0" * 32}
    refused = await post(at.address, parent, path="/v1/responses")
    assert (refused.status, refused.error["param"]) == (400, "previous_response_id")
    assert (await post(at.address, path=path, method="PUT")).status == 405
    assert (await post(at.address, {"metadata": {}}, path=path, token=None)).status == 401


async def test_conversations_count_as_sessions_of_their_token(redis_url: str) -> None:
    """Those that are there go on, whatever they were begun by."""
    limits = InboxLimits(api_sessions_per_person=2)
    async with gateway(redis_url, inbox_limits=limits) as at, asker(at.address) as one, working(redis_url):
        first, _ = [await one.conversations.create() for _ in range(2)]
        with pytest.raises(official.RateLimitError) as refused:
            await one.conversations.create()
        assert refused.value.code == "chat_limit"
        assert (await one.responses.create(model="shoal", input="a", conversation=first.id)).output_text
        await one.conversations.delete(first.id)
        await one.conversations.create()


async def test_forgetting_empties_a_conversation(one: official.AsyncOpenAI, client: RedisClient) -> None:
    """It is there, and begins anew."""
    made = await one.conversations.create(items=[says("a")])
    await forget(client, session_of(made.id))
    assert await texts(one, made.id) == []
    async with answering(client, {"content": "hi"}):
        assert (await one.responses.create(model="shoal", input="b", conversation=made.id)).output_text == "hi"


async def test_responses_after_items_fork_before_them(
    one: official.AsyncOpenAI, redis_url: str, client: RedisClient
) -> None:
    """A response goes on with what it has seen."""
    async with working(redis_url):
        made = await one.conversations.create(items=[says("first")])
        answer = await one.responses.create(model="shoal", input="a", conversation=made.id)
        await one.conversations.items.create(made.id, items=[says("later")])
        fork = await one.responses.create(model="shoal", input="b", previous_response_id=answer.id)
    name = f"api:owner/~-{fork.id.removeprefix('resp_')}"
    records = await client.command("LRANGE", keys.history(name), 0, -1)
    assert [decode_transcript(one).content for one in records] == ["first", "a", "you said: a", "b", "you said: b"]
