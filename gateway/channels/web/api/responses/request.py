"""Reads a request for a response."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from gateway.channels.web.api.client_tools import read_tools
from gateway.channels.web.api.errors import PREVIOUS, ApiError, bad_parameter
from gateway.channels.web.api.options import ANY_OBJECT, encode_schema, read_options
from gateway.channels.web.api.parameters import check_parameters
from gateway.channels.web.api.request import (
    FORM_FIELDS,
    SESSION_HEADER,
    CompletionRequest,
    Prompt,
    hash_of,
    ignore_other_tools,
    no_model,
    parse_object,
    read_messages,
    read_metadata,
    session_name,
)
from gateway.channels.web.api.responses import items
from gateway.channels.web.api.responses.parameters import RESPONSES, check_tools
from shared.errors import TooBig
from shared.messages.inbound import TEXT_LIMIT_BYTES
from shared.messages.transcript import AssistantEntry
from shared.settings import ApiSettings

CONVERSATION: Final = "conv_"  # may stand before the name of a session, as in ids of OpenAI
_MADE_NAME: Final = re.compile(r"c[0-9a-f]{32}")
INSTRUCTIONS_BYTES: Final = 16 * 1024
"""Longer instructions are followed, and not shown again."""

_SHOWN: Final = (
    *("model", "metadata", "temperature", "top_p", "max_output_tokens", "max_tool_calls", "parallel_tool_calls"),
    *("tools", "tool_choice", "truncation", "user", "safety_identifier", "prompt_cache_key", "text", "store"),
    "background",
)


def parse_response_request(
    body: bytes, header: str | None, models: Mapping[str, str], api: ApiSettings | None = None
) -> CompletionRequest:
    """Parse a body; `header` is X-Shoal-Session, `models` maps to presets. The response that it
    continues is `session` in what is returned, and is yet to be looked up. Raises ApiError."""
    fields = parse_object(body)
    api = api or ApiSettings()
    check_tools(fields.get("tools"))
    ignored = check_parameters(fields, strict=api.strict, known=RESPONSES)
    if fields["model"] not in models:
        raise no_model(fields["model"])
    name = _read_name(fields, header)
    stored = fields.get("store") is not False
    background = bool(fields.get("background"))
    if background and not stored:
        message = "a response in the background is read with GET, so it must be stored: leave 'store' out"
        raise bad_parameter("background", message)
    sent = items.read_items(fields["input"])
    before, first = _read_previous(fields, sent, name, stored=stored)
    offered = read_tools(fields, nested=False)
    if offered.other:
        ignored = ignore_other_tools(ignored, strict=api.strict)
    # What continues a response is for a session that has the conversation, as with a name.
    submits = bool(before) and items.brings_results(sent, first)
    prompt = _read_prompt(fields, sent, first, with_history=name is None and not submits, api=api)
    if before and not submits:
        prompt = _as_one_message(prompt)
    if (size := len(prompt.text.encode())) > TEXT_LIMIT_BYTES:
        raise ApiError(413, TooBig(size, TEXT_LIMIT_BYTES).message, code="too_big", param="input")
    if name is not None and fields.get("instructions") and not api.system_texts:
        ignored = (*ignored, "instructions")
    asked = {key: value for key, value in fields.items() if key not in FORM_FIELDS}
    limits = ("max_output_tokens",)
    schema = _read_form(fields.get("text"))
    options = read_options(fields, prompt.system, schema=schema, limits=limits, offered=offered, steps=prompt.steps)
    return CompletionRequest(
        model=fields["model"],
        preset=models[fields["model"]],
        name=name,
        stream=bool(fields.get("stream")),
        background=background,
        with_usage=True,
        prompt=prompt,
        hash=hash_of("response", name, asked),
        metadata=read_metadata(fields),
        options=options,
        ignored=ignored,
        shown=_shown(fields, before, name),
        input=msgspec.json.encode(items.shown_items(sent)),
        stored=stored,
        previous=before,
    )


def made_name(ticket: str) -> str:
    """Return the name of a conversation that was begun with this ticket."""
    return f"c{ticket}"


def is_made_name(name: str) -> bool:
    """Tell whether a name has the form of those: a program that sends it has not chosen it."""
    return _MADE_NAME.fullmatch(name) is not None


def _read_name(fields: Mapping[str, Any], header: str | None) -> str | None:
    """Return the name of a session: X-Shoal-Session, or `conversation` as a text or an object."""
    if header is not None:
        return session_name(header, SESSION_HEADER)
    sent = fields.get("conversation")
    name = sent.get("id") if isinstance(sent, dict) else sent
    if sent is not None and not isinstance(name, str):
        raise bad_parameter("conversation", "'conversation' must be a name, or have one as its 'id'")
    return session_name(None if name is None else name.removeprefix(CONVERSATION), "conversation")


def _read_previous(
    fields: Mapping[str, Any], sent: Sequence[Mapping[str, Any]], name: str | None, *, stored: bool
) -> tuple[str, int]:
    """Return the ticket of the response that is continued (`""`: none), and the first new item."""
    referred, first = items.referenced(sent)
    if (previous := fields.get(PREVIOUS)) is None:
        before = referred
    else:
        # Of another form it is no id of ours: as unknown as one that has expired.
        known = items.RESPONSE_ID.fullmatch(previous)
        before = known[1] if known else previous
    if before and name is not None and previous is not None:
        message = f"{PREVIOUS!r} and a named conversation exclude each other: send one of them"
        raise bad_parameter(PREVIOUS, message)
    if before and name is None and not stored:
        message = "a response that continues another one is part of its conversation: leave 'store' out"
        raise bad_parameter("store", message)
    return (before, first) if name is None else ("", 0)


def _read_prompt(
    fields: Mapping[str, Any],
    sent: Sequence[Mapping[str, Any]],
    first: int,
    *,
    with_history: bool,
    api: ApiSettings,
) -> Prompt:
    messages, places = items.as_messages(sent, first)
    if instructions := fields.get("instructions"):
        messages = [{"role": "system", "content": instructions}, *messages]
        places = [0, *places]
    try:
        prompt = read_messages(messages, with_history=with_history, system=api.system_texts)
    except ApiError as exc:
        param = "input" if exc.param == "messages" else items.place_in_input(exc.param or "", places)
        message = items.place_in_input(exc.message, places)
        raise ApiError(exc.status, message, code=exc.code, param=param or None) from None
    files = [replace(file, param=items.place_in_input(file.param, places)) for file in prompt.files]
    return replace(prompt, files=tuple(files))


def _as_one_message(prompt: Prompt) -> Prompt:
    """Return all that is new as one message: what was before it is in the session already."""
    if any(isinstance(entry, AssistantEntry) for entry in prompt.history):
        message = "with an earlier response, 'input' is what is new since then: send no messages of the assistant"
        raise bad_parameter("input", message)
    texts = [entry.content or "" for entry in prompt.history]
    return replace(prompt, text="\n\n".join(filter(None, [*texts, prompt.text])), history=())


def _read_form(text: Mapping[str, Any] | None) -> str:
    """Return the schema of `text.format` as JSON, `""` for none."""
    form = (text or {}).get("format")
    where = "text.format"
    if form is None:
        return ""
    kind = form.get("type") if isinstance(form, dict) else None
    if kind == "text":
        return ""
    if kind == "json_object":
        return ANY_OBJECT
    if kind != "json_schema":
        raise bad_parameter(where, f"{where}.type must be 'text', 'json_object' or 'json_schema'")
    return encode_schema(form.get("schema"), f"{where}.schema")


def _shown(fields: Mapping[str, Any], before: str, name: str | None) -> bytes:
    """Return what is shown again of a request, as JSON."""
    shown = {key: fields[key] for key in _SHOWN if fields.get(key) is not None}
    instructions = fields.get("instructions")
    if instructions and len(instructions.encode()) <= INSTRUCTIONS_BYTES:
        shown["instructions"] = instructions
    if before:
        shown[PREVIOUS] = f"resp_{before}"
    if name is not None:
        shown["conversation"] = {"id": f"{CONVERSATION}{name}"}
    return msgspec.json.encode(shown)
