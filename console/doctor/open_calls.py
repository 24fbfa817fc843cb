"""Tool calls that were begun and have no result: what an operator looks at before workers start on
a copy of the data, or after the last worker was lost."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import Final

import msgspec

from shared.messages.transcript import AssistantEntry, IntentEntry, LedgerEntry, ToolEntry, decode_ledger
from shared.store import keys
from shared.store.client.redis_client import RedisClient

CALLS_SHOWN: Final = 10


class OpenCall(msgspec.Struct, frozen=True):
    """A call of `tool` that a turn or subagent began at `at` (ms; 0: unknown)."""

    owner: str
    tool: str
    at: int

    def __str__(self) -> str:
        began = f"{datetime.fromtimestamp(self.at / 1000, UTC):%Y-%m-%d %H:%M:%S} UTC" if self.at else "an unknown time"
        return f"{self.tool} of {self.owner} at {began}"


async def find_open_calls(client: RedisClient) -> list[OpenCall]:
    """Find every call without a result, the oldest first. Raises RedisAway."""
    return sorted([call async for call in _open_calls(client)], key=lambda call: call.at)


async def _open_calls(client: RedisClient) -> AsyncIterator[OpenCall]:
    prefix = keys.ledger("")
    async for page in client.scan("SCAN", match=f"{prefix}*"):
        for key in page:
            # One by one: a ledger may have 2 MB.
            steps = await client.command("XRANGE", key, "-", "+")
            entries = [entry for _, fields in steps if (entry := decode_ledger.or_none(fields[1])) is not None]
            for call in _without_result(entries):
                yield msgspec.structs.replace(call, owner=key.decode().removeprefix(prefix))


def _without_result(entries: list[LedgerEntry]) -> list[OpenCall]:
    tools: dict[str, str] = {}
    begun: dict[str, OpenCall] = {}
    for entry in entries:
        match entry:
            case AssistantEntry(tool_calls=calls):
                tools |= {call.id: call.name for call in calls}
            case IntentEntry(call_id=id, at=at):
                begun[id] = OpenCall("", tools.get(id, "a tool"), at)
            case ToolEntry(call_id=id):
                begun.pop(id, None)
    return list(begun.values())


def describe_open_calls(calls: list[OpenCall]) -> str:
    """Name the calls, and say what will become of them."""
    shown = "; ".join(map(str, calls[:CALLS_SHOWN]))
    more = f"; {len(calls) - CALLS_SHOWN} more" if len(calls) > CALLS_SHOWN else ""
    fate = (
        'begun, and without a result. An unsafe one is not run again: its model is told "outcome unknown". Find out '
        "what became of it before you start workers"
    )
    return f"{shown}{more}: {fate}"
