"""Reads a request for a run, `RunAgentInput` of AG-UI."""

from __future__ import annotations

import binascii
import hashlib
import re
from base64 import b64decode
from collections.abc import Sequence
from typing import Any, Final

import msgspec

from gateway.channels.web.api.client_tools import check_outputs, read_id, read_tools
from gateway.channels.web.api.errors import ApiError, bad_parameter
from gateway.channels.web.api.files import SentFile
from gateway.channels.web.api.request import MODEL, CompletionRequest, Prompt, hash_of, parse_object, session_name
from shared.errors import TooBig
from shared.messages.inbound import TEXT_LIMIT_BYTES, TurnOptions

IGNORED_LIMIT_BYTES: Final = 256 * 1024
"""Limit of `state` and of `forwardedProps`, which are not read."""

CONTEXT_LIMIT_BYTES: Final = 32 * 1024
RUN_CHARS: Final = 255

_PLACE: Final = re.compile(r"`\$\.?([^`]*)`")
_NOTHING: Final = (b"", b"null", b"{}")


class _SentMessage(msgspec.Struct, frozen=True, rename="camel"):
    """A message as far as it is read: most are the conversation, which the session has."""

    id: str
    role: str
    content: Any = None
    tool_call_id: str | None = None
    tool_calls: list[dict[str, Any]] | None = None
    error: str | None = None


class _Context(msgspec.Struct, frozen=True):
    description: str
    value: str


class _Input(msgspec.Struct, frozen=True, rename="camel"):
    thread_id: str
    run_id: str
    messages: list[_SentMessage]
    tools: list[dict[str, Any]] | None = None
    context: list[_Context] | None = None
    resume: list[dict[str, Any]] | None = None
    state: msgspec.Raw = msgspec.Raw()
    forwarded_props: msgspec.Raw = msgspec.Raw()


class EarlierMessage(msgspec.Struct, frozen=True):
    """A message of the user before the newest one, without an answer between them."""

    ticket: str
    text: str
    files: tuple[SentFile, ...]


class AguiRequest(CompletionRequest, frozen=True, kw_only=True):
    """A run of a thread, which is a named session. Of the messages of its reply the client has
    the texts `had`, and of the calls in them the arguments `had_calls`, each by their ids. `earlier` messages, oldest
    first, are new too unless they were accepted before."""

    thread: str
    run: str
    had: dict[str, str] = {}
    had_calls: dict[str, str] = {}
    earlier: tuple[EarlierMessage, ...] = ()


class _Asked(msgspec.Struct, frozen=True):
    """The newest message, or the results at the end."""

    prompt: Prompt
    ticket: str
    key: str
    hash: str
    earlier: tuple[EarlierMessage, ...] = ()


_DECODER: Final = msgspec.json.Decoder(_Input)


def parse_run(body: bytes, header: str | None = None) -> AguiRequest:
    """Parse a body. The newest message of the user, or the results of functions at the end, decide
    what is asked: what the assistant says after it is what the client has of the answer. A header
    that names a session has no effect. Raises ApiError."""
    sent = _decode(body)
    thread = session_name(sent.thread_id, "threadId") or ""
    run = sent.run_id
    if not run or len(run) > RUN_CHARS or not run.isprintable():
        raise bad_parameter("runId", f"runId must have 1 to {RUN_CHARS} printable characters")
    if sent.resume:
        message = "nothing is asked here before a tool runs, so there is nothing to resume"
        raise bad_parameter("resume", message, code="unsupported_parameter")
    newest = max((at for at, one in enumerate(sent.messages) if one.role in ("user", "tool")), default=-1)
    if newest < 0:
        raise bad_parameter("messages", "there is no message of the user: the newest one is answered")
    asked = (_read_results if sent.messages[newest].role == "tool" else _read_message)(sent, newest)
    tools = read_tools({"tools": [{**tool, "type": "function"} for tool in sent.tools or ()]}, nested=False).tools
    after = [one for one in sent.messages[newest:] if one.role == "assistant"]
    return AguiRequest(
        model=MODEL,
        preset="",
        name=thread,
        stream=True,
        with_usage=True,
        prompt=asked.prompt,
        hash=asked.hash,
        options=TurnOptions(tools=tools) if tools else None,
        ignored=_ignored(sent),
        key=asked.key,
        ticket=asked.ticket,
        thread=thread,
        run=run,
        had={one.id: one.content for one in after if isinstance(one.content, str)},
        had_calls=dict(_call(call) for one in after for call in one.tool_calls or ()),
        earlier=asked.earlier,
    )


def message_id(ticket: str) -> str:
    """Return the id of the message with which a run answers."""
    return f"msg_{ticket}"


def join_messages(asked: AguiRequest, known: Sequence[bool]) -> AguiRequest:
    """Return the request with the earlier messages that are not known as part of its message.
    Raises ApiError where they are too long together."""
    # A command is one message alone, and an old one must not become a part of another message.
    pairs = () if asked.prompt.text[:1] == "/" else zip(asked.earlier, known, strict=True)
    new = [one for one, is_known in pairs if not is_known and one.text[:1] != "/"]
    text = "\n\n".join(filter(None, [*(one.text for one in new), asked.prompt.text]))
    if (size := len(text.encode())) > TEXT_LIMIT_BYTES:
        raise ApiError(413, TooBig(size, TEXT_LIMIT_BYTES).message, code="too_big", param="messages")
    files = [file for one in new for file in one.files]
    prompt = msgspec.structs.replace(asked.prompt, text=text, files=(*files, *asked.prompt.files))
    return msgspec.structs.replace(asked, prompt=prompt, earlier=())


def _decode(body: bytes) -> _Input:
    try:
        return _DECODER.decode(body)
    except msgspec.ValidationError as exc:
        place = _PLACE.search(str(exc))
        raise bad_parameter(
            place[1] if place else "", f"the run has a wrong form: {exc}", code="invalid_type"
        ) from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        parse_object(body)
        raise


def _read_message(sent: _Input, newest: int) -> _Asked:
    message = sent.messages[newest]
    text, files = _read_content(message, f"messages[{newest}]")
    if not text.strip() and not files:
        raise bad_parameter(f"messages[{newest}].content", "the message has no text")
    first = _first_in_a_row(sent.messages, newest)
    return _Asked(
        prompt=Prompt(text=_with_context(text, sent.context or ()), files=files),
        ticket=_ticket(sent.thread_id, "message", message.id),
        key=f"run {sent.run_id!r} of thread {sent.thread_id!r}",
        hash=hash_of("agui", message.id, message.content),
        earlier=tuple(_earlier(sent.messages[at], at, sent.thread_id) for at in range(first, newest)),
    )


def _read_results(sent: _Input, newest: int) -> _Asked:
    outputs = _read_outputs(sent.messages, _first_in_a_row(sent.messages, newest), newest)
    ticket = _ticket(sent.thread_id, "results", *sorted(id for id, _ in outputs))
    # They are of the turn that waits for them, whichever run brings them.
    return _Asked(Prompt(text="", outputs=outputs), ticket, f"results {ticket}", hash_of("agui", outputs))


def _first_in_a_row(messages: Sequence[_SentMessage], newest: int) -> int:
    """Return the place of the first of the messages with one role that end with the newest one."""
    first = newest
    while first and messages[first - 1].role == messages[newest].role:
        first -= 1
    return first


def _ticket(thread: str, *words: str) -> str:
    """Return the id of what is asked. It is the same in each run, so that the store knows it again."""
    return hashlib.sha256(msgspec.json.encode((thread, *words))).hexdigest()[:32]


def _earlier(message: _SentMessage, at: int, thread: str) -> EarlierMessage:
    return EarlierMessage(_ticket(thread, "message", message.id), *_read_content(message, f"messages[{at}]"))


def _read_outputs(messages: Sequence[_SentMessage], first: int, newest: int) -> tuple[tuple[str, str], ...]:
    outputs: list[tuple[str, str]] = []
    for at in range(first, newest + 1):
        message = messages[at]
        where = f"messages[{at}]"
        parts = _parts(message, where)
        texts = [part["text"] if part.get("type") == "text" else f"[{part.get('type')}]" for part in parts]
        error = f"error: {message.error}" if message.error else ""
        text = "\n".join(filter(None, [*map(str, texts), error]))
        outputs.append((read_id(message.tool_call_id, f"{where}.toolCallId"), text))
    check_outputs(outputs, "messages")
    return tuple(outputs)


def _read_content(message: _SentMessage, where: str) -> tuple[str, tuple[SentFile, ...]]:
    """Return the text of a message and its files. Raises ApiError."""
    parts = [(f"{where}.content[{at}]", part) for at, part in enumerate(_parts(message, where))]
    texts = [part["text"] for _, part in parts if part.get("type") == "text"]
    files = [_read_file(part, place) for place, part in parts if part.get("type") != "text"]
    return "\n".join(texts), tuple(files)


def _parts(message: _SentMessage, where: str) -> list[dict[str, Any]]:
    content = message.content
    parts = [{"type": "text", "text": content}] if isinstance(content, str) else content
    if not isinstance(parts, list):
        raise bad_parameter(f"{where}.content", f"{where}.content must be a text or a list", code="invalid_type")
    for at, part in enumerate(parts):
        if not isinstance(part, dict) or (part.get("type") == "text" and not isinstance(part.get("text"), str)):
            place = f"{where}.content[{at}]"
            raise bad_parameter(place, f"{place} must be a text or a file", code="invalid_type")
    return parts


def _read_file(part: dict[str, Any], where: str) -> SentFile:
    """Read a part with a file: `source` has it, or in the older form `data`."""
    source = part.get("source")
    metadata = part.get("metadata")
    found = source.get("value") if isinstance(source, dict) and source.get("type") == "data" else part.get("data")
    name = metadata.get("filename") if isinstance(metadata, dict) else part.get("filename")
    if not isinstance(found, str):
        raise bad_parameter(where, f"{where} must be a text, or bring its data: nothing is fetched from elsewhere")
    try:
        return SentFile(
            where, name if isinstance(name, str) else str(part.get("type")), b64decode(found, validate=True)
        )
    except (binascii.Error, ValueError):
        raise bad_parameter(where, f"{where} is not base64") from None


def _with_context(text: str, context: Sequence[_Context]) -> str:
    """Return a text of the user with what the application says about itself, which has no more
    authority. A command stays as it is."""
    lines = [f"{one.description}: {one.value}" for one in context]
    if sum(len(line.encode()) for line in lines) > CONTEXT_LIMIT_BYTES:
        message = f"the context has more than {CONTEXT_LIMIT_BYTES // 1024} kB"
        raise ApiError(413, message, code="too_big", param="context")
    return "\n".join([text, "", "[context of the application]", *lines]) if lines and text[:1] != "/" else text


def _ignored(sent: _Input) -> tuple[str, ...]:
    """Return the names of what is not read. Raises ApiError where it is too long."""
    found = {"state": bytes(sent.state), "forwardedProps": bytes(sent.forwarded_props)}
    for name, value in found.items():
        if len(value) > IGNORED_LIMIT_BYTES:
            message = f"{name} has more than {IGNORED_LIMIT_BYTES // 1024} kB, and has no effect here"
            raise ApiError(413, message, code="too_big", param=name)
    return tuple(name for name, value in found.items() if value not in _NOTHING)


def _call(call: dict[str, Any]) -> tuple[str, str]:
    function = call.get("function")
    return str(call.get("id")), str(function.get("arguments")) if isinstance(function, dict) else ""
