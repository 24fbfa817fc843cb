"""The tool `ask`: its arguments, its results, and the progress of a turn. No I/O."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from gateway.channels.web.api.errors import bad_parameter
from gateway.channels.web.api.request import MODEL, CompletionRequest, Prompt, hash_of, session_name
from shared.chatlog.turn_reader import TurnReader
from shared.messages.outbound import Approval, StoredAnswer, TokensUsed

ASK: Final = "ask"
TITLE: Final = "Ask the agent"
DESCRIPTION: Final = (
    "Ask the agent, which has tools and a memory of its own, and return its answer. It may take minutes. "
    "Questions with the same `session` are one conversation; without it the agent knows of nothing before."
)
INPUT_SCHEMA: Final[dict[str, Any]] = {
    "type": "object",
    "properties": {
        "message": {"type": "string", "description": "What to ask, or what to do."},
        "session": {"type": "string", "description": "A name for the conversation, such as support-4711."},
    },
    "required": ["message"],
    "additionalProperties": False,
}
OUTPUT_SCHEMA: Final[dict[str, Any]] = {
    "type": "object",
    "properties": {
        "session": {"type": ["string", "null"]},
        "usage": {
            "type": "object",
            "properties": {"input_tokens": {"type": "integer"}, "output_tokens": {"type": "integer"}},
            "required": ["input_tokens", "output_tokens"],
        },
        "approval": {"type": "string", "description": "The id of the request that the agent waits for."},
        "stopped": {"type": "boolean"},
    },
    "required": ["session", "usage"],
}
PROGRESS_CHARS: Final = 200
STOPPED: Final = "The turn was stopped before there was an answer."
EMPTY: Final = "The agent ended its turn without a text."


class AskArguments(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The arguments of one call."""

    message: str
    session: str | None = None


class AskResult(msgspec.Struct, frozen=True):
    """The result of one call: a text, and the same for programs."""

    text: str
    structured: dict[str, Any] | None = None
    is_error: bool = False


def parse_ask(arguments: Mapping[str, Any] | None) -> CompletionRequest:
    """Parse the arguments of a call. Raises ApiError."""
    try:
        asked = msgspec.convert(arguments or {}, AskArguments)
    except msgspec.ValidationError as exc:
        raise bad_parameter("arguments", f"the arguments of {ASK!r} are wrong: {exc}") from None
    if not asked.message.strip():
        raise bad_parameter("message", "the message has no text")
    name = session_name(asked.session, "session")
    return CompletionRequest(
        model=MODEL,
        preset="",
        name=name,
        stream=False,
        with_usage=True,
        prompt=Prompt(text=asked.message),
        hash=hash_of(name, asked.message),
    )


def answer_result(answer: StoredAnswer, name: str | None) -> AskResult:
    """Return the result of a turn that ended."""
    if answer.failed is not None:
        return AskResult(answer.failed.message, is_error=True)
    structured = _structured(name, answer.usage)
    if answer.stopped:
        return AskResult(answer.text or STOPPED, structured | {"stopped": True})
    return AskResult(answer.text or EMPTY, structured)


def approval_result(question: Approval, reader: TurnReader, name: str | None) -> AskResult:
    """Return the result of a turn that waits for a yes."""
    asked = [line.content for line in reader.lines if line.approval is not None and line.approval.id == question.id]
    how = (
        f"The agent waits for a yes (request {question.id}). Once a person has decided, ask '/yes' or '/no' in the "
        "same session; the turn then goes on, and its answer becomes part of the conversation."
    )
    text = "\n\n".join([reader.text, *asked, how]) if reader.text else "\n\n".join([*asked, how])
    return AskResult(text, _structured(name, None) | {"approval": question.id})


def progress_text(reader: TurnReader) -> str:
    """Return what the agent is doing: its current action, else the end of what it has written."""
    if reader.action:
        return reader.action[:PROGRESS_CHARS]
    last_line = reader.text.rstrip().rpartition("\n")[2]
    return last_line[-PROGRESS_CHARS:]


def _structured(name: str | None, used: TokensUsed | None) -> dict[str, Any]:
    used = used or TokensUsed()
    return {"session": name, "usage": {"input_tokens": used.prompt, "output_tokens": used.completion}}
