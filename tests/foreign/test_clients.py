"""Clients of other makers, whole and unchanged, in front of a real gateway and worker: `make foreign`."""

from __future__ import annotations

import asyncio
import json
import os
from asyncio.subprocess import PIPE
from pathlib import Path
from typing import Any, Final

from tests.gateway.harness import TOKENS, free_port
from tests.helpers.fleet import warm
from tests.helpers.fleet_fixtures import Spawn
from tests.helpers.need import need
from tests.helpers.openai_server import Answer, Call, ScriptedOpenAI
from tests.helpers.processes import ROOT
from tests.helpers.wait import eventually

HOME: Final = ROOT / ".venv" / "foreign"
RAIN, KIEL = "rain in Kiel", {"city": "Kiel", "people": 250_000}
FENCED: Final = f"Here it is:\n```json\n{json.dumps(KIEL)}\n```"

SCRIPT: Final = (
    Answer(match="^refuse", times=0, status=400, error={"message": "max_tokens is too large"}),
    Answer(match="^count", times=0, text="one two END three"),
    Answer(match="^wrong", times=0, text="no JSON"),
    Answer(match="(?s)city", times=0, text=FENCED),
    Answer(match="weather", times=0, text=RAIN),
    Answer(match="umbrella", role="user", times=0, calls=[Call("get_weather", '{"city": "Kiel"}')]),
    Answer(match="umbrella", role="tool", times=0, text=RAIN),
    Answer(match="demand", role="user", times=0, calls=[Call("final_result", json.dumps(KIEL))]),
)

EXPECTED: dict[str, dict[str, Any]] = {
    "openai": {
        "models": ["shoal"],
        "chat": RAIN,
        "usage": True,
        "stream": RAIN,
        "stream usage": True,
        "tools": ["seed", RAIN],
        "function": ["tool_calls", "get_weather", RAIN],
        "function streamed": RAIN,
        "response with a function": ["get_weather", RAIN],
        "stop": "one two ",
        "stop in a stream": "one two ",
        "schema": KIEL,
        "object": json.dumps(KIEL),
        "schema in a stream": KIEL,
        "tool result": RAIN,
        "response": RAIN,
        "response read again": RAIN,
        "response continued": FENCED,
        "response events": ["response.created", "response.completed"],
        "response streamed": RAIN,
        "response parsed in a stream": KIEL,
        "response parsed": KIEL,
        "response refused": ["BadRequestError", 400, "unsupported_parameter"],
        "response of the provider": ["BadRequestError", 400, "model_refused"],
        "response deleted": ["NotFoundError", 404, "response_not_found"],
        "conversation": [["hello", "weather", RAIN], True, 5],
        "conversation item": True,
        "conversation items": 5,
        "conversation metadata": {"topic": "sun"},
        "conversation deleted": [True, ["NotFoundError", 404, "conversation_not_found"]],
        "conversation gone": ["NotFoundError", 404, "conversation_not_found"],
        "no such form": ["InternalServerError", 500, "invalid_output"],
        "refused by the provider": ["BadRequestError", 400, "model_refused"],
        "refused by us": ["BadRequestError", 400, "unsupported_parameter"],
        "no such model": ["NotFoundError", 404, "model_not_found"],
        "wrong token": ["AuthenticationError", 401, "invalid_api_key"],
    },
    "langchain": {
        "chat": RAIN,
        "usage": True,
        "stream": RAIN,
        "response": RAIN,
        "response streamed": RAIN,
        "response parsed": KIEL,
        "tools": RAIN,
        "function": ["get_weather", RAIN],
        "stop": "one two ",
        "schema": KIEL,
        "object": KIEL,
        "refused by the provider": [400, "model_refused"],
    },
    "ai_sdk": {
        "chat": RAIN,
        "usage": True,
        "stream": RAIN,
        "stream usage": True,
        "tools": RAIN,
        "stop": "one two ",
        "schema": KIEL,
        "refused by the provider": [400, False],
        "openai chat": RAIN,
        "openai stream": RAIN,
        "openai response": RAIN,
        "openai response streamed": RAIN,
        "openai response read again": RAIN,
        "no such model": ["NotFoundError", 404, "model_not_found"],
    },
    "pydantic_ai": {
        "chat": RAIN,
        "usage": True,
        "stream": RAIN,
        "tools": RAIN,
        "stop": "one two ",
        "schema": KIEL,
        "object": KIEL,
        "response": RAIN,
        "response streamed": RAIN,
        "response with history": FENCED,
        "response parsed": KIEL,
        "function": RAIN,
        "response with a function": RAIN,
        "a call that must be made": KIEL,
        "refused by the provider": 400,
    },
}


async def test_every_client_gets_what_it_asks_for(spawn: Spawn, model: ScriptedOpenAI) -> None:
    """Chat, streams, usage, tools that it sends, stops, structured answers, and errors in its own classes; one client
    after the other at one gateway."""
    need("foreign clients", install="run `make foreign`", found=(HOME / ".stamp").exists())
    model.script(*SCRIPT)
    port = free_port()
    token = {"WEB__TOKENS__OWNER": TOKENS["owner"], "INBOX__SENDER_PER_MINUTE": "0"}  # all are one sender
    worker, gateway = spawn("worker", MODEL__CLIENT="direct"), spawn("gateway", WEB__PORT=str(port), **token)
    await warm(worker)
    await eventually(lambda: "web listening" in gateway.log, within_s=30)
    found = {name: await used(name, f"127.0.0.1:{port}") for name in EXPECTED}
    assert found == EXPECTED


async def used(name: str, address: str) -> dict[str, Any]:
    """What a program of a client found, in its own environment; no proxy of the machine stands between."""
    source = Path(__file__).with_name(f"use_{name}.py")
    program: list[str | Path] = [HOME / "bin" / "python", "-I", source]
    if not source.exists():
        # Packages are looked for from the folder of the program upwards.
        source = source.with_suffix(".mjs")
        (HOME / source.name).write_text(source.read_text())
        program = ["node", HOME / source.name]
    environment = {"PATH": os.environ["PATH"], "NO_PROXY": "*", "LANGSMITH_TRACING": "false"}
    process = await asyncio.create_subprocess_exec(
        *program, address, TOKENS["owner"], env=environment, stdout=PIPE, stderr=PIPE
    )
    try:
        async with asyncio.timeout(120):
            output, errors = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
    assert process.returncode == 0, errors.decode()[-3000:]
    found: dict[str, Any] = json.loads(output)
    return found
