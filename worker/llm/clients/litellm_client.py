"""A Model for every provider that LiteLLM reaches. The library is imported at the first call, which
takes 3 s. For a provider that speaks OpenAI's protocol, the request goes through LiteLLM's own HTTP
handler and not the openai SDK, which walks every message by type. Its stream is read here as the
direct client reads one: LiteLLM makes several objects of each event, at ten times the cost. LiteLLM
still decides what is sent, and where."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator, Awaitable, Iterator, Sequence
from importlib import import_module
from typing import Any, Final

import msgspec

from shared.errors import ModelError, SettingsError
from shared.settings import ModelSettings
from worker.agent.model.model import LLMResponse, ModelRequest, OnDelta, ToolSpec
from worker.llm.clients.answer.assembler import ReplyAssembler
from worker.llm.clients.answer.decoder import AnswerDecoder
from worker.llm.clients.answer.plain import read_completion
from worker.llm.clients.faults import model_error, retry_after_s
from worker.llm.clients.messages import messages_for
from worker.llm.clients.omissions import OMISSIONS, Omissions
from worker.llm.clients.prefixes import Prefixes
from worker.llm.clients.reasons import read_reason
from worker.llm.clients.replies import is_framed, parse_whole_reply, read_event_stream, read_whole_answer
from worker.llm.clients.usage import counted
from worker.llm.clients.wire import marked_system, offers
from worker.llm.policies.timeouts import CallTimeouts
from worker.llm.policies.traced import trace_header
from worker.llm.provider_spec import Prefix
from worker.llm.routes import Route, choose

_STREAMED: Final = {"stream": True, "stream_options": {"include_usage": True}}
_HANDLER: Final = "EXPERIMENTAL_OPENAI_BASE_LLM_HTTP_HANDLER"  # read by LiteLLM in each call
_ENVIRONMENT: Final = {  # LiteLLM takes these from nowhere else
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
"""Headers that the SDK adds from the environment, and LiteLLM's own handler does not."""

SDK_ONLY: Final = frozenset(
    {
        "abliteration",
        "aihubmix",
        "aiml",
        "anyscale",
        "chatgpt",
        "crusoe",
        "docker_model_runner",
        "empiriolabs",
        "github_copilot",
        "gmi",
        "litellm_proxy",
        "llamagate",
        "sarvam",
        "veniceai",
        "xinference",
    }
)
"""Providers that LiteLLM reaches through the openai SDK only, or differently than through its own
HTTP handler. All other providers of OpenAI's protocol get the same requests from both."""


class LiteLLMModel:
    """One model of one provider. Makes one call; RetryingModel repeats it."""

    def __init__(self, settings: ModelSettings, *, route: Route | None = None) -> None:
        self.name = settings.name
        self._settings = settings
        self._route = route or choose(msgspec.structs.replace(settings, client="litellm"))
        self._library: Any = None
        self._prefixes = Prefixes(settings.name, self._route.prefix)
        self._omissions = Omissions(settings.name, settings.omit.get(settings.name, ()))
        self._fixed: dict[str, Any] = {"model": self._route.model, "max_retries": 0, "num_retries": 0}
        if self._route.api_base:
            self._fixed["api_base"] = self._route.api_base
        if settings.api_key is not None:
            self._fixed["api_key"] = settings.api_key.reveal()
        at_openai = self._route.model.startswith("openai/") and not self._route.api_base
        self._headers = _sdk_headers() if at_openai else {}
        self._headers |= {name: value.reveal() for name, value in settings.headers.items()}

    async def preload(self) -> None:
        """Import the library in a thread, so that neither event loop nor first turn waits."""
        if self._library is None:
            self._library = await asyncio.to_thread(_library, self._route.model)

    async def close(self) -> None:
        """Close the connections of this process to all providers."""
        if self._library is not None:
            await self._library.close()

    async def chat(self, request: ModelRequest, on_delta: OnDelta | None = None) -> LLMResponse:
        await self.preload()
        prefix = self._prefixes.of(request)
        with CallTimeouts(self._settings) as timeouts:
            try:
                reply = await self._ask(request, prefix, timeouts, on_delta)
            except ModelError as exc:
                if not self._prefixes.refused(prefix, exc):
                    raise
                reply = await self._ask(request, None, timeouts, on_delta)
            return counted(reply, request, self.name)

    async def _ask(
        self, request: ModelRequest, prefix: Prefix | None, timeouts: CallTimeouts, on_delta: OnDelta | None
    ) -> LLMResponse:
        arguments = self._arguments(request, prefix)
        if on_delta is None:
            return await self._whole(arguments, timeouts, request.tools)
        arguments = self._route.apply_overrides(arguments | _STREAMED)
        return await self._stream(arguments, timeouts, on_delta, request.tools)

    def _arguments(self, request: ModelRequest, prefix: Prefix | None) -> dict[str, Any]:
        caching = self._route.caching
        messages = marked_system(request.messages) if caching else request.messages
        # LiteLLM keeps Gemini's signatures in the ids.
        gemini = "gemini" in self._route.model.lower()
        messages = self._library.without_signatures(messages, self._route.model)
        fields = None if prefix is None else prefix.message
        arguments = self._fixed | {
            "messages": messages_for(self.name, messages, keep_ids=gemini, prefix=fields),
            "max_tokens": max(1, request.max_tokens),
            **request.sampling,
            "timeout": self._settings.total_s,
        }
        if request.tools:
            arguments |= {"tools": offers(request.tools, caching=caching), "tool_choice": request.tool_choice}
        if extra := self._headers | trace_header(self._settings):
            arguments["extra_headers"] = extra
        if prefix is not None and prefix.body:
            arguments["extra_body"] = prefix.body
        if prefix is not None and prefix.api_base:
            arguments["api_base"] = prefix.api_base
        return self._route.apply_overrides(arguments)

    async def _send(self, arguments: dict[str, Any], bodies: list[str]) -> Any:
        """Return LiteLLM's answer, asked again without a part that the model does not take."""
        for _ in OMISSIONS:
            sent = self._omissions.applied(arguments)
            try:
                return await self._library.send(sent, bodies)
            except Exception as exc:
                status = getattr(exc, "status_code", None) or 0
                if not self._omissions.learn(status, _words_of(exc), sent):
                    raise
        return await self._library.send(self._omissions.applied(arguments), bodies)

    async def _whole(self, arguments: dict[str, Any], timeouts: CallTimeouts, tools: Sequence[ToolSpec]) -> LLMResponse:
        """Return the reply of an answer in one piece. A body in OpenAI's protocol is read here: one odd
        field makes LiteLLM refuse all of it."""
        bodies: list[str] = []
        with self._faults():
            try:
                answer = await timeouts.wait_all(self._send(arguments, bodies))
            except Exception:
                if not any(map(_is_openai, bodies)):
                    raise
            if body := next(filter(_is_openai, bodies), None):
                return await read_whole_answer(body.encode("utf-8", "surrogatepass"), self.name, None, tools)
            return parse_whole_reply(_values(self._answered(answer)), self.name, tools)

    async def _stream(
        self, arguments: dict[str, Any], timeouts: CallTimeouts, on_delta: OnDelta, tools: Sequence[ToolSpec]
    ) -> LLMResponse:
        with self._faults():
            stream = self._answered(await timeouts.wait_next(self._send(arguments, [])))
        answer = self._library.http_answer(stream)
        if answer is None:
            return await self._chunks(stream, timeouts, on_delta, tools)
        return await self._read_answer(answer, timeouts, on_delta, tools)

    async def _read_answer(
        self, answer: Any, timeouts: CallTimeouts, on_delta: OnDelta, tools: Sequence[ToolSpec]
    ) -> LLMResponse:
        """Return the reply of an answer in OpenAI's protocol, an object in httpx's form."""

        async def read(coming: Awaitable[bytes]) -> bytes:
            try:
                return await timeouts.wait_next(coming)
            except ModelError:
                raise
            except Exception as exc:  # LiteLLM may use any HTTP library
                raise model_error(self.name, "connection", type(exc).__name__) from None

        try:
            if "json" in answer.headers.get("content-type", ""):
                return await read_whole_answer(await read(answer.aread()), self.name, on_delta, tools)
            pieces = aiter(answer.aiter_bytes())
            framed = is_framed(answer.headers)
            return await read_event_stream(
                lambda: read(anext(pieces, b"")), self.name, timeouts, on_delta, tools, framed=framed
            )
        finally:
            with contextlib.suppress(Exception):
                await answer.aclose()

    async def _chunks(
        self, stream: Any, timeouts: CallTimeouts, on_delta: OnDelta, tools: Sequence[ToolSpec]
    ) -> LLMResponse:
        """Read a stream in the provider's protocol, which LiteLLM translates to OpenAI's chunks."""
        reply = ReplyAssembler(AnswerDecoder(self.name), tools)
        shown = False
        try:
            chunks: AsyncIterator[Any] = aiter(stream)
            while True:
                with self._faults():
                    chunk = await timeouts.wait_next(anext(chunks, None))
                    if chunk is None:
                        break
                    carries, text = reply.add(read_completion(_values(chunk)))
                if carries:
                    timeouts.on_token()
                if text:
                    shown = True
                    await on_delta(text)  # outside of _faults: its exceptions are the caller's own
            whole = reply.whole(ended=False)
            if whole.content and not shown:
                await on_delta(whole.content)
            return whole
        finally:
            with contextlib.suppress(Exception):
                await stream.aclose()

    def _answered(self, answer: Any) -> Any:
        """Return the answer; raise for None, which the SDK's last 422 becomes in LiteLLM."""
        if answer is None:
            raise model_error(self.name, "bad_request", 422)
        return answer

    @contextlib.contextmanager
    def _faults(self) -> Iterator[None]:
        """Turn the library's exceptions into ModelErrors. Its texts may quote ours: the provider's own
        words are the reason, and nothing else is kept."""
        try:
            yield
        except ModelError:
            raise
        except Exception as exc:
            status = getattr(exc, "status_code", None)
            what = f"{type(exc).__name__}{f' {status}' if status else ''}"
            headers = getattr(exc, "litellm_response_headers", None) or {}
            wait_s = retry_after_s(headers)
            words = _words_of(exc)
            kind = self._library.kind_of(exc, words)
            raise model_error(self.name, kind, what, retry_after_s=wait_s, reason=read_reason(words)) from None


def _words_of(exc: BaseException) -> str:
    """Return the provider's words in an exception of the library."""
    return str(getattr(exc, "message", "")).partition("Exception - ")[2]


def _library(model: str) -> Any:
    """Return the module of the library, ready for a model. A model that only the SDK reaches
    switches LiteLLM's own handler off for all models: there is one switch."""
    for name, value in _ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    try:
        library = import_module("worker.llm.clients.litellm_library")
    except ModuleNotFoundError as exc:  # as in the slim image
        raise SettingsError(
            f"model {model!r} is reached by LiteLLM, and "
            f"it is not installed here (use the image without -slim): {exc.name}"
        ) from None
    library.set_up()
    if model.partition("/")[0] in SDK_ONLY:
        os.environ[_HANDLER] = "False"
    if os.environ[_HANDLER] != "True":
        import_module("openai.resources")  # else LiteLLM loads it in its first call, in the event loop
    return library


def _is_openai(body: str) -> bool:
    return '"choices"' in body


def _values(answer: Any) -> Any:
    """Return an answer or a chunk of LiteLLM's as plain values."""
    return answer.model_dump(warnings=False)  # of its own types


def _sdk_headers() -> dict[str, str]:
    found = {name: filter(None, map(os.environ.get, keys)) for name, keys in _SDK_HEADERS.items()}
    return {name: value for name, values in found.items() if (value := next(values, None))}
