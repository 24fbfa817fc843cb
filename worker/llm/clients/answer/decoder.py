"""Decoding of the bytes of one answer: strictly and fast, and tolerantly where that fails."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from typing import Any, Final, NoReturn

import msgspec

from shared.log import logger
from shared.metrics import MODEL_BAD_REPLIES
from worker.llm.clients.answer.characters import join_halves, split_at_halves
from worker.llm.clients.answer.plain import read_completion
from worker.llm.clients.completion import ChatCompletion, WireMessage, decode
from worker.llm.clients.faults import kind_of_error, model_error
from worker.llm.clients.reasons import words_of

_DONE: Final = b"[DONE]"
_DONE_TEXT: Final = re.compile(r"[\s\"'\[(]*done[\s\"'\])]*", re.IGNORECASE)
_FILLING: Final = re.compile(r"(?:[\s,;\ufeff\0]|data:)+")
# NaN is no number to us
_VALUES: Final = json.JSONDecoder(strict=False, parse_constant=lambda _: None)
_UNREADABLE: Final = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
_PLACE: Final = re.compile(r" - at `\$\.?(.*)`")
# Many providers send it; some put something into it that the strict form has not
_USUAL: Final = "usual"

log = logger("models")


class AnswerDecoder:
    """Decodes the answer of `model`, whole or event by event, and notes which fields were odd: once
    a field in the log and in the metric. `ended` says that the provider has said so itself."""

    def __init__(self, model: str) -> None:
        self._model = model
        self._half = ""  # of a character, whose rest comes in the next event
        self.ended = False
        self.odd: list[str] = []

    def read_data(self, data: bytes) -> Sequence[ChatCompletion]:
        """Return what an event or a body holds: one completion, but for servers that put none or
        several into it. Raises ModelError for an error in it, and for an answer that cannot be
        read."""
        if data == _DONE:
            self.ended = True
            return ()
        try:
            completion = decode(data)
        except _UNREADABLE as exc:
            odd = _field_of(exc)
        else:
            if not (odd := _unusual_field(completion)) and not self._half:
                return (completion,)
        ended = self.ended
        completions = [self._checked(one) for one in self._read_plainly(data)]
        if self.ended and not ended and not completions:
            self.note("done")
        elif odd != _USUAL and data.strip():
            self.note(odd)
        return completions

    def note(self, field: str) -> None:
        """Write down that a field was missing, or had another form than the protocol gives it."""
        if field and field not in self.odd:
            self.odd.append(field)
            MODEL_BAD_REPLIES.labels(self._model, field).inc()
            log.warning("bad_reply", model=self._model, field=field)

    def fail(self, kind: str, what: str) -> NoReturn:
        """Raise the fault of an answer that cannot be used, with the fields that were odd."""
        fields = f" ({', '.join(self.odd)})" if self.odd else ""
        raise model_error(self._model, kind, f"{what}{fields}")

    def _checked(self, completion: ChatCompletion) -> ChatCompletion:
        errors = [completion.error, *(choice.error for choice in completion.choices or ())]
        if error := next(filter(None, errors), None):
            kind = kind_of_error(error, "connection")
            raise model_error(self._model, kind, "an error in its answer", reason=words_of(error))
        return self._with_whole_characters(completion)

    def _read_plainly(self, data: bytes) -> Iterator[ChatCompletion]:
        """Yield each JSON object in the bytes, whatever stands between them."""
        text = data.decode("utf-8", "surrogateescape")
        at = 0
        while at < len(text):
            if filling := _FILLING.match(text, at):
                at = filling.end()
            elif done := _DONE_TEXT.match(text, at):
                self.ended, at = True, done.end()
            else:
                value, at = self._next_value(text, at)
                yield from self._completions(value)

    def _next_value(self, text: str, at: int) -> tuple[Any, int]:
        """Return a JSON value and where it ends; nothing for words that no answer can stand in."""
        try:
            return _VALUES.raw_decode(text, at)
        except (ValueError, RecursionError):
            if "{" in text[at:]:
                self.note("json")
                self.fail("bad_reply", "an answer that is no JSON")
            return None, len(text)

    def _completions(self, value: Any) -> Iterator[ChatCompletion]:
        if isinstance(value, str) and value.lstrip().startswith("{"):  # encoded twice
            yield from self._read_plainly(value.encode("utf-8", "surrogateescape"))
        elif isinstance(value, str) and _DONE_TEXT.fullmatch(value):
            self.ended = True
        elif isinstance(value, list):
            for each in value:
                yield from self._completions(each)
        elif isinstance(value, dict):
            yield read_completion(value)

    def _with_whole_characters(self, completion: ChatCompletion) -> ChatCompletion:
        """Return the completion with what was left of a character before it, and without what its
        text only begins."""
        message = completion.choices and (completion.choices[0].delta or completion.choices[0].message)
        if message and message.content:
            text, self._half = split_at_halves(self._half + message.content)
            message.content = join_halves(text)
        return completion


def _unusual_field(completion: ChatCompletion) -> str:
    """Return the field in which the strict form may have missed something; `""` if there is
    none."""
    if completion.error is not None:
        return "error"
    choices = completion.choices
    usage = completion.usage
    if usage is None and choices and (delta := choices[0].delta) and delta.content and len(choices) == 1:
        return "" if delta.tool_calls is None else _unusual_call(delta)  # nearly all chunks
    if usage is not None and usage.prompt_tokens is None and usage.completion_tokens is None:
        return "usage"
    if not choices:
        return "" if usage is not None else _USUAL
    for choice in choices:
        message = choice.delta or choice.message
        if message is None:
            return "choices.delta"
        if choice.error is not None:
            return "choices.error"
        if odd := _unusual_call(message):
            return odd
    return ""


def _unusual_call(message: WireMessage) -> str:
    for piece in message.tool_calls or ():
        if piece.function is None:
            return "choices.delta.tool_calls.function"
        if piece.function.name and piece.function.arguments is None:
            return _USUAL
    return ""


def _field_of(exc: Exception) -> str:
    """Return the name of the field that has another type: `choices.delta.content`, or what the
    bytes are not."""
    if isinstance(exc, msgspec.ValidationError):
        found = _PLACE.search(str(exc))
        return re.sub(r"\[.*?\]", "", found[1]) if found and found[1] else "object"
    return "encoding" if isinstance(exc, UnicodeDecodeError) else "json"
