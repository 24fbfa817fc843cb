"""The events of a response that is streamed. No I/O."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, Final, Self
from zlib import crc32

import msgspec

from gateway.channels.web.api.answer import DROPPED, DROPPED_CODE
from gateway.channels.web.api.completion import Completion
from gateway.channels.web.api.encoder import DONE
from gateway.channels.web.api.errors import ApiError
from gateway.channels.web.api.responses import numbers
from gateway.channels.web.api.responses.shape import Fields, ResponseShape, status_of, text_part
from shared.messages.outbound import RequestFailed, StoredAnswer

_ARGUMENTS: Final = "response.function_call_arguments."
_LAST = {"completed": "response.completed", "failed": "response.failed"}


class ResponseFold:
    """Encodes a response, whole or event by event. Text is one message item. Where what was shown
    is not how the answer begins, that item ends and another one has the answer; the response then
    has this one alone. `stored`: the response is there for other gateways. `after` is the number of
    the last event that the client has: only those after it are encoded."""

    headers: ClassVar[Mapping[str, str]] = {}

    def __init__(self, shape: ResponseShape, *, stored: bool, after: int | None = None) -> None:
        self._shape = shape
        self._stored = stored
        self._after = -1 if after is None else after
        self._newest = self._after  # number of the newest event that the client has
        length, low = (0, numbers.CREATED) if after is None else divmod(after, numbers.SCALE)
        ending = length > 0 and low < numbers.DELTA
        # The first item was taken back, as the client knows: its text is not known here.
        self._abandoned = ending and numbers.END_ABANDONED <= low < numbers.CALLS
        # It has a call of a function: only the answer tells whether an item was taken back before.
        self._among_calls = ending and low >= numbers.CALLS
        # False until a text is known that begins with the one that the client has.
        self._joined = low < numbers.DELTA and not self._abandoned
        self._had = length - 1 if ending else length  # characters of the first item
        self._collected = 0  # characters of this gateway's text, until it is joined
        self._length = self._checksum = 0  # of the first item
        self._index = 0  # of the item that is open, or else of the next one
        self._open = False
        self._text: list[str] = []

    @classmethod
    def of(cls, completion: Completion, after: int | None = None) -> Self:
        """Return the fold of a completion that was begun."""
        begun = completion.begun
        asked = completion.request
        shape = ResponseShape(begun.ticket, begun.at_ms // 1000, asked.shown)
        return cls(shape, stored=asked.stored, after=after)

    def encode_answer(self, answer: StoredAnswer | None) -> bytes:
        """Encode the whole response; None while it has no answer."""
        return msgspec.json.encode(self._shape.whole(answer))

    def encode_first(self) -> bytes:
        """Encode the events before the first text."""
        body = {"response": self._shape.whole(None)}
        created = self._event("response.created", numbers.CREATED, body)
        return created + self._event("response.in_progress", numbers.IN_PROGRESS, body)

    def encode_text(self, text: str) -> bytes:
        """Encode a piece of text: nothing, until the text has what the client has."""
        if self._among_calls:
            return b""  # the client has all of the text, perhaps of an item that was taken back
        if self._joined:
            return (b"" if self._open else self._begin_item()) + self._delta(text)
        # A text as long as the client's begins with it or never will: it is compared once.
        if self._abandoned or self._collected >= self._had:
            return b""
        self._text.append(text)
        self._collected += len(text)
        return self._join("".join(self._text)) if self._collected >= self._had else b""

    def encode_last(self, answer: StoredAnswer) -> bytes:
        """Encode the events that end the response with its answer."""
        events = b""
        output = self._shape.messages(answer)
        if self._among_calls:
            self._abandoned = self._had != len(answer.text)
            self._joined = not self._abandoned
        if output and not self._joined and not self._abandoned:
            events += self._join(answer.text)
        if not self._joined:
            self._index = 1
        elif not output or "".join(self._text) != answer.text:
            events += self._abandon_item()
        if output:
            status = output[0]["status"]
            if not self._open:
                events += self._begin_item() + (self._delta(answer.text) if answer.text else b"")
            events += self._end_item(status, numbers.END_OTHER if self._index else numbers.END)
            output = [self._shape.message(self._index, answer.text, status)]
            self._index += 1
        events += self._calls(answer)
        output += self._shape.calls(answer)
        name = _LAST.get(status_of(answer), "response.incomplete")
        body = self._shape.whole(answer, output)
        return events + self._event(name, self._after_text(numbers.LAST), {"response": body}) + DONE

    def _calls(self, answer: StoredAnswer) -> bytes:
        """Encode the calls of the client's functions, each whole: half of one is of no use."""
        events = b""
        for at, call in enumerate(answer.calls):
            number = self._after_text(numbers.CALLS + 4 * at)
            index = self._index + at
            item = self._shape.call(at, call, "completed")
            place = {"item_id": item["id"], "output_index": index}
            done = place | {"name": call.name, "arguments": call.arguments}
            begun = {"output_index": index, "item": self._shape.call(at, call, "in_progress")}
            events += (
                self._event("response.output_item.added", number, begun)
                + self._event(_ARGUMENTS + "delta", number + 1, place | {"delta": call.arguments})
                + self._event(_ARGUMENTS + "done", number + 2, done)
                + self._event("response.output_item.done", number + 3, {"output_index": index, "item": item})
            )
        return events

    def encode_error(self, error: ApiError, *, over: bool) -> bytes:
        """Encode the error that ends the stream. A stored response that is not over does not fail
        with this stream: it can still be read."""
        if error.code == DROPPED_CODE and over:
            return self.encode_last(DROPPED)
        body = {"code": error.code, "message": error.message, "param": error.param}
        if self._stored and not over:
            # With the number of the event before it: a client can go on after that.
            return _encode_event("error", max(self._newest, 0), body)
        events = self._abandon_item() + self._event("error", self._after_text(numbers.ERROR), body)
        failed = RequestFailed(status=error.status, code=error.code or "server_error", message=error.message)
        return events + self.encode_last(StoredAnswer(failed=failed))

    def _join(self, text: str) -> bytes:
        """Go on after what the client has, if `text` begins with it."""
        if not numbers.begins_with(text, self._after):
            return b""
        self._joined = self._open = True
        shown = text[: self._had]
        rest = text[self._had :]
        self._text = [shown]
        self._length, self._checksum = len(shown), crc32(shown.encode())
        return self._delta(rest) if rest else b""

    def _begin_item(self) -> bytes:
        self._open = True
        self._text.clear()
        number = self._after_text(numbers.BEGIN_OTHER) if self._index else numbers.BEGIN
        item = self._shape.message(self._index, None, "in_progress")
        added = self._event("response.output_item.added", number, {"output_index": self._index, "item": item})
        return added + self._event("response.content_part.added", number + 1, self._place() | {"part": text_part("")})

    def _delta(self, text: str) -> bytes:
        self._text.append(text)
        if self._index:
            number = self._after_text(numbers.DELTA_OTHER)
        else:
            self._length += len(text)
            self._checksum = crc32(text.encode(), self._checksum)
            number = numbers.delta_number(self._length, self._checksum)
        return self._event("response.output_text.delta", number, self._place() | {"delta": text, "logprobs": []})

    def _end_item(self, status: str, low: int) -> bytes:
        self._open = False
        text = "".join(self._text)
        place = self._place()
        number = self._after_text(low)
        item = self._shape.message(self._index, text, status)
        return (
            self._event("response.output_text.done", number, place | {"text": text, "logprobs": []})
            + self._event("response.content_part.done", number + 1, place | {"part": text_part(text)})
            + self._event("response.output_item.done", number + 2, {"output_index": self._index, "item": item})
        )

    def _abandon_item(self) -> bytes:
        if not self._open:
            return b""
        events = self._end_item("incomplete", numbers.END_ABANDONED)
        self._index += 1
        return events

    def _place(self) -> Fields:
        item_id = f"msg_{self._shape.ticket}_{self._index}"
        return {"item_id": item_id, "output_index": self._index, "content_index": 0}

    def _after_text(self, low: int) -> int:
        return (max(self._length, self._had) + 1) * numbers.SCALE + low

    def _event(self, name: str, number: int, body: Fields) -> bytes:
        if number <= self._after:
            return b""
        self._newest = number
        return _encode_event(name, number, body)


def _encode_event(name: str, number: int, body: Fields) -> bytes:
    data = msgspec.json.encode({"type": name, "sequence_number": number, **body})
    return b"event: " + name.encode() + b"\ndata: " + data + b"\n\n"
