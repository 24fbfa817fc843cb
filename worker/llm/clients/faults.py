"""Classification of provider faults. Text of a provider may quote ours: it is passed on only as the
reason of a refusal, short and without secrets, which the owner reads: in the log, in a dead letter, in
the owner's own chat."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from email.utils import parsedate_to_datetime
from typing import Any, Final

from shared.clock import SYSTEM_CLOCK, Clock
from shared.errors import ModelError
from shared.redaction import redacted
from worker.llm.clients.refusal_text import RefusalText

RETRYABLE: Final = frozenset({"rate_limit", "overloaded", "timeout", "connection", "bad_reply"})
_ADVICE: Final = {
    "auth": "check model.api_key",
    "bad_request": "check model.name and model.api_base",
    "billing": "the account has no money or no quota left",
    "context_length": "the conversation is too long for it",
}
_BY_STATUS: Final = {401: "auth", 402: "billing", 403: "auth", 408: "timeout", 429: "rate_limit"}
_COMPARED: Final = frozenset({400, 413, 422})  # where a size above a limit is that of the prompt
_LONGEST_WAIT_S: Final = 86_400
REASON_CHARS: Final = 300


def model_error(
    model: str, kind: str, what: object, *, retry_after_s: float | None = None, reason: str = ""
) -> ModelError:
    """Return the error for one failed call. `what` is a status or the name of an exception, `reason`
    the provider's own words."""
    advice = _ADVICE.get(kind)
    text = f"the model {model!r} failed: {kind}, {what}{f'; {advice}' if advice else ''}"
    retryable = kind in RETRYABLE
    words = redacted(reason)[:REASON_CHARS]
    return ModelError(kind, text, retryable=retryable, retry_after_s=retry_after_s, reason=words)


def kind_of_status(status: int) -> str:
    """Return the kind of ModelError for an HTTP status."""
    return _BY_STATUS.get(status) or ("overloaded" if status >= 500 else "bad_request")


def kind_of_refusal(status: int, body: Any) -> str:
    """Return the kind of ModelError for a refusal: that of its status, except where its body
    (or an error in an answer) names a prompt that is too long, an empty account or a wrong key."""
    text = RefusalText(body)
    if status == 402 or text.says_no_money():
        return "billing"
    if status in (413, 429) and text.is_over_a_minute():
        return "context_length"
    if status in _BY_STATUS:
        return _BY_STATUS[status]
    if status == 400 and text.says_wrong_key():
        return "auth"
    compared = status in _COMPARED and text.compares_sizes()
    return "context_length" if status == 413 or compared or text.says_too_long() else kind_of_status(status)


def kind_of_error(error: Any, otherwise: str) -> str:
    """Return the kind for an error inside an answer; its `code` may be an HTTP status."""
    fields = error if isinstance(error, dict) else {"message": error}
    code = str(fields.get("code"))
    if code.isascii() and code.isdecimal() and 400 <= int(code[:4]) < 600:
        return kind_of_refusal(int(code), fields)
    kind = kind_of_refusal(400, fields)
    return otherwise if kind == "bad_request" else kind


def retry_after_s(headers: Mapping[str, str], clock: Clock = SYSTEM_CLOCK) -> float | None:
    """Return the seconds of Retry-After-Ms or Retry-After; None if unclear."""
    for name, unit_s in (("retry-after-ms", 0.001), ("retry-after", 1.0)):
        value = headers.get(name, "")
        with contextlib.suppress(ValueError):
            return _within_a_day(float(value) * unit_s)
        with contextlib.suppress(ValueError, OverflowError):
            at_s = parsedate_to_datetime(value).timestamp()
            return _within_a_day(max(0.0, at_s - clock.now_ms() / 1000))
    return None


def _within_a_day(seconds: float) -> float | None:
    return seconds if 0 <= seconds < _LONGEST_WAIT_S else None
