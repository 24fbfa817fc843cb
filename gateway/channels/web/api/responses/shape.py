"""A response as OpenAI's clients read it."""

from __future__ import annotations

from typing import Any, Final, Literal

import msgspec

from gateway.channels.web.api.answer import DROPPED
from shared.messages.outbound import StoredAnswer, TokensUsed
from shared.messages.transcript import ToolCall

Status = Literal["completed", "incomplete", "failed", "cancelled", "in_progress"]
Fields = dict[str, Any]

_BLANK: Final[Fields] = {
    "object": "response",
    "background": False,
    "completed_at": None,
    "error": None,
    "incomplete_details": None,
    "instructions": None,
    "max_output_tokens": None,
    "max_tool_calls": None,
    "metadata": {},
    "parallel_tool_calls": True,
    "previous_response_id": None,
    "conversation": None,
    "prompt_cache_key": None,
    "reasoning": {"effort": None, "summary": None},
    "safety_identifier": None,
    "service_tier": "default",
    "store": True,
    "temperature": None,
    "text": {"format": {"type": "text"}},
    "tool_choice": "auto",
    "tools": [],
    "top_logprobs": 0,
    "top_p": None,
    "truncation": "disabled",
    "user": None,
    "usage": None,
}
"""Every field that clients may look for. A request's own values are put over these."""


class ResponseShape(msgspec.Struct, frozen=True):
    """The fields that a response has in every state. `ticket` is that of its request, `shown` the
    request's own fields as JSON; `created` is in s."""

    ticket: str
    created: int
    shown: bytes

    def whole(self, answer: StoredAnswer | None, output: list[Fields] | None = None) -> Fields:
        """Return the response with its answer, None while it has none. `output` is what a stream
        has shown of it."""
        status = status_of(answer)
        if answer is not None and output is None:
            output = self.output(answer)
        own = {"id": f"resp_{self.ticket}", "created_at": self.created}
        body: Fields = _BLANK | own | msgspec.json.decode(self.shown)
        body["text"] = {"format": {"type": "text"}} | body["text"]
        body |= {"status": status, "output": output or []}
        if answer is None:
            return body
        if status == "failed" and answer.failed is not None:
            body["error"] = {"code": "server_error", "message": answer.failed.message}
        else:
            body["usage"] = _usage(answer.usage)
        if status == "incomplete":
            body["incomplete_details"] = {"reason": "max_output_tokens"}
        return body

    def output(self, answer: StoredAnswer) -> list[Fields]:
        """Return the items of an answer: its message, and the calls of the client's functions."""
        return [*self.messages(answer), *self.calls(answer)]

    def messages(self, answer: StoredAnswer) -> list[Fields]:
        """Return the message of an answer, unless there is no text to show."""
        status = status_of(answer)
        if status == "failed" or ((status == "cancelled" or answer.calls) and not answer.text):
            return []
        return [self.message(0, answer.text, "completed" if status == "completed" else "incomplete")]

    def calls(self, answer: StoredAnswer) -> list[Fields]:
        """Return the calls of the client's functions."""
        return [self.call(at, call, "completed") for at, call in enumerate(answer.calls)]

    def call(self, number: int, call: ToolCall, status: str) -> Fields:
        """Return the item of a call; one that is just begun has no arguments."""
        return {
            "id": f"fc_{self.ticket}_{number}",
            "type": "function_call",
            "status": status,
            "call_id": call.id,
            "name": call.name,
            "arguments": call.arguments if status == "completed" else "",
        }

    def message(self, number: int, text: str | None, status: str) -> Fields:
        """Return a message item; without a text it is just begun."""
        content = [] if text is None else [text_part(text)]
        item: Fields = {"id": f"msg_{self.ticket}_{number}", "type": "message", "role": "assistant"}
        return item | {"status": status, "content": content}


def text_part(text: str) -> Fields:
    """Return a part of a message."""
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}


def status_of(answer: StoredAnswer | None) -> Status:
    """Return the state of a response with this answer."""
    if answer is None:
        return "in_progress"
    if answer.stopped or answer == DROPPED:
        return "cancelled"
    if answer.failed is not None:
        return "failed"
    return "incomplete" if answer.finish == "length" else "completed"


def _usage(used: TokensUsed | None) -> Fields:
    used = used or TokensUsed()
    return {
        "input_tokens": used.prompt,
        "input_tokens_details": {"cached_tokens": used.cached, "cache_write_tokens": 0},
        "output_tokens": used.completion,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": used.prompt + used.completion,
    }
