"""One turn whose model answers with the bytes that a test gives, and what came of it."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final

import msgspec

from shared.errors import ModelError
from shared.messages.transcript import AssistantEntry, UserEntry
from shared.settings import ModelSettings, Secret
from tests.helpers.openai_bytes import byte_server
from tests.helpers.turn_borders import MemoryJournal, RecordingProgress, RecordingTool
from worker.agent.loop import run_agent
from worker.agent.ports import NULL_PORTS
from worker.agent.tools.toolbox import Toolbox
from worker.agent.turn import AgentRunSpec
from worker.llm.clients.direct_client import DirectModel
from worker.llm.clients.litellm_client import LiteLLMModel
from worker.llm.policies.retry import RetryingModel
from worker.tools.registry import build_tools

DATA: Final = Path(__file__).parents[1] / "data" / "reports"
CLIENTS: Final[dict[str, Callable[[ModelSettings], DirectModel | LiteLLMModel]]] = {
    "direct": DirectModel,
    "litellm": LiteLLMModel,
}
SSE: Final = "text/event-stream; charset=utf-8"
JSON: Final = "application/json"


class TurnSeen(msgspec.Struct, frozen=True):
    """The answer or the kind of fault, what people saw at the end and at any time, the calls that were stored, and how
    often the model was asked."""

    text: str
    fault: str
    shown: str
    ever_shown: str
    calls: list[tuple[str, Any]]
    asked: int
    requests: list[dict[str, Any]]


async def hear(
    *answers: bytes,
    client: str = "direct",
    asks: str = "question",
    shown: bool = True,
    content_type: str = SSE,
    **how: Any,
) -> TurnSeen:
    """Run a turn whose model gives these answers, one a request; the last one again and again. Without `shown`
    nobody watches, and the answer is asked for in one piece."""
    async with byte_server() as server:
        server.coming = [partial(server.answer, body, content_type=content_type, **how) for body in answers]
        settings = ModelSettings(name="openai/x", api_base=server.base_url, api_key=Secret("sk-x"))
        model = CLIENTS[client](settings)
        journal, progress = MemoryJournal(), RecordingProgress()
        spec = AgentRunSpec(session="s", entry=UserEntry(content=asks, turn=7), system="be")
        spec = msgspec.structs.replace(spec, progress=progress if shown else NULL_PORTS)
        tools = Toolbox([*build_tools(["calculate", "current_time"]), RecordingTool("write_file")])
        text = fault = ""
        try:
            text = (await run_agent(spec, RetryingModel(model, sleep=_at_once), tools, journal)).content
        except ModelError as exc:
            fault = exc.kind
        finally:
            await model.close()
        asked = [json.loads(body) for _, body in server.requests]
    replies = (entry for entry in journal.entries if isinstance(entry, AssistantEntry))
    calls = [(call.name, _value(call.arguments)) for reply in replies for call in reply.tool_calls]
    return TurnSeen(text, fault, progress.visible, "".join(progress.log), calls, len(asked), asked)


def sse(*chunks: Any, end: bytes = b"data: [DONE]\n\n") -> bytes:
    """The bytes of a stream of these events: chunks, or texts as they are."""
    lines = (one if isinstance(one, str) else f"data: {json.dumps(one)}" for one in chunks)
    return "".join(f"{line}\n\n" for line in lines).encode("utf-8", "surrogatepass") + end


def recorded(lines: Sequence[str]) -> bytes:
    """The bytes of a stream whose events were written down."""
    return sse(*lines, end=b"")


def chunk(content: Any = None, finish: Any = None, /, **delta: Any) -> dict[str, Any]:
    """A chunk of a stream."""
    if content is not None:
        delta["content"] = content
    return {"id": "x", "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}


def say(text: str, finish: str = "stop") -> bytes:
    """A good stream."""
    return sse(chunk(text), chunk("", finish))


def recorded_input(name: str) -> Any:
    """An input that is a file."""
    return json.loads((DATA / f"{name}.json").read_text())


def _value(arguments: str) -> Any:
    try:
        return json.loads(arguments)
    except ValueError:
        return arguments


async def _at_once(_: float) -> None:
    pass
