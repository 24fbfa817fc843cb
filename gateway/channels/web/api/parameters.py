"""Parameters of a request: used, without effect, or refused. docs/api.md has the table."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from gateway.channels.web.api.errors import bad_parameter

USED: Final[Mapping[str, Any]] = {
    "messages": list[dict[str, Any]],
    "model": str,
    "stream": bool | None,
    "stream_options": dict[str, Any] | None,
    "user": str | None,
}

WITHOUT_EFFECT: Final[Mapping[str, Any]] = {
    **dict.fromkeys(("temperature", "top_p"), float | None),
    **dict.fromkeys(("frequency_penalty", "presence_penalty"), float | None),
    **dict.fromkeys(("max_tokens", "max_completion_tokens", "seed"), int | None),
    **dict.fromkeys(("store", "parallel_tool_calls"), bool | None),
    **dict.fromkeys(("service_tier", "reasoning_effort", "verbosity"), str | None),
    **dict.fromkeys(("safety_identifier", "prompt_cache_key", "prompt_cache_retention"), str | None),
    **dict.fromkeys(("metadata", "prompt_cache_options", "prediction"), dict[str, Any] | None),
}
"""Accepted and ignored: the settings of the model and its agent decide."""

FIXED: Final[Mapping[str, tuple[Any, ...]]] = {
    "n": (1,),
    "tools": ([],),
    "tool_choice": ("none", "auto"),
    "functions": ([],),
    "function_call": ("none", "auto"),
    "response_format": ({"type": "text"},),
    "modalities": (["text"],),
    "audio": (),
    "stop": ([], ""),
    "logprobs": (False,),
    "top_logprobs": (0,),
    "logit_bias": ({},),
    "moderation": (),
    "web_search_options": (),
}
"""Refused, since a client that sets them relies on the effect; only null and these values pass."""

_INSTEAD: Final = {
    "tools": "; the agent has tools of its own",
    "functions": "; the agent has tools of its own",
    "web_search_options": "; the agent searches the web by itself, if it may",
    "n": "; a chat has one answer",
    "stop": "; cut the text yourself",
}


def check_parameters(body: Mapping[str, Any]) -> None:
    """Check all parameters. Raises ApiError for the first that cannot be taken."""
    for name, value in body.items():
        if name in FIXED:
            _check_fixed(name, value)
        elif (kind := USED.get(name, WITHOUT_EFFECT.get(name))) is not None:
            try:
                msgspec.convert(value, kind)
            except msgspec.ValidationError as exc:
                raise bad_parameter(name, f"{name!r} has a wrong type: {exc}", code="invalid_type") from None
        else:
            raise bad_parameter(name, f"there is no parameter {name[:100]!r}", code="unknown_parameter")
    for name in ("model", "messages"):
        if name not in body:
            raise bad_parameter(name, f"{name!r} is missing", code="missing_required_parameter")


def _check_fixed(name: str, value: Any) -> None:
    allowed = FIXED[name]
    if value is None or any(type(value) is type(one) and value == one for one in allowed):
        return
    accepted = " or ".join(["null", *(msgspec.json.encode(one).decode() for one in allowed)])
    message = f"{name!r} is not supported: it can only be {accepted}{_INSTEAD.get(name, '')}"
    raise bad_parameter(name, message, code="unsupported_parameter")
