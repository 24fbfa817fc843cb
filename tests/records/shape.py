"""The shapes of records, and what a change of one would break."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from shared.messages.inbound import InboundMessage
from shared.messages.live import DeltaEvent, JoinedEvent, ProgressEvent, TurnEvent
from shared.messages.outbound import OutboundMessage, RequestFailed, StoredAnswer, TokensUsed, UserLine
from shared.messages.schedule import AtPlan, CronPlan, EveryPlan, Schedule
from shared.messages.subagent import SubagentTask
from shared.messages.transcript import (
    ApprovalEntry,
    AssistantEntry,
    DecisionEntry,
    EffectEntry,
    IntentEntry,
    JoinEntry,
    ToolCall,
    ToolEntry,
    UserEntry,
)
from shared.store.access.pairing import PairedPerson
from shared.store.fleet.presence import Presence, ProcessStats
from shared.store.sessions.backup import Numbered, SessionFile

RECORDS: Final = (
    InboundMessage, OutboundMessage, UserLine, UserEntry, AssistantEntry, ToolEntry, IntentEntry, ToolCall, TurnEvent,
    DeltaEvent, ProgressEvent, Presence, Numbered, SessionFile,
    Schedule, AtPlan, EveryPlan, CronPlan, SubagentTask, EffectEntry, JoinEntry, ApprovalEntry, DecisionEntry,
    JoinedEvent, ProcessStats, PairedPerson, TokensUsed, StoredAnswer, RequestFailed,
)  # fmt: skip
"""Every Struct that crosses a process border or stays in Redis."""

Shape = dict[str, Any]


def shape(record: type[msgspec.Struct]) -> Shape:
    """Its tag, and its fields in order: name, whether it must be there, type."""
    info = msgspec.structs.fields(record)
    config = record.__struct_config__
    return {
        "tag": None if config.tag is None else [config.tag_field, config.tag],
        "array": config.array_like,
        "fields": {one.encode_name: {"required": one.required, "type": _name(one.type)} for one in info},
    }


def shapes() -> dict[str, Shape]:
    """Of all records as they are now."""
    return {record.__name__: shape(record) for record in RECORDS}


def broken(frozen: dict[str, Shape], now: dict[str, Shape]) -> list[str]:
    """What the release before, or bytes that it left behind, would stumble over."""
    found = []
    for name, before in frozen.items():
        after = now.get(name)
        if after is None:
            found.append(f"{name} is gone")
            continue
        found += [
            f"{name} has another {what}: {after[what]}, was {before[what]}"
            for what in ("tag", "array")
            if before[what] != after[what]
        ]
        for field, was in before["fields"].items():
            new = after["fields"].get(field)
            if new is None:
                found.append(f"{name}.{field} is gone; keep it, or give the new one another name beside it")
            elif new["required"] != was["required"]:
                found.append(f"{name}.{field} was {'required' if was['required'] else 'optional'} and is not any more")
        found += [
            f"{name}.{field} is new and required; give it a default"
            for field in after["fields"].keys() - before["fields"].keys()
            if after["fields"][field]["required"]
        ]
    return found


def changed(frozen: dict[str, Shape], now: dict[str, Shape]) -> list[str]:
    """What is allowed, and must be frozen with it: new records, new optional fields, other types."""
    found = [f"{name} is new" for name in now.keys() - frozen.keys()]
    for name in frozen.keys() & now.keys():
        before, after = frozen[name]["fields"], now[name]["fields"]
        found += [f"{name}.{field} is new" for field in after.keys() - before.keys()]
        found += [
            f"{name}.{field} is {after[field]['type']}, was {before[field]['type']}"
            for field in before.keys() & after.keys()
            if before[field]["type"] != after[field]["type"]
        ]
    return sorted(found)


def _name(kind: Any) -> str:
    return kind.__name__ if isinstance(kind, type) and not getattr(kind, "__args__", None) else str(kind)
