"""Parts of an answer or a chunk of one, in the forms that providers give them."""

from __future__ import annotations

from typing import Any

import msgspec

from worker.agent.model.model import TokenUsage


def parse_usage(answer: Any) -> TokenUsage | None:
    """Return the token counts of an answer or a chunk, if it has them."""
    usage = getattr(answer, "usage", None)
    if usage is None:
        return None
    cached = getattr(getattr(usage, "prompt_tokens_details", None), "cached_tokens", None)
    return TokenUsage(usage.prompt_tokens or 0, usage.completion_tokens or 0, cached or 0)


def parse_model_name(answer: Any) -> str:
    """Return the name of the model that made an answer or a chunk; `""` if it gives none."""
    name = getattr(answer, "model", None)
    return name if isinstance(name, str) else ""


def text_and_thoughts(message: Any) -> tuple[str, str]:
    """Return text and thoughts of a message or a delta. Some providers send one list of both."""
    thought = getattr(message, "reasoning_content", None) or getattr(message, "reasoning", None)
    thought = thought if isinstance(thought, str) else ""
    content = message.content or ""
    if isinstance(content, str):
        return content, thought
    inner = "".join(each.text or "" for part in content for each in part.thinking or ())
    return "".join(part.text or "" for part in content), thought + inner


def arguments_text(function: Any) -> str:
    """Return the arguments as text; a few servers send the object itself."""
    arguments = function.arguments if function else None
    if arguments is None or isinstance(arguments, str):
        return arguments or ""
    return msgspec.json.encode(arguments).decode()
