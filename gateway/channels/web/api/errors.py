"""Errors in the form that clients of OpenAI's API know."""

from __future__ import annotations

import math
from http import HTTPStatus
from typing import Final

import msgspec
from starlette.responses import Response

from shared.errors import BadInput, RedisAway, Refused, TooBig
from shared.messages.answer import RequestFailed
from shared.store.sessions.requests import KeyReused

RETRY_S: Final = 1.0

_BUSY: Final = frozenset({"overloaded", "unavailable"})
"""Codes of refusals that are nobody's fault who asks: the service has too much to do."""

_STATUS: Final = {"file_too_big": HTTPStatus.REQUEST_ENTITY_TOO_LARGE}


class ApiError(Exception):
    """A request that gets no answer. `param` names what is wrong with it. `again`: whether a client
    that repeats requests by itself shall do so; None leaves that to the status."""

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


class ApiErrorBody(msgspec.Struct, frozen=True):
    """What stands under `error`. All four are always there."""

    message: str
    type: str
    param: str | None
    code: str | None


class ApiErrorReply(msgspec.Struct, frozen=True):
    """The body of every error."""

    error: ApiErrorBody


def bad_parameter(param: str, message: str, *, code: str | None = None) -> ApiError:
    """A parameter that cannot be taken as it is."""
    return ApiError(400, message, param=param, code=code)


def as_api_error(exc: Exception) -> ApiError | None:
    """An error of the way in, or of the store, as one of the API; None for any other."""
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
            return ApiError(
                503, "the store of all messages is away; please try again", code="unavailable", retry_after_s=RETRY_S
            )
        case KeyReused():
            return ApiError(422, str(exc), code="idempotency_key_reused", param="Idempotency-Key")
        case _:
            return None


def draining_error(*, again: bool | None = None) -> ApiError:
    """This gateway ends, and another one is there."""
    return ApiError(503, "this gateway is going away; ask again", code="closing", retry_after_s=RETRY_S, again=again)


def turn_error(failed: RequestFailed) -> ApiError:
    """A turn that gave no answer. To ask again is to begin another one, so no client does that by
    itself."""
    return ApiError(failed.status, failed.message, code=failed.code, again=False)


def encode_error(error: ApiError) -> bytes:
    """The JSON of an error."""
    return msgspec.json.encode(ApiErrorReply(ApiErrorBody(error.message, _error_type(error), error.param, error.code)))


def error_response(error: ApiError) -> Response:
    """The error as a whole answer."""
    headers = {"Cache-Control": "no-store"}
    if error.retry_after_s is not None:
        headers["Retry-After"] = f"{max(1, math.ceil(error.retry_after_s))}"
    if error.again is not None:
        headers["X-Should-Retry"] = "true" if error.again else "false"
    if error.status == HTTPStatus.UNAUTHORIZED:
        headers["WWW-Authenticate"] = "Bearer"
    if error.status in (HTTPStatus.REQUEST_ENTITY_TOO_LARGE, HTTPStatus.REQUEST_TIMEOUT):
        headers["Connection"] = "close"  # the rest of the body is not read
    return Response(encode_error(error), error.status, headers, "application/json")


def draining_response() -> Response:
    """What a gateway that ends answers to new requests."""
    answer = error_response(draining_error())
    answer.headers["Connection"] = "close"
    return answer


def http_error_response(status: int, method: str, path: str, headers: dict[str, str] | None = None) -> Response:
    """What the router refuses, and what broke."""
    match status:
        case HTTPStatus.NOT_FOUND:
            error = ApiError(status, f"there is no {method} {path} here", code="unknown_url")
        case HTTPStatus.METHOD_NOT_ALLOWED:
            error = ApiError(status, f"{path} cannot be asked by {method}", code="method_not_allowed")
        case HTTPStatus.INTERNAL_SERVER_ERROR:
            error = ApiError(status, "something went wrong here; whoever runs this service can see what")
        case _:
            error = ApiError(status, HTTPStatus(status).phrase)
    answer = error_response(error)
    answer.headers.update(headers or {})
    return answer


def _error_type(error: ApiError) -> str:
    match error.status:
        case HTTPStatus.FORBIDDEN:
            return "permission_error"
        case HTTPStatus.TOO_MANY_REQUESTS:
            return "rate_limit_error"
        case status if status >= HTTPStatus.INTERNAL_SERVER_ERROR:
            return "server_error"
        case _:
            return "invalid_request_error"
