"""The steps of a turn over HTTP: from the conversation, the archive or the transcript, masked, for its person alone."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from gateway.channels.web.http.work_log import CHARS, steps_of
from shared.messages.codec import encode
from shared.messages.transcript import AssistantEntry, ToolCall, ToolEntry, TranscriptEntry, UserEntry
from shared.store import keys
from shared.store.client.redis_client import RedisClient
from shared.store.sessions.transcripts import pack_pages
from tests.gateway.harness import TOKENS, Gateway, client, gateway, session_of
from tests.gateway.test_chat_search import get

SESSION = session_of("a")


@pytest.fixture
async def gw(redis_url: str) -> AsyncIterator[Gateway]:
    async with gateway(redis_url) as running:
        async with client(running.address) as owner:
            await owner.say("a", "hello")
        yield running


def turn(n: int, *calls: tuple[str, str, str], text: str | None = None) -> list[TranscriptEntry]:
    """What history keeps of a turn with these calls: name, arguments, result."""
    made = tuple(ToolCall(f"c{n}-{at}", name, given) for at, (name, given, _) in enumerate(calls))
    results = [ToolEntry(call_id=f"c{n}-{at}", name=one[0], content=one[2], turn=n) for at, one in enumerate(calls)]
    asked = [AssistantEntry(content=text, turn=n, tool_calls=made)] if made else []
    return [UserEntry(content="do it", turn=n), *asked, *results, AssistantEntry(content="Done.", turn=n)]


async def keep(store: RedisClient, key: str, entries: Sequence[TranscriptEntry]) -> None:
    await store.command("RPUSH", key, *map(encode, entries))


async def test_steps_are_found_wherever_they_have_gone(gw: Gateway) -> None:
    """In the conversation, in what `/new` ended, and in the transcript behind both."""
    old = [encode(one) for n in range(1, 60) for one in turn(n, ("read_file", '{"path":"a"}', f"text {n}"))]
    for page in pack_pages(old):
        await gw.client.command("XADD", keys.transcript(SESSION), "*", "p", page)
    await keep(gw.client, keys.archive(SESSION), turn(60, ("exec", '{"command":"ls -l"}', "a.txt")))
    await keep(gw.client, keys.history(SESSION), turn(61, ("now", "{}", "12:00"), text="Let me look."))
    for n, step in (
        (3, {"name": "read_file", "arguments": '{\n  "path": "a"\n}', "result": "text 3", "ok": True}),
        (60, {"name": "exec", "arguments": '{\n  "command": "ls -l"\n}', "result": "a.txt", "ok": True}),
    ):
        status, body, kind = await get(gw, f"/work/a/{n}")
        assert (status, kind, json.loads(body)) == (200, "application/json", {"steps": [step]})
    _, body, _ = await get(gw, "/work/a/61")
    assert json.loads(body)["steps"] == [
        {"text": "Let me look."}, {"name": "now", "arguments": "", "result": "12:00", "ok": True},
    ]  # fmt: skip


async def test_what_is_not_there_says_so(gw: Gateway) -> None:
    """A turn that is gone or never was; a chat of somebody else."""
    await keep(gw.client, keys.history(SESSION), turn(7, ("now", "{}", "12:00")))
    for n in (1, 8, 99999999999999999999):
        status, body, _ = await get(gw, f"/work/a/{n}")
        assert (status, json.loads(body)["detail"]) == (404, "the steps of this answer are not kept any more")
    assert (await get(gw, "/work/a/7", TOKENS["ann"]))[0] == 404
    assert (await get(gw, "/work/a/7", "wrong"))[0] == 401
    assert (await get(gw, "/work/b/7"))[0] == 404
    assert (await get(gw, "/work/a/x"))[0] == 404


async def test_a_damaged_record_hides_no_other(gw: Gateway) -> None:
    entries = [encode(one) for one in turn(1, ("now", "{}", "12:00"))]
    await gw.client.command("RPUSH", keys.history(SESSION), b"\xff\x00", *entries, b"{")
    status, body, _ = await get(gw, "/work/a/1")
    assert (status, len(json.loads(body)["steps"])) == (200, 1)


def test_secrets_are_masked_before_a_text_is_cut() -> None:
    """Half of one at the end of what is shown would not look like one."""
    secret = "sk-" + "a1b2c3d4" * 4
    long = "x" * (CHARS - 20) + " " + secret + " end"
    [step] = steps_of(turn(1, ("exec", json.dumps({"command": f"curl -H 'Authorization: Bearer {secret}'"}), long)))
    assert "a1b2" not in step["arguments"] + step["result"]
    assert len(step["result"]) <= CHARS


@given(st.text(max_size=300), st.text(max_size=300))
def test_any_arguments_and_results_are_shown(arguments: str, result: str) -> None:
    """Valid JSON or not; each call is one step."""
    [step] = steps_of(turn(1, ("tool", arguments, result)))
    assert step["name"] == "tool"
    assert step["ok"]


def test_thoughts_stand_before_what_they_led_to() -> None:
    """Those before a call, and those before the answer; a secret in them is masked."""
    secret = "sk-" + "a1b2c3d4" * 4
    asked, called, result, answer = turn(1, ("now", "{}", "12:00"), text="Let me look.")
    called = replace(called, reasoning=f"The clock of {secret} knows.\n")
    answer = replace(answer, reasoning="Now I know.")
    steps = steps_of([asked, called, result, answer])
    assert [next(iter(step)) for step in steps] == ["thoughts", "text", "name", "thoughts"]
    assert steps[0]["thoughts"].endswith("knows.")
    assert "a1b2" not in steps[0]["thoughts"]
    assert steps[3] == {"thoughts": "Now I know."}


def test_a_call_without_a_result_has_failed() -> None:
    entries = [AssistantEntry(content=None, turn=1, tool_calls=(ToolCall("c", "exec", "{}"),))]
    assert steps_of(list(entries)) == [{"name": "exec", "arguments": "", "result": "", "ok": False}]
