"""Traces with texts in a real MLflow server, which reads OpenTelemetry's conventions for generative AI by itself."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from shared.store.client.redis_client import RedisClient
from shared.store.turns.inbox import Inbox
from tests.helpers.build import message
from tests.helpers.fleet import warm
from tests.helpers.fleet_fixtures import Spawn
from tests.helpers.openai_server import Answer, Call, ScriptedOpenAI
from tests.helpers.wait import eventually
from tests.peers.mlflow import EXPERIMENT, MlflowServer, mlflow

LONG_S = 60.0
ARGUMENTS = '{"expression": "6*7"}'
SPANS = ["turn", "invoke_agent shoal", "chat scripted", "execute_tool calculate", "chat scripted"]

pytestmark = pytest.mark.timeout(300)


async def whole(server: MlflowServer) -> list[dict[str, Any]]:
    """The spans of the only trace, once all of it is there, by when they began."""
    for trace in await server.traces():
        found = sorted(await server.spans(trace["trace_id"]), key=lambda one: int(one["start_time_unix_nano"]))
        if [one["name"] for one in found] == SPANS:
            return found
    return []


async def test_a_turn_is_a_tree_of_an_agent_its_model_calls_and_its_tools(
    client: RedisClient, spawn: Spawn, model: ScriptedOpenAI, tmp_path: Path
) -> None:
    """Each of its kind, with what went in and what came out, the tokens counted once, and the chat as its session."""
    model.script(
        Answer(match="^please", role="tool", text="It is 42."),
        Answer(match="^please", calls=[Call("calculate", ARGUMENTS, "c1")]),
    )
    async with mlflow(tmp_path) as server:
        file = tmp_path / "shoal.toml"
        file.write_text(
            f'[tracing]\nendpoint = "{server.address}"\ncontent = true\n'
            f'headers = {{ x-mlflow-experiment-id = "{EXPERIMENT}" }}\n'
        )
        await warm(spawn("worker", MODEL__CLIENT="direct", env={"SHOAL_CONFIG": str(file)}))
        await Inbox(client).ingest(message("please multiply"))
        spans = await eventually(lambda: whole(server), within_s=LONG_S, every_s=0.1, what="the trace")
        [trace] = await server.traces()
    turn, agent, asks, tool, tells = spans
    assert [one.get("parent_span_id") for one in spans] == [None, turn["span_id"], *[agent["span_id"]] * 3]
    kinds = [one["attributes"].get("mlflow.spanType") for one in spans]
    assert kinds == [None, "AGENT", "CHAT_MODEL", "TOOL", "CHAT_MODEL"]

    asked = asks["attributes"]["mlflow.spanInputs"]
    assert (asked[0]["role"], asked[-1]["role"]) == ("system", "user")
    assert "please multiply" in asked[-1]["parts"][0]["content"]
    [wanted] = asks["attributes"]["mlflow.spanOutputs"][0]["parts"]
    assert (wanted["type"], wanted["name"], wanted["arguments"]) == ("tool_call", "calculate", ARGUMENTS)
    assert tool["attributes"]["mlflow.spanInputs"] == json.loads(ARGUMENTS)
    assert tool["attributes"]["mlflow.spanOutputs"] == "6*7 = 42"
    assert tells["attributes"]["mlflow.spanOutputs"][0]["parts"] == [{"type": "text", "content": "It is 42."}]

    used = [one["attributes"]["mlflow.chat.tokenUsage"]["total_tokens"] for one in (asks, tells)]
    metadata = trace["trace_metadata"]
    assert json.loads(metadata["mlflow.trace.tokenUsage"])["total_tokens"] == sum(used) > 0
    assert metadata["mlflow.trace.session"] == agent["attributes"]["gen_ai.conversation.id"]
    assert asks["attributes"]["mlflow.llm.model"] == "scripted"
    assert trace["state"] == "OK"
