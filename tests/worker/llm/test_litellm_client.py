"""LiteLLM against a real server: replies, streams, tools, and every fault a provider can have."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from shared.errors import ModelError, TurnStopped
from shared.messages.transcript import UserEntry
from shared.settings import ModelSettings, Secret
from tests.helpers.openai_server import Answer, Call, ScriptedOpenAI
from tests.helpers.turn_borders import MemoryJournal, RecordingShow
from tests.helpers.wait import eventually
from worker.agent.loop import run_agent
from worker.agent.model import LLMResponse, ToolCallRequest
from worker.agent.tool import Toolbox
from worker.agent.turn import AgentRunSpec
from worker.llm.litellm_client import LiteLLMModel
from worker.tools.registry import build_tools

pytestmark = [  # of LiteLLM's own types
    pytest.mark.filterwarnings("ignore:Item '.*' on TypedDict class:UserWarning"),
    pytest.mark.filterwarnings("ignore:Accessing the 'model_:DeprecationWarning"),
]

KEY = "sk-canary-of-the-key"
TEXT = "canary of the message"
BOTH = pytest.mark.parametrize("streamed", [False, True])


class Client:
    """A model at the scripted server, and the deltas that it gave."""

    def __init__(self, server: ScriptedOpenAI) -> None:
        self.server = server
        self.deltas: list[str] = []
        self.models: list[LiteLLMModel] = []

    def model(self, **settings: Any) -> LiteLLMModel:
        headers = settings.pop("headers", None)
        chosen: dict[str, Any] = {"name": "openai/scripted", "api_base": self.server.base_url, "api_key": Secret(KEY)}
        chosen |= settings
        self.models.append(LiteLLMModel(ModelSettings(**chosen), headers=headers))
        return self.models[-1]

    async def note(self, delta: str) -> None:
        self.deltas.append(delta)

    async def ask(self, *answers: Answer, streamed: bool = False, **settings: Any) -> LLMResponse:
        self.server.script(*answers)
        said = [{"role": "user", "content": TEXT}]
        return await self.model(**settings).chat(said, on_delta=self.note if streamed else None)

    async def fail(self, *answers: Answer, streamed: bool = False, **settings: Any) -> ModelError:
        with pytest.raises(ModelError) as raised:
            await self.ask(*answers, streamed=streamed, **settings)
        return raised.value


@pytest.fixture
async def client(server: ScriptedOpenAI) -> AsyncIterator[Client]:
    client = Client(server)
    await client.model().warm()
    yield client
    for model in client.models:
        await model.close()


@BOTH
async def test_text_thoughts_usage_and_finish_reason_arrive(client: Client, streamed: bool) -> None:
    """A reply is the same whether it was streamed or not, and its deltas are its content."""
    reply = await client.ask(Answer(text="Hello  there\n- you", reasoning="hm"), streamed=streamed)
    assert (reply.content, reply.reasoning_content, reply.finish_reason) == ("Hello  there\n- you", "hm", "stop")
    assert reply.usage.prompt_tokens > 0
    assert reply.usage.completion_tokens > 0
    assert "".join(client.deltas) == ("Hello  there\n- you" if streamed else "")


@BOTH
async def test_tool_calls_arrive_whole_and_repaired(client: Client, streamed: bool) -> None:
    """Several calls, their arguments in pieces, one of them broken, one beyond repair."""
    wanted = [Call("look", '{"text": "a b c d e"}'), Call("look", "{'n': 1,}", "own-id"), Call("look", "nothing")]
    reply = await client.ask(Answer(text="I look.", calls=wanted), streamed=streamed)
    assert reply.tool_calls == (
        ToolCallRequest("call_0", "look", {"text": "a b c d e"}, '{"text": "a b c d e"}'),
        ToolCallRequest("own-id", "look", {"n": 1}, "{'n': 1,}"),
        ToolCallRequest("call_2", "look", None, "nothing"),
    )
    assert (reply.content, reply.finish_reason) == ("I look.", "tool_calls")


@BOTH
async def test_an_empty_and_a_cut_reply_are_replies(client: Client, streamed: bool) -> None:
    """The loop decides what to do about them."""
    assert (await client.ask(Answer(text=""), streamed=streamed)).content is None
    reply = await client.ask(Answer(text="half", finish_reason="length"), streamed=streamed)
    assert (reply.content, reply.finish_reason) == ("half", "length")


async def test_only_what_was_set_is_sent(client: Client) -> None:
    """Tools and tool_choice only together; at least one token; own headers; the key as the provider wants it."""
    model = client.model(headers={"X-Team": "shoal"})
    messages = [{"role": "system", "content": "be"}, {"role": "user", "content": "hi"}]
    await model.chat(messages, max_tokens=0, temperature=0.1)
    await model.chat(messages, Toolbox(build_tools(["calculate"])).specs(), on_delta=client.note)
    first, second = client.server.requests()
    assert first.body["messages"] == messages
    assert (first.body["max_tokens"], first.body["temperature"], first.body["model"]) == (1, 0.1, "scripted")
    assert not {"tools", "tool_choice", "stream", "stream_options"} & set(first.body)
    assert (first.headers["authorization"], first.headers["x-team"]) == (f"Bearer {KEY}", "shoal")
    assert (second.body["tool_choice"], second.body["stream_options"]) == ("auto", {"include_usage": True})
    assert second.body["tools"][0]["function"]["name"] == "calculate"


ERRORS = [
    (Answer(status=429), "rate_limit", True, None),
    (Answer(status=429, retry_after="7"), "rate_limit", True, 7.0),
    (Answer(status=429, retry_after="0.5"), "rate_limit", True, 0.5),
    (Answer(status=429, retry_after="soon"), "rate_limit", True, None),
    (Answer(status=500), "overloaded", True, None),
    (Answer(status=503, retry_after="3"), "overloaded", True, 3.0),
    (Answer(status=529), "overloaded", True, None),
    (Answer(status=408), "timeout", True, None),
    (Answer(status=401), "auth", False, None),
    (Answer(status=403), "auth", False, None),
    (Answer(status=400), "bad_request", False, None),
    (Answer(status=404), "bad_request", False, None),
    (
        Answer(
            status=400,
            error={"message": "This model's maximum context length is 8192 tokens.", "code": "context_length_exceeded"},
        ),
        "context_length",
        False,
        None,
    ),
    (Answer(text="a b c d", cut_after=2), "connection", True, None),
    (Answer(text="a b c d", cut_after=0), "connection", True, None),
    (Answer(text="a b c d", fault="garbage"), "bad_reply", True, None),
]


@BOTH
@pytest.mark.parametrize(("answer", "kind", "retryable", "retry_after_s"), ERRORS)
async def test_every_fault_has_its_kind(
    client: Client, answer: Answer, kind: str, retryable: bool, retry_after_s: float | None, streamed: bool
) -> None:
    """One call, one request, one ModelError with what the caller needs to decide."""
    error = await client.fail(answer, streamed=streamed)
    assert (error.kind, error.retryable, error.retry_after_s) == (kind, retryable, retry_after_s)
    assert client.server.stats()["requests"] == 1


@BOTH
async def test_an_unprocessable_request_is_a_bad_request(client: Client, streamed: bool) -> None:
    """LiteLLM sends it once more in other words; what stays refused is not retried by us."""
    error = await client.fail(Answer(status=422, times=0), streamed=streamed)
    assert (error.kind, error.retryable) == ("bad_request", False)
    assert client.server.stats()["requests"] <= 3


@BOTH
async def test_an_error_quotes_neither_key_nor_message(client: Client, streamed: bool) -> None:
    """Providers repeat both in their errors; ours go to the log."""
    told = Answer(status=400, error={"message": f"bad input {TEXT!r} for key {KEY}"})
    error = await client.fail(told, streamed=streamed)
    for text in (str(error), repr(error), repr(error.__cause__)):
        assert KEY not in text
        assert "canary" not in text
    assert "check model.name" in str(error)


@BOTH
async def test_nobody_there_is_a_connection_fault(client: Client, streamed: bool) -> None:
    """Port 1 of this machine answers nothing."""
    error = await client.fail(streamed=streamed, api_base="http://127.0.0.1:1/v1")
    assert (error.kind, error.retryable) == ("connection", True)


async def test_an_unknown_provider_is_a_bad_request() -> None:
    """A name without a known prefix reaches nobody, and says what to check."""
    model = LiteLLMModel(ModelSettings(name="no-such-provider/x"))
    with pytest.raises(ModelError, match=r"check model\.name") as raised:
        await model.chat([{"role": "user", "content": "hi"}])
    assert (raised.value.kind, raised.value.retryable) == ("bad_request", False)
    await model.close()


@pytest.mark.parametrize(
    ("answer", "settings", "streamed", "says"),
    [
        (Answer(fault="hang"), {"first_token_s": 0.2}, True, "no first token within 0.2 s"),
        (Answer(text="a b", first_s=60), {"first_token_s": 0.2}, True, "no first token within 0.2 s"),
        (Answer(text="a b c", stall_after=2), {"between_tokens_s": 0.2}, True, "no further token within 0.2 s"),
        (Answer(text="a " * 99, delta_s=0.05), {"total_s": 0.4}, True, "not done within 0.4 s"),
        (Answer(fault="hang"), {"total_s": 0.2}, False, "not done within 0.2 s"),
    ],
)
async def test_a_silent_model_is_given_up_and_its_connection_closed(
    client: Client, answer: Answer, settings: dict[str, float], streamed: bool, says: str
) -> None:
    """First token, next token and the whole have each their time; nothing is left open at the provider."""
    await client.ask()  # the library loads more of itself in its first call
    error = await client.fail(answer, streamed=streamed, **settings)
    assert (error.kind, error.retryable) == ("timeout", True)
    assert says in str(error)
    await eventually(lambda: client.server.stats()["open"] == 0)


async def test_a_slow_model_that_keeps_talking_is_waited_for(client: Client) -> None:
    """The time between tokens begins again with each."""
    slow = Answer(text="a b c d e", delta_s=0.15)
    reply = await client.ask(slow, streamed=True, first_token_s=5.0, between_tokens_s=0.5)
    assert reply.content == "a b c d e"


async def test_what_the_listener_raises_goes_up_and_ends_the_call(client: Client) -> None:
    """A stop in the middle of a stream closes the connection, so that no more tokens are paid for."""

    async def stop(delta: str) -> None:
        raise TurnStopped

    client.server.script(Answer(text="a " * 1000, delta_s=0.05))
    with pytest.raises(TurnStopped):
        await client.model().chat([{"role": "user", "content": "hi"}], on_delta=stop)
    await eventually(lambda: client.server.stats()["open"] == 0)


async def test_a_cancelled_call_closes_its_connection(client: Client) -> None:
    """A drain leaves nothing behind at the provider."""
    task = asyncio.create_task(client.ask(Answer(text="a b", stall_after=1), streamed=True))
    await eventually(lambda: client.deltas)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await eventually(lambda: client.server.stats()["open"] == 0)


async def test_many_calls_run_at_once(client: Client) -> None:
    """Thirty streams of 0.3 s each do not wait for one another."""
    client.server.script(Answer(text="one two three", total_s=0.3, times=0))
    model = client.model()
    replies = await asyncio.gather(
        *(model.chat([{"role": "user", "content": "hi"}], on_delta=client.note) for _ in range(30))
    )
    assert {reply.content for reply in replies} == {"one two three"}
    assert client.server.stats()["most_open"] > 15


async def test_a_whole_turn_goes_through(client: Client) -> None:
    """Loop, tools, client and server together: a broken stream, a tool call, thoughts, an answer."""
    client.server.script(
        Answer(text="I will now", cut_after=2),
        Answer(text="<think>six times seven</think>Let me see.", calls=[Call("calculate", '{"expression": "6 * 7",}')]),
        Answer(pieces=["<thi", "nk>4", "2</th", "ink>It is ", "42."]),
    )
    show, journal = RecordingShow(), MemoryJournal()
    spec = AgentRunSpec(session="s", entry=UserEntry(content="6 * 7?", turn=1), system="be")
    result = await run_agent(spec, client.model(), Toolbox(build_tools()), journal, show=show)
    assert result.content == "It is 42."
    assert show.visible == "It is 42."
    assert show.log[:3] == ["I ", "will ", "<reset>"]
    assert "42" in str(client.server.requests()[2].body["messages"][-1]["content"])
    assert journal.events[:3] == ["checkpoint", "checkpoint", "assistant"]
