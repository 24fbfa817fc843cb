"""pydantic-ai with its model of OpenAI's protocol. Run by the tests in an environment of its own."""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Any

from pydantic import BaseModel
from pydantic_ai import Agent, NativeOutput, PromptedOutput  # type: ignore[import-not-found]
from pydantic_ai.exceptions import ModelHTTPError  # type: ignore[import-not-found]
from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel  # type: ignore[import-not-found]
from pydantic_ai.providers.openai import OpenAIProvider  # type: ignore[import-not-found]


class Place(BaseModel):
    city: str
    people: int


def get_weather(city: str) -> str:
    """The weather of a city."""
    return f"rain in {city}"


async def main(address: str, token: str) -> dict[str, Any]:
    provider = OpenAIProvider(base_url=f"http://{address}/v1", api_key=token)
    model = OpenAIChatModel("shoal", provider=provider)
    found: dict[str, Any] = {}
    whole = await Agent(model).run("weather")
    used = whole.usage() if callable(whole.usage) else whole.usage
    found["chat"], found["usage"] = whole.output, used.input_tokens > 0
    async with Agent(model).run_stream("weather") as stream:
        found["stream"] = await stream.get_output()
    found["tools"] = (await Agent(model, tools=[get_weather]).run("weather")).output
    settings = {"stop_sequences": ["END"], "max_tokens": 100, "temperature": 0.0}
    found["stop"] = (await Agent(model, model_settings=settings).run("count")).output
    found["schema"] = (await Agent(model, output_type=NativeOutput(Place)).run("city")).output.model_dump()
    found["object"] = (await Agent(model, output_type=PromptedOutput(Place)).run("city")).output.model_dump()
    responses = OpenAIResponsesModel("shoal", provider=provider)
    found["response"] = (await Agent(responses).run("weather")).output
    async with Agent(responses).run_stream("weather") as stream:
        found["response streamed"] = await stream.get_output()
    history = (await Agent(responses).run("weather")).all_messages()
    found["response with history"] = (await Agent(responses).run("city", message_history=history)).output
    parsed = await Agent(responses, output_type=NativeOutput(Place)).run("city")
    found["response parsed"] = parsed.output.model_dump()
    for name, used_model in (("function", model), ("response with a function", responses)):
        found[name] = (await Agent(used_model, tools=[get_weather]).run("umbrella")).output
    found["a call that must be made"] = (await Agent(model, output_type=Place).run("demand")).output.model_dump()
    try:
        await Agent(model).run("refuse")
    except ModelHTTPError as exc:
        found["refused by the provider"] = exc.status_code
    return found


if __name__ == "__main__":
    print(json.dumps(asyncio.run(main(*sys.argv[1:]))))
