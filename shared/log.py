"""The log: events of two or three words, values as fields, secrets masked; libraries' lines go the
same way.

JSON where no person watches, readable text on a terminal. Message text and chat ids are never
logged; a session appears as a hash.
"""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Mapping, MutableMapping
from contextvars import ContextVar
from datetime import UTC, datetime
from functools import partial
from typing import Any, Final, NamedTuple, TextIO

from shared.ids import log_id, split_session
from shared.redaction import MASK, redact, redacted
from shared.settings.sections.log import LogSettings

# structlog imports rich, where it is, for tracebacks that would show local variables: we never let it write those, and
# they would be a sixth of what a process imports. A module that is None is one that cannot be
# imported.
_rich = sys.modules.setdefault("rich", None)  # type: ignore[arg-type]
import structlog  # noqa: E402

if _rich is None:
    del sys.modules["rich"]

__all__ = ["Logger", "add_work", "bind_work", "configure", "logger", "redact"]

Logger = structlog.typing.FilteringBoundLogger

_QUIET: Final = ("arq", "asyncio", "httpcore", "httpx", "LiteLLM", "openai", "urllib3", "uvicorn", "websockets")
_SECRET_FIELDS: Final = frozenset({"api_key", "authorization", "cookie", "password", "secret", "token"})
_UNSEEN: Final = {code: f"\\x{code:02x}" for code in (*range(32), 127, *range(128, 160))} | {10: "\\n", 9: "\t"}


def logger(name: str) -> Logger:
    """The logger of one part, e.g. `leases`. Call it as `log.info("lease lost", queue=...)`."""
    made: Logger = structlog.get_logger(name)
    return made


class Work(NamedTuple):
    """What a task is at. Kept as it is: the hash of a session is only made for a line that is
    written."""

    session: str | None
    turn: int | None
    worker: str | None
    attempt: int | None
    trace_id: str | None


_work: Final[ContextVar[Work | None]] = ContextVar("work", default=None)


class bind_work:  # noqa: N801 (it reads as a verb)
    """Put these fields, and the session's channel, on every line that is logged inside, by any code
    that this task calls or starts."""

    __slots__ = ("_token", "_work")

    def __init__(
        self,
        *,
        session: str | None = None,
        turn: int | None = None,
        worker: str | None = None,
        attempt: int | None = None,
        trace_id: str | None = None,
    ) -> None:
        self._work = Work(session, turn, worker, attempt, trace_id)

    def __enter__(self) -> None:
        outer, work = _work.get(), self._work
        if outer is not None:
            work = outer._replace(**{name: value for name, value in work._asdict().items() if value is not None})
        self._token = _work.set(work)

    def __exit__(self, *_: object) -> None:
        _work.reset(self._token)


def add_work(_logger: Any, _method: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """The processor that puts the fields of `bind_work` on a line."""
    work = _work.get()
    if work is None:
        return event
    for name, value in zip(Work._fields, work, strict=True):
        if value is not None:
            event.setdefault(name, log_id(str(value)) if name == "session" else value)
    if work.session is not None and ":" in work.session:
        event.setdefault("channel", split_session(work.session)[0])
    return event


def configure(settings: LogSettings, *, process: str, stream: TextIO | None = None, for_good: bool = False) -> None:
    """Send this process's log, and that of its libraries, to `stream` (stderr). Called once, at
    start; with `for_good` another call changes nothing for loggers that were used, and each line
    costs less."""
    out = stream if stream is not None else sys.stderr
    terminal = out.isatty()
    as_json = settings.as_json(terminal=terminal)
    colours = settings.colour == "always" or (settings.colour == "auto" and terminal)
    level = logging.getLevelNamesMapping()[settings.level.upper()]

    handler = logging.StreamHandler(out)
    common: list[structlog.typing.Processor] = [
        add_work,
        structlog.stdlib.add_log_level,
        structlog.stdlib.add_logger_name,
        structlog.processors.TimeStamper(fmt="iso" if as_json else "%H:%M:%S", utc=as_json),
        structlog.processors.StackInfoRenderer(),
        structlog.processors.format_exc_info,
    ]
    last: list[structlog.typing.Processor] = (
        [_named(process), _without_secrets, _rendered]
        if as_json
        else [_without_secrets, _on_one_line, _console(colours)]
    )
    structlog.configure(
        processors=[_Line(process)] if as_json else [*common, structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=partial(_Lines, handler) if as_json else structlog.stdlib.LoggerFactory(),
        cache_logger_on_first_use=for_good,
    )
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=common,
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, *last],
        )
    )
    if for_good:
        logging._srcfile = None  # its own way not to look for the line of code
        logging.logThreads = logging.logProcesses = logging.logMultiprocessing = False
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level)
    for name in _QUIET:  # what they say at info repeats ours, and arq's lines hold the arguments of jobs
        logging.getLogger(name).setLevel(max(level, logging.WARNING))


class _Line:
    """Makes the line of one event of ours for machines. It is what the processors make of a
    library's, in one step and without a record of `logging`, which would cost several times as
    much."""

    def __init__(self, process: str) -> None:
        self._process = process

    def __call__(self, lines: _Lines, method: str, event: MutableMapping[str, Any]) -> str:
        if "exc_info" in event:
            event = structlog.processors.format_exc_info(lines, method, event)
        # Secrets are looked for in what came with the event. What is added here has none: hashes,
        # numbers, our names.
        line = {key: _clean(key, value) for key, value in event.items()}
        add_work(lines, method, line)
        line["level"] = method
        line["logger"] = lines.name
        line["timestamp"] = f"{datetime.now(UTC).replace(tzinfo=None).isoformat(timespec='microseconds')}Z"
        line["process"] = self._process
        return _encode(line)


class _Lines:
    """Writes lines of ours where a handler writes those of libraries, never into one of them. One
    that cannot be written is lost: nothing ends because of its log."""

    def __init__(self, handler: logging.StreamHandler[TextIO], name: str) -> None:
        self.name = name
        self._handler = handler

    def write(self, line: str) -> None:
        handler = self._handler
        handler.acquire()
        try:
            handler.stream.write(f"{line}\n")
            handler.flush()
        except (OSError, ValueError):  # ValueError: the stream is closed
            pass
        finally:
            handler.release()

    debug = info = warning = error = critical = write


_encode: Final = json.JSONEncoder().encode


def _rendered(_logger: Any, _method: str, event: MutableMapping[str, Any]) -> str:
    return _encode(event)


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
