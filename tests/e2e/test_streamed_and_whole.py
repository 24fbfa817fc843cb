"""What the API says in a stream is what it says in one piece, byte for byte, for every kind of turn."""

from __future__ import annotations

from typing import Any, Final

import pytest
from msgspec.structs import replace

from tests.gateway.channels.api.asking import asker, user
from tests.gateway.harness import TOKENS, free_port
from tests.helpers.fleet import warm
from tests.helpers.fleet_fixtures import Spawn, model, model_server, spawn
from tests.helpers.openai_server import Answer, Call, ScriptedOpenAI
from tests.helpers.wait import eventually

__all__ = ["model", "model_server", "spawn"]

SUM: Final = Call("calculate", '{"expression": "6*7"}')
LOOK: Final = "One moment, I will use a tool for that."
LONG: Final = " ".join(f"word{number}" for number in range(120))

TURNS: Final[dict[str, tuple[list[Answer], str]]] = {
    "plain": ([Answer(text="It is 42.")], "It is 42."),
    "tool": ([Answer(text=LOOK, calls=[SUM]), Answer(text="It is 42.")], f"{LOOK}\n\nIt is 42."),
    "tool without a word": ([Answer(calls=[SUM]), Answer(text="It is 42.")], "It is 42."),
    "two rounds of tools": (
        [Answer(text=LOOK, calls=[SUM]), Answer(text="Once more. ", calls=[SUM]), Answer(text="Still 42.\n")],
        f"{LOOK}\n\nOnce more.\n\nStill 42.",
    ),
    "thoughts": ([Answer(text="<think>hm</think>It is 42.")], "It is 42."),
    "cut by its length": (
        [Answer(text="one two thr", finish_reason="length"), Answer(text="ee four")],
        "one two three four",
    ),
    "a stream that breaks": (
        [Answer(text=LONG, cut_after=60), Answer(text="word59 and the rest.")],
        f"{LONG[: LONG.index(' word60')]} and the rest.",
    ),
}


@pytest.mark.parametrize("pause_s", [0.0, 0.02])
async def test_a_stream_and_a_whole_answer_are_equal(spawn: Spawn, model: ScriptedOpenAI, pause_s: float) -> None:
    """Tools, remarks before them, thoughts and continued answers, however fast the model writes."""
    port = free_port()
    gateway = spawn("gateway", WEB__PORT=str(port), WEB__TOKENS__OWNER=TOKENS["owner"])
    await warm(spawn("worker"))
    await eventually(lambda: "web listening" in gateway.log, within_s=30)
    async with asker(f"127.0.0.1:{port}") as client:
        for name, (answers, right) in TURNS.items():
            texts = []
            for streamed in (False, True):
                model.reset()
                model.script(*(replace(answer, delta_s=pause_s) for answer in answers))
                texts.append(await answer_to(client, name, streamed=streamed))
            assert texts == [right, right], name


async def answer_to(client: Any, text: str, *, streamed: bool) -> str:
    asked = {"model": "shoal", "messages": [user(text)], "stream": streamed}
    answer = await client.chat.completions.create(**asked)
    if not streamed:
        return answer.choices[0].message.content or ""
    return "".join([chunk.choices[0].delta.content or "" async for chunk in answer if chunk.choices])
