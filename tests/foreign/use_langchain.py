"""LangChain's chat model for OpenAI's protocol. Run by the tests in an environment of its own."""

from __future__ import annotations

import json
import sys
from typing import Any

import openai
from langchain_core.messages import HumanMessage, ToolMessage  # type: ignore[import-not-found]
from langchain_openai import ChatOpenAI  # type: ignore[import-not-found]
from pydantic import BaseModel


class Place(BaseModel):
    city: str
    people: int


def get_weather(city: str) -> str:
    """The weather of a city."""
    return f"rain in {city}"


def main(address: str, token: str) -> dict[str, Any]:
    model = ChatOpenAI(base_url=f"http://{address}/v1", api_key=token, model="shoal", timeout=60, max_retries=0)
    found: dict[str, Any] = {}
    whole = model.invoke("weather")
    found["chat"], found["usage"] = whole.content, whole.usage_metadata["input_tokens"] > 0
    found["stream"] = "".join(piece.content for piece in model.stream("weather"))
    responses = model.model_copy(update={"use_responses_api": True})
    whole = responses.invoke("weather")
    found["response"] = whole.text if isinstance(whole.text, str) else whole.text()
    pieces = responses.stream("weather")
    found["response streamed"] = "".join(str(piece.text) for piece in pieces)
    found["response parsed"] = responses.with_structured_output(Place, method="json_schema").invoke("city").model_dump()
    found["tools"] = model.bind_tools([get_weather]).invoke("weather").content
    asked = model.bind_tools([get_weather]).invoke("umbrella")
    [call] = asked.tool_calls
    result = ToolMessage("rain", tool_call_id=call["id"])
    found["function"] = [call["name"], model.invoke([HumanMessage("umbrella"), asked, result]).content]
    found["stop"] = model.invoke("count", stop=["END"]).content
    found["schema"] = model.with_structured_output(Place, method="json_schema").invoke("city").model_dump()
    found["object"] = model.with_structured_output(Place, method="json_mode").invoke("city").model_dump()
    try:
        model.invoke("refuse")
    except openai.BadRequestError as exc:
        found["refused by the provider"] = [exc.status_code, exc.code]
    return found


if __name__ == "__main__":
    print(json.dumps(main(*sys.argv[1:])))
