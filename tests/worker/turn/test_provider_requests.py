"""What whole turns send: valid in the words of OpenAI's own types, and the same bytes where caches look."""

from __future__ import annotations

import copy
from base64 import b64encode
from collections.abc import AsyncIterator, Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace
from openai.types.chat.completion_create_params import (
    CompletionCreateParamsNonStreaming,
    CompletionCreateParamsStreaming,
)
from pydantic import TypeAdapter, ValidationError

from shared.messages.transcript import TranscriptEntry, UserEntry
from shared.settings import ModelSettings, Secret
from shared.store.client.redis_client import RedisClient
from shared.store.sessions.memory import MemoryStore, MemoryText
from tests.helpers.clock import HandClock
from tests.helpers.media_files import png
from tests.helpers.openai_bytes import ByteServer, byte_server
from tests.helpers.openai_server import Answer, Call, ScriptedOpenAI
from tests.helpers.turn_borders import MemoryJournal, RecordingProgress, RecordingTool
from worker.agent.composite_hook import CompositeHook
from worker.agent.loop import run_agent
from worker.agent.model.context_window import MARK
from worker.agent.model.model import Image, Model
from worker.agent.ports import NULL_PORTS
from worker.agent.tools.toolbox import Toolbox
from worker.agent.turn import AgentResult, AgentRunSpec
from worker.documents.images import entry_text
from worker.guards.workspace import Workspaces
from worker.hooks.reporting import LoggingHook, MetricsHook
from worker.llm.clients.direct_client import DirectModel
from worker.llm.clients.litellm_client import LiteLLMModel
from worker.prompts.system import SystemPrompt
from worker.skills.catalogue import SkillCatalogue
from worker.tools.registry import build_tools
from worker.turn.files import MemoryFile, TurnFiles

pytestmark = [  # of LiteLLM's own types
    pytest.mark.filterwarnings("ignore:Item '.*' on TypedDict class:UserWarning"),
    pytest.mark.filterwarnings("ignore:Accessing the 'model_:DeprecationWarning"),
]

Body = dict[str, Any]

NOWHERE = Path("no-such-folder")
NO_STORE = RedisClient("redis://127.0.0.1:1/0")  # nothing here asks it
SYSTEM = SystemPrompt(NOWHERE, SkillCatalogue(NOWHERE, environment={})).render("- The user is called Ada.")
NOON_S = 1_795_262_400.0
PICTURE = Image("image/png", b"\x89PNG\r\n\x1a\n and so on")
THOUGHTS = ("two sums", "hm")
CLIENTS: dict[str, type[DirectModel] | type[LiteLLMModel]] = {"direct": DirectModel, "litellm": LiteLLMModel}
PLAIN, CACHING = "openai/scripted", "openrouter/anthropic/claude-sonnet-4"
_STREAMED = TypeAdapter[Any](CompletionCreateParamsStreaming)
_WHOLE = TypeAdapter[Any](CompletionCreateParamsNonStreaming)


def assert_valid(body: Body) -> None:
    """A request that OpenAI's types know in every key. Raises ValidationError or AssertionError.

    Three things go out on purpose that those types do not have: a tool's name beside its result, which older models
    and other providers want; thoughts, to a provider that has sent them; and cache marks, which the providers that have
    caches with marks want. `unmarked` takes out the marks; the others are checked here.
    """
    body = copy.deepcopy(body)
    names = {call["id"]: call["function"]["name"] for m in body["messages"] for call in m.get("tool_calls", ())}
    for message in body["messages"]:
        if message["role"] == "tool":
            assert message.pop("name") == names[message["tool_call_id"]]
        if "tool_calls" in message:
            assert message.pop("reasoning_content", "hm") in THOUGHTS
    adapter = _STREAMED if body.get("stream") else _WHOLE
    assert _materialised(adapter.validate_python(body)) == body, "a key that OpenAI's types do not know"


def _materialised(value: Any) -> Any:
    """Pydantic reads iterables when they are gone through, and leaves out the keys that it does not know."""
    if isinstance(value, dict):
        return {key: _materialised(item) for key, item in value.items()}
    if hasattr(value, "__iter__") and not isinstance(value, str):
        return [_materialised(item) for item in value]
    return value


def marks(value: Any, path: str = "") -> list[str]:
    """Where in a request there are cache marks."""
    if isinstance(value, dict):
        here = [path] if "cache_control" in value else []
        return here + [found for key, item in value.items() for found in marks(item, f"{path}.{key}")]
    if isinstance(value, list):
        return [found for at, item in enumerate(value) for found in marks(item, f"{path}.{at}")]
    return []


def unmarked(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: unmarked(item) for key, item in value.items() if key != "cache_control"}
    return [unmarked(item) for item in value] if isinstance(value, list) else value


@pytest.fixture(scope="module")
def server() -> Iterator[ScriptedOpenAI]:
    with ScriptedOpenAI(in_thread=True) as server:
        yield server


@pytest.fixture(params=["direct", "litellm"])
async def make(request: pytest.FixtureRequest, server: ScriptedOpenAI) -> AsyncIterator[Callable[[str], Model]]:
    """Makes a model of either client that asks the scripted server."""
    server.reset()
    made: list[Model] = []

    def model(name: str) -> Model:
        settings = ModelSettings(name=name, api_base=server.base_url, api_key=Secret("sk-x"))
        made.append(CLIENTS[request.param](settings))
        return made[-1]

    yield model
    for one in made:
        await one.close()


class Chat:
    """A conversation: every turn with the history of those before it, each a day later."""

    def __init__(self, model: Model, *, streamed: bool = True) -> None:
        self.model = model
        self.tools = Toolbox(build_tools())
        self.history: tuple[TranscriptEntry, ...] = ()
        self.clock = HandClock(NOON_S)
        self.progress = RecordingProgress() if streamed else NULL_PORTS

    async def say(self, text: str, *images: Image, files: TurnFiles | None = None) -> AgentResult:
        spec = AgentRunSpec(
            session="telegram:1",
            entry=UserEntry(content=entry_text(text, images, ()), turn=len(self.history) + 1),
            images=images,
            channel="telegram",
            chat_id="1",
            sender_name="Ada",
            sender_id="7",
            system=SYSTEM,
            history=self.history,
            hook=CompositeHook([LoggingHook(lambda *_, **__: None), MetricsHook()]),
            progress=self.progress,
            clock=self.clock,
        )
        if files is not None:
            spec = replace(spec, files=files, pictures=files)
        result = await run_agent(spec, self.model, self.tools, MemoryJournal())
        self.history += result.entries
        self.clock.at += 86_400
        return result


def sum_of(expression: str, id: str) -> Call:
    return Call("calculate", f'{{"expression": "{expression}"}}', id)


SCRIPT = (
    Answer(text="I calculate.", reasoning="two sums", calls=[sum_of("1 + 2", "c1"), sum_of("3 * 4", "c2")]),
    Answer(calls=[sum_of("5 / 0", "c1"), Call("no_such_tool", "{}", "")], reasoning="hm"),
    Answer(
        text="Once more.", calls=[Call("calculate", "{'expression': '2 ** 3',}", "c9"), Call("calculate", "[1", "")]
    ),
    Answer(text="<think>done</think>Here you are."),
    Answer(text="You are welcome."),
    Answer(text="A picture."),
)


async def talk(model: Model, *, streamed: bool = True) -> list[str]:
    """Three rounds of tools and an answer, a second turn, and a third with a picture."""
    chat = Chat(model, streamed=streamed)
    texts = ["Calculate a few things", "thanks"]
    results = [await chat.say(text) for text in texts]
    results.append(await chat.say("and this?", PICTURE))
    assert [result.rounds for result in results] == [4, 1, 1]
    return [result.content for result in results]


@pytest.mark.parametrize("streamed", [True, False])
@pytest.mark.parametrize("name", [PLAIN, CACHING])
async def test_every_request_of_a_conversation_is_valid(
    make: Callable[[str], Model], server: ScriptedOpenAI, name: str, streamed: bool
) -> None:
    """Tool calls and results, broken arguments, an unknown tool, missing ids, reasoning, history, a picture."""
    server.script(*SCRIPT)
    assert await talk(make(name), streamed=streamed) == ["Here you are.", "You are welcome.", "A picture."]
    bodies = [request.body for request in server.requests()]
    assert len(bodies) == 6
    for body in bodies:
        if name == CACHING:  # LiteLLM asks OpenRouter, in OpenRouter's own words, to count the tokens
            assert body.pop("usage", {"include": True}) == {"include": True}
        assert_valid(unmarked(body))
        assert bool(body.get("stream")) is streamed
        assert body["tool_choice"] == "auto"
    # Thoughts go back to their own provider, within the turn.
    assert ["two sums" in repr(body) for body in bodies] == [False, True, True, True, False, False]
    assert "<think>" not in repr(bodies)


async def test_what_stays_the_same_is_the_same_in_every_request(
    make: Callable[[str], Model], server: ScriptedOpenAI
) -> None:
    """System text and tools between rounds and turns; within a turn everything that was sent before."""
    server.script(*SCRIPT)
    await talk(make(PLAIN))
    bodies = [request.body for request in server.requests()]
    systems = {msgspec.json.encode(body["messages"][0]) for body in bodies}
    assert systems == {msgspec.json.encode({"role": "system", "content": SYSTEM})}
    assert len({msgspec.json.encode(body["tools"]) for body in bodies}) == 1
    rounds = [body["messages"] for body in bodies[:4]]
    for before, after in pairwise(rounds):
        assert msgspec.json.encode(after[: len(before)]) == msgspec.json.encode(before)
        assert len(after) == len(before) + 3
    first, second = bodies[4]["messages"], bodies[5]["messages"]
    assert msgspec.json.encode(second[: len(first) - 1]) == msgspec.json.encode(first[:-1])


async def test_a_picture_goes_out_before_its_text_and_into_history_as_a_mark(
    make: Callable[[str], Model], server: ScriptedOpenAI
) -> None:
    """The next turn knows that there was one."""
    chat = Chat(make(PLAIN))
    await chat.say("and this?", PICTURE)
    await chat.say("what was it?")
    first, second = (request.body["messages"] for request in server.requests())
    picture, text = first[-1]["content"]
    assert picture == {
        "type": "image_url",
        "image_url": {"url": f"data:image/png;base64,{b64encode(PICTURE.data).decode()}"},
    }
    assert text["text"].startswith("and this?\n\n[image: image/png, 1 kB]\n\n[Runtime Context]\nCurrent time: 2026-")
    assert text["text"].endswith("Channel: telegram\nChat ID: 1\nSender: Ada\nSender ID: 7")
    assert second[1] == {"role": "user", "content": "and this?\n\n[image: image/png, 1 kB]"}


async def test_a_picture_of_a_file_goes_out_in_a_message_of_its_own(
    make: Callable[[str], Model], server: ScriptedOpenAI, tmp_path: Path
) -> None:
    """Behind the results, valid for OpenAI's types and the same in later rounds; the next turn has only the text."""
    workspaces = Workspaces(tmp_path)
    workspace = workspaces.workspace_of("telegram:1")
    await workspace.write_file("plot.png", png())
    reads = [Call("read_file", '{"path": "plot.png"}', "c1"), sum_of("1 + 2", "c2")]
    server.script(Answer(calls=reads), Answer(calls=[sum_of("5 + 6", "c3")]), Answer(text="A square."))
    chat = Chat(make(PLAIN))
    files = TurnFiles(
        MemoryFile(MemoryStore(NO_STORE), "s", MemoryText("", "0"), claim=None, limit_bytes=0), workspace=workspace
    )
    assert (await chat.say("what is in plot.png?", files=files)).content == "A square."
    await chat.say("thanks")
    workspaces.close()
    _, second, third, later = (request.body for request in server.requests())
    for body in (second, third, later):
        assert_valid(body)
    assert [m["role"] for m in second["messages"][2:]] == ["assistant", "tool", "tool", "user"]
    picture, text = second["messages"][-1]["content"]
    assert picture["image_url"]["url"] == f"data:image/png;base64,{b64encode(png()).decode()}"
    assert text["text"] == f"{MARK}\n'plot.png'"
    assert third["messages"][: len(second["messages"])] == second["messages"]
    assert "image_url" not in repr(later)
    assert "'plot.png' is a picture" in repr(later)


async def test_cache_marks_stand_on_the_system_text_and_the_last_tool(
    make: Callable[[str], Model], server: ScriptedOpenAI
) -> None:
    """In every request of every turn, there and nowhere else."""
    server.script(*SCRIPT)
    await talk(make(CACHING))
    bodies = [request.body for request in server.requests()]
    last = len(bodies[0]["tools"]) - 1
    assert last > 0
    for body in bodies:
        assert marks(body) == [".messages.0.content.0", f".tools.{last}"]
        assert body["messages"][0]["content"][0]["cache_control"] == {"type": "ephemeral"}
        assert body["tools"][last]["cache_control"] == {"type": "ephemeral"}
        assert body["messages"][0]["content"][0]["text"] == SYSTEM
    assert len({msgspec.json.encode([body["messages"][0], body["tools"]]) for body in bodies}) == 1


async def test_a_route_without_caching_gets_no_marks(make: Callable[[str], Model], server: ScriptedOpenAI) -> None:
    """A key that it does not know could be an error."""
    server.script(*SCRIPT)
    await talk(make(PLAIN))
    assert [found for request in server.requests() for found in marks(request.body)] == []


@pytest.mark.parametrize(
    "spoil",
    [
        lambda body: body.update(junk=1),
        lambda body: body.pop("model"),
        lambda body: body.update(max_tokens="many"),
        lambda body: body.update(tool_choice="perhaps"),
        lambda body: body["messages"][0].update(role="robot"),
        lambda body: body["messages"][1].update(at=5),
        lambda body: body["messages"][1]["content"][0].update(type="picture"),
        lambda body: body["messages"][1]["content"][0]["image_url"].update(size=5),
        lambda body: body["messages"][1]["content"][1].update(text=None),
        lambda body: body["messages"][2].update(reasoning_content="because"),
        lambda body: body["messages"][2]["tool_calls"][0]["function"].update(arguments={"a": 1}),
        lambda body: body["messages"][2]["tool_calls"][0].update(index=0),
        lambda body: body["messages"][3].pop("tool_call_id"),
        lambda body: body["messages"][3].update(name="another"),
        lambda body: body["messages"][3].update(content=None),
        lambda body: body["tools"][0].update(cache_control={"type": "ephemeral"}),
        lambda body: body["tools"][0]["function"].update(safety="read_only"),
    ],
)
def test_a_wrong_key_or_kind_anywhere_is_found(spoil: Callable[[Body], object]) -> None:
    """The check of these tests can fail."""
    picture = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA=="}}
    called = {"id": "1", "type": "function", "function": {"name": "look", "arguments": "{}"}}
    body: Body = {
        "model": "x",
        "messages": [
            {"role": "system", "content": "be"},
            {"role": "user", "content": [picture, {"type": "text", "text": "hi"}]},
            {"role": "assistant", "content": None, "tool_calls": [called]},
            {"role": "tool", "tool_call_id": "1", "name": "look", "content": "seen"},
        ],
        "tools": [{"type": "function", "function": {"name": "look", "description": "d", "parameters": {}}}],
        "tool_choice": "auto",
        "max_tokens": 5,
        "temperature": 0.5,
    }
    assert_valid(body)
    spoil(body)
    with pytest.raises((AssertionError, ValidationError, KeyError)):
        assert_valid(body)


# --- to the byte

CALLS_LOOK = (
    b'data: {"choices":[{"delta":{"tool_calls":[{"index":0,"id":"c1","type":"function","function":'
    b'{"name":"look","arguments":"{}"}}]},"finish_reason":"tool_calls"}]}\n\ndata: [DONE]\n\n'
)
SAYS_OK = b'data: {"choices":[{"delta":{"content":"ok"},"finish_reason":"stop"}]}\n\ndata: [DONE]\n\n'


def parts(body: bytes) -> tuple[bytes, bytes]:
    """The bytes of the system message and of the tools, as they were sent."""
    fields = msgspec.json.decode(body, type=dict[str, msgspec.Raw])
    return bytes(msgspec.json.decode(fields["messages"], type=list[msgspec.Raw])[0]), bytes(fields["tools"])


@pytest.mark.parametrize("name", [PLAIN, CACHING])
async def test_the_bytes_of_system_text_and_tools_never_change(name: str) -> None:
    """Over rounds, turns, sessions, and another client object with the same settings: what a fleet's cache needs."""
    seen: list[bytes] = []

    async def turn(server: ByteServer, spec: AgentRunSpec) -> None:
        async def answered(*_: Any) -> str:
            server.answer(SAYS_OK)
            return "seen"

        settings = ModelSettings(name=name, api_base=server.base_url, api_key=Secret("sk-x"))
        model = DirectModel(settings)
        server.answer(CALLS_LOOK)
        tools = Toolbox([*build_tools(), RecordingTool("look", behaviour=answered)])
        done = await run_agent(replace(spec, progress=RecordingProgress()), model, tools, MemoryJournal())
        assert (done.content, done.rounds) == ("ok", 2)
        await model.close()

    spec = AgentRunSpec(session="s", entry=UserEntry(content="hi", turn=1), system=SYSTEM, channel="web", chat_id="a")
    async with byte_server() as server:
        await turn(server, spec)
        await turn(server, replace(spec, entry=UserEntry(content="again", turn=2), history=(spec.entry,)))
        other = "".join(list(SYSTEM))  # equal, and not the same object
        await turn(server, replace(spec, session="t", chat_id="b", system=other, images=(PICTURE,)))
        seen = [body for _, body in server.requests]
    assert len(seen) == 6
    assert len({parts(body) for body in seen}) == 1
    system, tools = parts(seen[0])
    assert (b"cache_control" in system, tools.count(b"cache_control")) == ((True, 1) if name == CACHING else (False, 0))
    assert len(set(seen)) == 6
