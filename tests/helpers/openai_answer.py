"""What the scripted model server answers, and the bytes of it in OpenAI's form."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Sequence
from typing import Any, Literal

import msgspec


class Call(msgspec.Struct, frozen=True):
    """A tool call of a scripted answer."""

    name: str
    arguments: str = "{}"
    id: str = ""


class Answer(msgspec.Struct, kw_only=True):
    """How to answer. The first one whose `match` (a regular expression) finds something in the last user text and
    whose `times` are not used up is taken; `times=0` means always. With a `role` the newest message must have it:
    `role="tool"` answers tool results only. Where `match` has groups, `\\1` in a call's arguments is the first.

    `text` is streamed word by word, or in `pieces` as given; `echo: ...` when both are None. `delta_s` passes before
    each piece, `first_s` before the first, or the whole lasts `total_s`. `held` says nothing until `release`,
    `held_after` pieces nothing more is said until then. `cut_after` pieces the connection is cut; `hang` says nothing,
    not even headers; `stall_after` pieces nothing more is said; `garbage` sends bytes that are no JSON.
    `cached_tokens` of the prompt came from a cache. `status` other than 200 answers an error with `error` and a
    Retry-After when `retry_after` is set.
    """

    match: str = ""
    role: str = ""
    times: int = 1
    text: str | None = None
    pieces: list[str] | None = None
    reasoning: str = ""
    calls: list[Call] = []
    cached_tokens: int = 0
    finish_reason: str = ""
    first_s: float = 0
    delta_s: float = 0
    total_s: float = 0
    held: bool = False
    held_after: int = -1
    status: int = 200
    retry_after: str = ""
    error: dict[str, Any] = {}
    fault: Literal["", "hang", "garbage"] = ""
    cut_after: int = -1
    stall_after: int = -1


def filled(answer: Answer, found: re.Match[str]) -> Answer:
    """The answer with the groups of its match in the arguments of its calls."""
    if not found.re.groups:
        return answer
    calls = [msgspec.structs.replace(call, arguments=found.expand(call.arguments)) for call in answer.calls]
    return msgspec.structs.replace(answer, calls=calls)


def last_user_text(messages: Sequence[dict[str, Any]]) -> str:
    """What the user said last, without the runtime context behind it."""
    for message in reversed(messages):
        if message.get("role") == "user":
            content = message.get("content") or ""
            if isinstance(content, list):
                content = "".join(part.get("text", "") for part in content)
            return str(content).partition("\n\n[Runtime Context]")[0]
    return ""


def split_cut_off(messages: Sequence[dict[str, Any]]) -> tuple[Sequence[dict[str, Any]], str]:
    """The messages that are to be answered, and the begin of the answer that a worker asks to go on with."""
    if len(messages) > 2 and last_user_text(messages[-1:]).startswith("Your reply was cut off. Go on where"):
        return messages[:-2], str(messages[-2]["content"])
    return messages, ""


def pieces_of(answer: Answer, question: str, so_far: str = "") -> list[str]:
    """What is streamed; after `so_far` its last word and the rest, if that is how the answer begins."""
    pieces = answer.pieces
    if pieces is None:
        text = answer.text
        if text is None:
            text = "" if answer.calls else f"echo: {question}"
        pieces = re.findall(r"\s*\S+\s*", text) or ([text] if text else [])
    whole = "".join(pieces)
    if not so_far or not whole.startswith(so_far):
        return pieces
    last = so_far.split()[-1]
    return re.findall(r"\s*\S+\s*", whole[so_far.rindex(last) :])


def _finish(answer: Answer) -> str:
    return answer.finish_reason or ("tool_calls" if answer.calls else "stop")


def _tool_calls(answer: Answer) -> list[dict[str, Any]]:
    return [
        {
            "id": call.id or f"call_{at}",
            "type": "function",
            "function": {"name": call.name, "arguments": call.arguments},
        }
        for at, call in enumerate(answer.calls)
    ]


def _frame(kind: str, body: dict[str, Any]) -> dict[str, Any]:
    return {"id": "chatcmpl-1", "object": kind, "created": int(time.time()), "model": body.get("model", "scripted")}


def whole_of(answer: Answer, text: str, usage: dict[str, Any], body: dict[str, Any]) -> dict[str, Any]:
    message: dict[str, Any] = {"role": "assistant", "content": text or None}
    if answer.reasoning:
        message["reasoning_content"] = answer.reasoning
    if answer.calls:
        message["tool_calls"] = _tool_calls(answer)
    choice = {"index": 0, "message": message, "finish_reason": _finish(answer)}
    return _frame("chat.completion", body) | {"choices": [choice], "usage": usage}


def chunks_of(
    answer: Answer, pieces: list[str], usage: dict[str, Any], body: dict[str, Any]
) -> Iterator[dict[str, Any]]:
    frame = _frame("chat.completion.chunk", body)

    def chunk(delta: dict[str, Any], finish: str | None = None) -> dict[str, Any]:
        return frame | {"choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}

    yield chunk({"role": "assistant", "content": ""})
    if answer.reasoning:
        yield chunk({"reasoning_content": answer.reasoning})
    for piece in pieces:
        yield chunk({"content": piece})
    for at, call in enumerate(_tool_calls(answer)):
        name, text = call["function"]["name"], call["function"]["arguments"]
        first = {"index": at, "id": call["id"], "type": "function", "function": {"name": name, "arguments": ""}}
        yield chunk({"tool_calls": [first]})
        for start in range(0, len(text), 7):
            yield chunk({"tool_calls": [{"index": at, "function": {"arguments": text[start : start + 7]}}]})
    yield chunk({}, _finish(answer))
    if (body.get("stream_options") or {}).get("include_usage"):
        yield frame | {"choices": [], "usage": usage}
