"""Requests of OpenAI's chat protocol in bytes; their unchanging parts are encoded once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from worker.agent.model.model import ModelRequest, ToolSpec
from worker.llm.clients.messages import messages_for
from worker.llm.provider_spec import Prefix
from worker.llm.routes import Route

_KEPT: Final = 64  # encoded prompts and tool lists that are kept: enough for the turns that run now
_CACHE_MARK: Final = {"cache_control": {"type": "ephemeral"}}
"""Tells a provider that the prompt up to here stays the same, so that it caches it."""


class RequestWriter:
    """Encodes the requests to one model, called `name` in the settings; a system text and a tuple of
    tools are encoded once."""

    def __init__(self, route: Route, name: str = "") -> None:
        self._route = route
        self._name = name
        self._encoder = msgspec.json.Encoder()
        self._encoded: dict[int, tuple[object, msgspec.Raw]] = {}

    def write(self, request: ModelRequest, *, stream: bool) -> bytes:
        """Return the body of a request. Raises msgspec's errors for a message that is no JSON."""
        return self.encode(self.body(request, stream=stream))

    def body(self, request: ModelRequest, *, stream: bool, prefix: Prefix | None = None) -> dict[str, Any]:
        """Return the body of a request, its unchanging parts encoded."""
        route = self._route
        fields = None if prefix is None else prefix.message
        body: dict[str, Any] = {
            "model": route.model,
            "messages": self._messages(messages_for(self._name, request.messages, prefix=fields)),
            route.max_tokens_key: max(1, request.max_tokens),
            **request.sampling,
        }
        if request.tools:
            body |= {"tools": self._tools(request.tools), "tool_choice": request.tool_choice}
        if stream:
            body["stream"] = True
            if route.stream_usage:
                body["stream_options"] = {"include_usage": True}
        if prefix is not None:
            body |= prefix.body
        return route.apply_overrides(body)

    def encode(self, body: Mapping[str, Any]) -> bytes:
        return self._encoder.encode(body)

    def _messages(self, messages: Sequence[Mapping[str, Any]]) -> Sequence[Any]:
        first = messages[0] if messages else {}
        content = first.get("content")
        if first.get("role") != "system" or not isinstance(content, str) or len(first) != 2:
            return messages
        marked = marked_system if self._route.caching else list
        return [self._encode_once(content, lambda: marked([first])[0]), *messages[1:]]

    def _tools(self, tools: Sequence[ToolSpec]) -> Any:
        caching = self._route.caching
        if isinstance(tools, tuple):
            return self._encode_once(tools, lambda: offers(tools, caching=caching))
        return offers(tools, caching=caching)  # a list may be another one at the next call

    def _encode_once(self, thing: object, made: Any) -> msgspec.Raw:
        """Return the encoded form of an immutable object, from the cache if possible."""
        # The cache is by id, because hashing a long system text would cost what it saves. It keeps
        # the object itself, so no other object can get the same id meanwhile.
        kept = self._encoded.get(id(thing))
        if kept is not None:
            return kept[1]
        if len(self._encoded) >= _KEPT:
            self._encoded.clear()
        raw = msgspec.Raw(self._encoder.encode(made()))
        self._encoded[id(thing)] = (thing, raw)
        return raw


def offer(tool: ToolSpec) -> dict[str, Any]:
    """Return a tool in the form of OpenAI's protocol."""
    return {"type": "function", "function": msgspec.structs.asdict(tool)}


def offers(tools: Sequence[ToolSpec], *, caching: bool) -> list[dict[str, Any]]:
    """Return the tools in the form of OpenAI's protocol, for `caching` with a mark on the last."""
    offered = [offer(tool) for tool in tools]
    if offered and caching:
        offered[-1] |= _CACHE_MARK
    return offered


def marked_system(messages: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Return the messages with a cache mark on the system text, if they begin with one."""
    first = messages[0] if messages else {}
    text = first.get("content")
    if first.get("role") != "system" or not isinstance(text, str):
        return list(messages)
    return [{**first, "content": [{"type": "text", "text": text, **_CACHE_MARK}]}, *messages[1:]]
