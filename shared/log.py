"""The log: events of two or three words, values as fields, secrets masked. Lines of libraries are
formatted like ours.

JSON by default, readable text on a terminal. Message text and chat ids are never
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

# structlog imports rich, if installed, for tracebacks with local variables. We never let it write
# those, and rich would be a sixth of what a process imports. A module that is None in sys.modules
# cannot be imported.
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
    """Return the logger of one part, e.g. `leases`. Call it as `log.info("lease lost",
    queue=...)`."""
    made: Logger = structlog.get_logger(name)
    return made


class Work(NamedTuple):
    """The work that a task is doing. The session is kept as it is: its hash is computed only for a
    line that is written."""

    session: str | None
    turn: int | None
    worker: str | None
    attempt: int | None
    trace_id: str | None


_work: Final[ContextVar[Work | None]] = ContextVar("work", default=None)


class bind_work:  # noqa: N801 (it reads as a verb)
    """Add these fields, and the session's channel, to every line that this task, or a task that it
    starts, logs inside the block."""

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
    """Processor that adds the fields of `bind_work` to a line."""
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
    """Send this process's log, and that of its libraries, to `stream` (stderr). Call once at start.
    With `for_good` each line costs less, and a later call has no effect on loggers already used."""
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
        [_process_adder(process), _mask_secrets, _to_json]
        if as_json
        else [_mask_secrets, _to_one_line, _console_renderer(colours)]
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
        logging._srcfile = None  # documented way to skip the search for the calling line
        logging.logThreads = logging.logProcesses = logging.logMultiprocessing = False
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level)
    for name in _QUIET:  # at info they repeat ours, and arq logs the arguments of jobs
        logging.getLogger(name).setLevel(max(level, logging.WARNING))


class _Line:
    """Formatter of our own JSON lines: does what the processors do for libraries in one step,
    without a record of `logging`, at a fraction of the cost."""

    def __init__(self, process: str) -> None:
        self._process = process

    def __call__(self, lines: _Lines, method: str, event: MutableMapping[str, Any]) -> str:
        if "exc_info" in event:
            event = structlog.processors.format_exc_info(lines, method, event)
        # Only the event's own fields are searched for secrets: hashes, numbers and names, which are
        # added below, hold none.
        line = {key: _clean(key, value) for key, value in event.items()}
        add_work(lines, method, line)
        line["level"] = method
        line["logger"] = lines.name
        line["timestamp"] = f"{datetime.now(UTC).replace(tzinfo=None).isoformat(timespec='microseconds')}Z"
        line["process"] = self._process
        return _encode(line)


class _Lines:
    """Writer of our lines to a handler's stream, under the handler's lock so that lines never mix.

    A line that cannot be written is dropped: no process may end because of its log."""

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


def _to_json(_logger: Any, _method: str, event: MutableMapping[str, Any]) -> str:
    return _encode(event)


def _console_renderer(colours: bool) -> structlog.dev.ConsoleRenderer:
    # The renderer's own tracebacks show local variables, and so what people wrote.
    return structlog.dev.ConsoleRenderer(
        colors=colours, pad_event_to=24, exception_formatter=structlog.dev.plain_traceback
    )


def _process_adder(process: str) -> structlog.typing.Processor:
    def add(_logger: Any, _method: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
        event["process"] = process
        return event

    return add


def _mask_secrets(_logger: Any, _method: str, event: MutableMapping[str, Any]) -> Mapping[str, Any]:
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


def _to_one_line(_logger: Any, _method: str, event: MutableMapping[str, Any]) -> Mapping[str, Any]:
    """Nobody outside can write lines of their own, or colours, onto the operator's terminal."""
    return {
        key: value.translate(_UNSEEN) if isinstance(value, str) and key not in ("exception", "stack") else value
        for key, value in event.items()
    }
