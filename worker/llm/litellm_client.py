"""Every provider that LiteLLM reaches, as a Model. The library is imported at the first call: that takes 3 s."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import re
from collections.abc import AsyncIterator, Awaitable, Iterator, Mapping, Sequence
from typing import Any, Final, TypeVar

from shared.errors import ModelError
from shared.settings import ModelSettings
from worker.agent.model import LLMResponse, OnDelta, ToolCallRequest, ToolSpec, Usage
from worker.llm.arguments import parse_arguments

T = TypeVar("T")

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
    """One model of one provider. Makes one call and never repeats it; see RetryingModel for that."""

    def __init__(self, settings: ModelSettings, *, headers: Mapping[str, str] | None = None) -> None:
        self.name = settings.name
        self._settings = settings
        self._fixed: dict[str, Any] = {"model": settings.name, "max_retries": 0, "num_retries": 0}
        if settings.api_base:
            self._fixed["api_base"] = settings.api_base
        if settings.api_key is not None:
            self._fixed["api_key"] = settings.api_key.reveal()
        if headers:
            self._fixed["extra_headers"] = dict(headers)

    async def warm(self) -> None:
        """Import the library beside the event loop, so that the first turn does not wait for it."""
        await asyncio.to_thread(_library)

    async def close(self) -> None:
        """Close the connections of this process to all providers."""
        litellm = _library()
        await litellm.close_litellm_async_clients()
        litellm.in_memory_llm_clients_cache.flush_cache()

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
        patience = _Patience(self._settings)
        if on_delta is not None:
            return await self._stream(request, patience, on_delta)
        with self._faults():
            return _whole(await patience.for_all(_library().acompletion(**request)))

    async def _stream(self, request: dict[str, Any], patience: _Patience, on_delta: OnDelta) -> LLMResponse:
        reply = _Assembly()
        request = request | {"stream": True, "stream_options": {"include_usage": True}}
        with self._faults():
            stream = await patience.for_next(_library().acompletion(**request))
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
            hint = "; ".join(part for part in (_code(exc), _ADVICE.get(kind, "")) if part)
            raise ModelError(
                kind,
                f"{what}; {hint}" if hint else what,
                retryable=kind in _RETRYABLE,
                retry_after_s=_retry_after_s(exc),
            ) from None


class _Patience:
    """How long a call may stay silent, and how long it may take in all."""

    def __init__(self, settings: ModelSettings) -> None:
        now = asyncio.get_running_loop().time()
        self._between_s = settings.between_tokens_s
        self._all_by = now + settings.total_s
        self._next_by = now + settings.first_token_s
        self._silence = f"no first token within {settings.first_token_s:g} s"
        self._total = f"not done within {settings.total_s:g} s"

    def heard(self) -> None:
        """A token came; the next one has its own time."""
        self._next_by = asyncio.get_running_loop().time() + self._between_s
        self._silence = f"no further token within {self._between_s:g} s"

    async def for_next(self, answer: Awaitable[T]) -> T:
        return await self._until(min(self._next_by, self._all_by), answer)

    async def for_all(self, answer: Awaitable[T]) -> T:
        return await self._until(self._all_by, answer)

    async def _until(self, deadline: float, answer: Awaitable[T]) -> T:
        try:
            async with asyncio.timeout_at(deadline) as limit:
                return await answer
        except TimeoutError:
            if not limit.expired():
                raise
            text = self._total if deadline == self._all_by else self._silence
            raise ModelError("timeout", f"the model was given up: {text}", retryable=True) from None


class _Assembly:
    """Puts the pieces of a streamed reply together."""

    def __init__(self) -> None:
        self._content: list[str] = []
        self._reasoning: list[str] = []
        self._calls: list[_Call] = []
        self._by_index: dict[int, _Call] = {}
        self._usage = Usage()
        self._finish = ""

    def add(self, chunk: Any) -> tuple[bool, str]:
        """Take one chunk in; answer whether it carried anything, and its text."""
        self._usage = _usage(chunk) or self._usage
        if not chunk.choices:
            return False, ""
        choice = chunk.choices[0]
        self._finish = choice.finish_reason or self._finish
        text = choice.delta.content or ""
        thought = getattr(choice.delta, "reasoning_content", None) or ""
        pieces = choice.delta.tool_calls or ()
        if text:
            self._content.append(text)
        if thought:
            self._reasoning.append(thought)
        for piece in pieces:
            self._add_call(piece)
        return bool(text or thought or pieces), text

    def whole(self) -> LLMResponse:
        if not self._finish:
            raise ModelError("connection", "the model's stream ended before its reply did", retryable=True)
        return LLMResponse(
            content="".join(self._content) or None,
            tool_calls=tuple(_request(call.id, call.name, "".join(call.pieces)) for call in self._calls),
            finish_reason=self._finish,
            usage=self._usage,
            reasoning_content="".join(self._reasoning) or None,
        )

    def _add_call(self, piece: Any) -> None:
        index = piece.index or 0
        call = self._by_index.get(index)
        if call is None or (piece.id and call.id and piece.id != call.id):  # some providers give every call index 0
            call = self._by_index[index] = _Call()
            self._calls.append(call)
        call.id = call.id or piece.id or ""
        call.name = call.name or piece.function.name or ""
        call.pieces.append(piece.function.arguments or "")


class _Call:
    """A tool call of which more may come."""

    def __init__(self) -> None:
        self.id = ""
        self.name = ""
        self.pieces: list[str] = []


def _library() -> Any:
    """LiteLLM, which must not look anything up on the internet, print, or log what people wrote."""
    for name, value in _OFFLINE.items():
        os.environ.setdefault(name, value)
    import litellm

    litellm.suppress_debug_info = True
    litellm.drop_params = True
    litellm.turn_off_message_logging = True
    logging.getLogger("LiteLLM").setLevel(logging.CRITICAL)
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
            _request(call.id or "", call.function.name or "", call.function.arguments or "")
            for call in message.tool_calls or ()
        ),
        finish_reason=choice.finish_reason or "stop",
        usage=_usage(answer) or Usage(),
        reasoning_content=getattr(message, "reasoning_content", None) or None,
    )


def _request(id_: str, name: str, raw: str) -> ToolCallRequest:
    return ToolCallRequest(id_, name, parse_arguments(raw), raw)


def _usage(answer: Any) -> Usage | None:
    usage = getattr(answer, "usage", None)
    return None if usage is None else Usage(usage.prompt_tokens or 0, usage.completion_tokens or 0)


def _kind(exc: BaseException) -> str:
    """The kind of ModelError that an exception of the library stands for."""
    litellm = _library()
    if isinstance(exc, litellm.ContextWindowExceededError):
        return "context_length"
    if any(isinstance(cause, json.JSONDecodeError) for cause in _causes(exc)):
        return "bad_reply"
    if isinstance(exc, litellm.MidStreamFallbackError):  # the stream broke; its status is made up
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


def _code(exc: BaseException) -> str:
    """The provider's short code, such as `model_not_found`; never its text."""
    code = getattr(exc, "code", None)
    return f"code {code}" if isinstance(code, str) and re.fullmatch(r"[a-z_]{3,40}", code) else ""


def _retry_after_s(exc: BaseException) -> float | None:
    headers = getattr(exc, "litellm_response_headers", None) or {}
    for name, unit_s in (("retry-after-ms", 0.001), ("retry-after", 1.0)):
        with contextlib.suppress(TypeError, ValueError):
            seconds = float(headers.get(name)) * unit_s
            if 0 <= seconds < 86_400:
                return seconds
    return None
