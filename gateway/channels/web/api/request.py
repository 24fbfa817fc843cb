"""Reads a request: its fields, its messages and its files."""

from __future__ import annotations

import binascii
import hashlib
import re
from base64 import b64decode
from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from gateway.channels.web.api.client_tools import check_outputs, pair_results, read_calls, read_id, read_tools
from gateway.channels.web.api.errors import ApiError, bad_parameter
from gateway.channels.web.api.files import SentFile
from gateway.channels.web.api.options import read_options
from gateway.channels.web.api.parameters import check_parameters
from shared.errors import BadInput
from shared.ids import MARK
from shared.messages.inbound import TurnOptions
from shared.messages.transcript import AssistantEntry, ToolCall, ToolEntry, UserEntry
from shared.settings import ApiSettings
from shared.store.sessions.details import pack_metadata
from shared.store.turns.client_calls import CLIENT_TOOLS

MODEL: Final = "shoal"  # the model name that leaves the choice to the chat, or to the settings
SESSION_HEADER: Final = "X-Shoal-Session"
FORM_FIELDS: Final = ("stream", "stream_options")  # fields that change only the form of the answer
MESSAGES_LIMIT: Final = 2000
HISTORY_LIMIT_BYTES: Final = 512 * 1024
"""Limit of the messages before the last one: they travel with it."""

_DATA_URL: Final = re.compile(r"data:[^,;]*(?:;[^,;]*)*;base64,", re.ASCII)
_SYSTEM: Final = ("system", "developer")
_RESULTS: Final = ("tool", "function")
_UNSUPPORTED: Final = ("refusal", "audio")


class Prompt(msgspec.Struct, frozen=True, kw_only=True):
    """The message to answer, its files, and the texts before it. System texts are of the user, or
    are in `system`. `sources` mark what others may have written. `steps` are calls of the client's
    functions and their results after it. `outputs` are such results, by the ids of their calls, for
    a turn that waits for them; there is no message then."""

    text: str
    files: tuple[SentFile, ...] = ()
    history: tuple[UserEntry | AssistantEntry | ToolEntry, ...] = ()
    system: str = ""
    sources: tuple[str, ...] = ()
    steps: tuple[AssistantEntry | ToolEntry, ...] = ()
    outputs: tuple[tuple[str, str], ...] = ()


class _ParsedMessage(msgspec.Struct, frozen=True):
    """One message: its text, its calls or the call that it is the result of, and its other parts with
    their places in the request."""

    role: str
    text: str
    parts: tuple[tuple[str, Mapping[str, Any]], ...] = ()
    calls: tuple[ToolCall, ...] = ()
    call_id: str = ""

    def entry(self) -> UserEntry | AssistantEntry | ToolEntry:
        """Return the message as history, which only names files."""
        if self.call_id:
            return ToolEntry(call_id=self.call_id, name="", content=self.text, turn=0)
        if self.calls:
            return AssistantEntry(content=self.text or None, turn=0, tool_calls=self.calls)
        placeholders = [_placeholder(part) for _, part in self.parts]
        text = "\n".join([self.text, *placeholders] if self.text else placeholders)
        return (AssistantEntry if self.role == "assistant" else UserEntry)(content=text, turn=0)


class CompletionRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A request for an answer. `preset` is that of the model, `""` for the default; `name` is the
    session's, None for an ephemeral one, and `metadata` is noted about it. The same `hash` must get
    the same answer. `ignored` names the parameters that were left out of account. A response shows
    `shown` and `input` again, JSON, and can be read and continued if it is `stored`. `background`: no
    connection waits for it, unless it is streamed. `previous` is the ticket of the one that it
    continues, whose turn is `follows` of `session`. `forked`: its session begins with the
    conversation of another one. A protocol that names its requests itself sets `key`, in
    place of Idempotency-Key, and `ticket`, by which the message is known again."""

    model: str
    preset: str
    name: str | None
    stream: bool
    with_usage: bool
    prompt: Prompt
    hash: str
    metadata: dict[str, str] = {}
    options: TurnOptions | None = None
    ignored: tuple[str, ...] = ()
    shown: bytes = b"{}"
    input: bytes = b"[]"
    stored: bool = False
    background: bool = False
    previous: str = ""
    session: str = ""
    follows: int | None = None
    forked: bool = False
    key: str = ""
    ticket: str = ""

    @property
    def formed(self) -> bool:
        """True if the answer must have a form that the program asked for."""
        return self.options is not None and bool(self.options.schema)

    @property
    def ephemeral(self) -> bool:
        """True if nothing of the request is left after its answer."""
        return self.name is None and not self.stored


def parse_request(
    body: bytes, header: str | None, models: Mapping[str, str], api: ApiSettings | None = None
) -> CompletionRequest:
    """Parse a body; `header` is X-Shoal-Session, `models` maps to presets. Raises ApiError."""
    body_fields = parse_object(body)
    api = api or ApiSettings()
    ignored = check_parameters(body_fields, strict=api.strict)
    model = body_fields["model"]
    if model not in models:
        raise no_model(model)
    where, sent = (SESSION_HEADER, header) if header is not None else ("user", body_fields.get("user") or None)
    name = session_name(sent, where)
    stream = bool(body_fields.get("stream"))
    options = body_fields.get("stream_options") or {}
    if options and not stream:
        raise bad_parameter("stream_options", "'stream_options' needs 'stream': true")
    metadata = read_metadata(body_fields)
    offered = read_tools(body_fields, nested=True)
    if offered.other:
        ignored = ignore_other_tools(ignored, strict=api.strict)
    prompt = read_messages(body_fields["messages"], with_history=name is None, system=api.system_texts)
    # The session's name counts the same in the header and in `user`.
    asked = {key: value for key, value in body_fields.items() if key not in (*FORM_FIELDS, "user")}
    return CompletionRequest(
        model=model,
        preset=models[model],
        name=name,
        stream=stream,
        with_usage=bool(options.get("include_usage")),
        prompt=prompt,
        hash=hash_of(name, asked),
        metadata=metadata,
        options=read_options(body_fields, prompt.system, offered=offered, steps=prompt.steps),
        ignored=ignored,
    )


def ignore_other_tools(ignored: tuple[str, ...], *, strict: bool) -> tuple[str, ...]:
    """Return the names of what is ignored, with the tools that are no functions. Raises ApiError if
    `strict`."""
    if strict:
        message = "'tools' can only have functions; the agent has tools of its own"
        raise bad_parameter("tools", message, code="unsupported_parameter")
    return (*ignored, "tools")


def hash_of(*asked: object) -> str:
    """Return the hash of what an answer depends on."""
    return hashlib.sha256(msgspec.json.encode(asked, order="deterministic")).hexdigest()


def no_model(model: str) -> ApiError:
    """Return the error of an unknown model."""
    message = f"the model {model[:100]!r} does not exist; GET /v1/models lists those that do"
    return ApiError(404, message, code="model_not_found", param="model")


def parse_object(body: bytes) -> dict[str, Any]:
    """Parse a body that must be one JSON object. Raises ApiError."""
    try:
        parsed = msgspec.json.decode(body)
    except RecursionError:
        raise ApiError(400, "the body is nested too deeply", code="invalid_json") from None
    except (msgspec.DecodeError, UnicodeDecodeError) as exc:
        raise ApiError(400, f"the body is no JSON that can be read: {exc}", code="invalid_json") from None
    if not isinstance(parsed, dict):
        raise ApiError(400, "the body must be one JSON object", code="invalid_json")
    return parsed


def read_metadata(fields: Mapping[str, Any]) -> dict[str, str]:
    """Return the metadata of a request. Raises ApiError where it would be too much."""
    metadata: dict[str, str] = fields.get("metadata") or {}
    try:
        pack_metadata(metadata)
    except BadInput as exc:
        raise bad_parameter("metadata", exc.message, code="bad_metadata") from None
    return metadata


def session_name(name: str | None, where: str) -> str | None:
    """Check a session's name. Keys and logs have it as it is; `#` and `/` separate names."""
    if name is None:
        return None
    if not name or name != name.strip() or not name.isprintable() or set("/#") & set(name) or name.startswith(MARK):
        message = (
            f"{where} names the session, and {name[:40]!r} is not a name for one: it has printable characters, no '/' "
            f"and no '#', no space around it, and does not begin with {MARK!r}"
        )
        raise bad_parameter(where, message, code="bad_session")
    return name


def read_messages(raw: Sequence[Mapping[str, Any]], *, with_history: bool, system: bool = False) -> Prompt:
    """Parse the messages: the user's last one is answered. Others are history before it, but with
    `system` not the system texts, and calls of the client's functions with their results after it.
    Without history results at the end are for the turn that waits for them. Raises ApiError."""
    if len(raw) > MESSAGES_LIMIT:
        message = f"there are {len(raw):,} messages; at most {MESSAGES_LIMIT:,} are taken"
        raise bad_parameter("messages", message)
    parsed = [_parse_message(message, f"messages[{at}]") for at, message in enumerate(raw)]
    # System texts may follow the message that is answered.
    asked = max((at for at, one in enumerate(parsed) if one.role not in _SYSTEM), default=-1)
    if asked < 0 or parsed[asked].role not in ("user", *_RESULTS):
        where = f"messages[{asked}].role" if asked >= 0 else "messages"
        raise bad_parameter(where, "the last message must be of the role 'user': it is the one that is answered")
    if parsed[asked].call_id and not with_history:
        return Prompt(text="", outputs=trailing_outputs(parsed[: asked + 1]))
    newest = asked
    if parsed[asked].call_id:
        asked = max((at for at, one in enumerate(parsed) if one.role == "user"), default=-1)
        if asked < 0:
            raise bad_parameter("messages", "there is no message of the user: results belong to an answer to one")
    last = parsed[asked]
    after = [(at, parsed[at]) for at in range(asked + 1, newest + 1)]
    files = tuple(_parse_file(part, where, n) for n, (where, part) in enumerate(last.parts, 1))
    if not last.text.strip() and not files:
        raise bad_parameter(f"messages[{asked}].content", "the message has no text")
    placed = [*enumerate(parsed[:asked]), *enumerate(parsed[newest + 1 :], newest + 1)] if with_history else []
    # System texts among calls and results are treated as if they came before the message.
    placed += [(at, one) for at, one in after if one.role in _SYSTEM]
    after = [(at, one) for at, one in after if one.role not in _SYSTEM]
    instructions = [one.text for one in parsed if system and one.role in _SYSTEM]
    if instructions:
        placed = [(at, one) for at, one in placed if one.role not in _SYSTEM]
    if sum(map(_size, (one for _, one in (*placed, *after)))) + sum(map(len, instructions)) > HISTORY_LIMIT_BYTES:
        limit_kb = HISTORY_LIMIT_BYTES // 1024
        message = f"the messages before the last one have more than {limit_kb} kB; leave old ones out, or use a session"
        raise ApiError(413, message, code="too_big", param="messages")
    marked = any(one.role in _RESULTS for _, one in (*placed, *after)) or last.role in _RESULTS
    sources = (CLIENT_TOOLS,) if marked else ()
    return Prompt(
        text=last.text,
        files=files,
        history=tuple(pair_results(map(_placed_entry, placed), sources)),
        system="\n\n".join(instructions),
        sources=sources,
        steps=_steps(pair_results(map(_placed_entry, after), sources)),
    )


def read_entries(raw: Sequence[Mapping[str, Any]]) -> tuple[UserEntry | AssistantEntry | ToolEntry, ...]:
    """Parse messages of which none is answered; those of the system are texts of the user. Raises
    ApiError."""
    parsed = [_parse_message(message, f"messages[{at}]") for at, message in enumerate(raw)]
    if sum(map(_size, parsed)) > HISTORY_LIMIT_BYTES:
        message = f"these messages have more than {HISTORY_LIMIT_BYTES // 1024} kB"
        raise ApiError(413, message, code="too_big", param="messages")
    return tuple(pair_results(map(_placed_entry, enumerate(parsed)), (CLIENT_TOOLS,)))


def _placed_entry(placed: tuple[int, _ParsedMessage]) -> tuple[str, UserEntry | AssistantEntry | ToolEntry]:
    return f"messages[{placed[0]}]", placed[1].entry()


def _size(message: _ParsedMessage) -> int:
    return len(message.text.encode()) + sum(len(call.arguments.encode()) for call in message.calls)


def _steps(entries: Sequence[UserEntry | AssistantEntry | ToolEntry]) -> tuple[AssistantEntry | ToolEntry, ...]:
    """Return what follows the message as steps of its turn: a text without calls, which the turn
    would repeat in its answer, stays out."""
    return tuple(
        entry
        for entry in entries
        if isinstance(entry, ToolEntry) or (isinstance(entry, AssistantEntry) and entry.tool_calls)
    )


def trailing_outputs(parsed: Sequence[_ParsedMessage]) -> tuple[tuple[str, str], ...]:
    """Return the results at the end of the messages. Raises ApiError."""
    outputs: list[tuple[str, str]] = []
    for one in reversed(parsed):
        if one.role not in _SYSTEM and not one.call_id:
            break
        outputs += [(one.call_id, one.text)] if one.call_id else []
    check_outputs(outputs, "messages")
    return tuple(reversed(outputs))


def _parse_message(message: Mapping[str, Any], where: str) -> _ParsedMessage:
    role = message.get("role")
    content = message.get("content")
    if role not in ("user", "assistant", *_SYSTEM, *_RESULTS):
        raise bad_parameter(f"{where}.role", f"{where}.role is {str(role)[:40]!r}: there is no such role")
    for name in _UNSUPPORTED:
        if message.get(name):
            reason = f"{where}.{name} cannot be taken; send the text of the message alone"
            raise bad_parameter(f"{where}.{name}", reason)
    if content is None and role == "assistant":
        content = []
    if isinstance(content, str):
        content = [{"type": "text", "text": content}]
    if not isinstance(content, list):
        raise bad_parameter(
            f"{where}.content", f"{where}.content must be a text or a list of parts", code="invalid_type"
        )
    # A call in the older form, and its result, become texts of the conversation.
    call_id = read_id(message.get("tool_call_id"), f"{where}.tool_call_id") if role == "tool" else ""
    texts = [_describe_result(message)] if role == "function" else []
    parts: list[tuple[str, Mapping[str, Any]]] = []
    for at, part in enumerate(content):
        here = f"{where}.content[{at}]"
        kind = part.get("type") if isinstance(part, dict) else None
        if kind == "text" and isinstance(part.get("text"), str):
            texts.append(part["text"])
        elif kind in ("image_url", "file") and role == "user" and isinstance(part.get(kind), dict):
            parts.append((here, part))
        else:
            raise bad_parameter(
                here, f"{here} must be a text, or of the user an image_url or a file, not {str(kind)[:40]!r}"
            )
    calls: tuple[ToolCall, ...] = ()
    if role == "assistant":
        calls = read_calls(message, where)
        texts += _describe_call(message)
    return _ParsedMessage(role, "\n".join(texts), tuple(parts), calls, call_id)


def _describe_call(message: Mapping[str, Any]) -> list[str]:
    """Return the call of an assistant's message in the older form as text."""
    function = message.get("function_call")
    if not isinstance(function, dict):
        return []
    name = function.get("name")
    arguments = function.get("arguments")
    return [f"[called {str(name)[:64]} with {arguments if isinstance(arguments, str) else '{}'}]"]


def _describe_result(message: Mapping[str, Any]) -> str:
    """Return the line before the result of a client's tool."""
    name = message.get("name") or "a tool"
    return f"[result of {str(name)[:64]}]"


def _placeholder(part: Mapping[str, Any]) -> str:
    if part["type"] == "image_url":
        return "[picture]"
    name = part["file"].get("filename")
    return f"[file: {name[:80]}]" if isinstance(name, str) else "[file]"


def _parse_file(part: Mapping[str, Any], where: str, number: int) -> SentFile:
    if part["type"] == "image_url":
        where = f"{where}.image_url.url"
        url = part["image_url"].get("url")
        name = f"picture-{number}"
    else:
        name = part["file"].get("filename")
        name = name if isinstance(name, str) else f"file-{number}"
        where = f"{where}.file.file_data"
        url = part["file"].get("file_data")
    return SentFile(where, name, decode_data_url(url, where))


def decode_data_url(url: object, where: str) -> bytes:
    """Return the bytes in a data: URL; `where` is its place in the request. Raises ApiError."""
    found = _DATA_URL.match(url) if isinstance(url, str) else None
    if found is None or not isinstance(url, str):
        raise bad_parameter(where, f"{where} must be a data: URL in base64; nothing is fetched from elsewhere")
    try:
        return b64decode(url[found.end() :], validate=True)
    except (binascii.Error, ValueError):
        raise bad_parameter(where, f"{where} is not base64") from None
