"""Reads a request of the AI SDK: the newest message of a chat, or the results of functions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec

from gateway.channels.web.api.client_tools import OfferedTools, check_outputs, missing_output, read_id, read_tools
from gateway.channels.web.api.errors import bad_parameter
from gateway.channels.web.api.files import SentFile
from gateway.channels.web.api.options import read_options
from gateway.channels.web.api.parameters import Parameters, check_parameters
from gateway.channels.web.api.request import (
    MODEL,
    CompletionRequest,
    Prompt,
    decode_data_url,
    hash_of,
    ignore_other_tools,
    no_model,
    parse_object,
    session_name,
)
from gateway.channels.web.api.responses.items import read_items, shown_items
from gateway.channels.web.api.responses.request import CONVERSATION
from shared.settings import ApiSettings

REGENERATE: Final = "regenerate-message"
NOT_AGAIN: Final = (
    "an answer cannot be made again here, because the conversation is kept with every message; "
    "ask in a new message instead"
)
NO_APPROVAL: Final = "nobody can be asked for a yes here, so there is no approval to answer"
NO_MESSAGE: Final = "the last message must be one of the user, or have the results of functions"

CHAT: Final = Parameters(
    used={
        "id": str,
        "messages": list[dict[str, Any]],
        **dict.fromkeys(("trigger", "messageId", "model"), str | None),
        "tools": list[dict[str, Any]] | dict[str, dict[str, Any]] | None,
    },
    without_effect={},
    fixed={},
    offered=(),
    required=("id", "messages"),
    instead={},
)


def parse_chat_request(
    body: bytes, header: str | None, models: Mapping[str, str], api: ApiSettings | None = None
) -> CompletionRequest:
    """Parse a body; `models` maps to presets. The chat's id names the session, so `header` does not
    count. Only the last message is read: the session has the others. Raises ApiError."""
    fields = parse_object(body)
    api = api or ApiSettings()
    ignored = check_parameters(fields, strict=api.strict, known=CHAT)
    model = fields.get("model") or MODEL
    if model not in models:
        raise no_model(model)
    if fields.get("trigger") == REGENERATE:
        raise bad_parameter("trigger", NOT_AGAIN, code="unsupported_parameter")
    name = session_name(fields["id"], "id")
    messages = fields["messages"]
    last = messages[-1] if messages else {}
    match last.get("role"):
        case "user":
            prompt = _read_message(last)
            sent_id = last.get("id")
        case "assistant":
            prompt = Prompt(text="", outputs=_read_outputs(last))
            sent_id = ""
        case _:
            raise bad_parameter("messages", NO_MESSAGE)
    offered = _offered_tools(fields.get("tools") or [])
    if offered.other:
        ignored = ignore_other_tools(ignored, strict=api.strict)
    return CompletionRequest(
        model=model,
        preset=models[model],
        name=name,
        stream=True,
        with_usage=True,
        prompt=prompt,
        hash=hash_of("aisdk", name, prompt.text, [(file.name, file.data) for file in prompt.files], prompt.outputs),
        options=read_options({}, "", offered=offered),
        ignored=ignored,
        shown=msgspec.json.encode({"model": model, "conversation": {"id": f"{CONVERSATION}{name}"}}),
        input=msgspec.json.encode(shown_items(_items(prompt))),
        stored=True,
        key=_request_key(name, sent_id, prompt),
    )


def _request_key(name: str | None, sent_id: object, prompt: Prompt) -> str:
    """Return the key of what is sent, which is sent once; `""` without an id. No header can have it:
    there is a space in it."""
    if prompt.outputs:
        return f"aisdk results {name}/{'/'.join(id for id, _ in prompt.outputs)}"
    return f"aisdk message {name}/{sent_id}" if isinstance(sent_id, str) and sent_id else ""


def _parts(message: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield the parts of the last message, each with its place. Raises ApiError."""
    parts = message.get("parts")
    if not isinstance(parts, list):
        raise bad_parameter("messages", "the last message must have a list of 'parts'", code="invalid_type")
    for at, part in enumerate(parts):
        where = f"parts[{at}]"
        if not isinstance(part, dict):
            raise bad_parameter(where, f"{where} of the last message must be an object", code="invalid_type")
        yield where, part


def _read_message(message: Mapping[str, Any]) -> Prompt:
    """Read the text and the files of a message of the user; other parts are for the page alone."""
    texts: list[str] = []
    files: list[SentFile] = []
    for where, part in _parts(message):
        match part.get("type"):
            case "text" if isinstance(text := part.get("text"), str):
                texts.append(text)
            case "text":
                raise bad_parameter(where, f"{where}.text of the last message must be a text", code="invalid_type")
            case "file":
                name = part.get("filename")
                name = name if isinstance(name, str) and name else f"file-{len(files) + 1}"
                files.append(
                    SentFile(where, name, decode_data_url(part.get("url"), f"{where}.url of the last message"))
                )
    text = "\n".join(texts)
    if not text.strip() and not files:
        raise bad_parameter("messages", "the message has no text")
    return Prompt(text=text, files=tuple(files))


def _read_outputs(message: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
    """Read the results of the functions that the last step of an answer called. Raises ApiError."""
    outputs: list[tuple[str, str]] = []
    missing: list[str] = []
    for where, part in _parts(message):
        kind = part.get("type")
        if kind == "step-start":
            outputs.clear()
            missing.clear()
        if not (kind == "dynamic-tool" or str(kind).startswith("tool-")) or part.get("providerExecuted"):
            continue
        id = read_id(part.get("toolCallId"), f"{where}.toolCallId of the last message")
        match part.get("state"):
            case "output-available" if not part.get("preliminary"):
                outputs.append((id, _output_text(part.get("output"))))
            case "output-error":
                outputs.append((id, f"Error: {part.get('errorText')}"))
            case "approval-requested" | "approval-responded" | "output-denied":
                raise bad_parameter(where, NO_APPROVAL, code="unsupported_parameter")
            case _:
                missing.append(id)
    if missing:
        raise missing_output(missing)
    if not outputs:
        raise bad_parameter("messages", NO_MESSAGE)
    check_outputs(outputs, "messages")
    return tuple(outputs)


def _output_text(output: object) -> str:
    return output if isinstance(output, str) else msgspec.json.encode(output).decode()


def _offered_tools(sent: Sequence[dict[str, Any]] | Mapping[str, dict[str, Any]]) -> OfferedTools:
    """Read functions: a list as in the Responses API, or an object by their names. A schema is in
    `parameters`, or in `inputSchema` as in the AI SDK. Raises ApiError."""
    listed = [{"name": name, **tool} for name, tool in sent.items()] if isinstance(sent, Mapping) else sent
    tools = [{"parameters": tool.get("inputSchema"), **tool} for tool in listed]
    return read_tools({"tools": tools}, nested=False)


def _items(prompt: Prompt) -> list[Mapping[str, Any]]:
    """Return what was sent as items of a response's input."""
    if prompt.outputs:
        return [{"type": "function_call_output", "call_id": id, "output": text} for id, text in prompt.outputs]
    content = [{"type": "input_text", "text": prompt.text}] if prompt.text else []
    content += [{"type": "input_file", "filename": file.name} for file in prompt.files]
    return read_items([{"role": "user", "content": content}])
