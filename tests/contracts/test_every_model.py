"""One suite for every Model: whatever the loop relies on. Below it what every client of a provider also promises."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from shared.errors import ModelError, TurnStopped
from shared.messages.transcript import UserEntry
from shared.settings import ModelSettings, Secret
from shared.store.client.redis_client import RedisClient
from shared.store.fleet.provider_limits import ProviderLimits
from tests.helpers.openai_server import Answer, Call, ScriptedOpenAI
from tests.helpers.scripted_model import Reply, ScriptedModel, call, calls
from tests.helpers.turn_borders import MemoryJournal, RecordingProgress
from tests.helpers.wait import eventually
from worker.agent.loop import run_agent
from worker.agent.model.model import LLMResponse, Model, ModelRequest, ToolCallRequest
from worker.agent.model.think import strip_think
from worker.agent.tools.toolbox import Toolbox
from worker.agent.turn import AgentRunSpec
from worker.llm.clients.direct_client import DirectModel
from worker.llm.clients.litellm_client import LiteLLMModel
from worker.llm.demo.demo_model import DemoModel
from worker.llm.policies.retry import FallbackModel, RetryingModel
from worker.llm.registry import Models
from worker.tools.registry import build_tools

pytestmark = [  # of LiteLLM's own types
    pytest.mark.filterwarnings("ignore:Item '.*' on TypedDict class:UserWarning"),
    pytest.mark.filterwarnings("ignore:Accessing the 'model_:DeprecationWarning"),
]

SPECS = Toolbox(build_tools()).specs()
HELLO: list[dict[str, Any]] = [{"role": "system", "content": "be"}, {"role": "user", "content": "Hello"}]
SUM: list[dict[str, Any]] = [{"role": "user", "content": "Calculate 1 + 2"}]
ANSWERED: list[dict[str, Any]] = [
    *SUM,
    {
        "role": "assistant",
        "content": None,
        "tool_calls": [
            {"id": "c1", "type": "function", "function": {"name": "calculate", "arguments": '{"expression": "1 + 2"}'}}
        ],
    },
    {"role": "tool", "tool_call_id": "c1", "name": "calculate", "content": "1 + 2 = 3"},
]


def scripted_reply(messages: list[dict[str, Any]]) -> Reply:
    if messages[-1]["role"] == "user" and messages[-1]["content"].startswith("Calculate"):
        return calls(call("calculate", {"expression": "1 + 2"}), text="I calculate.")
    return LLMResponse(content=f"You said: {messages[-1]['content']}")


class Away(ScriptedModel):
    """Never answers."""

    def __init__(self) -> None:
        super().__init__(lambda _: ModelError("overloaded", "scripted", retryable=True))


@pytest.fixture(scope="module")
def server() -> Iterator[ScriptedOpenAI]:
    with ScriptedOpenAI(in_thread=True) as server:
        yield server


CLIENTS: dict[str, type[DirectModel] | type[LiteLLMModel]] = {"direct": DirectModel, "litellm": LiteLLMModel}


KINDS = ["scripted", "demo", "direct", "litellm", "retrying demo", "retrying direct", "fallback direct", "chain direct"]


@pytest.fixture(params=KINDS)
async def model(request: pytest.FixtureRequest, server: ScriptedOpenAI) -> AsyncIterator[Model]:
    """Each kind of model; the last part of the name says what is inside."""
    kind: str = request.param
    inner: Model
    if kind.endswith(tuple(CLIENTS)):
        server.reset()
        server.script(
            Answer(
                match="^Calculate",
                role="user",
                text="I calculate.",
                calls=[Call("calculate", '{"expression": "1 + 2"}')],
            )
        )
        settings = ModelSettings(name="openai/scripted", api_base=server.base_url, api_key=Secret("sk-x"))
        inner = CLIENTS[kind.split()[-1]](settings)
    elif kind.endswith("demo"):
        inner = DemoModel(piece_s=0.0)
    else:
        inner = ScriptedModel(scripted_reply)
    model: Model = inner
    limiter: RedisClient | None = None
    if kind.startswith("chain"):
        limiter = RedisClient(request.getfixturevalue("redis_url"))
        model = Models(settings, ProviderLimits(limiter)).get()
    elif kind.startswith("retrying"):
        model = RetryingModel(inner)
    elif kind.startswith("fallback"):
        model = FallbackModel([Away(), inner])
    yield model
    await model.close()
    if limiter is not None:
        await limiter.close()


async def collect(model: Model, messages: list[dict[str, Any]]) -> tuple[LLMResponse, list[str]]:
    deltas: list[str] = []

    async def note(delta: str) -> None:
        deltas.append(delta)

    return await model.chat(ModelRequest(messages, SPECS), note), deltas


async def test_the_deltas_joined_are_the_content(model: Model) -> None:
    """What people saw is what is kept; nothing is sent as an empty delta."""
    reply, deltas = await collect(model, HELLO)
    assert reply.content
    assert "".join(deltas) == reply.content
    assert len(deltas) > 1
    assert all(deltas)


async def test_a_reply_is_the_same_streamed_or_not(model: Model) -> None:
    """Who listens does not change what is said."""
    streamed, _ = await collect(model, HELLO)
    whole = await model.chat(ModelRequest(HELLO, SPECS))
    assert (whole.content, whole.tool_calls, whole.finish_reason) == (streamed.content, (), "stop")
    assert streamed.finish_reason == "stop"


async def test_a_tool_call_has_an_id_a_name_and_an_object(model: Model) -> None:
    """Ready for a Toolbox."""
    reply, _ = await collect(model, SUM)
    assert reply.finish_reason == "tool_calls"
    (request,) = reply.tool_calls
    assert request.id
    assert (request.name, request.arguments) == ("calculate", {"expression": "1 + 2"})
    assert request.raw.replace(" ", "") == '{"expression":"1+2"}'


async def test_calls_and_results_are_accepted_in_messages(model: Model) -> None:
    """The conversation after a tool has run, with null content beside the calls."""
    reply = await model.chat(ModelRequest(ANSWERED, SPECS))
    assert reply.content
    assert reply.tool_calls == ()


async def test_the_messages_are_not_changed(model: Model) -> None:
    """The loop goes on with them."""
    before = repr(ANSWERED)
    await collect(model, ANSWERED)
    assert repr(ANSWERED) == before


class Stop(Exception):
    """Raised by a listener."""


async def test_what_the_listener_raises_goes_up_unchanged(model: Model) -> None:
    """Stops travel this way; a model neither wraps nor retries them."""

    async def stop(delta: str) -> None:
        raise Stop

    with pytest.raises(Stop):
        await model.chat(ModelRequest(HELLO, SPECS), stop)


async def test_a_call_can_be_cancelled(model: Model) -> None:
    """While a delta is being shown, as a drain does it."""
    shown = asyncio.Event()

    async def hang(delta: str) -> None:
        shown.set()
        await asyncio.Event().wait()

    task = asyncio.ensure_future(model.chat(ModelRequest(HELLO, SPECS), hang))
    await shown.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_warm_and_close_may_be_called_at_any_time(model: Model) -> None:
    """And again; a call after close opens what it needs."""
    await model.close()
    await model.preload()
    await model.preload()
    await model.chat(ModelRequest(HELLO))
    await model.close()
    assert (await model.chat(ModelRequest(HELLO))).content
    assert model.name


async def test_calls_at_once_do_not_mix(model: Model) -> None:
    """Many turns share one model."""
    replies = await asyncio.gather(
        *(collect(model, [{"role": "user", "content": f"word{n} please"}]) for n in range(20))
    )
    for n, (reply, deltas) in enumerate(replies):
        assert f"word{n} " in (reply.content or "")
        assert "".join(deltas) == reply.content


# --- what every client of a provider promises


KEY = "sk-canary-of-the-key"
TEXT = "canary of the message"
BOTH = pytest.mark.parametrize("streamed", [False, True])


class Client:
    """A model at the scripted server, and the deltas that it gave."""

    def __init__(self, server: ScriptedOpenAI, kind: str) -> None:
        self.server = server
        self._made = CLIENTS[kind]
        self.deltas: list[str] = []
        self.models: list[Model] = []

    def model(self, **settings: Any) -> Model:
        chosen: dict[str, Any] = {"name": "openai/scripted", "api_base": self.server.base_url, "api_key": Secret(KEY)}
        chosen |= settings
        self.models.append(self._made(ModelSettings(**chosen)))
        return self.models[-1]

    async def note(self, delta: str) -> None:
        self.deltas.append(delta)

    async def ask(self, *answers: Answer, streamed: bool = False, **settings: Any) -> LLMResponse:
        self.server.script(*answers)
        messages = [{"role": "user", "content": TEXT}]
        return await self.model(**settings).chat(ModelRequest(messages), self.note if streamed else None)

    async def fail(self, *answers: Answer, streamed: bool = False, **settings: Any) -> ModelError:
        with pytest.raises(ModelError) as raised:
            await self.ask(*answers, streamed=streamed, **settings)
        return raised.value


@pytest.fixture(params=list(CLIENTS))
async def client(request: pytest.FixtureRequest, server: ScriptedOpenAI) -> AsyncIterator[Client]:
    server.reset()
    client = Client(server, request.param)
    await client.model().preload()
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
async def test_what_a_cache_held_of_the_prompt_is_counted(client: Client, streamed: bool) -> None:
    """It costs a tenth; a provider that says nothing of it held nothing."""
    assert (await client.ask(Answer(text="hi", cached_tokens=12), streamed=streamed)).usage.cached_tokens == 12
    assert (await client.ask(Answer(text="hi"), streamed=streamed)).usage.cached_tokens == 0


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
async def test_thoughts_in_tags_never_reach_people(client: Client, streamed: bool) -> None:
    """A client may cut them out or leave them to the loop; the text is the same."""
    reply = await client.ask(Answer(pieces=["<thi", "nk>\nh", "m\n</th", "ink>It is 4."]), streamed=streamed)
    assert strip_think(reply.content or "") == "It is 4."
    assert "hm" not in strip_think("".join(client.deltas))


@BOTH
async def test_an_empty_and_a_cut_reply_are_replies(client: Client, streamed: bool) -> None:
    """The loop decides what to do about them."""
    assert (await client.ask(Answer(text=""), streamed=streamed)).content is None
    reply = await client.ask(Answer(text="half", finish_reason="length"), streamed=streamed)
    assert (reply.content, reply.finish_reason) == ("half", "length")


async def test_only_what_was_set_is_sent(client: Client) -> None:
    """Tools and tool_choice only together; at least one token; own headers; the key as the provider wants it."""
    model = client.model(headers={"X-Team": Secret("shoal")})
    messages = [{"role": "system", "content": "be"}, {"role": "user", "content": "hi"}]
    await model.chat(ModelRequest(messages, max_tokens=0, temperature=0.1, top_p=0.5, seed=0))
    await model.chat(ModelRequest(messages, Toolbox(build_tools(["calculate"])).specs()), client.note)
    first, second = client.server.requests()
    assert first.body["messages"] == messages
    assert (first.body["max_tokens"], first.body["temperature"], first.body["model"]) == (1, 0.1, "scripted")
    assert (first.body["top_p"], first.body["seed"]) == (0.5, 0)
    assert not {"top_p", "seed"} & set(second.body)
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
    (
        Answer(status=413, error={"message": "The prompt exceeds the available context size"}),
        "context_length",
        False,
        None,
    ),
    (Answer(status=429, retry_after="Thu, 01 Jan 1970 00:00:00 GMT"), "rate_limit", True, 0.0),
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
async def test_an_error_quotes_neither_key_nor_message(client: Client, streamed: bool) -> None:
    """Providers repeat both in their errors; ours go to the log."""
    refusal = Answer(status=400, error={"message": f"bad input {TEXT!r} for key {KEY}"})
    error = await client.fail(refusal, streamed=streamed)
    for text in (str(error), repr(error), repr(error.__cause__)):
        assert KEY not in text
        assert "canary" not in text
    assert "check model.name" in str(error)


@BOTH
async def test_nobody_there_is_a_connection_fault(client: Client, streamed: bool) -> None:
    """Port 1 of this machine answers nothing."""
    error = await client.fail(streamed=streamed, api_base="http://127.0.0.1:1/v1")
    assert (error.kind, error.retryable) == ("connection", True)


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
        await client.model().chat(ModelRequest([{"role": "user", "content": "hi"}]), stop)
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
        *(model.chat(ModelRequest([{"role": "user", "content": "hi"}]), client.note) for _ in range(30))
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
    show, journal = RecordingProgress(), MemoryJournal()
    spec = AgentRunSpec(session="s", entry=UserEntry(content="6 * 7?", turn=1), system="be", progress=show)
    result = await run_agent(spec, client.model(), Toolbox(build_tools()), journal)
    assert result.content == "It is 42."
    assert show.visible == "It is 42."
    assert show.log[:3] == ["I ", "will ", "<reset>"]
    assert "42" in str(client.server.requests()[2].body["messages"][-1]["content"])
    assert journal.events[:3] == ["checkpoint", "checkpoint", "assistant"]
