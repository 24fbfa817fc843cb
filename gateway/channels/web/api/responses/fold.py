"""The events of a response that is streamed. No I/O."""

from __future__ import annotations

from typing import Self

import msgspec

from gateway.channels.web.api.answer import DROPPED, DROPPED_CODE
from gateway.channels.web.api.completion import Completion
from gateway.channels.web.api.encoder import DONE
from gateway.channels.web.api.errors import ApiError
from gateway.channels.web.api.responses.shape import Fields, ResponseShape, status_of, text_part
from shared.messages.outbound import RequestFailed, StoredAnswer

_LAST = {"completed": "response.completed", "failed": "response.failed"}


class ResponseFold:
    """Encodes a response, whole or event by event. Text is one message item. Where what was shown
    is not how the answer begins, that item ends and another one has the answer; the response then
    has this one alone. `stored`: the response is there for other gateways."""

    def __init__(self, shape: ResponseShape, *, stored: bool) -> None:
        self._shape = shape
        self._stored = stored
        self._number = 0  # of the next event
        self._index = 0  # of the item that is open, or else of the next one
        self._open = False
        self._text: list[str] = []

    @classmethod
    def of(cls, completion: Completion) -> Self:
        """Return the fold of a completion that was begun."""
        begun, asked = completion.begun, completion.request
        return cls(ResponseShape(begun.ticket, begun.at_ms // 1000, asked.shown), stored=asked.stored)

    def encode_answer(self, answer: StoredAnswer) -> bytes:
        """Encode the complete response."""
        return msgspec.json.encode(self._shape.whole(answer))

    def encode_state(self, answer: StoredAnswer | None) -> bytes:
        """Encode the response as it is now, None while it has no answer."""
        return msgspec.json.encode(self._shape.whole(answer))

    def encode_first(self) -> bytes:
        """Encode the events before the first text."""
        body = {"response": self._shape.whole(None)}
        return self._event("response.created", body) + self._event("response.in_progress", body)

    def encode_text(self, text: str) -> bytes:
        """Encode a piece of text."""
        return (b"" if self._open else self._begin_item()) + self._delta(text)

    def encode_last(self, answer: StoredAnswer) -> bytes:
        """Encode the events that end the response with its answer."""
        events, output = b"", self._shape.output(answer)
        if not output or "".join(self._text) != answer.text:
            events += self._abandon_item()
        if output:
            status = output[0]["status"]
            if not self._open:
                events += self._begin_item() + (self._delta(answer.text) if answer.text else b"")
            events += self._end_item(status)
            output = [self._shape.message(self._index, answer.text, status)]
        name = _LAST.get(status_of(answer), "response.incomplete")
        return events + self._event(name, {"response": self._shape.whole(answer, output)}) + DONE

    def encode_error(self, error: ApiError, *, over: bool) -> bytes:
        """Encode the error that ends the stream. A stored response that is not over does not fail
        with this stream: it can still be read."""
        if error.code == DROPPED_CODE and over:
            return self.encode_last(DROPPED)
        fails = over or not self._stored
        events = self._abandon_item() if fails else b""
        events += self._event("error", {"code": error.code, "message": error.message, "param": error.param})
        if not fails:
            return events
        failed = RequestFailed(status=error.status, code=error.code or "server_error", message=error.message)
        return events + self.encode_last(StoredAnswer(failed=failed))

    def _begin_item(self) -> bytes:
        self._open = True
        self._text.clear()
        item = self._shape.message(self._index, None, "in_progress")
        added = self._event("response.output_item.added", {"output_index": self._index, "item": item})
        return added + self._event("response.content_part.added", self._place() | {"part": text_part("")})

    def _delta(self, text: str) -> bytes:
        self._text.append(text)
        return self._event("response.output_text.delta", self._place() | {"delta": text, "logprobs": []})

    def _end_item(self, status: str) -> bytes:
        self._open = False
        text, place = "".join(self._text), self._place()
        item = self._shape.message(self._index, text, status)
        return (
            self._event("response.output_text.done", place | {"text": text, "logprobs": []})
            + self._event("response.content_part.done", place | {"part": text_part(text)})
            + self._event("response.output_item.done", {"output_index": self._index, "item": item})
        )

    def _abandon_item(self) -> bytes:
        if not self._open:
            return b""
        events = self._end_item("incomplete")
        self._index += 1
        return events

    def _place(self) -> Fields:
        item_id = f"msg_{self._shape.ticket}_{self._index}"
        return {"item_id": item_id, "output_index": self._index, "content_index": 0}

    def _event(self, name: str, body: Fields) -> bytes:
        data = msgspec.json.encode({"type": name, "sequence_number": self._number, **body})
        self._number += 1
        return b"event: " + name.encode() + b"\ndata: " + data + b"\n\n"
