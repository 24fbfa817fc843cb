"""Every provider that LiteLLM reaches, as a Model. The library is imported at the first call: that
takes 3 s.

Where the provider speaks OpenAI's protocol, LiteLLM's own HTTP handler asks it and not the openai
SDK, which walks every message by type; and a stream of its events is read here as the direct client
reads it, not by LiteLLM, which makes several objects of each. What is asked, and of whom, is
LiteLLM's business all the same.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator, Iterator, Mapping
from importlib import import_module
from typing import Any, Final

import msgspec

from shared.errors import ModelError
from shared.settings import ModelSettings
from worker.agent.model.model import LLMResponse, ModelRequest, OnDelta
from worker.llm.caching import marked_messages, marked_tools
from worker.llm.clients.assembly import ReplyAssembler, parse_whole_reply
from worker.llm.clients.faults import model_error, retry_after_s
from worker.llm.clients.litellm_answer import CompletionReader
from worker.llm.clients.wire import offer
from worker.llm.policies.patience import CallTimeouts
from worker.llm.policies.traced import trace_header
from worker.llm.providers import Route, choose

_HANDLER: Final = "EXPERIMENTAL_OPENAI_BASE_LLM_HTTP_HANDLER"  # read by LiteLLM in each call
_ENVIRONMENT: Final = {
    "LITELLM_MODE": "PRODUCTION",  # else it loads a .env file into the process
    "LITELLM_LOCAL_MODEL_COST_MAP": "True",
    "LITELLM_LOCAL_BLOG_POSTS": "True",
    "LITELLM_LOCAL_ANTHROPIC_BETA_HEADERS": "True",
    "LITELLM_LOCAL_AUTOROUTER_PRESETS": "True",
    _HANDLER: "True",
}
_SDK_HEADERS: Final = {
    "OpenAI-Organization": ("OPENAI_ORGANIZATION", "OPENAI_ORG_ID"),
    "OpenAI-Project": ("OPENAI_PROJECT_ID",),
}
"""What the SDK adds to requests from the environment, and LiteLLM's own handler does not."""


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
        at_openai = self._route.model.startswith("openai/") and not self._route.api_base
        self._headers = (_sdk_headers() if at_openai else {}) | dict(headers or {})

    async def preload(self) -> None:
        """Import the library beside the event loop, so that the first turn does not wait for it."""
        if self._library is None:
            self._library = await asyncio.to_thread(_library, self._route.model)

    async def close(self) -> None:
        """Close the connections of this process to all providers."""
        if self._library is not None:
            await self._library.close()

    async def chat(self, request: ModelRequest, on_delta: OnDelta | None = None) -> LLMResponse:
        await self.preload()
        caching = self._route.caching
        messages = marked_messages(request.messages) if caching else request.messages
        arguments = self._fixed | {
            "messages": self._library.unsigned(messages, self._route.model),
            "max_tokens": max(1, request.max_tokens),
            "temperature": request.temperature,
            "timeout": self._settings.total_s,
        }
        if request.tools:
            offers = [offer(tool) for tool in request.tools]
            arguments |= {"tools": marked_tools(offers) if caching else offers, "tool_choice": "auto"}
        if extra := self._headers | trace_header(self._settings):
            arguments["extra_headers"] = extra
        if on_delta is not None:
            arguments |= {"stream": True, "stream_options": {"include_usage": True}}
        arguments = self._route.apply_overrides(arguments)
        with CallTimeouts(self._settings) as patience:
            if on_delta is not None:
                return await self._stream(arguments, patience, on_delta)
            with self._faults():
                return parse_whole_reply(self._answered(await patience.wait_all(self._library.ask(arguments))))

    async def _stream(self, arguments: dict[str, Any], patience: CallTimeouts, on_delta: OnDelta) -> LLMResponse:
        with self._faults():
            stream = self._answered(await patience.wait_next(self._library.ask(arguments)))
        answer = self._library.http_answer(stream)
        if answer is None:
            return await self._chunks(stream, patience, on_delta)
        reply = await CompletionReader(answer, self.name, patience, on_delta).read_reply()
        if reply.usage.prompt_tokens or reply.usage.completion_tokens:
            return reply
        usage = await asyncio.to_thread(self._library.counted, arguments["messages"], reply, self._route.model)
        return msgspec.structs.replace(reply, usage=usage)

    async def _chunks(self, stream: Any, patience: CallTimeouts, on_delta: OnDelta) -> LLMResponse:
        """A stream in the provider's own protocol: LiteLLM makes OpenAI's chunks of it."""
        reply = ReplyAssembler()
        try:
            chunks: AsyncIterator[Any] = aiter(stream)
            while True:
                with self._faults():
                    chunk = await patience.wait_next(anext(chunks, None))
                    if chunk is None:
                        return reply.whole()
                    heard, text = reply.add(chunk)
                if heard:
                    patience.on_token()
                if text:
                    await on_delta(text)  # outside of _faults: what the caller raises is the caller's
        finally:
            with contextlib.suppress(Exception):
                await stream.aclose()

    def _answered(self, answer: Any) -> Any:
        """After the last 422 LiteLLM's way through the SDK answers None instead of raising."""
        if answer is None:
            raise model_error(self.name, "bad_request", 422)
        return answer

    @contextlib.contextmanager
    def _faults(self) -> Iterator[None]:
        """Turns whatever the library raises into a ModelError without the provider's text, which
        may quote ours."""
        try:
            yield
        except ModelError:
            raise
        except Exception as exc:
            kind = self._library.kind_of(exc)
            status = getattr(exc, "status_code", None)
            what = f"{type(exc).__name__}{f' {status}' if status else ''}"
            headers = getattr(exc, "litellm_response_headers", None) or {}
            raise model_error(self.name, kind, what, retry_after_s=retry_after_s(headers)) from None


def _library(model: str) -> Any:
    """The module of the library, ready for a model. One that only the SDK reaches takes it away
    from LiteLLM's own handler for all models of the process: it is one switch, and the SDK reaches
    the others too."""
    for name, value in _ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    library = import_module("worker.llm.clients.litellm_library")
    library.set_up()
    if model.partition("/")[0] in library.SDK_ONLY:
        os.environ[_HANDLER] = "False"
    if os.environ[_HANDLER] != "True":
        import_module("openai.resources")  # LiteLLM would load this in its first call, and so in the event loop
    return library


def _sdk_headers() -> dict[str, str]:
    found = {name: [os.environ[key] for key in keys if os.environ.get(key)] for name, keys in _SDK_HEADERS.items()}
    return {name: values[0] for name, values in found.items() if values}
