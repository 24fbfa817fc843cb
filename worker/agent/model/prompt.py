"""The messages of a model call: system text, history, current message. Strings in, messages out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import lru_cache
from typing import Any, Final
from zoneinfo import ZoneInfo

import msgspec

from shared.messages.transcript import AssistantEntry, ToolCall, ToolEntry, TranscriptEntry, UserEntry
from worker.agent.history import pair_calls_with_results
from worker.agent.model.answer_form import system_text
from worker.agent.model.model import Image, image_part
from worker.agent.ports import FollowupMessage
from worker.agent.tools.text import is_json_object, shorten
from worker.agent.turn import AgentRunSpec

Message = dict[str, Any]

EMPTY: Final = "(empty)"
RUNTIME_MARK: Final = "[Runtime Context]"
_VALUE_CHARS: Final = 300  # a name that a person gave themselves has no limit of its own
_OUTGOING: Final = ("role", "content", "tool_calls", "tool_call_id", "name")
_OF_A_STEP: Final = (*_OUTGOING, "reasoning_content", "thoughts_of")


def build_messages(spec: AgentRunSpec, now_ms: int) -> list[Message]:
    """Return the messages of a turn's first call; the turn appends its own later."""
    entries = pair_calls_with_results(window(spec.history, spec.memory_window))
    text = system_text(spec.system, spec.options)
    system = [clean({"role": "system", "content": text})] if text else []
    asked = f"{spec.entry.content or EMPTY}\n\n{runtime_context(spec, now_ms)}"
    return [*system, *map(to_message, entries), clean(_user_message(asked, spec.images))]


def followup_message(followup: FollowupMessage) -> Message:
    """Return a message that joined the turn: images, text, and in groups its sender."""
    text = followup.entry.content or EMPTY
    if sender := _labelled({"Sender": followup.sender_name, "Sender ID": followup.sender_id}):
        text += "\n\n" + "\n".join([RUNTIME_MARK, *sender])
    return _user_message(text, followup.images)


def _user_message(text: str, images: Sequence[Image]) -> Message:
    parts = [*map(image_part, images), {"type": "text", "text": text}]
    return {"role": "user", "content": parts if images else text}


def window(history: Sequence[TranscriptEntry], limit: int) -> Sequence[TranscriptEntry]:
    """Return at most `limit` of the newest entries, starting at a message of the user. A single
    turn longer than the window keeps its own message, so that the model knows the task."""
    # Some providers refuse a conversation that does not begin with the user, or with a result
    # whose call is missing, so the window is moved to the next message of a person.
    newest = history[-limit:] if limit > 0 else ()
    for at, entry in enumerate(newest):
        if isinstance(entry, UserEntry):
            return newest[at:]
    asked = next((entry for entry in reversed(history) if isinstance(entry, UserEntry)), None)
    if asked is None or limit <= 0:
        return ()
    tail = history[-(limit - 1) :] if limit > 1 else ()
    replies = (at for at, entry in enumerate(tail) if isinstance(entry, AssistantEntry))
    return [asked, *tail[next(replies, len(tail)) :]]


def runtime_context(spec: AgentRunSpec, now_ms: int) -> str:
    """Return the facts that change from turn to turn. They stand at the end of the user's message,
    after everything that a cache may hold. `now_ms` is wall-clock time."""
    time = f"Current time: {_render_minute(now_ms // 60_000, spec.timezone)} ({spec.timezone})"
    values = {"Channel": spec.channel, "Chat ID": spec.chat_id}
    values |= {"Sender": spec.sender_name, "Sender ID": spec.sender_id}
    return "\n".join([RUNTIME_MARK, time, *_labelled(values)])


@lru_cache(maxsize=64)
def _render_minute(minutes: int, timezone: str) -> str:
    """Return a minute since 1970 as a date; cached, because all turns of that minute share it."""
    return f"{datetime.fromtimestamp(minutes * 60, ZoneInfo(timezone)):%Y-%m-%d %H:%M (%A)}"


def _labelled(values: Mapping[str, str]) -> list[str]:
    lines = {label: " ".join(value.split()) for label, value in values.items() if value}
    return [f"{label}: {shorten(line, _VALUE_CHARS)}" for label, line in lines.items()]


def to_message(entry: TranscriptEntry) -> Message:
    """Return one entry in the form that models accept. It needs no `clean`."""
    # Spelt out, not `_blank(...)`: this line runs for each entry of the conversation.
    content = entry.content
    text = content if content and not content.isspace() else None
    match entry:
        case UserEntry():
            return {"role": "user", "content": text or EMPTY}
        case ToolEntry():
            of_call = {"tool_call_id": entry.call_id, "name": entry.name}
            return {"role": "tool", "content": text or EMPTY, **of_call}
        case AssistantEntry(tool_calls=()):
            return {"role": "assistant", "content": text or EMPTY}
        case AssistantEntry():
            calls = [_sent_call(call) for call in entry.tool_calls]
            return {"role": "assistant", "content": text, "tool_calls": calls}


def step_message(entry: AssistantEntry | ToolEntry) -> Message:
    """Return a step of the running turn, with the thoughts that its model may want back beside its
    calls. `thoughts_of` names that model: the client of a model takes it out, and for other models
    the thoughts."""
    message = to_message(entry)
    if isinstance(entry, ToolEntry) or not entry.tool_calls or not entry.model:
        return message
    if entry.reasoning:
        message["reasoning_content"] = entry.reasoning
    for call, sent in zip(entry.tool_calls, message["tool_calls"], strict=True):
        if call.extra:
            sent["extra_content"] = msgspec.json.decode(call.extra)
    return message | {"thoughts_of": entry.model}


def _sent_call(call: ToolCall) -> Message:
    # Some providers parse the arguments, and refuse the whole request for text that is no object.
    arguments = call.arguments if is_json_object(call.arguments) else "{}"
    function = {"name": call.name, "arguments": arguments}
    return {"id": call.id, "type": "function", "function": function}


def clean(message: Mapping[str, Any]) -> Message:
    """Return a message with only the fields that providers know, and without empty or blank text,
    which some refuse: null next to tool calls, else `(empty)`."""
    content = message.get("content")
    calls = message.get("tool_calls") or None
    if isinstance(content, list):
        content = [part for part in content if part.get("type") != "text" or not _blank(part.get("text"))]
    if _blank(content):
        content = None if calls else EMPTY
    values = {**message, "content": content, "tool_calls": calls}
    known = _OF_A_STEP if "thoughts_of" in message else _OUTGOING
    return {key: values[key] for key in known if key == "content" or values.get(key) is not None}


def _blank(text: Any) -> bool:
    return not text or (isinstance(text, str) and text.isspace())
