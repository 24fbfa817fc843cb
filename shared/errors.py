"""Every error Shoal raises on purpose."""

from __future__ import annotations


class ShoalError(Exception):
    """Base of all errors raised on purpose."""


class SettingsError(ShoalError):
    """A setting is missing or wrong. One line, which ends the start, names the key and a remedy."""


class BadInput(ShoalError):
    """Refused input from outside. `code` is stable for programs, `message` is for the person."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message


class TooBig(BadInput):
    """The input is over a size limit; the message gives both numbers."""

    def __init__(self, size_bytes: int, limit_bytes: int) -> None:
        super().__init__(
            "too_big", f"the message has {size_bytes:,} bytes; at most {limit_bytes:,} are allowed, please shorten it"
        )


class NotAllowed(BadInput):
    """The caller is not allowed to do this: a token, an Origin or an owner does not fit."""


class Refused(ShoalError):
    """Valid input that cannot be taken now. `retry_after_s` says when a new try makes sense."""

    def __init__(self, code: str, message: str, retry_after_s: float) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.retry_after_s = retry_after_s


class BadRecord(ShoalError):
    """Stored bytes that are no record of ours: too big, too deep, of a wrong shape or version."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


class RedisAway(ShoalError):
    """Redis did not answer in time. The command may have happened: scripts can be called again."""


class ReplyError(RedisAway):
    """Redis answered with an error; its text begins with the kind of error. A key of the fleet is
    broken, or a right is missing. Loops go on as without Redis: they wait, and try again."""


class LeaseLost(ShoalError):
    """Another worker owns the session now. Stop at once: every further write would be refused."""


class TryLater(ShoalError):
    """A job cannot go on now. It is run again after `wait_s`; its work so far stands."""

    def __init__(self, reason: str, wait_s: float) -> None:
        super().__init__(reason)
        self.wait_s = wait_s


class TurnEnded(ShoalError):
    """Base of errors that end a turn before its reply, each with an outcome of its own."""


class TurnReleased(TurnEnded):
    """Another worker continues the turn, after a drain or a missing model. Nothing is counted."""

    def __init__(self, reason: str, delay_s: float = 0.0) -> None:
        super().__init__(reason)
        self.delay_s = delay_s


class TurnParked(TurnEnded):
    """The turn waits for a person's approval, its lease has ended. Write nothing more."""


class TurnStopped(TurnEnded):
    """A person stopped the turn. `partial` is the text that was already shown."""

    def __init__(self, partial: str = "") -> None:
        super().__init__("stopped")
        self.partial = partial


class TurnLimited(TurnEnded):
    """The turn reached a limit, named by `limit`."""

    def __init__(self, limit: str, message: str) -> None:
        super().__init__(message)
        self.limit = limit


class ModelError(ShoalError):
    """A model call failed. `kind` is one of rate_limit, overloaded, timeout, connection, auth,
    billing, bad_request, context_length, bad_reply, invalid_output. `retryable` says whether the
    same call can work later; `retry_after_s` is the provider's wish, when it gave one. `reason` is
    what the provider said, short and without secrets; it may quote what was sent, so it is for the
    owner: the log, `shoal dead show`, and the owner's own chat. `alone`: as far as the fleet knows,
    the fault is this session's own; the provider serves others, or nobody else asks it."""

    def __init__(
        self, kind: str, message: str, *, retryable: bool, retry_after_s: float | None = None, reason: str = ""
    ) -> None:
        super().__init__(message)
        self.reason = reason
        self.alone = False
        self.kind = kind
        self.retryable = retryable
        self.retry_after_s = retry_after_s


class ModelClosed(ModelError):
    """A provider that the fleet avoids was not called. Another model may be called at once."""

    def __init__(self, kind: str, message: str, *, retry_after_s: float) -> None:
        super().__init__(kind, message, retryable=True, retry_after_s=retry_after_s)


class ToolFailed(ShoalError):
    """A tool could not do it. The text is for the model: it names the thing and a next step."""
