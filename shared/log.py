"""The log: events of two or three words, values as fields, secrets masked; libraries' lines go the same way.

JSON where no person watches, readable text on a terminal. Message text and chat ids are never logged; a session
appears as a hash.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator, Mapping, MutableMapping
from contextlib import contextmanager
from typing import Any, Final, TextIO

import structlog

from shared.ids import log_id
from shared.redaction import MASK, redact, redacted
from shared.settings.sections import LogSettings

__all__ = ["Logger", "bind_work", "configure", "logger", "redact"]

Logger = structlog.typing.FilteringBoundLogger

_QUIET: Final = ("arq", "asyncio", "httpcore", "httpx", "LiteLLM", "openai", "urllib3", "uvicorn", "websockets")
_SECRET_FIELDS: Final = frozenset({"api_key", "authorization", "cookie", "password", "secret", "token"})
_UNSEEN: Final = {code: f"\\x{code:02x}" for code in (*range(32), 127, *range(128, 160))} | {10: "\\n", 9: "\t"}


def logger(name: str) -> Logger:
    """The logger of one part, e.g. `leases`. Call it as `log.info("lease lost", queue=...)`."""
    made: Logger = structlog.get_logger(name)
    return made


@contextmanager
def bind_work(
    *,
    session: str | None = None,
    turn: int | None = None,
    channel: str | None = None,
    worker: str | None = None,
    attempt: int | None = None,
    trace_id: str | None = None,
) -> Iterator[None]:
    """Put these fields on every line that is logged inside, by any code that this task calls or starts."""
    given = {
        "session": log_id(session) if session is not None else None,
        "turn": turn,
        "channel": channel,
        "worker": worker,
        "attempt": attempt,
        "trace_id": trace_id,
    }
    with structlog.contextvars.bound_contextvars(**{k: v for k, v in given.items() if v is not None}):
        yield


def configure(settings: LogSettings, *, process: str, stream: TextIO | None = None) -> None:
    """Send this process's log, and that of its libraries, to `stream` (stderr). Called once, at start."""
    out = stream if stream is not None else sys.stderr
    terminal = out.isatty()
    as_json = settings.as_json(terminal=terminal)
    colours = settings.colour == "always" or (settings.colour == "auto" and terminal)
    level = logging.getLevelNamesMapping()[settings.level.upper()]

    common: list[structlog.typing.Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.stdlib.add_logger_name,
        structlog.processors.TimeStamper(fmt="iso" if as_json else "%H:%M:%S", utc=as_json),
        structlog.processors.StackInfoRenderer(),
        structlog.processors.format_exc_info,
    ]
    last: list[structlog.typing.Processor] = (
        [_named(process), _without_secrets, structlog.processors.JSONRenderer()]
        if as_json
        else [_without_secrets, _on_one_line, _console(colours)]
    )
    structlog.configure(
        processors=[*common, structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=structlog.stdlib.LoggerFactory(),
    )
    handler = logging.StreamHandler(out)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=common,
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, *last],
        )
    )
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level)
    for name in _QUIET:  # what they say at info repeats ours, and arq's lines hold the arguments of jobs
        logging.getLogger(name).setLevel(max(level, logging.WARNING))


def _console(colours: bool) -> structlog.dev.ConsoleRenderer:
    # The renderer's own tracebacks show local variables, and so what people wrote.
    return structlog.dev.ConsoleRenderer(
        colors=colours, pad_event_to=24, exception_formatter=structlog.dev.plain_traceback
    )


def _named(process: str) -> structlog.typing.Processor:
    def add(_logger: Any, _method: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
        event["process"] = process
        return event

    return add


def _without_secrets(_logger: Any, _method: str, event: MutableMapping[str, Any]) -> Mapping[str, Any]:
    return {key: _clean(key, value) for key, value in event.items()}


def _clean(key: str, value: Any) -> Any:
    match value:
        case None | bool() | int() | float():
            return value
        case _ if key.lower() in _SECRET_FIELDS:
            return MASK
        case str():
            return redacted(value)
        case bytes():
            return redacted(value.decode(errors="replace"))
        case Mapping():
            return {str(inner): _clean(str(inner), one) for inner, one in value.items()}
        case list() | tuple() | set() | frozenset():
            return [_clean("", one) for one in value]
        case _:
            return redacted(str(value))


def _on_one_line(_logger: Any, _method: str, event: MutableMapping[str, Any]) -> Mapping[str, Any]:
    """Nobody outside can write lines of their own, or colours, onto the operator's terminal."""
    return {
        key: value.translate(_UNSEEN) if isinstance(value, str) and key not in ("exception", "stack") else value
        for key, value in event.items()
    }
