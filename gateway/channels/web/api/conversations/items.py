"""The entries of a session as items of a conversation, as OpenAI's clients read them. No I/O."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

import msgspec

from shared.messages import schedule, subagent
from shared.messages.transcript import AssistantEntry, ToolEntry, TranscriptEntry, UserEntry, decode_transcript
from shared.store.responses.conversations import record_id

Fields = dict[str, Any]
_OWN: Final = (schedule.SENDER, subagent.SENDER)
"""Senders of messages that no person wrote."""


class ConversationItem(msgspec.Struct, frozen=True):
    """An item and the entry that it is made of. One that is `alone` is all of that entry, and no
    other entry belongs to it."""

    fields: Fields
    record: bytes
    alone: bool

    @property
    def id(self) -> str:
        return str(self.fields["id"])


def read_items(records: Sequence[bytes]) -> list[ConversationItem]:
    """Return the items of a conversation, in its order. Calls of the agent's own tools, their
    results, and what a newer release wrote are left out."""
    items: list[list[ConversationItem]] = []
    calls: set[str] = set()  # of a program's functions, whose results follow
    for record in reversed(records):
        entry = decode_transcript.or_none(record)
        if isinstance(entry, ToolEntry) and entry.client:
            calls.add(entry.call_id)
        if entry is not None:
            items.append(list(_items_of(entry, record, calls)))
        if isinstance(entry, AssistantEntry):
            calls = set()
    return [item for found in reversed(items) for item in found]


def _items_of(entry: TranscriptEntry, record: bytes, calls: set[str]) -> Iterator[ConversationItem]:
    id = record_id(record)
    match entry:
        case UserEntry(content=text):
            role = "system" if entry.sender_id in _OWN else "user"
            yield ConversationItem(_message(id, role, {"type": "input_text", "text": text}), record, alone=True)
        case ToolEntry(client=True):
            output = {"call_id": entry.call_id, "output": entry.content}
            yield ConversationItem(_item(f"fco_{id}", "function_call_output") | output, record, alone=False)
        case AssistantEntry():
            if entry.content:
                part = {"type": "output_text", "text": entry.content, "annotations": [], "logprobs": []}
                yield ConversationItem(_message(id, "assistant", part), record, alone=not entry.tool_calls)
            for at, call in enumerate(entry.tool_calls):
                if call.id in calls:
                    made = {"call_id": call.id, "name": call.name, "arguments": call.arguments}
                    yield ConversationItem(_item(f"fc_{id}_{at}", "function_call") | made, record, alone=False)


def _message(id: str, role: str, part: Fields) -> Fields:
    return _item(f"msg_{id}", "message") | {"role": role, "content": [part]}


def _item(id: str, kind: str) -> Fields:
    return {"id": id, "type": kind, "status": "completed"}
