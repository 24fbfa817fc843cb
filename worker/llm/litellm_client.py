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

import msgspec

from shared.errors import ModelError
from shared.settings import ModelSettings
from worker.agent.model import LLMResponse, OnDelta, ToolSpec
from worker.llm.assembly import Assembly, whole_reply
from worker.llm.caching import marked_messages, marked_tools
from worker.llm.faults import fault, kind_of_status, retry_after_s
from worker.llm.patience import Patience
from worker.llm.providers import Route, choose
from worker.llm.traced import trace_header
from worker.llm.wire import offer

_OFFLINE: Final = {
    "LITELLM_MODE": "PRODUCTION",  # else it loads a .env file into the process
    "LITELLM_LOCAL_MODEL_COST_MAP": "True",
    "LITELLM_LOCAL_BLOG_POSTS": "True",
    "LITELLM_LOCAL_ANTHROPIC_BETA_HEADERS": "True",
    "LITELLM_LOCAL_AUTOROUTER_PRESETS": "True",
}


class LiteLLMModel:
    """One model of one provider. Makes one call; RetryingModel repeats it."""

    def __init__(
        self, settings: ModelSettings, *, route: Route | None = None, headers: Mapping[str, str] | None = None
    ) -> None:
        self.name = settings.name
        self._settings = settings
        self._route = route or choose(msgspec.structs.replace(settings, client="litellm"))
        self._library: Any = None
        self._fixed: dict[str, Any] = {"model": self._route.model, "max_retries": 0, "num_retries": 0}
        if self._route.api_base:
            self._fixed["api_base"] = self._route.api_base
        if settings.api_key is not None:
            self._fixed["api_key"] = settings.api_key.reveal()
        self._headers = dict(headers or {})

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
        caching = self._route.caching
        request = self._fixed | {
            "messages": [dict(message) for message in (marked_messages(messages) if caching else messages)],
            "max_tokens": max(1, max_tokens),
            "temperature": temperature,
            "timeout": self._settings.total_s,
        }
        if tools:
            offers = [offer(tool) for tool in tools]
            request |= {"tools": marked_tools(offers) if caching else offers, "tool_choice": "auto"}
        if extra := self._headers | trace_header(self._settings):
            request["extra_headers"] = extra
        request = self._route.overridden(request)
        with Patience(self._settings) as patience:
            if on_delta is not None:
                return await self._stream(request, patience, on_delta)
            with self._faults():
                return whole_reply(self._answered(await patience.for_all(self._library.acompletion(**request))))

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
            raise fault(self.name, "bad_request", 422)
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
            what = f"{type(exc).__name__}{f' {status}' if status else ''}"
            headers = getattr(exc, "litellm_response_headers", None) or {}
            raise fault(self.name, kind, what, retry_after_s=retry_after_s(headers)) from None


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
    if isinstance(exc, litellm.APIConnectionError):
        return "connection"
    if not isinstance(status, int):
        return "bad_reply"
    if status >= 500 and getattr(exc, "litellm_response_headers", None) is None:
        return "connection"  # without headers nothing came from the provider
    return kind_of_status(status)


def _causes(exc: BaseException | None) -> Iterator[BaseException]:
    seen: set[int] = set()
    while exc is not None and id(exc) not in seen:
        seen.add(id(exc))
        yield exc
        exc = exc.__cause__ or exc.__context__ or getattr(exc, "original_exception", None)
