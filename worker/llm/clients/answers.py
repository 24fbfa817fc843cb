"""What an answer in OpenAI's protocol says, or why it cannot be used; for every client that reads
the bytes itself."""

from __future__ import annotations

import msgspec

from worker.agent.model.model import LLMResponse
from worker.llm.clients.assembly import parse_whole_reply
from worker.llm.clients.faults import kind_of_error, model_error
from worker.llm.clients.wire import ChatCompletion, decode


def parse_completion(data: bytes, model: str) -> ChatCompletion:
    """An answer, or one event of a stream. Raises ModelError for what is none, and for one that
    tells an error; `model` is only named in it."""
    try:
        chat = decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as exc:
        raise model_error(model, "bad_reply", type(exc).__name__) from None
    if chat.error is not None:
        raise model_error(model, kind_of_error(chat.error, "connection"), "an error in its answer")
    return chat


def parse_only_reply(chat: ChatCompletion, model: str) -> LLMResponse:
    """The reply of an answer that was not streamed. Raises ModelError for one without any."""
    if not chat.choices or chat.choices[0].message is None:
        raise model_error(model, "bad_reply", "an answer without a message")
    return parse_whole_reply(chat)
