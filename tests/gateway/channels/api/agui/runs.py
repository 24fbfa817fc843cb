"""Runs of AG-UI: bodies, and what a client makes of the events."""

from __future__ import annotations

import json
from typing import Any

Event = dict[str, Any]

TOOL: Any = {"name": "get_weather", "description": "The weather of a city.", "parameters": {"type": "object"}}


def user(text: str, id: str = "u1") -> Any:
    """One message of a user."""
    return {"id": id, "role": "user", "content": text}


def assistant(text: str | None, id: str = "a1", *calls: tuple[str, str]) -> Any:
    """One message of the agent, with ids and arguments of calls."""
    listed = [
        {"id": call, "type": "function", "function": {"name": "get_weather", "arguments": arguments}}
        for call, arguments in calls
    ]
    return (
        {"id": id, "role": "assistant"} | ({"content": text} if text else {}) | ({"toolCalls": listed} if calls else {})
    )


def result(call: str, text: str = "rain", id: str = "t1", **fields: Any) -> Any:
    """The result of one call."""
    return {"id": id, "role": "tool", "toolCallId": call, "content": text, **fields}


def run(*messages: Any, thread: str = "a", run: str = "r1", **fields: Any) -> dict[str, Any]:
    """A body, as HttpAgent sends it."""
    sent = {"threadId": thread, "runId": run, "tools": [], "context": [], "state": {}, "forwardedProps": {}}
    return sent | {"messages": list(messages)} | fields


def body_of(asked: object) -> bytes:
    """The bytes of a body."""
    return json.dumps(asked).encode()


def events_of(data: bytes) -> list[Event]:
    """The events of a stream, each a line of JSON; signs of life are left out."""
    blocks = [block for block in data.decode().split("\n\n") if block and not block.startswith(":")]
    assert all(block.startswith("data: {") and "\n" not in block for block in blocks)
    return [json.loads(block.removeprefix("data: ")) for block in blocks]


class Reader:
    """A client: it adds up messages and calls, also over several streams, and refuses what is out of order."""

    def __init__(self) -> None:
        self.texts: dict[str, str] = {}
        self.superseded: set[str] = set()
        self.calls: dict[str, str] = {}
        self.parents: dict[str, str] = {}
        self.last: Event = {}
        self._open: str | None = None
        self._call: str | None = None

    def read(self, events: list[Event]) -> Reader:
        """Take the events of one stream, or its beginning."""
        self._open = self._call = None
        self.last = {}
        for at, event in enumerate(events):
            assert (event["type"] == "RUN_STARTED") == (at == 0)
            assert not self.last, "an event after the end"
            self._add(event)
        return self

    def _add(self, event: Event) -> None:
        match event["type"]:
            case "RUN_STARTED":
                assert event["protocolVersion"] == "1.0"
            case "TEXT_MESSAGE_START":
                assert (self._open, self._call) == (None, None)
                self._open = event["messageId"]
                self.texts.setdefault(event["messageId"], "")
            case "TEXT_MESSAGE_CONTENT":
                assert event["messageId"] == self._open
                assert event["delta"] != ""
                self.texts[event["messageId"]] += event["delta"]
            case "TEXT_MESSAGE_END":
                assert event["messageId"] == self._open
                self._open = None
                if event.get("metadata"):
                    self.superseded.add(event["messageId"])
            case "TOOL_CALL_START":
                assert (self._open, self._call) == (None, None)
                self._call = event["toolCallId"]
                self.calls.setdefault(event["toolCallId"], "")
                self.parents[event["toolCallId"]] = event["parentMessageId"]
            case "TOOL_CALL_ARGS":
                assert event["toolCallId"] == self._call
                self.calls[event["toolCallId"]] += event["delta"]
            case "TOOL_CALL_END":
                assert event["toolCallId"] == self._call
                self._call = None
            case "RUN_FINISHED" | "RUN_ERROR":
                assert (self._open, self._call) == (None, None)
                self.last = event
            case other:
                raise AssertionError(f"{other} is no event of ours")

    @property
    def text(self) -> str:
        """The text of the messages that none replaced."""
        return "".join(text for id, text in self.texts.items() if id not in self.superseded)

    def messages(self) -> list[Any]:
        """What it sends of this with the next run."""
        ids = [*self.texts, *(one for one in self.parents.values() if one not in self.texts)]
        return [
            assistant(
                self.texts.get(id), id, *((call, self.calls[call]) for call in self.calls if self.parents[call] == id)
            )
            for id in dict.fromkeys(ids)
        ]
