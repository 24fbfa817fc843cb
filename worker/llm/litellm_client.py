"""Every provider that LiteLLM reaches, as a Model. The library is imported at the first call: that takes 3 s."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import warnings
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from typing import Any, Final

from shared.errors import ModelError
from shared.settings import ModelSettings
from worker.agent.model import LLMResponse, OnDelta, ToolSpec, Usage
from worker.llm.assembly import Assembly, requested, usage_of
from worker.llm.patience import Patience
from worker.llm.retry import RetryingModel

_OFFLINE: Final = {
    "LITELLM_MODE": "PRODUCTION",  # else it loads a .env file into the process
    "LITELLM_LOCAL_MODEL_COST_MAP": "True",
    "LITELLM_LOCAL_BLOG_POSTS": "True",
    "LITELLM_LOCAL_ANTHROPIC_BETA_HEADERS": "True",
    "LITELLM_LOCAL_AUTOROUTER_PRESETS": "True",
}
_BY_STATUS: Final = {401: "auth", 403: "auth", 408: "timeout", 429: "rate_limit"}
_ADVICE: Final = {
    "auth": "check model.api_key",
    "bad_request": "check model.name and model.api_base",
    "context_length": "the conversation is too long for it",
}
_RETRYABLE: Final = frozenset({"rate_limit", "overloaded", "timeout", "connection", "bad_reply"})


class LiteLLMModel:
    """One model of one provider. Makes one call; RetryingModel repeats it."""

    def __init__(self, settings: ModelSettings, *, headers: Mapping[str, str] | None = None) -> None:
        self.name = settings.name
        self._settings = settings
        self._library: Any = None
        self._fixed: dict[str, Any] = {"model": settings.name, "max_retries": 0, "num_retries": 0}
        if settings.api_base:
            self._fixed["api_base"] = settings.api_base
        if settings.api_key is not None:
            self._fixed["api_key"] = settings.api_key.reveal()
        if headers:
            self._fixed["extra_headers"] = dict(headers)

    async def warm(self) -> None:
        """Import the library beside the event loop, so that the first turn does not wait for it."""
        if self._library is None:
            self._library = await asyncio.to_thread(_library)

    async def close(self) -> None:
        """Close the connections of this process to all providers."""
        if self._library is None:
            return
        await self._library.close_litellm_async_clients()
        self._library.in_memory_llm_clients_cache.flush_cache()

    async def chat(
        self,
        messages: Sequence[Mapping[str, Any]],
        tools: Sequence[ToolSpec] = (),
        *,
        max_tokens: int = 4096,
        temperature: float = 0.7,
        on_delta: OnDelta | None = None,
    ) -> LLMResponse:
        await self.warm()
        request = self._fixed | {
            "messages": [dict(message) for message in messages],
            "max_tokens": max(1, max_tokens),
            "temperature": temperature,
            "timeout": self._settings.total_s,
        }
        if tools:
            request |= {"tools": [_offer(tool) for tool in tools], "tool_choice": "auto"}
        patience = Patience(self._settings)
        if on_delta is not None:
            return await self._stream(request, patience, on_delta)
        with self._faults():
            return _whole(self._answered(await patience.for_all(self._library.acompletion(**request))))

    async def _stream(self, request: dict[str, Any], patience: Patience, on_delta: OnDelta) -> LLMResponse:
        reply = Assembly()
        request = request | {"stream": True, "stream_options": {"include_usage": True}}
        with self._faults():
            stream = self._answered(await patience.for_next(self._library.acompletion(**request)))
        try:
            chunks: AsyncIterator[Any] = aiter(stream)
            while True:
                with self._faults():
                    chunk = await patience.for_next(anext(chunks, None))
                    if chunk is None:
                        return reply.whole()
                    heard, text = reply.add(chunk)
                if heard:
                    patience.heard()
                if text:
                    await on_delta(text)  # outside of _faults: what the caller raises is the caller's
        finally:
            with contextlib.suppress(Exception):
                await stream.aclose()

    def _answered(self, answer: Any) -> Any:
        """After the last 422 LiteLLM answers None instead of raising."""
        if answer is None:
            text = f"the model {self.name!r} failed: bad_request, 422; {_ADVICE['bad_request']}"
            raise ModelError("bad_request", text, retryable=False)
        return answer

    @contextlib.contextmanager
    def _faults(self) -> Iterator[None]:
        """Turns whatever the library raises into a ModelError without the provider's text, which may quote ours."""
        try:
            yield
        except ModelError:
            raise
        except Exception as exc:
            kind = _kind(exc)
            status = getattr(exc, "status_code", None)
            what = f"the model {self.name!r} failed: {kind}, {type(exc).__name__}{f' {status}' if status else ''}"
            hint = _ADVICE.get(kind)
            raise ModelError(
                kind,
                f"{what}; {hint}" if hint else what,
                retryable=kind in _RETRYABLE,
                retry_after_s=_retry_after_s(exc),
            ) from None


def build(settings: ModelSettings) -> RetryingModel:
    """Any provider's model, asked again when it is busy."""
    return RetryingModel(LiteLLMModel(settings), deadline_s=settings.total_s)


def _library() -> Any:
    """LiteLLM, which must not look anything up on the internet, print, or log what people wrote."""
    for name, value in _OFFLINE.items():
        os.environ.setdefault(name, value)
    import litellm
    import openai.resources  # noqa: F401  LiteLLM would load this in its first call, and so in the event loop

    litellm.suppress_debug_info = True
    litellm.drop_params = True
    litellm.turn_off_message_logging = True
    logging.getLogger("LiteLLM").setLevel(logging.CRITICAL)
    warnings.filterwarnings("ignore", "Item '.*' on TypedDict class", UserWarning)  # about its own types
    return litellm


def _offer(tool: ToolSpec) -> dict[str, Any]:
    return {
        "type": "function",
        "function": {"name": tool.name, "description": tool.description, "parameters": tool.parameters},
    }


def _whole(answer: Any) -> LLMResponse:
    choice = answer.choices[0]
    message = choice.message
    return LLMResponse(
        content=message.content or None,
        tool_calls=tuple(
            requested(call.id or "", call.function.name or "", call.function.arguments or "")
            for call in message.tool_calls or ()
        ),
        finish_reason=choice.finish_reason or "stop",
        usage=usage_of(answer) or Usage(),
        reasoning_content=getattr(message, "reasoning_content", None) or None,
    )


def _kind(exc: BaseException) -> str:
    """The kind of ModelError that an exception of the library stands for."""
    litellm = _library()
    if isinstance(exc, litellm.ContextWindowExceededError):
        return "context_length"
    if any(isinstance(cause, json.JSONDecodeError) for cause in _causes(exc)):
        return "bad_reply"
    if isinstance(exc, litellm.exceptions.MidStreamFallbackError):  # the stream broke; its status is made up
        return "timeout" if isinstance(exc.original_exception, litellm.Timeout) else "connection"
    status = getattr(exc, "status_code", None)
    if status in _BY_STATUS:
        return _BY_STATUS[status]
    if isinstance(exc, litellm.APIConnectionError):
        return "connection"
    if not isinstance(status, int):
        return "bad_reply"
    if status >= 500:  # without headers nothing came from the provider
        return "overloaded" if getattr(exc, "litellm_response_headers", None) is not None else "connection"
    return "bad_request"


def _causes(exc: BaseException | None) -> Iterator[BaseException]:
    seen: set[int] = set()
    while exc is not None and id(exc) not in seen:
        seen.add(id(exc))
        yield exc
        exc = exc.__cause__ or exc.__context__ or getattr(exc, "original_exception", None)


def _retry_after_s(exc: BaseException) -> float | None:
    headers = getattr(exc, "litellm_response_headers", None) or {}
    for name, unit_s in (("retry-after-ms", 0.001), ("retry-after", 1.0)):
        with contextlib.suppress(ValueError):
            seconds = float(headers.get(name, "")) * unit_s
            if 0 <= seconds < 86_400:
                return seconds
    return None
