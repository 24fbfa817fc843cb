"""Wishes of a client for the turn that its message begins, in OpenAI's words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from gateway.channels.web.api.client_tools import OfferedTools, Step
from gateway.channels.web.api.errors import bad_parameter
from shared.messages.inbound import TurnOptions

STOPS: Final = 16
STOP_CHARS: Final = 256
SCHEMA_LIMIT_BYTES: Final = 64 * 1024
LIMITS: Final = ("max_completion_tokens", "max_tokens")
NO_TOOLS: Final = OfferedTools()
ANY_OBJECT: Final = '{"type":"object"}'


def read_options(
    fields: Mapping[str, Any],
    system: str,
    *,
    schema: str | None = None,
    limits: Sequence[str] = LIMITS,
    offered: OfferedTools = NO_TOOLS,
    steps: tuple[Step, ...] = (),
) -> TurnOptions | None:
    """Return the options in the fields of a request, and its `system` texts where these count as
    such; None if they say nothing. `schema` is the one in `response_format` unless it was read from
    elsewhere, `limits` are the names of the limit of tokens, `offered` its functions, `steps`
    calls of them that it brings. Raises ApiError."""
    options = TurnOptions(
        max_tokens=_read_limit(fields, limits),
        temperature=_read_temperature(fields.get("temperature")),
        stop=_read_stops(fields.get("stop")),
        schema=_read_schema(fields.get("response_format")) if schema is None else schema,
        system=system,
        tools=offered.tools,
        tool_choice=offered.choice if offered.tools else "",
        steps=steps,
    )
    return None if options == TurnOptions() else options


def _read_limit(fields: Mapping[str, Any], names: Sequence[str]) -> int:
    for name in names:
        limit = fields.get(name)
        if limit is not None:
            if limit < 1:
                raise bad_parameter(name, f"{name!r} must be at least 1")
            return int(limit)
    return 0


def _read_temperature(value: float | None) -> float | None:
    if value is not None and not 0 <= value <= 2:
        raise bad_parameter("temperature", "'temperature' must be between 0 and 2")
    return value


def _read_stops(value: str | Sequence[str] | None) -> tuple[str, ...]:
    stops = tuple(filter(None, (value,) if isinstance(value, str) else value or ()))
    if len(stops) > STOPS or any(len(stop) > STOP_CHARS for stop in stops):
        raise bad_parameter("stop", f"'stop' has at most {STOPS} texts of at most {STOP_CHARS} characters")
    return stops


def _read_schema(form: Mapping[str, Any] | None) -> str:
    where = "response_format"
    kind = (form or {"type": "text"}).get("type")
    if kind == "text":
        return ""
    if kind == "json_object":
        return ANY_OBJECT
    if kind != "json_schema":
        raise bad_parameter(where, f"{where}.type must be 'text', 'json_object' or 'json_schema'")
    described = (form or {}).get("json_schema")
    schema = described.get("schema") if isinstance(described, dict) else described
    return encode_schema(schema, f"{where}.json_schema.schema")


def encode_schema(schema: object, where: str) -> str:
    """Return a schema as JSON; `where` is its place in the request. Raises ApiError."""
    if schema is None:  # any object, as some clients ask for it
        return ANY_OBJECT
    if not isinstance(schema, dict):
        raise bad_parameter(where, f"{where} must be an object", code="invalid_type")
    encoded = msgspec.json.encode(schema)
    if len(encoded) > SCHEMA_LIMIT_BYTES:
        raise bad_parameter(where, f"{where} has more than {SCHEMA_LIMIT_BYTES // 1024} kB")
    return encoded.decode()
