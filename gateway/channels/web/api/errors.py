"""Errors in the form that clients of OpenAI's API expect."""

from __future__ import annotations

import math
from collections.abc import Sequence
from http import HTTPStatus
from typing import Final

import msgspec
from starlette.responses import Response

from shared.errors import BadInput, RedisAway, Refused, TooBig
from shared.messages.outbound import RequestFailed
from shared.store.sessions.requests import KeyReused
from shared.store.turns.client_calls import SubmitOutcome

RETRY_S: Final = 1.0
BUSY_S: Final = 5.0
PREVIOUS: Final = "previous_response_id"
AISDK_PREFIX: Final = "/aisdk/"
"""Addresses whose errors are sentences: the AI SDK shows a body to people as it is."""

_BUSY: Final = frozenset({"overloaded", "unavailable", "broken"})
"""Codes of refusals that are not the client's fault: the service is overloaded or damaged."""

FAILED_TURNS: Final = {
    "bad_request": (400, "model_refused"),
    "context_length": (400, "context_length_exceeded"),
    "auth": (403, "model_auth"),
    "billing": (403, "model_billing"),
    "invalid_output": (500, "invalid_output"),
    "function_name": (400, "function_name_taken"),
}
"""Status and code of a turn that failed for a reason, which a retry does not change. It is 403 for
a wrong key or an empty account of the model: 401 and 402 would speak of the client's own."""

_STATUS: Final = {"file_too_big": 413}
_TYPE: Final = {403: "permission_error", 429: "rate_limit_error"}


class ApiError(Exception):
    """A request that gets no answer. `param` names the wrong part of it. `again` tells clients that
    retry automatically whether to do so; None leaves it to the status."""

    def __init__(
        self,
        status: int,
        message: str,
        *,
        code: str | None = None,
        param: str | None = None,
        retry_after_s: float | None = None,
        again: bool | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.code = code
        self.param = param
        self.retry_after_s = retry_after_s
        self.again = again


def bad_parameter(param: str, message: str, *, code: str | None = None) -> ApiError:
    """Return the error of a parameter with a wrong value."""
    return ApiError(400, message, param=param, code=code)


def as_api_error(exc: Exception) -> ApiError | None:
    """Return the API's error for one of the ingress or the store; None for any other."""
    match exc:
        case ApiError():
            return exc
        case TooBig():
            return ApiError(413, exc.message, code=exc.code, param="messages")
        case BadInput():
            return ApiError(_STATUS.get(exc.code, 400), exc.message, code=exc.code)
        case Refused():
            status = 503 if exc.code in _BUSY else 429
            return ApiError(status, exc.message, code=exc.code, retry_after_s=exc.retry_after_s)
        case RedisAway():
            return store_unavailable()
        case KeyReused():
            return ApiError(422, str(exc), code="idempotency_key_reused", param="Idempotency-Key")
        case _:
            return None


def draining_error(*, again: bool | None = None) -> ApiError:
    """Return the error of a gateway that is shutting down; another one can answer."""
    return ApiError(503, "this gateway is going away; ask again", code="closing", retry_after_s=RETRY_S, again=again)


def store_unavailable(*, again: bool | None = None) -> ApiError:
    """Return the error while Redis is unavailable."""
    message = "the store of all messages is away; please try again"
    return ApiError(503, message, code="unavailable", retry_after_s=RETRY_S, again=again)


def session_busy() -> ApiError:
    """Return the error of a session that accepts no message while a turn runs."""
    message = "this session answers another message, and takes none meanwhile; ask again when it has"
    return ApiError(429, message, code="busy", retry_after_s=BUSY_S)


def cannot_continue(code: str) -> ApiError:
    """Return the error of a request that continues a response whose conversation is gone
    (`moved`), or which is not finished (`running`)."""
    if code == "running":
        message = "the response before is not finished; ask again when it is, or cancel it"
        return ApiError(409, message, code="conversation_busy", param=PREVIOUS, retry_after_s=RETRY_S)
    message = (
        "the conversation of this response was ended by /new, or is not kept any more; "
        "send the whole conversation as 'input'"
    )
    return bad_parameter(PREVIOUS, message, code="previous_response_not_newest")


def no_conversation(param: str | None = None) -> ApiError:
    """Return the error of a conversation that this principal does not have."""
    message = "there is no such conversation; perhaps it has expired or was deleted"
    return ApiError(404, message, code="conversation_not_found", param=param)


def conversation_busy() -> ApiError:
    """Return the error of a conversation that is changed while a turn runs."""
    message = "a message of this conversation is being answered, and nothing else changes it meanwhile; ask again"
    return ApiError(409, message, code="conversation_busy", retry_after_s=RETRY_S)


def not_submitted(outcome: SubmitOutcome, ids: Sequence[str]) -> ApiError:
    """Return the error of results that were not taken."""
    named = ", ".join(ids)
    match outcome:
        case "unknown":
            message = f"no turn here waits for the result of {named}; perhaps it has ended, or 'store' was false"
            return ApiError(400, message, code="no_such_call")
        case "missing":
            return ApiError(400, f"no tool output found for function call {named}", code="missing_output")
        case "used":
            return ApiError(409, "these results were submitted before, and count once", code="output_used", again=False)
        case "full":
            return ApiError(413, "these results do not fit into the turn any more", code="too_big")
        case "held":
            message = "the turn moves just now; ask again in a moment"
            return ApiError(409, message, code="conversation_busy", retry_after_s=RETRY_S)
        case _:
            message = "these results come too late: the turn does not wait for them any more"
            return ApiError(409, message, code="output_too_late", again=False)


def turn_error(failed: RequestFailed) -> ApiError:
    """Return the error of a turn that failed. A retry would begin another turn."""
    return ApiError(failed.status, failed.message, code=failed.code, again=False)


def encode_error(error: ApiError) -> bytes:
    """Encode the error as JSON; the object always has all four fields."""
    other = "server_error" if error.status >= 500 else "invalid_request_error"
    kind = _TYPE.get(error.status, other)
    body = {"message": error.message, "type": kind, "param": error.param, "code": error.code}
    return msgspec.json.encode({"error": body})


def as_sentence(message: str) -> str:
    """Return a message as a sentence. The names of fields in it stay as they are."""
    first = message.partition(" ")[0]
    begun = message[:1].upper() + message[1:] if first.isalpha() else message
    return begun if begun.endswith((".", "…", "?", "!")) else f"{begun}."


def error_response(error: ApiError, path: str = "") -> Response:
    """Return the error as a complete response, in the form that clients of `path` expect."""
    headers = {"Cache-Control": "no-store"}
    if error.retry_after_s is not None:
        headers["Retry-After"] = f"{max(1, math.ceil(error.retry_after_s))}"
    if error.again is not None:
        headers["X-Should-Retry"] = "true" if error.again else "false"
    if error.status == 401:
        headers["WWW-Authenticate"] = "Bearer"
    if error.status in (413, 408):
        headers["Connection"] = "close"  # the rest of the body is not read
    if path.startswith(AISDK_PREFIX):
        return Response(as_sentence(error.message), error.status, headers, "text/plain")
    return Response(encode_error(error), error.status, headers, "application/json")


def draining_response(path: str = "") -> Response:
    """Return the response of a gateway that is shutting down to new requests."""
    answer = error_response(draining_error(), path)
    answer.headers["Connection"] = "close"
    return answer


def http_error_response(status: int, method: str, path: str, headers: dict[str, str] | None = None) -> Response:
    """Return the response to a request that the routes refuse, or that failed with a bug."""
    match status:
        case 404:
            error = ApiError(status, f"there is no {method} {path} here", code="unknown_url")
        case 405:
            error = ApiError(status, f"{path} cannot be asked by {method}", code="method_not_allowed")
        case 500:
            error = ApiError(status, "something went wrong here; whoever runs this service can see what")
        case _:
            error = ApiError(status, HTTPStatus(status).phrase)
    answer = error_response(error, path)
    answer.headers.update(headers or {})
    return answer
