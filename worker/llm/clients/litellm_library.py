"""LiteLLM configured for a worker: offline, silent, and without its extra work after each call.
Importing this file imports LiteLLM, which takes 3 s and reads the environment: litellm_client sets
that first, and imports this in a thread. Modules that LiteLLM would load during its first call, in
the event loop, are loaded here."""

from __future__ import annotations

import datetime
import json
import logging
import ssl
import uuid
import warnings
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import litellm
import litellm._service_logger
import litellm.litellm_core_utils.default_encoding
import litellm.proxy._types
from litellm.exceptions import APIConnectionError, ContextWindowExceededError, MidStreamFallbackError, Timeout
from litellm.litellm_core_utils.litellm_logging import Logging
from litellm.litellm_core_utils.prompt_templates.factory import THOUGHT_SIGNATURE_SEPARATOR
from litellm.llms.custom_httpx import http_handler
from litellm.llms.custom_httpx.aiohttp_transport import LiteLLMAiohttpTransport
from litellm.llms.groq.chat.transformation import GroqChatCompletionStreamingHandler
from litellm.llms.mistral.chat.transformation import MistralChatResponseIterator
from litellm.llms.openai.chat.gpt_transformation import OpenAIChatCompletionStreamingHandler
from litellm.llms.openrouter.chat.transformation import OpenRouterChatCompletionStreamingHandler

from shared.network.outgoing import current
from worker.llm.clients.faults import kind_of_refusal


class Unlogged(Logging):
    """LiteLLM's record of a running call, with all work after the call removed. By default LiteLLM
    prices each call, builds a record of it and hands that to callbacks, which is nearly half of the
    cost of a call. We set no callbacks, and have our own prices and spans. Its caller must also do
    the work that LiteLLM does where it makes one: `without_signatures`. `bodies` takes the bodies of
    answers in one piece, as they came."""

    def __init__(self, request: Mapping[str, Any], bodies: list[str]) -> None:
        super().__init__(
            model=request["model"],
            messages=request["messages"],
            stream=request.get("stream", False),
            call_type="acompletion",
            start_time=datetime.datetime.now(),  # noqa: DTZ005  LiteLLM has such ones everywhere, and subtracts them
            litellm_call_id=str(uuid.uuid4()),
            function_id="",
        )
        self.stream_options = request.get("stream_options")
        self._bodies = bodies

    def post_call(self, original_response: Any, *_: Any, **__: Any) -> None:
        if isinstance(original_response, str):
            self._bodies.append(original_response)

    def response_cost_calculator(self, *_: Any, **__: Any) -> None:
        return None

    def claim_async_success_log(self) -> bool:
        return False

    async def dispatch_success_handlers(self, *_: Any, **__: Any) -> None:
        pass

    async def async_failure_handler(self, *_: Any, **__: Any) -> None:
        pass


PREPARED_AT_ONCE: Final = frozenset(
    {
        "deepseek",
        "groq",
        "hosted_vllm",
        "lm_studio",
        "mistral",
        "moonshot",
        "openai",
        "openrouter",
        "together_ai",
        "xai",
    }
)
"""Providers for which LiteLLM prepares a request without waiting. `acompletion` uses a thread for
that, because other providers look up a token or a model first; that is a quarter of such a call."""


_AS_OPENAI: Final = (
    OpenAIChatCompletionStreamingHandler,
    OpenRouterChatCompletionStreamingHandler,
    GroqChatCompletionStreamingHandler,
    MistralChatResponseIterator,
)
"""Readers of streams whose events are OpenAI's, in every form that ReplyAssembler knows."""

_library_context: Final = http_handler._create_ssl_context
_untyped: Final[Any] = litellm  # much of what it offers has no types


def set_up() -> None:
    """Keep LiteLLM from printing, and from logging people's messages; let it go out as `[network]`
    says."""
    litellm.suppress_debug_info = True
    litellm.drop_params = True
    litellm.turn_off_message_logging = True
    logging.getLogger("LiteLLM").setLevel(logging.CRITICAL)
    warnings.filterwarnings("ignore", "Item '.*' on TypedDict class", UserWarning)  # about its own types
    # It reads both from the environment alone, knows neither networks nor ports of NO_PROXY, and
    # replaces the authorities where we add to them. Its clients that are not aiohttp's find the same
    # proxy in the variables, which `shared.network` sets.
    LiteLLMAiohttpTransport._proxy_from_env = _proxy_for  # type: ignore[method-assign,assignment]
    http_handler._create_ssl_context = _create_context
    # Some it has made while it was imported, for clients that it keeps.
    for context in http_handler._ssl_context_cache.values():
        _trust_ca_file(context)


def _proxy_for(_transport: LiteLLMAiohttpTransport, url: Any) -> str | None:
    return current().proxy_for(str(url))


def _create_context(*args: Any, **named: Any) -> ssl.SSLContext:
    context = _library_context(*args, **named)
    _trust_ca_file(context)
    return context


def _trust_ca_file(context: ssl.SSLContext) -> None:
    if (file := current().ca_file) is not None:
        context.load_verify_locations(cafile=file)


async def send(request: Mapping[str, Any], bodies: list[str]) -> Any:
    """Return an answer, or a stream of its pieces; None after some refusals. Raises as LiteLLM. What
    came in one piece is added to `bodies`, also if LiteLLM cannot read it."""
    asked = {**request, "litellm_logging_obj": Unlogged(request, bodies)}
    provider = request["model"].partition("/")[0]
    if provider not in PREPARED_AT_ONCE:
        return await litellm.acompletion(**asked)
    try:
        return await _untyped.completion(**asked, acompletion=True)
    except Exception as exc:
        raise litellm.exception_type(request["model"], exc, provider) from None


async def close() -> None:
    """Close the connections of this process to all providers."""
    await _untyped.close_litellm_async_clients()
    _untyped.in_memory_llm_clients_cache.flush_cache()


def without_signatures(messages: Sequence[Mapping[str, Any]], model: str) -> list[dict[str, Any]]:
    """Return copies of the messages without Gemini's signatures in ids of calls, but for Gemini."""
    copies = [dict(message) for message in messages]
    for copy in copies if "gemini" not in model.lower() else ():
        if calls := copy.get("tool_calls"):
            copy["tool_calls"] = [{**call, "id": _bare_id(call.get("id"))} for call in calls]
        if "tool_call_id" in copy:
            copy["tool_call_id"] = _bare_id(copy["tool_call_id"])
    return copies


def http_answer(stream: Any) -> Any:
    """Return the HTTP answer of a stream of OpenAI's events; None if LiteLLM has to translate."""
    events: Any = getattr(stream, "completion_stream", None)
    return events.http_response if type(events) in _AS_OPENAI else None


def kind_of(exc: BaseException, words: str) -> str:
    """Return the kind of ModelError for an exception of the library; `words` are the provider's."""
    if isinstance(exc, ContextWindowExceededError):
        return "context_length"
    if any(isinstance(cause, json.JSONDecodeError) for cause in _causes(exc)):
        return "bad_reply"
    if isinstance(exc, MidStreamFallbackError):  # the stream broke; its status is made up
        return "timeout" if isinstance(exc.original_exception, Timeout) else "connection"
    status = getattr(exc, "status_code", None)
    if isinstance(exc, APIConnectionError):
        return "connection"
    if not isinstance(status, int):
        return "bad_reply"
    if status >= 500 and getattr(exc, "litellm_response_headers", None) is None:
        return "connection"  # without headers nothing came from the provider
    return kind_of_refusal(status, words)


def _bare_id(id_: Any) -> Any:
    return id_.partition(THOUGHT_SIGNATURE_SEPARATOR)[0] if isinstance(id_, str) else id_


def _causes(exc: BaseException | None) -> Iterator[BaseException]:
    seen: set[int] = set()
    while exc is not None and id(exc) not in seen:
        seen.add(id(exc))
        yield exc
        exc = exc.__cause__ or exc.__context__ or getattr(exc, "original_exception", None)
