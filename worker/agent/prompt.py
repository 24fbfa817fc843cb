"""Making the messages of a model call: system text, history, the current message. Pure: strings in, messages out."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, Final
from zoneinfo import ZoneInfo

import msgspec

from shared.messages.transcript import AssistantEntry, ToolEntry, TranscriptEntry, UserEntry
from worker.agent.turn import AgentRunSpec, paired

Message = dict[str, Any]

EMPTY: Final = "(empty)"
RUNTIME_MARK: Final = "[Runtime Context]"
_SEPARATOR: Final = "\n\n---\n\n"
_OUTGOING: Final = ("role", "content", "tool_calls", "tool_call_id", "name")


def system_prompt(parts: Iterable[str]) -> str:
    """The parts that are not blank, in order. It holds nothing that changes between turns, or caches would miss."""
    return _SEPARATOR.join(part.strip() for part in parts if part.strip())


def build_messages(spec: AgentRunSpec, now_ms: int) -> list[Message]:
    """The messages of a turn's first call; what the turn adds later is appended behind them."""
    entries = paired(window(spec.history, spec.memory_window))
    system = [{"role": "system", "content": spec.system}] if spec.system else []
    context = runtime_context(now_ms, spec.timezone, channel=spec.channel, chat_id=spec.chat_id, sender=spec.sender)
    current = {"role": "user", "content": f"{spec.entry.content or EMPTY}\n\n{context}"}
    return [clean(message) for message in [*system, *map(to_message, entries), current]]


def window(history: Sequence[TranscriptEntry], limit: int) -> Sequence[TranscriptEntry]:
    """At most `limit` of the newest entries, starting at a message of the user.

    A single turn longer than the window keeps its own message, so that the model knows what it is about.
    """
    newest = history[-limit:] if limit > 0 else ()
    for at, entry in enumerate(newest):
        if isinstance(entry, UserEntry):
            return newest[at:]
    asked = next((entry for entry in reversed(history) if isinstance(entry, UserEntry)), None)
    if asked is None or limit <= 0:
        return ()
    tail = history[-(limit - 1) :] if limit > 1 else ()
    start = next((at for at, entry in enumerate(tail) if isinstance(entry, AssistantEntry)), len(tail))
    return [asked, *tail[start:]]


def runtime_context(now_ms: int, timezone: str, *, channel: str = "", chat_id: str = "", sender: str = "") -> str:
    """What changes from turn to turn; it stands at the end of the user's message. `now_ms` is wall-clock time."""
    now = datetime.fromtimestamp(now_ms / 1000, ZoneInfo(timezone))
    lines = [RUNTIME_MARK, f"Current time: {now:%Y-%m-%d %H:%M (%A)} ({timezone})"]
    for label, value in (("Channel", channel), ("Chat ID", chat_id), ("Sender", sender)):
        if value:
            lines.append(f"{label}: {' '.join(value.split())}")
    return "\n".join(lines)


def to_message(entry: TranscriptEntry) -> Message:
    """One entry in the form that models take."""
    match entry:
        case UserEntry():
            return {"role": "user", "content": entry.content}
        case ToolEntry():
            return {"role": "tool", "tool_call_id": entry.call_id, "name": entry.name, "content": entry.content}
        case AssistantEntry(tool_calls=()):
            return {"role": "assistant", "content": entry.content}
        case AssistantEntry():
            calls = [
                {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": _json(call.arguments)}}
                for call in entry.tool_calls
            ]
            return {"role": "assistant", "content": entry.content, "tool_calls": calls}


def clean(message: Mapping[str, Any]) -> Message:
    """Only what providers know, and no empty text: null beside tool calls, else `(empty)`."""
    kept = {key: message[key] for key in _OUTGOING if message.get(key) is not None}
    content = message.get("content")
    if isinstance(content, list):
        content = [part for part in content if not (part.get("type") == "text" and not part.get("text"))]
    if not content:
        content = None if kept.get("tool_calls") else EMPTY
    return {**kept, "content": content}


def _json(arguments: str) -> str:
    """The arguments, or `{}` for text that is no JSON object: some providers parse it and refuse the whole call."""
    try:
        msgspec.json.decode(arguments, type=dict[str, Any])
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return "{}"
    return arguments
