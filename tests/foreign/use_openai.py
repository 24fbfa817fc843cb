"""OpenAI's own client, as its documentation uses it. Run by the tests in an environment of its own."""

from __future__ import annotations

import json
import sys
from typing import Any

import openai
from pydantic import BaseModel


class Place(BaseModel):
    city: str
    people: int


TOOL: Any = {"type": "function", "function": {"name": "get_weather", "parameters": {"type": "object"}}}


def user(text: str) -> Any:
    return {"role": "user", "content": text}


def refused(call: Any) -> list[Any]:
    try:
        call()
    except openai.APIStatusError as exc:
        return [type(exc).__name__, exc.status_code, exc.code]
    return []


def respond(client: openai.OpenAI) -> dict[str, Any]:
    """The Responses API."""
    ask, found = client.responses, dict[str, Any]()
    first = ask.create(model="shoal", input="weather", tools=[TOOL | {"name": "f"}], metadata={"a": "b"})
    found["response"] = first.output_text
    found["response read again"] = ask.retrieve(first.id).output_text
    found["response continued"] = ask.create(model="shoal", input="city", previous_response_id=first.id).output_text
    events = list(ask.create(model="shoal", input="weather", stream=True))
    found["response events"] = [events[0].type, events[-1].type]
    found["response streamed"] = "".join(one.delta for one in events if one.type == "response.output_text.delta")
    with ask.stream(model="shoal", input="city", text_format=Place) as stream:
        for _ in stream:
            pass
        parsed = stream.get_final_response().output_parsed
        found["response parsed in a stream"] = parsed is not None and parsed.model_dump()
    parsed = ask.parse(model="shoal", input="city", text_format=Place).output_parsed
    found["response parsed"] = parsed is not None and parsed.model_dump()
    found["response refused"] = refused(lambda: ask.create(model="shoal", input="x", tools=[{"type": "web_search"}]))
    found["response of the provider"] = refused(lambda: ask.create(model="shoal", input="refuse"))
    flat: Any = {"type": "function", "name": "get_weather", "parameters": {"type": "object"}}
    asked = ask.create(model="shoal", input="umbrella", tools=[flat])
    call: Any = asked.output[-1]
    output: Any = [{"type": "function_call_output", "call_id": call.call_id, "output": "rain"}]
    answer = ask.create(model="shoal", input=output, previous_response_id=asked.id).output_text
    found["response with a function"] = [call.name, answer]
    ask.delete(first.id)
    found["response deleted"] = refused(lambda: ask.retrieve(first.id))
    return found


def converse(client: openai.OpenAI) -> dict[str, Any]:
    """Conversations, and responses in them."""
    ask = client.conversations
    found = dict[str, Any]()
    hello: Any = {"type": "message", **user("hello")}
    made = ask.create(items=[hello], metadata={"topic": "rain"})
    answer = client.responses.create(model="shoal", input="weather", conversation=made.id).output_text
    client.responses.create(model="shoal", input="city", conversation={"id": made.id})
    listed: list[Any] = list(ask.items.list(made.id, order="asc", limit=2))
    texts = [item.content[0].text for item in listed if item.type == "message"]
    found["conversation"] = [texts[:3], answer == texts[2], len(texts)]
    one = ask.items.retrieve(listed[0].id, conversation_id=made.id)
    found["conversation item"] = one == listed[0]
    ask.items.create(made.id, items=[hello])
    ask.items.delete(listed[0].id, conversation_id=made.id)
    found["conversation items"] = len(list(ask.items.list(made.id)))
    ask.update(made.id, metadata={"topic": "sun"})
    found["conversation metadata"] = ask.retrieve(made.id).metadata
    found["conversation deleted"] = [ask.delete(made.id).deleted, refused(lambda: ask.retrieve(made.id))]
    gone = refused(lambda: client.responses.create(model="shoal", input="x", conversation=made.id))
    found["conversation gone"] = gone
    return found


def main(address: str, token: str) -> dict[str, Any]:
    client = openai.OpenAI(base_url=f"http://{address}/v1", api_key=token, timeout=60)
    ask = client.chat.completions
    found: dict[str, Any] = {"models": [model.id for model in client.models.list()]}
    whole = ask.create(model="shoal", messages=[user("weather")])
    found["chat"] = whole.choices[0].message.content
    found["usage"] = whole.usage is not None and whole.usage.prompt_tokens > 0
    pieces = list(
        ask.create(model="shoal", messages=[user("weather")], stream=True, stream_options={"include_usage": True})
    )
    found["stream"] = "".join(piece.choices[0].delta.content or "" for piece in pieces if piece.choices)
    found["stream usage"] = pieces[-1].usage is not None and pieces[-1].usage.prompt_tokens > 0
    raw = ask.with_raw_response.create(
        model="shoal", messages=[user("weather")], tools=[TOOL], tool_choice="auto", seed=7
    )
    found["tools"] = [raw.headers["shoal-ignored"], raw.parse().choices[0].message.content]
    found["stop"] = ask.create(model="shoal", messages=[user("count")], stop=["END"]).choices[0].message.content
    counted = ask.create(model="shoal", messages=[user("count")], stop="END", stream=True)
    found["stop in a stream"] = "".join(piece.choices[0].delta.content or "" for piece in counted if piece.choices)
    parsed = ask.parse(model="shoal", messages=[user("city")], response_format=Place).choices[0].message.parsed
    found["schema"] = parsed is not None and parsed.model_dump()
    form: Any = {"type": "json_object"}
    found["object"] = (
        ask.create(model="shoal", messages=[user("city")], response_format=form).choices[0].message.content
    )
    with ask.stream(model="shoal", messages=[user("city")], response_format=Place) as stream:
        parsed = stream.get_final_completion().choices[0].message.parsed
        found["schema in a stream"] = parsed is not None and parsed.model_dump()
    with_call: Any = [
        user("weather"),
        {
            "role": "assistant",
            "tool_calls": [{"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}}],
        },
        {"role": "tool", "tool_call_id": "c1", "content": "weather: rain"},
    ]
    found["tool result"] = ask.create(model="shoal", messages=with_call).choices[0].message.content
    messages = [user("umbrella")]
    choice = ask.create(model="shoal", messages=messages, tools=[TOOL]).choices[0]
    call: Any = (choice.message.tool_calls or [])[0]
    messages += [choice.message, {"role": "tool", "tool_call_id": call.id, "content": "rain"}]
    answer = ask.create(model="shoal", messages=messages, tools=[TOOL]).choices[0].message.content
    found["function"] = [choice.finish_reason, call.function.name, answer]
    strict: Any = {"type": "function", "function": TOOL["function"] | {"strict": True}}
    with ask.stream(model="shoal", messages=[user("umbrella")], tools=[strict], user="s") as stream:
        call = (stream.get_final_completion().choices[0].message.tool_calls or [])[0]
    message: Any = {"role": "tool", "tool_call_id": call.id, "content": "rain"}
    with ask.stream(model="shoal", messages=[message], user="s") as stream:
        found["function streamed"] = stream.get_final_completion().choices[0].message.content
    found.update(respond(client))
    found.update(converse(client))
    found["no such form"] = refused(lambda: ask.parse(model="shoal", messages=[user("wrong")], response_format=Place))
    found["refused by the provider"] = refused(lambda: ask.create(model="shoal", messages=[user("refuse")]))
    found["refused by us"] = refused(lambda: ask.create(model="shoal", messages=[user("weather")], n=2))
    found["no such model"] = refused(lambda: ask.create(model="gpt-4o", messages=[user("weather")]))
    wrong = openai.OpenAI(base_url=f"http://{address}/v1", api_key="wrong")
    found["wrong token"] = refused(lambda: wrong.models.list())
    return found


if __name__ == "__main__":
    print(json.dumps(main(*sys.argv[1:])))
