"""Parameters of a request for a response. docs/api.md has the table."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from gateway.channels.web.api.errors import bad_parameter
from gateway.channels.web.api.parameters import Parameters

USED: Final[Mapping[str, Any]] = {
    "model": str,
    "input": str | list[dict[str, Any]],
    "instructions": str | None,
    **dict.fromkeys(("stream", "store", "background"), bool | None),
    "previous_response_id": str | None,
    "conversation": str | dict[str, Any] | None,
    "text": dict[str, Any] | None,
    "max_output_tokens": int | None,
    "temperature": float | None,
    "metadata": dict[str, str] | None,
    "tools": list[dict[str, Any]] | None,
    "tool_choice": str | dict[str, Any] | None,
}

WITHOUT_EFFECT: Final[Mapping[str, Any]] = {
    "top_p": float | None,
    "max_tool_calls": int | None,
    "parallel_tool_calls": bool | None,
    **dict.fromkeys(("service_tier", "truncation", "user", "safety_identifier"), str | None),
    **dict.fromkeys(("prompt_cache_key", "prompt_cache_retention"), str | None),
    **dict.fromkeys(("reasoning", "stream_options", "prompt_cache_options"), dict[str, Any] | None),
}

FIXED: Final[Mapping[str, tuple[Any, ...]]] = {
    # Clients that do not store ask for this always; without thoughts there is none to include.
    "include": ([], ["reasoning.encrypted_content"]),
    "top_logprobs": (0,),
    "prompt": (),
    "context_management": (),
    "moderation": (),
}

INSTEAD: Final = {
    "include": "; a response has texts alone",
    "prompt": "; send its text as 'instructions'",
    "context_management": "; the agent shortens long conversations by itself",
}

RESPONSES: Final = Parameters(
    used=USED,
    without_effect=WITHOUT_EFFECT,
    fixed=FIXED,
    offered=(),
    required=("model", "input"),
    instead=INSTEAD,
)

_OWN_TOOLS: Final = ("function", "custom")
"""Tools that the client runs; all others are OpenAI's, and run there."""

_HOSTED: Final = {
    "web_search": "the agent searches the web by itself, if it may: leave it out",
    "web_search_preview": "the agent searches the web by itself, if it may: leave it out",
    "file_search": "send files with the message, as input_file",
    "mcp": "servers of MCP are set up by whoever runs this service, in [mcp]",
}


def check_tools(tools: object) -> None:
    """Check what a request offers. Raises ApiError for a tool that OpenAI runs."""
    for at, tool in enumerate(tools if isinstance(tools, list) else ()):
        kind = tool.get("type") if isinstance(tool, dict) else None
        if kind not in _OWN_TOOLS:
            advice = _HOSTED.get(str(kind), "the agent has tools of its own: leave it out")
            message = f"there is no tool {str(kind)[:40]!r} here; {advice}"
            raise bad_parameter(f"tools[{at}]", message, code="unsupported_parameter")
