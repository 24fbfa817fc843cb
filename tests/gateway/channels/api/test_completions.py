"""OpenAI's own client against a gateway: what people do with it."""

from __future__ import annotations

from typing import Any

import openai as official
import pytest
from openai.types.chat import ChatCompletion, ChatCompletionChunk

from shared.messages.outbound import TokensUsed
from shared.messages.transcript import AssistantEntry, UserEntry
from shared.store import keys
from shared.store.client.redis_client import RedisClient
from shared.store.turns.inbox import InboxLimits
from tests.gateway.channels.api.asking import (
    HELLO,
    answering,
    asker,
    asking,
    named,
    none_left,
    of_one_request,
    post,
    text_of,
    user,
    waiting_message,
    working,
)
from tests.gateway.harness import TOKENS, gateway
from tests.helpers.wait import eventually


async def test_an_answer_has_every_field_of_openais(redis_url: str) -> None:
    """The client's own models read it, and nothing in it is beyond them."""
    async with gateway(redis_url) as at, working(redis_url):
        result = await post(at.address, HELLO)
    answer = ChatCompletion.model_validate_json(result.body, strict=True)
    assert (answer.object, answer.model, answer.model_extra) == ("chat.completion", "shoal", {})
    [choice] = answer.choices
    assert (choice.index, choice.finish_reason, choice.model_extra) == (0, "stop", {})
    assert (choice.message.role, choice.message.content) == ("assistant", "you said: hello")
    assert answer.id.removeprefix("chatcmpl-") == result.headers["x-request-id"]
    assert result.headers["cache-control"] == "no-store"
    assert result.headers["x-content-type-options"] == "nosniff"


async def test_a_stream_says_who_speaks_then_the_text_then_why_it_ends(redis_url: str) -> None:
    """In OpenAI's order; with `include_usage` every piece has the field, and the last one the numbers."""
    async with gateway(redis_url) as at, working(redis_url), asker(at.address) as client:
        stream = await client.chat.completions.create(
            model="shoal", messages=[user("hello")], stream=True, stream_options={"include_usage": True}
        )
        chunks = [chunk async for chunk in stream]
    first, *middle, end, usage = chunks
    assert (first.choices[0].delta.role, first.choices[0].delta.content) == ("assistant", "")
    assert "".join(chunk.choices[0].delta.content or "" for chunk in middle) == "you said: hello"
    assert [chunk.choices[0].finish_reason for chunk in (first, *middle, end)] == [None] * (len(middle) + 1) + ["stop"]
    assert (usage.choices, [chunk.usage for chunk in chunks[:-1]]) == ([], [None] * (len(chunks) - 1))
    assert usage.usage is not None
    assert len({(chunk.id, chunk.created, chunk.model) for chunk in chunks}) == 1


async def test_the_events_of_a_stream_are_what_the_protocol_says(redis_url: str) -> None:
    """Bytes: an event each, [DONE] at the end, no header that lets a proxy hold them back, no usage unasked."""
    async with gateway(redis_url) as at, working(redis_url):
        result = await post(at.address, HELLO | {"stream": True})
    assert result.headers["content-type"] == "text/event-stream; charset=utf-8"
    assert (result.headers["x-accel-buffering"], result.headers["cache-control"]) == ("no", "no-store, no-transform")
    *events, done, rest = result.body.decode().split("\n\n")
    assert (done, rest) == ("data: [DONE]", "")
    for event in events:
        chunk = ChatCompletionChunk.model_validate_json(event.removeprefix("data: "), strict=True)
        assert (chunk.object, chunk.model_extra, chunk.usage) == ("chat.completion.chunk", {}, None)
    assert b'"usage"' not in result.body


async def test_the_models_are_the_usual_one_and_the_presets(redis_url: str) -> None:
    """`shoal`, which leaves the choice to the chat, is first: front ends preselect the first."""
    async with gateway(redis_url, presets=("fast", "deep")) as at, asker(at.address) as client:
        listed = await client.models.list()
        assert [(model.id, model.object) for model in listed.data] == [
            ("shoal", "model"), ("fast", "model"), ("deep", "model"),
        ]  # fmt: skip
        assert (await client.models.retrieve("deep")).id == "deep"
        with pytest.raises(official.NotFoundError) as refused:
            await client.models.retrieve("gpt-7")
        assert refused.value.code == "model_not_found"


@pytest.mark.parametrize(("model", "preset"), [("shoal", None), ("deep", "deep")])
async def test_the_model_that_is_named_answers(
    redis_url: str, client: RedisClient, model: str, preset: str | None
) -> None:
    """It travels with the message."""
    async with gateway(redis_url, presets=("deep",)) as at, asking(at.address, HELLO | {"model": model, "user": "a"}):
        message = await waiting_message(client, named("a"))
        assert message.metadata.get("preset") == preset


async def test_a_named_session_takes_the_last_message_alone(redis_url: str, client: RedisClient) -> None:
    """It has its own history: whatever else the client sends is not read again."""
    talk = [{"role": "system", "content": "be brief"}, user("one"), {"role": "assistant", "content": "1"}, user("two")]
    async with gateway(redis_url) as at, asking(at.address, {"model": "shoal", "messages": talk, "user": "ann@x.org"}):
        message = await waiting_message(client, named("ann@x.org"))
    assert (message.content, message.history, message.sender_id) == ("two", (), "owner")
    assert (message.channel, message.chat_id) == ("api", "owner/ann@x.org")


async def test_without_a_name_the_messages_are_the_conversation(redis_url: str, client: RedisClient) -> None:
    """System text is what a user said; the session is of this request alone."""
    talk = [{"role": "system", "content": "be brief"}, user("one"), {"role": "assistant", "content": "1"}, user("two")]
    async with gateway(redis_url) as at, asking(at.address, {"model": "shoal", "messages": talk}):
        message = await waiting_message(client)
        assert message.content == "two"
        assert message.history == (
            UserEntry(content="be brief", turn=0),
            UserEntry(content="one", turn=0),
            AssistantEntry(content="1", turn=0),
        )
        assert message.chat_id == f"owner/~{message.id}"


async def test_the_header_names_the_session_before_the_user(redis_url: str) -> None:
    """Two messages of one name are one conversation, over whichever way the name came."""
    async with gateway(redis_url) as at, working(redis_url) as worker, asker(at.address) as client:
        await client.chat.completions.create(
            model="shoal", messages=[user("one")], user="other", extra_headers={"X-Shoal-Session": "work"}
        )
        await client.chat.completions.create(model="shoal", messages=[user("two")], user="work")
    assert [session for session, _ in worker.turns] == [named("work")] * 2


async def test_one_token_cannot_reach_another_persons_session(redis_url: str) -> None:
    """The name stands behind the person's own, and cannot be written so that it stands elsewhere."""
    async with gateway(redis_url) as at, working(redis_url) as worker:
        await post(at.address, HELLO | {"user": "a"}, token="anns-secret")
        await post(at.address, HELLO | {"user": "a"})
        for name in ("../ann/a", "ann/a", "~x", " a", "a\n", "a#b", "a\0"):
            assert (await post(at.address, HELLO | {"user": name})).error["code"] == "bad_session"
    assert sorted(session for session, _ in worker.turns) == [named("a", "ann"), named("a")]


async def test_nothing_is_left_of_a_request_without_a_session(redis_url: str, client: RedisClient) -> None:
    """Twenty requests, whole and streamed: no key of theirs is there when they are answered."""
    async with gateway(redis_url) as at, working(redis_url) as worker, asker(at.address) as ask:
        for n in range(10):
            await ask.chat.completions.create(model="shoal", messages=[user(f"{n}")])
            stream = await ask.chat.completions.create(model="shoal", messages=[user(f"s{n}")], stream=True)
            assert await text_of(stream) == f"you said: s{n}"
        assert len(set(of_one_request(worker.turns))) == 20
        await eventually(lambda: none_left(client), within_s=60)
    due = await client.command("ZRANGE", keys.EPHEMERAL, 0, -1, "WITHSCORES")
    assert (len(due), set(due[1::2])) == (40, {b"0"}), "their files are swept within a minute"


async def test_a_chat_command_works_in_a_named_session_alone(redis_url: str) -> None:
    """What is asked without a session is material, whatever it begins with: /forget in it forgets nothing."""
    async with gateway(redis_url) as at, working(redis_url) as worker, asker(at.address) as client:
        result = await client.chat.completions.create(model="shoal", messages=[user("/help")], user="a")
        assert "/new" in (result.choices[0].message.content or "")
        plain = await client.chat.completions.create(model="shoal", messages=[user("/help")])
        assert plain.choices[0].message.content == "you said: /help"
    assert len(worker.turns) == 1


ENDS: list[tuple[dict[str, Any], int, str]] = [
    ({"content": "Sorry (reference 1234)", "kind": "apology"}, 500, "turn_failed"),
    ({"content": "", "kind": "withdrawn"}, 409, "turn_dropped"),
    ({"content": "Sorry.", "kind": "apology", "failed": "bad_request"}, 400, "model_refused"),
    ({"content": "Sorry.", "kind": "apology", "failed": "context_length"}, 400, "context_length_exceeded"),
    ({"content": "Sorry.", "kind": "apology", "failed": "auth"}, 403, "model_auth"),
    ({"content": "Sorry.", "kind": "apology", "failed": "invalid_output"}, 500, "invalid_output"),
    ({"content": "Sorry.", "kind": "apology", "failed": "of a newer release"}, 500, "turn_failed"),
]


async def test_the_owner_alone_reads_the_words_of_the_provider(redis_url: str, client: RedisClient) -> None:
    """It may name the account behind the model; everybody else gets the short text."""
    line = {"content": "Sorry.", "kind": "apology", "failed": "bad_request", "refusal": "max_tokens is too large"}
    errors = {}
    async with gateway(redis_url) as at, answering(client, line):
        for principal, token in TOKENS.items():
            errors[principal] = (await post(at.address, HELLO, token=token)).error
    assert errors.pop("owner")["message"] == "Sorry. The provider: max_tokens is too large"
    assert errors
    assert {error["message"] for error in errors.values()} == {"Sorry."}


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(("line", "status", "code"), ENDS)
async def test_a_turn_that_gives_no_answer_is_an_error_that_is_not_repeated(
    redis_url: str, client: RedisClient, line: dict[str, Any], status: int, code: str, stream: bool
) -> None:
    """The client's own retries would begin the turn again: it is told not to."""
    async with gateway(redis_url) as at, asker(at.address, retries=2) as ask:
        async with answering(client, line) as asked:
            if stream:
                with pytest.raises(official.APIError) as failed:
                    await text_of(await ask.chat.completions.create(**HELLO, stream=True))
            else:
                with pytest.raises(official.APIStatusError) as refused:
                    await ask.chat.completions.create(**HELLO)
                assert refused.value.status_code == status
                failed = refused
            assert failed.value.code == code
        assert len(asked) == 1


async def test_tokens_are_those_that_the_worker_counted(redis_url: str, client: RedisClient) -> None:
    """And a reply that ran into a limit says so as a model that did would."""
    line = {"content": "not all", "unfinished": True, "usage": TokensUsed(prompt=20, completion=3, cached=16)}
    async with gateway(redis_url) as at, asker(at.address) as ask, answering(client, line):
        result = await ask.chat.completions.create(**HELLO)
    assert result.choices[0].finish_reason == "length"
    assert result.usage is not None
    assert (result.usage.prompt_tokens, result.usage.completion_tokens, result.usage.total_tokens) == (20, 3, 23)
    assert result.usage.prompt_tokens_details is not None
    assert result.usage.prompt_tokens_details.cached_tokens == 16


async def test_a_busy_session_that_takes_nothing_says_when_to_come_again(redis_url: str, client: RedisClient) -> None:
    """`busy = "reject"`: 429, and the same key is a new message afterwards."""
    limits = InboxLimits(busy="reject")
    key = {"Idempotency-Key": "k"}
    async with gateway(redis_url, inbox_limits=limits) as at:
        async with asking(at.address, HELLO | {"user": "a"}):
            await waiting_message(client, named("a"))
            result = await post(at.address, HELLO | {"user": "a"}, headers=key)
            assert (result.status, result.error["code"], result.headers["retry-after"]) == (429, "busy", "5")
            async with working(redis_url) as worker:
                await eventually(lambda: worker.turns, within_s=60)
                again = await post(at.address, HELLO | {"user": "a"}, headers=key)
    assert (again.status, len(worker.turns)) == (200, 2)


async def test_a_client_over_its_rate_gets_a_time_to_retry(redis_url: str) -> None:
    """The limit of senders holds for the API: 429, the number, Retry-After."""
    async with gateway(redis_url, inbox_limits=InboxLimits(sender_per_minute=2)) as at, working(redis_url):
        result = [await post(at.address, HELLO) for _ in range(3)]
    assert [one.status for one in result] == [200, 200, 429]
    assert result[2].error["type"] == "rate_limit_error"
    assert (result[2].error["code"], "2 messages" in result[2].error["message"]) == ("sender_limit", True)
    assert 1 <= int(result[2].headers["retry-after"]) <= 60
