"""Results of lists and calls past the checks of the library, which refuses a whole page of tools,
or the result of a call that ran, for one fault in it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import mcp_types
from mcp.shared.dispatcher import CallOptions
from mcp.shared.jsonrpc_dispatcher import JSONRPCDispatcher
from mcp.shared.message import SessionMessage
from pydantic import ValidationError

RAW: Final = "shoal/raw"
# The least that passes the checks, in every version of the protocol.
_EMPTY: Final[Mapping[str, dict[str, Any]]] = {
    "tools/list": {"tools": [], "ttlMs": 0, "cacheScope": "private"},
    "tools/call": {"content": []},
}


class RawDispatcher(JSONRPCDispatcher[Any]):
    """A dispatcher that answers lists and calls with an empty result, and puts what the server sent
    under `RAW` into its `_meta`."""

    async def send_raw_request(
        self, method: str, params: Mapping[str, Any] | None, opts: CallOptions | None = None, **more: Any
    ) -> dict[str, Any]:
        raw = await super().send_raw_request(method, params, opts, **more)
        if method not in _EMPTY:
            return raw
        return {**_EMPTY[method], "resultType": "complete", "_meta": {RAW: raw}}


def answer_unparsed(item: SessionMessage | Exception) -> SessionMessage | Exception:
    """Return an error in place of an answer that is no message of the protocol, such as one whose
    result is null: else its request would wait until its time is over. Other items stay."""
    if not isinstance(item, ValidationError):
        return item
    for fault in item.errors(include_url=False, include_context=False):
        answer = fault["input"]
        if not isinstance(answer, dict) or "method" in answer:
            continue
        if "result" not in answer and "error" not in answer:
            continue
        id = answer.get("id")
        if not isinstance(id, int | str) or isinstance(id, bool):
            continue
        text = _error_text(answer.get("error"))
        code = mcp_types.INTERNAL_ERROR if text else mcp_types.PARSE_ERROR
        error = mcp_types.ErrorData(code=code, message=text or "the answer is not in the protocol")
        return SessionMessage(mcp_types.JSONRPCError(jsonrpc="2.0", id=id, error=error))
    return item


def _error_text(error: object) -> str:
    text = error.get("message") if isinstance(error, dict) else error
    return text if isinstance(text, str) else ""
