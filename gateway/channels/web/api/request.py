"""A request for an answer, read from its body."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from gateway.channels.web.api.errors import ApiError, bad_parameter
from gateway.channels.web.api.messages import Prompt, read_messages
from gateway.channels.web.api.parameters import check_parameters
from shared.ephemeral import MARK

MODEL: Final = "shoal"
"""The model of a request that leaves the choice to its chat, or to the settings."""

SESSION_HEADER: Final = "X-Shoal-Session"
_OF_FORM: Final = ("stream", "stream_options")


class CompletionRequest(msgspec.Struct, frozen=True, kw_only=True):
    """What is asked. `preset` is the model's, `""` for the usual one; `name` that of the session,
    None without one; `hash` is the same for two requests that must have the same answer."""

    model: str
    preset: str
    name: str | None
    stream: bool
    with_usage: bool
    prompt: Prompt
    hash: str


def parse_request(body: bytes, header: str | None, models: Mapping[str, str]) -> CompletionRequest:
    """Raises ApiError. `header` is the session's name in X-Shoal-Session, `models` the preset of
    each model."""
    body_fields = _parse_object(body)
    check_parameters(body_fields)
    model = body_fields["model"]
    if model not in models:
        raise no_model(model)
    name = (
        _session_name(header, SESSION_HEADER)
        if header is not None
        else _session_name(body_fields.get("user") or None, "user")
    )
    stream = bool(body_fields.get("stream"))
    options = body_fields.get("stream_options") or {}
    if options and not stream:
        raise bad_parameter("stream_options", "'stream_options' needs 'stream': true")
    return CompletionRequest(
        model=model,
        preset=models[model],
        name=name,
        stream=stream,
        with_usage=bool(options.get("include_usage")),
        prompt=read_messages(body_fields["messages"], with_history=name is None),
        hash=_request_hash(body_fields, name),
    )


def no_model(model: str) -> ApiError:
    """The model that nobody has."""
    message = f"the model {model[:100]!r} does not exist; GET /v1/models lists those that do"
    return ApiError(404, message, code="model_not_found", param="model")


def _parse_object(body: bytes) -> dict[str, Any]:
    try:
        parsed = msgspec.json.decode(body)
    except RecursionError:
        raise ApiError(400, "the body is nested too deeply", code="invalid_json") from None
    except (msgspec.DecodeError, UnicodeDecodeError) as exc:
        raise ApiError(400, f"the body is no JSON that can be read: {exc}", code="invalid_json") from None
    if not isinstance(parsed, dict):
        raise ApiError(400, "the body must be one JSON object", code="invalid_json")
    return parsed


def _session_name(name: str | None, where: str) -> str | None:
    """A name goes into keys and logs as it is; `#` and `/` divide names there."""
    if name is None:
        return None
    if not name or name != name.strip() or not name.isprintable() or set("/#") & set(name) or name.startswith(MARK):
        message = (
            f"{where} names the session, and {name[:40]!r} is no name for one: it has printable characters, no '/' and "
            f"no '#', no space around it, and does not begin with {MARK!r}"
        )
        raise bad_parameter(where, message, code="bad_session")
    return name


def _request_hash(body_fields: Mapping[str, Any], name: str | None) -> str:
    """Over all but the form of the answer, and the name of the session wherever it was."""
    kept = {key: value for key, value in body_fields.items() if key not in (*_OF_FORM, "user")}
    return hashlib.sha256(msgspec.json.encode([name, kept], order="deterministic")).hexdigest()
