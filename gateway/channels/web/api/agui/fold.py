"""The events of a run. No I/O."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Final, Self

import msgspec

from gateway.channels.web.api.agui.request import AguiRequest, message_id
from gateway.channels.web.api.answer import DROPPED_CODE
from gateway.channels.web.api.completion import Completion
from gateway.channels.web.api.encoder import event
from gateway.channels.web.api.errors import ApiError
from shared.messages.outbound import StoredAnswer, TokensUsed
from shared.messages.transcript import ToolCall

PROTOCOL_VERSION: Final = "1.0"
SUPERSEDED: Final = "shoal.superseded"  # metadata of a message that another one replaces
UNFINISHED: Final = "shoal.unfinished"  # metadata of a run that something cut short
RUNNING: Final = "shoal.running"  # metadata of an error of this stream alone

Fields = dict[str, Any]


class RunFold:
    """Encodes a run event by event. Its text is one message, from where the client's copy of it ends.
    Where the client has something else, that message ends and another one has the whole answer."""

    headers: ClassVar[Mapping[str, str]] = {}

    def __init__(self, asked: AguiRequest, ticket: str) -> None:
        self._run = {"threadId": asked.thread, "runId": asked.run}
        self._had = asked.had
        self._had_calls = asked.had_calls
        self._id = message_id(ticket)
        self._open = False
        self._first = asked.had.get(self._id, "")
        self._joined = not self._first  # False until the text is as long as the client's
        self._text = ""  # of the reply, with what the client has

    @classmethod
    def of(cls, completion: Completion) -> Self:
        """Return the fold of a run that was begun."""
        asked = completion.request
        assert isinstance(asked, AguiRequest)
        return cls(asked, completion.begun.ticket)

    def encode_answer(self, answer: StoredAnswer | None) -> bytes:
        """Encode all events at once. The protocol has no other form of an answer."""
        assert answer is not None, "no run is in the background"
        return self.encode_first() + self.encode_text(answer.text) + self.encode_last(answer)

    def encode_first(self) -> bytes:
        """Encode the begin of the run."""
        return _event("RUN_STARTED", **self._run, protocolVersion=PROTOCOL_VERSION)

    def encode_text(self, text: str) -> bytes:
        """Encode a piece of text: nothing, until the text has what the client has."""
        self._text += text
        if self._joined:
            return self._content(text)
        return self._join(self._text) if len(self._text) >= len(self._first) else b""

    def encode_last(self, answer: StoredAnswer) -> bytes:
        """Encode the events that end the run with its answer."""
        events = b""
        if answer.text and not self._joined:
            events += self._join(answer.text)
        elif answer.text != self._text and answer.text:
            # The stream had to say it in other words than the answer has in the end.
            events += self._replace(answer.text)
        events += self._end()
        pending = [*filter(None, (self._encode_call(call) for call in answer.calls))]
        outcome: Fields = {"type": "cancelled" if answer.stopped else "success"}
        if pending:
            outcome["pendingToolCallIds"] = [id for id, _ in pending]
        fields: Fields = {"outcome": outcome} | _usage(answer.usage)
        if answer.finish == "length":
            fields["metadata"] = {UNFINISHED: True}
        return events + b"".join(data for _, data in pending) + _event("RUN_FINISHED", **self._run, **fields)

    def encode_error(self, error: ApiError, *, over: bool) -> bytes:
        """Encode the error that ends the stream. A run that is not over goes on without it."""
        if error.code == DROPPED_CODE and over:
            return self._end() + _event("RUN_FINISHED", **self._run, outcome={"type": "cancelled"})
        metadata = {} if over else {"metadata": {RUNNING: True}}
        code = error.code or "server_error"
        return self._end() + _event("RUN_ERROR", message=error.message, code=code, **metadata)

    def _join(self, text: str) -> bytes:
        """Go on after what the client has of a message, in the first one that `text` begins with."""
        self._joined = True
        events = b""
        while not text.startswith(had := self._had.get(self._id, "")):
            events += self._begin() + self._end(SUPERSEDED)
            self._id += "_1"
        return events + self._content(text[len(had) :])

    def _replace(self, text: str) -> bytes:
        """Encode a text as a message of its own, in place of the one before."""
        events = self._end(SUPERSEDED)
        self._id += "_1"
        return events + self._join(text)

    def _content(self, text: str) -> bytes:
        if not text:
            return b""
        return self._begin() + _event("TEXT_MESSAGE_CONTENT", messageId=self._id, delta=text)

    def _begin(self) -> bytes:
        if self._open:
            return b""
        self._open = True
        return _event("TEXT_MESSAGE_START", messageId=self._id, role="assistant")

    def _end(self, mark: str = "") -> bytes:
        if not self._open:
            return b""
        self._open = False
        return _event("TEXT_MESSAGE_END", messageId=self._id, **({"metadata": {mark: True}} if mark else {}))

    def _encode_call(self, call: ToolCall) -> tuple[str, bytes] | None:
        """Return the id of a call of the client's function and its events: of one that the client
        has in part the rest, since it adds up arguments; None where it has it."""
        rest = call.arguments.removeprefix(self._had_calls.get(call.id, ""))
        if not rest and call.id in self._had_calls:
            return None
        place = {"toolCallId": call.id}
        begin = _event("TOOL_CALL_START", **place, toolCallName=call.name, parentMessageId=self._id)
        return call.id, begin + _event("TOOL_CALL_ARGS", **place, delta=rest) + _event("TOOL_CALL_END", **place)


def _usage(used: TokensUsed | None) -> Fields:
    if used is None:
        return {}
    total = used.prompt + used.completion
    counts = {"inputTokens": used.prompt, "outputTokens": used.completion, "totalTokens": total}
    return {"usage": [counts | {"cachedInputTokens": used.cached}]}


def _event(kind: str, **fields: Any) -> bytes:
    return event(msgspec.json.encode({"type": kind, **fields}))
