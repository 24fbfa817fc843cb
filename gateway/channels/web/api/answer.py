"""The answer to a message: the line that ends its turn, and what the agent sent before it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from msgspec.structs import replace

from gateway.channels.web.api.errors import FAILED_TURNS, session_busy
from shared.chatlog.turn_reader import TurnReader
from shared.errors import BadInput
from shared.media.reference import read_reference
from shared.messages.outbound import OutboundMessage, ReplyPart, RequestFailed, StoredAnswer

PARAGRAPH: Final = "\n\n"

DROPPED_CODE: Final = "turn_dropped"
DROPPED: Final = StoredAnswer(
    failed=RequestFailed(
        status=409,
        code=DROPPED_CODE,
        message="the message was taken out of its session before it was answered, by /new, /forget or an operator",
    )
)


def read_answer(reader: TurnReader, end: OutboundMessage, ticket: str, *, formed: bool, owner: bool) -> StoredAnswer:
    """Return the answer to message `ticket`, whose turn ends with `end`. A text in a form that a
    program asked for is the whole answer. Raises ApiError (see `stored_answer`)."""
    if formed:
        # Remarks before tools are no part of it either.
        return stored_answer(replace(end, parts=()), [], ticket, owner=owner)
    sent_texts = [text_sent(line) for line in reader.lines if is_sent(line)]
    return stored_answer(end, sent_texts, ticket, owner=owner)


def is_sent(line: OutboundMessage) -> bool:
    """Tell whether the agent sent a line with its message tool."""
    return line.sent_by_tool and line.approval is None


def text_sent(line: OutboundMessage) -> str:
    """Return a text that the agent sent, with its buttons and the names of its files."""
    marks = [f"[file: {_file_name(one)}]" for one in line.media] + [f"[{label}]" for label in line.buttons]
    return "\n".join(filter(None, [line.content, " ".join(marks)]))


def _file_name(reference: str) -> str:
    try:
        return read_reference(reference).name
    except BadInput:
        return "file"


def stored_answer(
    line: OutboundMessage, sent_texts: Sequence[str], ticket: str, *, owner: bool = False
) -> StoredAnswer:
    """Return the answer to message `ticket` that its turn's last line gives, after `sent_texts`.
    Only the `owner` reads what the provider said: it may name the account behind the model. Raises
    ApiError (429) for a message that was not read because its chat is busy."""
    match line.kind:
        case "notice" if line.calls is not None:
            text = whole_text(replace(line, content=""), sent_texts)
            return StoredAnswer(text=text, finish="tool_calls", usage=line.usage, calls=line.calls.calls)
        case "notice":
            raise session_busy()
        case "apology":
            status, code = FAILED_TURNS.get(line.failed, (500, "turn_failed"))
            message = f"{line.content} The provider: {line.refusal}" if owner and line.refusal else line.content
            return StoredAnswer(failed=RequestFailed(status=status, code=code, message=message))
        case "command" if line.in_reply_to[0] != ticket:
            return DROPPED
        case "withdrawn":
            return DROPPED
        case _:
            text = whole_text(line, sent_texts)
            return StoredAnswer(
                text=text,
                finish="length" if line.unfinished else "stop",
                usage=line.usage,
                stopped=line.kind == "stopped",
            )


def last_text(line: OutboundMessage) -> str:
    """Return the text of the reply that a line ends with, without what came before it."""
    if line.calls is None:
        return line.content
    return line.parts[-1].text if line.parts and line.parts[-1].kind == "remark" else ""


def whole_text(line: OutboundMessage, sent_texts: Sequence[str]) -> str:
    """Return all that a turn said, in order, as a stream shows it."""
    parts = line.parts or tuple(ReplyPart("sent") for _ in sent_texts)
    answers = PARAGRAPH.join(part.text for part in parts if part.kind == "answer")
    final = line.content.removeprefix(answers).lstrip("\n") if answers else line.content
    sent = iter(sent_texts)
    texts = [next(sent, "") if part.kind == "sent" else part.text for part in parts]
    return PARAGRAPH.join(filter(None, [*texts, *sent, final]))
