"""What an answer in OpenAI's protocol says, or why it cannot be used; for every client that reads
the bytes itself."""

from __future__ import annotations

import msgspec

from worker.agent.model.model import LLMResponse
from worker.llm.clients.assembly import whole_reply
from worker.llm.clients.faults import fault, kind_of_error
from worker.llm.clients.wire import Chat, decode


def understood(data: bytes, model: str) -> Chat:
    """An answer, or one event of a stream. Raises ModelError for what is none, and for one that
    tells an error; `model` is only named in it."""
    try:
        chat = decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as exc:
        raise fault(model, "bad_reply", type(exc).__name__) from None
    if chat.error is not None:
        raise fault(model, kind_of_error(chat.error, "connection"), "an error in its answer")
    return chat


def only_reply(chat: Chat, model: str) -> LLMResponse:
    """The reply of an answer that was not streamed. Raises ModelError for one without any."""
    if not chat.choices or chat.choices[0].message is None:
        raise fault(model, "bad_reply", "an answer without a message")
    return whole_reply(chat)
