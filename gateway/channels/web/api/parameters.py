"""Parameters of a request: used, without effect, ignored, or refused. docs/api.md has the table."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import quote

import msgspec

from gateway.channels.web.api.errors import bad_parameter

USED: Final[Mapping[str, Any]] = {
    "messages": list[dict[str, Any]],
    "model": str,
    "stream": bool | None,
    "stream_options": dict[str, Any] | None,
    "user": str | None,
    "metadata": dict[str, str] | None,
    **dict.fromkeys(("max_tokens", "max_completion_tokens"), int | None),
    "temperature": float | None,
    "stop": str | list[str] | None,
    "response_format": dict[str, Any] | None,
    "tools": list[dict[str, Any]] | None,
    "tool_choice": str | dict[str, Any] | None,
}

WITHOUT_EFFECT: Final[Mapping[str, Any]] = {
    **dict.fromkeys(("top_p", "frequency_penalty", "presence_penalty"), float | None),
    "seed": int | None,
    **dict.fromkeys(("store", "parallel_tool_calls"), bool | None),
    **dict.fromkeys(("service_tier", "reasoning_effort", "verbosity"), str | None),
    **dict.fromkeys(("safety_identifier", "prompt_cache_key", "prompt_cache_retention"), str | None),
    **dict.fromkeys(("prompt_cache_options", "prediction"), dict[str, Any] | None),
}
"""Accepted, ignored and named: the settings of the model and its agent decide."""

FIXED: Final[Mapping[str, tuple[Any, ...]]] = {
    "n": (1,),
    "functions": ([],),
    "function_call": ("none", "auto"),
    "modalities": (["text"],),
    "audio": (),
    "logprobs": (False,),
    "top_logprobs": (0,),
    "logit_bias": ({},),
    "moderation": (),
    "web_search_options": (),
}
"""Refused, since a client that sets them relies on the effect; only null and these values pass."""

OFFERED: Final = ("functions",)
"""Functions in the older form. They are ignored unless `api.strict`. A `function_call` that demands
a call is refused in any case."""

NAMED_LIMIT: Final = 32

INSTEAD: Final = {
    "functions": "; send them as 'tools'",
    "web_search_options": "; the agent searches the web by itself, if it may",
    "n": "; a chat has one answer",
}


class Parameters(msgspec.Struct, frozen=True, kw_only=True):
    """The parameters of one address: types of those that are `used` and `without_effect`, values
    that the `fixed` ones may have, `offered` functions, and what must be there."""

    used: Mapping[str, Any]
    without_effect: Mapping[str, Any]
    fixed: Mapping[str, tuple[Any, ...]]
    offered: tuple[str, ...]
    required: tuple[str, ...]
    instead: Mapping[str, str]


COMPLETIONS: Final = Parameters(
    used=USED,
    without_effect=WITHOUT_EFFECT,
    fixed=FIXED,
    offered=OFFERED,
    required=("model", "messages"),
    instead=INSTEAD,
)


def check_parameters(
    body: Mapping[str, Any], *, strict: bool = False, known: Parameters = COMPLETIONS
) -> tuple[str, ...]:
    """Check all parameters; return the names of those that are ignored: if `strict`, only those
    that never have an effect. Raises ApiError for the first that cannot be taken."""
    ignored: list[str] = []
    for name, value in body.items():
        if name in known.offered and value and not strict:
            _check_type(name, value, list[dict[str, Any]])
            ignored.append(name)
        elif name in known.fixed:
            _check_fixed(name, value, known)
        elif (kind := known.used.get(name, known.without_effect.get(name))) is not None:
            _check_type(name, value, kind)
            if name in known.without_effect and value is not None:
                ignored.append(name)
        elif strict:
            raise bad_parameter(name, f"there is no parameter {name[:100]!r}", code="unknown_parameter")
        elif value is not None:
            ignored.append(name)
    for name in known.required:
        if name not in body:
            raise bad_parameter(name, f"{name!r} is missing", code="missing_required_parameter")
    return tuple(ignored)


def ignored_header(names: tuple[str, ...]) -> str:
    """Return the names as one header value. Clients chose them: quoted and cut, so that they can
    neither begin another header nor outgrow what HTTP libraries read."""
    listed = [quote(name[:64], safe="")[:64] for name in names[:NAMED_LIMIT]]
    return ", ".join([*listed, "..."] if len(names) > NAMED_LIMIT else listed)


def _check_type(name: str, value: Any, kind: Any) -> None:
    try:
        msgspec.convert(value, kind)
    except msgspec.ValidationError as exc:
        raise bad_parameter(name, f"{name!r} has a wrong type: {exc}", code="invalid_type") from None


def _check_fixed(name: str, value: Any, known: Parameters) -> None:
    allowed = known.fixed[name]
    if value is None or any(type(value) is type(one) and value == one for one in allowed):
        return
    accepted = " or ".join(["null", *(msgspec.json.encode(one).decode() for one in allowed)])
    message = f"{name!r} is not supported: it can only be {accepted}{known.instead.get(name, '')}"
    raise bad_parameter(name, message, code="unsupported_parameter")
